"""What agents answered is read off their screens: the whole of it, and nothing of the program."""

import textwrap
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Activity, Provider
from bullpen.model.turns import TurnEnd
from bullpen.terminal.replies import (
    CUT_MARK,
    Failure,
    FailureKind,
    end_of_reply_on_screen,
    failure_on_screen,
    reply_on_screen,
)
from bullpen.terminal.wraps import unwrapped
from tests.terminal.recorded import SCREENS, labels

CONVERSATIONS = Path(__file__).parents[1] / "recordings" / "conversations"
TEXTS: dict[str, str] = msgspec.json.decode((CONVERSATIONS / "texts.json").read_bytes())

FIVE = ["claude", "codex", "gemini", "copilot", "opencode"]
WITH_HISTORY = ["claude", "gemini"]
WITHOUT_HISTORY = ["codex", "copilot", "opencode"]

LONG_REPLY = "\n\n".join(
    f"Paragraph {number} of a long reply, with a few words more." for number in range(60)
)
MULTI = "\n".join(["[from bob]", *(f"line {number} of the question" for number in range(6))])
BIG = "\n".join(
    [
        "[from bob]",
        *(
            f"line {number} of a long message, with 日本語 and some words more"
            for number in range(180)
        ),
    ]
)
ONE_LINE = "[from bob] " + "日本語のとても長い質問です " * 20 + "and some English at the end of it?"
QUOTE = """You said:

[from bob] say my words

and I say:

› [from bob] say my words

❯ [from bob] say my words

> [from bob] say my words"""
MESSAGES = {
    "short": "[from bob] what is 2+2?",
    "markdown": MULTI,
    "quote": "[from bob] say my words",
    "think": "[from bob] think first",
    "tool": "[from bob] run it",
    "oneline": ONE_LINE,
    "big": BIG,
    "long": "[from bob] a long reply please",
    "plain": "[from bob] lines please",
    "error400": "[from bob] fail with 400",
    "again": "[from bob] what is 2+2?",
    "interrupt": "[from bob] go on and on",
    "error401": "[from bob] fail with 401",
    "error429": "[from bob] fail with 429",
    "prose": "[from bob] prose please",
    "lists": "[from bob] lists please",
    "jp": "[from bob] japanese please",
}


def lines_of(program: str, name: str) -> list[str]:
    """What was on the screen after something was asked."""
    path = CONVERSATIONS / f"{program}-{name}.txt"
    if not path.exists():  # it is in the history of a later one
        path = CONVERSATIONS / f"{program}-error401.txt"
    return path.read_text(encoding="utf-8").split("\n")


def reply(program: str, name: str) -> str | None:
    return reply_on_screen(lines_of(program, name), MESSAGES[name], Provider(program))


# ------------------------------------------------------------------------------- what was answered


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", FIVE)
def test_short_replies_are_read_without_what_the_program_draws_around_them(program: str) -> None:
    assert reply(program, "short") in ("It is four.", "Still four.")
    assert reply(program, "think") == "Thought about."
    assert reply(program, "oneline") == "はい。"


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", FIVE)
def test_what_a_program_has_wrapped_is_joined_as_it_was(program: str) -> None:
    assert reply(program, "prose") == TEXTS["prose"]


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", ["claude", "codex", "copilot", "opencode"])
def test_japanese_and_long_addresses_are_joined_without_spaces(program: str) -> None:
    assert reply(program, "jp") == TEXTS["jp"]


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", FIVE)
def test_the_items_of_a_list_stay_apart_and_each_is_joined(program: str) -> None:
    shown = reply(program, "lists") or ""
    items = [line.strip().removeprefix("• ").removeprefix("- ") for line in shown.split("\n")]
    assert [item for item in items if item] == [
        item.removeprefix("- ") for item in TEXTS["lists"].split("\n")
    ]


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", FIVE)
def test_lines_that_were_lines_stay_lines(program: str) -> None:
    shown = (reply(program, "plain") or "").split("\n")
    assert shown[:2] == ["alpha", "beta"]
    assert "gamma" in shown


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", WITH_HISTORY)
def test_code_keeps_its_lines_and_its_indent(program: str) -> None:
    shown = reply(program, "markdown") or ""
    code = ["def hello(name: str) -> None:", "    if name:", '        print(f"hello {name}")']
    if program == "gemini":  # it counts lines of code
        code = [f" {number} {line}" for number, line in enumerate(code, start=1)]
    assert "\n".join(code) in shown
    assert shown.startswith("A heading\n\nHere is a bold word, code, and a paragraph that is")
    assert shown.endswith("\nThe end.")


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", FIVE)
def test_a_reply_that_quotes_the_message_is_whole(program: str) -> None:
    shown = (reply(program, "quote") or "").replace("▎", ">").replace("│", ">")
    if program == "opencode":  # it takes brackets for a link
        assert shown == QUOTE.replace("[from bob]", "from bob")
    else:
        assert shown == QUOTE


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", FIVE)
def test_a_reply_is_what_was_said_after_the_last_tool(program: str) -> None:
    assert reply(program, "tool") == "It ran.\n\nAll is well."


