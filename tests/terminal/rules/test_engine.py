"""The engine finds the rule that wins, says why, and never claims more than it sees."""

from typing import Any

import msgspec
import pytest

from bullpen.model.states import Activity
from bullpen.terminal.rules import Cursor, ProviderRules, Verdict, decide, parse_rules, read_screen
from bullpen.terminal.rules.layout import Layout

BOX = """
provider = "claude"
turn = '^> '
item = '^\\* '
dialog = '^=+'

[[prompts]]
above = '^-{4,}$'
below = '^-{4,}$'
mark = '^[>!] ?'
shell = '^!'
placeholders = ["Try this"]
"""
IDLE = """
[[rules]]
name = "open"
activity = "idle"
priority = 10
ready = true
reason = "the box is open"
prompt = ["empty", "draft", "shell"]
"""


def rules(text: str) -> ProviderRules:
    return parse_rules(BOX + text, file="test.toml")


def verdict(screen: str, text: str = IDLE, **facts: Any) -> Verdict:
    return decide(read_screen(screen, **facts), rules(text))


def test_a_screen_on_which_no_rule_holds_is_unknown() -> None:
    result = verdict("something else")
    assert result.activity is Activity.UNKNOWN
    assert result.rule is None
    assert not result.ready


def test_an_empty_prompt_box_is_ready() -> None:
    result = verdict("said\n--------------------\n>\n--------------------\nfooter")
    assert (result.rule, result.ready, result.prompt) == ("open", True, "empty")


@pytest.mark.parametrize(
    ("line", "state", "why"),
    [
        ("> hello", "draft", "a draft is in the prompt box"),
        ("!", "shell", "the prompt box takes shell commands"),
    ],
)
def test_a_box_with_a_draft_or_in_shell_mode_is_not_ready(line: str, state: str, why: str) -> None:
    result = verdict(f"--------------------\n{line}\n--------------------")
    assert (result.activity, result.ready) == (Activity.IDLE, False)
    assert (result.prompt, result.not_ready) == (state, why)


@pytest.mark.parametrize(
    ("line", "cursor", "state"),
    [
        ("> \x1b[2mWhatever it says\x1b[0m", (2, 1), "empty"),
        ("> \x1b[2mWhatever it says\x1b[0m", None, "empty"),
        ("> \x1b[2mWhatever it says\x1b[0m", (7, 1), "draft"),
        ("> \x1b[1mWhatever it says\x1b[0m", (2, 1), "draft"),
        ("> \x1b[2mHalf\x1b[0m typed", (2, 1), "draft"),
        ("> \x1b[1mTry this\x1b[0m", (2, 1), "empty"),
        ("> \x1b[1mTry this\x1b[0m", None, "draft"),
        ("> Try this", (2, 1), "empty"),
        ("> Try this", None, "empty"),
        ("> Try this", (10, 1), "draft"),
        ("> Other text", (2, 1), "draft"),
    ],
)
def test_a_placeholder_is_faint_or_known_and_the_cursor_stands_before_it(
    line: str, cursor: tuple[int, int] | None, state: str
) -> None:
    where = Cursor(*cursor) if cursor else None
    assert (
        verdict(f"--------------------\n{line}\n--------------------", cursor=where).prompt == state
    )


@pytest.mark.parametrize(
    ("line", "is_visible", "state"),
    [
        ("> \x1b[2mWhatever it says\x1b[0m", False, "empty"),
        ("> \x1b[1mWhatever it says\x1b[0m", False, "draft"),
        ("> \x1b[1mTry this\x1b[0m", False, "empty"),
        ("> \x1b[2mWhatever it says\x1b[0m", True, "draft"),
    ],
)
def test_a_hidden_cursor_outside_the_box_tells_nothing_of_what_was_typed(
    line: str, is_visible: bool, state: str
) -> None:
    """A program may put its cursor aside while its pane has no focus."""
    screen = f"--------------------\n{line}\n--------------------\nfooter"
    assert verdict(screen, cursor=Cursor(0, 3, is_visible)).prompt == state


FRAMELESS = """
provider = "codex"

[[prompts]]
mark = '^> '
inside = '^ {2}'
never_below = '^\\* |^\\s*Press enter'
needs_cursor = true
shows_cursor = true
"""