@pytest.mark.parametrize("program", ["claude", "gemini", "copilot", "opencode"])
def test_before_a_tool_has_run_what_was_said_before_is_there(program: str) -> None:
    shown = reply_on_screen(lines_of(program, "tool-asks"), MESSAGES["tool"], Provider(program))
    assert shown == "I will run it."


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", WITH_HISTORY)
def test_a_reply_longer_than_the_screen_is_whole_where_there_is_a_history(program: str) -> None:
    assert reply(program, "long") == LONG_REPLY


def test_a_reply_whose_beginning_is_gone_begins_with_a_mark() -> None:
    """Codex keeps the prompt at the top of the screen while its answer is scrolled away."""
    shown = reply("codex", "long") or ""
    assert shown.startswith(f"{CUT_MARK}\nParagraph 49 of")
    assert LONG_REPLY.endswith(shown.removeprefix(f"{CUT_MARK}\n"))
    assert (reply("codex", "markdown") or "").startswith(f"{CUT_MARK}\n")


@pytest.mark.parametrize("program", ["copilot", "opencode"])
@pytest.mark.parametrize("name", ["long", "markdown"])
def test_a_message_that_was_scrolled_away_is_not_found(program: str, name: str) -> None:
    assert reply(program, name) is None


@pytest.mark.parametrize("program", ["copilot", "opencode"])
def test_of_a_reply_that_scrolled_its_message_away_the_end_can_be_had(program: str) -> None:
    shown = end_of_reply_on_screen(lines_of(program, "long"), Provider(program)) or ""
    assert shown.startswith(f"{CUT_MARK}\nParagraph ")
    assert LONG_REPLY.endswith(shown.removeprefix(f"{CUT_MARK}\n"))


@pytest.mark.parametrize("program", FIVE)
def test_what_may_be_the_reply_to_another_message_is_nobodys(program: str) -> None:
    assert end_of_reply_on_screen(lines_of(program, "again"), Provider(program)) is None


def test_what_reads_like_an_error_is_a_reply_if_colours_say_so() -> None:
    lines = ["❯ [from bob] hi", "", "● API Error: 500 is what you get.", "", "─" * 40, "❯"]
    assert reply_on_screen(lines, "[from bob] hi", Provider.CLAUDE) == ""
    shown = reply_on_screen(lines, "[from bob] hi", Provider.CLAUDE, is_error_free=True)
    assert shown == "API Error: 500 is what you get."


def test_boxes_that_were_drawn_before_do_not_hide_what_is_below_them() -> None:
    rule = "─" * 40
    box = [rule, "❯ [from bob] hi", rule, "  ? for shortcuts"]
    turn = ["❯ [from bob] hi", "", "● Hello.", ""]
    for below in ([rule, "❯", rule], [rule, " Do you want to proceed?", " ❯ 1. Yes"]):
        lines = [*box, *turn, *below]
        assert reply_on_screen(lines, "[from bob] hi", Provider.CLAUDE) == "Hello."