@pytest.mark.parametrize(
    ("screen", "cursor", "state"),
    [
        ("> one\n\n  Press enter\n\n  status", Cursor(13, 2), "draft"),
        ("> one\n  Press enter\n\n  last\n\n  status", Cursor(6, 3), "draft"),
        ("> one\n\n  Press enter", Cursor(0, 0), "absent"),
        ("> one\n\n  Press enter", Cursor(13, 2, is_visible=False), "absent"),
        ("> one\n\n* said\n  more", Cursor(6, 3), "absent"),
        ("> one\n\n  status", Cursor(5, 0, is_visible=False), "unfocused"),
    ],
)
def test_a_draft_reaches_down_to_the_cursor_whatever_its_lines_say(
    screen: str, cursor: Cursor, state: str
) -> None:
    frameless = parse_rules(FRAMELESS + IDLE, file="test.toml")
    assert decide(read_screen(screen, cursor=cursor), frameless).prompt == state


@pytest.mark.parametrize(
    ("screen", "text"),
    [
        ("> one\n\n   two\n\n\n     - three\n\n status", "one\ntwo\n- three"),
        ("> one\n   two\n status\n\n   more", "one\ntwo\nstatus"),
        (">\n\n status", ""),
    ],
)
def test_a_draft_goes_on_below_blank_lines_where_it_is_known_how(screen: str, text: str) -> None:
    """A box without a frame, and without a cursor that says where its text ends."""
    shape = "[[prompts]]\nmark = '^>'\ncontinues = '^ {3,}\\S'\n"
    found = Layout(
        read_screen(screen), parse_rules(f'provider = "gemini"\n{shape}{IDLE}', file="test.toml")
    ).prompt
    assert found is not None
    assert found.text == text
    assert found.state == ("draft" if text else "empty")


SIDEBAR = """
sessions    |said | more
 牛 one     |--------------------
            |> \x1b[1mmine\x1b[0m
            |--------------------
""".strip("\n")


def test_beside_a_sidebar_a_screen_is_read_as_without_one() -> None:
    beside = rules('[[rules]]\nname="a"\nactivity="idle"\nreason="b"\nprompt=["draft"]')
    beside = msgspec.structs.replace(beside, sidebar="|")
    result = decide(read_screen(SIDEBAR, cursor=Cursor(19, 2)), beside)
    assert (result.prompt, result.evidence[0].text) == ("draft", "mine")
    frame = "\n".join(f"{line.replace('|', ' '):40}|" for line in SIDEBAR.splitlines())
    assert decide(read_screen(frame), beside).prompt == "absent"
    half = SIDEBAR.replace("|--", " --")  # what is not in every row is no edge
    assert decide(read_screen(half), beside).prompt == "absent"


def test_the_lowest_box_is_the_prompt() -> None:
    rule = "-" * 20
    assert verdict(f"{rule}\n> old\n{rule}\nsaid\n{rule}\n>\n{rule}").prompt == "empty"


def test_the_highest_priority_wins_and_the_loser_says_so() -> None:
    result = verdict(
        "* busy\n--------------------\n>\n--------------------",
        IDLE
        + """
[[rules]]
name = "busy"
activity = "running"
priority = 80
reason = "it says so"
when = [{ region = "turn", any = ['/^\\* busy/'] }]
""",
    )
    assert (result.activity, result.rule, result.reason) == (Activity.RUNNING, "busy", "it says so")
    assert [(each.region, each.text, each.row) for each in result.evidence] == [
        ("turn", "* busy", 0)
    ]
    assert [(each.rule, each.why) for each in result.losers] == [
        ("open", "outranked: priority 10, not 80")
    ]


NEARLY = """
[[rules]]
name = "nearly"
activity = "error"
priority = 50
reason = "two things"
when = [
  { region = "turn", any = ["found"] },
  { region = "footer", any = ["not there"], none = ["forbidden"] },
]
"""


def test_a_rule_that_nearly_held_says_what_was_missing() -> None:
    (loser,) = verdict(
        "* found\n--------------------\n>\n--------------------\nx", IDLE + NEARLY
    ).losers
    assert loser.why == "footer has none of not there, though turn has '* found'"


def test_a_negative_condition_keeps_a_rule_from_holding() -> None:
    (loser,) = verdict(
        "* found\n--------------------\n>\n--------------------\nnot there, forbidden",
        IDLE + NEARLY,
    ).losers
    assert loser.why == "footer has 'not there, forbidden', though turn has '* found'"