@pytest.mark.requirement("reply:screen")
@pytest.mark.parametrize("program", FIVE)
def test_a_message_of_ten_kilobytes_is_found_though_most_of_it_is_hidden(program: str) -> None:
    assert len(BIG.encode()) > 10_000
    assert reply(program, "big") == "Read all of it."


@pytest.mark.parametrize("program", FIVE)
def test_of_two_messages_that_are_the_same_the_last_counts(program: str) -> None:
    assert reply(program, "again") == "Still four."


@pytest.mark.parametrize("program", FIVE)
def test_a_message_that_only_begins_alike_is_another(program: str) -> None:
    lines = lines_of(program, "again")
    for message in ("[from bob] what is", "[from bob] what is 2+2? And 3+3?", "what is 2+2?"):
        assert reply_on_screen(lines, message, Provider(program)) is None


@pytest.mark.parametrize("program", FIVE)
def test_nothing_of_the_prompt_box_or_of_the_status_is_in_any_reply(program: str) -> None:
    chrome = (
        "for shortcuts",
        "Worked for",
        "Tip:",
        "ctrl+p",
        "open sidebar",
        "▣",
        "✻",
        "17:1",
        "┃",
    )
    for name in MESSAGES:
        if (program, name) != ("gemini", "jp"):
            shown = reply(program, name) or ""
            assert not [each for each in chrome if each in shown], (name, shown)


@pytest.mark.parametrize("program", FIVE)
def test_what_was_said_so_far_is_there_while_it_goes_on(program: str) -> None:
    lines = lines_of(program, "interrupt-running")
    shown = reply_on_screen(lines, MESSAGES["interrupt"], Provider(program)) or ""
    assert shown.startswith("word0 word1 ")
    assert " ".join(f"word{number}" for number in range(500)).startswith(shown)


def test_of_a_program_nobody_knows_all_that_follows_the_message_is_the_reply() -> None:
    lines = ["welcome", "> [from bob] hello", "Processing...", "", "Done!", "> "]
    assert reply_on_screen(lines, "[from bob] hello", Provider.OTHER) == "Processing...\n\nDone!"
    assert reply_on_screen(lines, "[from bob] bye", Provider.OTHER) is None


@given(
    paragraphs=st.lists(
        st.lists(st.from_regex(r"[a-z]{1,12}", fullmatch=True), min_size=1, max_size=60).map(
            " ".join
        ),
        min_size=1,
        max_size=4,
    ),
    width=st.integers(30, 120),
)
def test_prose_wrapped_at_any_width_comes_back(paragraphs: list[str], width: int) -> None:
    wrapped = [line for text in paragraphs for line in [*textwrap.wrap(text, width), ""]]
    assert unwrapped(wrapped, width).rstrip("\n") == "\n\n".join(paragraphs)


@given(st.lists(st.text("abc ●•✦›❯>┃│─▣⎿1.-", max_size=30), max_size=20), st.sampled_from(Provider))
def test_whatever_is_on_a_screen_it_can_be_read(lines: list[str], provider: Provider) -> None:
    reply_on_screen(lines, "[from bob] hi", provider)
    failure_on_screen(lines, provider, message="[from bob] hi")


# --------------------------------------------------------------------------------- how turns failed