def test_a_literal_is_found_across_the_wrap_of_a_narrow_pane() -> None:
    result = verdict("│ press enter │\n│ to confirm  │", LITERAL)
    assert result.rule == "literal"


LITERAL = """
[[rules]]
name = "literal"
activity = "waiting_input"
reason = "words"
when = [{ region = "bottom:3", all = ["press enter to confirm"] }]
"""


@pytest.mark.parametrize(
    ("region", "text"),
    [
        ("screen", "> asked"),
        ("turn", "* said"),
        ("reply", "* said"),
        ("above:2", "* said"),
        ("prompt", "> draft"),
        ("footer", "below"),
        ("bottom:1", "below"),
        ("title", "A title"),
        ("arguments", "--fast"),
    ],
)
def test_a_region_holds_its_lines_and_no_others(region: str, text: str) -> None:
    rule = "-" * 20
    screen = f"above\n> asked\n* first\n* said\nmore\n{rule}\n> draft\n{rule}\nbelow"
    everywhere = ["above", "> asked", "* first", "* said", "more", "> draft", "below"]
    everywhere += ["A title", "--fast"]
    found = {
        line
        for line in everywhere
        if verdict(
            screen,
            f"""
[[rules]]
name = "it"
activity = "idle"
reason = "-"
when = [{{ region = "{region}", any = ["{line}"] }}]
""",
            title="A title",
            arguments=("claude", "--fast"),
        ).rule
    }
    expected = {
        "screen": set(everywhere) - {"A title", "--fast"},
        "turn": {"* first", "* said", "more"},
        "reply": {"* said", "more"},
        "above:2": {"* said", "more"},
    }
    assert found == expected.get(region, {text})


def test_a_dialog_stands_where_the_prompt_box_would() -> None:
    dialog = """
[[rules]]
name = "asks"
activity = "waiting_approval"
reason = "-"
when = [{ region = "dialog", all = ["/^====/", "sure?"], none = ["* said"] }]
"""
    assert verdict("> asked\n* said\n====\nsure?", dialog).rule == "asks"
    assert (
        verdict(
            "> asked\n* said\n====\nsure?\n--------------------\n>\n--------------------", dialog
        ).rule
        is None
    )


@pytest.mark.parametrize(
    ("line", "holds"),
    [
        ("\x1b[31m* bad\x1b[0m", True),
        ("\x1b[34mblue\x1b[0m\n* bad", False),
        ("\x1b[1m* bad\x1b[0m", True),
        ("* bad", True),
    ],
    ids=["red", "plain", "without colours", "without attributes"],
)
def test_a_colour_is_asked_for_only_where_there_are_colours(line: str, holds: bool) -> None:
    tone = """
[[rules]]
name = "red"
activity = "error"
reason = "-"
when = [{ region = "reply", any = ['/\\A\\* /'], tone = "red" }]
"""
    assert (
        verdict(f"{line}\n--------------------\n>\n--------------------", tone).rule == "red"
    ) is holds
    required = tone.replace('tone = "red" }', 'tone = "red", tone_required = true }')
    is_known = "\x1b[3" in line
    assert (
        verdict(f"{line}\n--------------------\n>\n--------------------", required).rule == "red"
    ) is (holds and is_known)


@pytest.mark.parametrize(
    ("version", "holds"),
    [
        ("2.1.0", True),
        ("2.1.197", True),
        ("3.0", False),
        ("1.9", False),
        ("", True),
        ("v2.5", True),
    ],
)
def test_a_rule_is_for_a_range_of_versions(version: str, holds: bool) -> None:
    ranged = IDLE + 'versions = ">=2.1,<3"\n'
    result = decide(
        read_screen("--------------------\n>\n--------------------"), rules(ranged), version=version
    )
    assert (result.rule == "open") is holds


def test_what_lies_beyond_the_frame_is_not_in_the_box() -> None:
    sidebar = BOX.replace("'^-{4,}$'", "'^-{4,}'")
    parsed = parse_rules(sidebar + IDLE, file="test.toml")
    screen = read_screen("-----   Context\n>       12 tokens\n-----   Files")
    assert decide(screen, parsed).prompt == "empty"