@pytest.mark.requirement("reply:failure")
@pytest.mark.parametrize(
    ("program", "name", "kind", "words"),
    [
        ("claude", "error400", FailureKind.ERROR, "API Error: 400 scripted trouble"),
        ("claude", "error401", FailureKind.ERROR, "Please run /login · API Error: 401"),
        ("claude", "error429", FailureKind.RATE_LIMIT, "API Error: Request rejected (429)"),
        ("claude", "interrupt", FailureKind.INTERRUPTED, "Interrupted · What should Claude do"),
        ("codex", "error400", FailureKind.ERROR, '"code": "invalid_request_error"}}'),
        ("codex", "error401", FailureKind.ERROR, "unexpected status 401 Unauthorized"),
        ("codex", "error429", FailureKind.RATE_LIMIT, "429 Too Many Requests"),
        ("codex", "interrupt", FailureKind.INTERRUPTED, "Conversation interrupted"),
        ("gemini", "error400", FailureKind.ERROR, '"code":400,"message":"scripted trouble"'),
        ("gemini", "error401", FailureKind.ERROR, '"code":401,"message":"scripted trouble"'),
        ("gemini", "interrupt", FailureKind.INTERRUPTED, "Request cancelled."),
        ("copilot", "error400", FailureKind.ERROR, "400 scripted trouble"),
        ("copilot", "error401", FailureKind.ERROR, "(HTTP 401). Check your COPILOT_PROVIDER"),
        ("copilot", "interrupt", FailureKind.INTERRUPTED, "Operation cancelled by user"),
        ("opencode", "error400", FailureKind.ERROR, "scripted trouble"),
        ("opencode", "error401", FailureKind.ERROR, "scripted trouble"),
        ("opencode", "interrupt", FailureKind.INTERRUPTED, "interrupted"),
    ],
)
def test_a_turn_that_failed_is_no_reply_and_says_why(
    program: str, name: str, kind: FailureKind, words: str
) -> None:
    lines = lines_of(program, name)
    failure = failure_on_screen(lines, Provider(program), message=MESSAGES[name])
    assert failure is not None
    assert failure.kind is kind
    assert words in failure.line
    shown = reply_on_screen(lines, MESSAGES[name], Provider(program))
    assert (shown or "").startswith("word0") == (name == "interrupt")


@pytest.mark.requirement("reply:failure")
@pytest.mark.parametrize("program", FIVE)
def test_an_error_of_a_turn_before_is_history(program: str) -> None:
    for name in ("again", "interrupt-running", "prose", "tool-asks"):
        if (CONVERSATIONS / f"{program}-{name}.txt").exists():
            assert failure_on_screen(lines_of(program, name), Provider(program)) is None


def test_each_failure_is_an_end_of_a_turn() -> None:
    assert {kind: Failure(kind, "").end for kind in FailureKind} == {
        FailureKind.ERROR: TurnEnd.FAILED,
        FailureKind.RATE_LIMIT: TurnEnd.RATE_LIMITED,
        FailureKind.INTERRUPTED: TurnEnd.INTERRUPTED,
    }


NOT_READ = ("read-aloud", "sidebar")  # whether a turn failed there, the rules of screens tell


@pytest.mark.requirement("reply:failure")
@pytest.mark.parametrize("provider", FIVE)
def test_on_all_recorded_screens_errors_are_found_where_there_are_some(provider: str) -> None:
    kinds = {Activity.ERROR: FailureKind.ERROR, Activity.RATE_LIMITED: FailureKind.RATE_LIMIT}
    seen = 0
    for label in labels():
        if label.provider != provider or any(each in label.file for each in NOT_READ):
            continue
        lines = (SCREENS / label.file).read_text(encoding="utf-8").split("\n")
        failure = failure_on_screen(lines, Provider(provider))
        kind = failure.kind if failure else None
        if label.activity in kinds:
            seen += 1
            assert kind is kinds[Activity(label.activity)], label.file
        elif label.activity == "running":
            assert kind in (None, FailureKind.INTERRUPTED), label.file
        elif "trap" in label.file or "quote" in label.file:
            assert kind is None, label.file
    assert seen >= 6


def test_a_message_that_was_interrupted_is_not_taken_for_an_error_of_opencode() -> None:
    path = SCREENS / "opencode" / "017_idle-after-interrupt_120x40.txt"
    lines = path.read_text(encoding="utf-8").split("\n")
    failure = failure_on_screen(lines, Provider.OPENCODE, message="[[error:429]]")
    assert failure is not None
    assert failure.kind is FailureKind.INTERRUPTED
