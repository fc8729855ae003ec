"""A message arrives once, whole and as a message, or not at all and with a reason."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Activity, Provider
from bullpen.terminal.injection import (
    ENTER,
    MOST_CLEARS,
    PASTE_BEGIN,
    PASTE_END,
    TABLE,
    Injection,
    Manners,
    Move,
    Outcome,
    Sight,
    Stage,
    Typed,
    addressed,
    is_leftover,
    manners_of,
    prepare,
    sight_of,
)
from bullpen.terminal.rules.engine import decide
from bullpen.terminal.rules.layout import Layout
from bullpen.terminal.rules.load import shipped_rules
from tests.terminal.injection.boxes import FakeBox, inject
from tests.terminal.recorded import agents, labels, screen

bracketed = partial(prepare, sender="bob", is_bracketed=True)
plain = partial(prepare, sender="bob", is_bracketed=False)

PARAGRAPHS = "\n".join(f"line {number} of many" for number in range(60))
JAPANESE = "設計を見直してください。👍🏽 " * 1200

CLAUDE = partial(FakeBox, Provider.CLAUDE, continues_lines=True)
CODEX = partial(FakeBox, Provider.CODEX, gap=0.02)
COPILOT = partial(FakeBox, Provider.COPILOT)
GEMINI = partial(FakeBox, Provider.GEMINI, gap=0.3, is_newline=False)
OPENCODE = partial(FakeBox, Provider.OPENCODE)
BOXES = pytest.mark.parametrize(
    "make",
    [
        partial(CLAUDE, placeholder="[Pasted text #1 +59 lines]"),
        partial(CODEX, placeholder="[Pasted Content 2629 chars]"),
        partial(COPILOT, placeholder="[Paste #1 - 14 lines]"),
        partial(GEMINI, placeholder="[Pasted Text: 14 lines]"),
        partial(OPENCODE, placeholder="[Pasted ~3 lines]", echo=3.4),
    ],
    ids=["claude", "codex", "copilot", "gemini", "opencode"],
)


# What was measured of the programs, row by row.


@BOXES
@pytest.mark.parametrize(
    "message",
    ["hello", "two\nlines", PARAGRAPHS, JAPANESE, "x" * 10_000, "日本語と絵文字 👍🏽"],
    ids=["word", "lines", "paragraphs", "japanese-36KB", "10KB", "emoji"],
)
def test_a_bracketed_paste_arrives_whole(make: partial[FakeBox], message: str) -> None:
    box, prepared = make(), bracketed(message)
    assert inject(box, prepared) == Outcome(True)
    assert box.submitted == [prepared.text]
    assert prepared.text.split("]", 1)[1].strip() == message.strip()


@BOXES
def test_enter_is_a_write_of_its_own_after_the_text_is_seen(make: partial[FakeBox]) -> None:
    box, prepared = make(), bracketed("hello")
    inject(box, prepared)
    assert box.writes == [prepared.data, ENTER]


def test_codex_takes_an_enter_too_soon_for_a_newline_so_there_is_a_gap() -> None:
    box = CODEX()
    hasty = Manners(gap=0.0, retry=0.6)
    assert inject(box, bracketed("hello"), manners=hasty).is_delivered
    assert len(box.writes) == 3  # it needed a second Enter
    box = CODEX()
    assert inject(box, bracketed("hello")).is_delivered
    assert len(box.writes) == 2


def test_codex_swallows_enters_behind_a_long_typed_text_so_they_are_repeated() -> None:
    box, prepared = CODEX(swallows=3), plain("x" * 1100)
    assert inject(box, prepared).is_delivered
    assert box.writes == [prepared.data, *[ENTER] * 4]
    assert box.submitted == [prepared.text]


def test_gemini_takes_no_enter_at_once_and_takes_the_next() -> None:
    box = GEMINI()
    hasty = Manners(gap=0.0)
    assert inject(box, bracketed("hello"), manners=hasty).is_delivered
    assert box.writes.count(ENTER) == 2
    assert len(box.submitted) == 1
    assert manners_of(Provider.GEMINI).gap >= 0.3


def test_opencode_shows_a_long_text_late_and_is_waited_for() -> None:
    box, prepared = OPENCODE(echo=3.4), plain("x" * 720)
    assert inject(box, prepared).is_delivered
    assert box.submitted == [prepared.text]


@pytest.mark.parametrize("is_bracketed", [True, False])
@pytest.mark.parametrize("start", ["/", "!", "?", "#", "@", "\\", "\n/", "\x1b[2K!", "\x07!", " !"])
@BOXES
def test_no_message_begins_with_what_programs_take_for_a_command(
    make: partial[FakeBox], start: str, is_bracketed: bool
) -> None:
    box, prepared = make(), prepare(f"{start}rm", "bob", is_bracketed=is_bracketed)
    assert prepared.text.startswith("[from bob]")
    assert inject(box, prepared).is_delivered
    assert box.commands == []
    assert len(box.submitted) == 1


def test_a_trailing_backslash_does_not_turn_enter_into_a_newline() -> None:
    box = CLAUDE()
    assert inject(box, bracketed("path\\")).is_delivered
    assert box.submitted == ["[from bob] path\\ "]
    assert box.writes.count(ENTER) == 1


def test_newlines_that_would_be_typed_are_joined_and_that_is_said() -> None:
    prepared = plain("one\ntwo\r\nthree")
    assert prepared.text == "[from bob] one two three"
    assert prepared.is_flattened
    assert not bracketed("one\ntwo").is_flattened
    assert bracketed("one\ntwo").text == "[from bob]\none\ntwo"
    box = CLAUDE()
    assert inject(box, prepared).is_delivered
    assert box.submitted == [prepared.text]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("a\tb", "a    b"),
        ("a\x1b[31mred\x1b[0m", "ared"),
        ("a\x1b[201~\rls\r", "a ls"),
        ("a\x03\x04\x1a\x15\x00b\x7f", "ab"),
        ("\x9b201~x", "201~x"),
        ("\x1b]0;title\x07x", "x"),
        ("\ud83d half", " half"),
        ("ends  \n\n", "ends"),
    ],
)
def test_control_characters_are_not_typed(message: str, text: str) -> None:
    assert plain(message).text == f"[from bob] {text}"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("all:\n\tmake it\\", "[from bob]\nall:\n\tmake it\\"),
        ("! 日本語", "[from bob] ! 日本語"),
        ("a\x1b[201~\rls\x03\r", "[from bob]\na\nls"),
    ],
    ids=["tabs", "as it is", "no keys"],
)
def test_what_is_not_typed_keeps_its_tabs_and_has_no_keys_either(message: str, text: str) -> None:
    assert addressed(message, "bob") == text


@pytest.mark.parametrize(
    ("sender", "header"),
    [
        ("bob", "[from bob]"),
        ("", "[from unknown]"),
        ("x]\n!ls", "[from x) !ls]"),
        ("y" * 500, f"[from {'y' * 64}]"),
    ],
)
def test_who_sent_it_is_a_name_whatever_it_is(sender: str, header: str) -> None:
    assert prepare("hi", sender, is_bracketed=True).text == f"{header} hi"


@given(message=st.text(), sender=st.text(), is_bracketed=st.booleans())
def test_no_text_can_press_a_key_or_end_its_own_paste(
    message: str, sender: str, is_bracketed: bool
) -> None:
    prepared = prepare(message, sender, is_bracketed=is_bracketed)
    data = prepared.data
    if is_bracketed:
        assert data.startswith(PASTE_BEGIN)
        assert data.endswith(PASTE_END)
        data = data[len(PASTE_BEGIN) : -len(PASTE_END)]
    allowed = {"\n"} if is_bracketed else set()
    assert all(char >= " " or char in allowed for char in data.decode())
    assert not any("\x7f" <= char <= "\x9f" for char in data.decode())
    assert prepared.text.startswith("[from ")
    assert not prepared.text.endswith("\\")


def test_a_draft_is_never_joined() -> None:
    box = CLAUDE(text="USER DRAFT")
    outcome = inject(box, bracketed("injected"))
    assert outcome == Outcome(False, "a draft is in the prompt box")
    assert (box.text, box.writes) == ("USER DRAFT", [])


def test_a_draft_is_waited_for() -> None:
    box, prepared = CLAUDE(text="USER DRAFT"), bracketed("injected")

    def send(box: FakeBox) -> None:
        box.text = ""

    assert inject(box, prepared, events={5.0: send}).is_delivered
    assert box.submitted == [prepared.text]


def test_who_types_between_paste_and_enter_is_not_submitted() -> None:
    box = CLAUDE(echo=0.2)

    def type_on(box: FakeBox) -> None:
        box.text += "and mine"

    outcome = inject(box, bracketed("injected"), events={0.1: type_on})
    assert outcome == Outcome(False, "somebody typed into the prompt box", is_in_box=True)
    assert box.submitted == []
    assert ENTER not in box.writes


def test_a_draft_that_came_while_the_paste_was_on_its_way_is_not_submitted() -> None:
    box = CLAUDE(echo=0.3)

    def was_typing(box: FakeBox) -> None:
        box.text = "USER DRAFT" + box.text

    outcome = inject(box, bracketed("injected"), events={0.05: was_typing})
    assert not outcome.is_delivered
    assert box.submitted == []


def test_a_human_who_presses_enter_first_has_delivered_it() -> None:
    box, prepared = CLAUDE(), bracketed("injected")

    def press(box: FakeBox) -> None:
        box.write(ENTER, 0.05)

    assert inject(box, prepared, events={0.05: press}).is_delivered
    assert box.submitted == [prepared.text]
    assert box.writes.count(ENTER) == 1


def test_a_human_who_takes_the_message_out_has_not() -> None:
    def take_out(box: FakeBox) -> None:
        box.text = ""

    outcome = inject(CLAUDE(), bracketed("injected"), events={0.05: take_out})
    assert outcome.reason == "somebody took the message out of the prompt box"


def test_nothing_is_typed_into_a_dialog() -> None:
    box = CLAUDE(activity=Activity.WAITING_APPROVAL)
    assert inject(box, bracketed("yes")) == Outcome(False, "a dialog is open")
    assert (box.writes, box.answers) == ([], 0)


def test_a_dialog_that_opens_before_enter_is_not_answered_by_it() -> None:
    def ask(box: FakeBox) -> None:
        box.activity = Activity.WAITING_APPROVAL

    box = CLAUDE(echo=0.3)
    outcome = inject(box, bracketed("hello"), events={0.1: ask})
    assert outcome.reason == "a dialog opened before the message could be submitted"
    assert outcome.is_in_box
    assert box.answers == 0


def test_a_busy_agent_is_waited_for() -> None:
    def finish(box: FakeBox) -> None:
        box.activity = Activity.IDLE

    box, prepared = CODEX(activity=Activity.RUNNING), bracketed("hello")
    assert inject(box, prepared, events={8.0: finish}).is_delivered
    busy = CODEX(activity=Activity.RUNNING)
    assert inject(busy, prepared) == Outcome(False, "the agent is busy")
    assert busy.writes == []


def test_an_interrupted_message_that_came_back_is_cleared_first() -> None:
    old, new = bracketed("old"), bracketed("new")
    box = CLAUDE(text=old.text)
    assert inject(box, new, leftover=old.text).is_delivered
    assert box.writes == [b"\x15", new.data, ENTER]
    assert box.submitted == [new.text]


def test_of_a_message_that_came_back_every_line_is_cleared() -> None:
    old, new = bracketed("one\n\nthree"), bracketed("new")
    box = CLAUDE(text=old.text)
    assert inject(box, new, leftover=old.text).is_delivered
    assert box.writes == [b"\x15\x7f\x15\x7f\x15\x7f\x15", new.data, ENTER]


def test_what_is_not_cleared_stays_as_a_draft_would() -> None:
    old = bracketed("old")
    box = CLAUDE(text=old.text, keeps=True)
    outcome = inject(box, bracketed("new"), leftover=old.text)
    assert outcome == Outcome(False, "an interrupted message stays in the prompt box")
    assert box.writes == [b"\x15"] * 3


@pytest.mark.parametrize(
    ("box", "is_ours"),
    [
        ("[from bob]\none\ntwo, the end of a long message", True),
        ("[from bob]\none", True),
        ("two, the end of a long message", True),
        ("[from bob]\none, and more", False),
        ("one", False),
        ("", False),
        ("[Pasted text #1 +2 lines]", False),
    ],
    ids=["all", "its beginning", "its end", "edited", "a part", "nothing", "unknown"],
)
def test_only_what_is_certainly_ours_is_cleared(box: str, is_ours: bool) -> None:
    ours = "[from bob]\none\ntwo, the end of a long message"
    assert is_leftover(box, ours) is is_ours
    assert not is_leftover(box, "")


def test_what_never_shows_is_not_submitted() -> None:
    box = CLAUDE(echo=100.0)
    outcome = inject(box, bracketed("hello"))
    assert outcome.reason == "the message did not appear in the prompt box"
    assert outcome.is_in_box
    assert len(box.writes) == 1


def test_what_is_never_taken_is_given_up_after_a_few_enters() -> None:
    box, prepared = CLAUDE(swallows=100), bracketed("hello")
    outcome = inject(box, prepared)
    assert outcome.reason == "the message was not submitted by 5 times Enter"
    assert box.writes == [prepared.data, *[ENTER] * 5]


def test_a_message_that_speaks_of_placeholders_is_seen_as_itself() -> None:
    box, prepared = CLAUDE(), bracketed("what is [Pasted text #1 +59 lines]?")
    assert inject(box, prepared).is_delivered
    assert box.submitted == [prepared.text]


def test_of_a_text_too_long_for_its_box_the_end_must_be_seen() -> None:
    box, prepared = CLAUDE(text="draft"), bracketed("word " * 100 + "the end")
    verdict = box.verdict(0.0)
    assert sight_of(verdict, prepared.text[-200:], prepared.text) is Sight.OURS
    assert sight_of(verdict, prepared.text[:200], prepared.text) is Sight.DRAFT  # not all yet
    assert sight_of(verdict, prepared.text[-200:] + "mine", prepared.text) is Sight.DRAFT
    assert sight_of(verdict, "mine" + prepared.text, prepared.text) is Sight.MIXED
    assert sight_of(verdict, "end", prepared.text) is Sight.DRAFT


# What holds whatever is seen.


def test_the_table_is_whole() -> None:
    moving = (Stage.WAITING, Stage.PASTED, Stage.SUBMITTED)
    assert set(TABLE) == {(stage, sight) for stage in moving for sight in Sight}
    for (stage, sight), move in TABLE.items():
        assert (move is Move.PASTE) == ((stage, sight) == (Stage.WAITING, Sight.READY))
        assert move is not Move.SUBMIT or sight is Sight.OURS
        assert sight not in (Sight.DIALOG, Sight.MIXED) or move is Move.WAIT


@given(
    seen=st.lists(st.tuples(st.sampled_from(Sight), st.floats(0, 3, allow_nan=False)), max_size=60),
    manners=st.sampled_from([Manners(), manners_of(Provider.GEMINI), Manners(gap=0, retry=0)]),
)
def test_whatever_is_seen_a_message_is_pasted_once_and_submitted_only_when_seen(
    seen: list[tuple[Sight, float]], manners: Manners
) -> None:
    message = bracketed("hello")
    injection = Injection(message, manners, 0.0)
    now, pasted_at = 0.0, 0.0
    moves: list[Move] = []
    for sight, later in seen:
        now += later
        done = injection.step(sight, now)
        if isinstance(done, Outcome):
            if done.is_delivered:
                assert Move.PASTE in moves
                assert Move.SUBMIT in moves or sight is Sight.BUSY
            else:
                assert done.reason
                assert done.is_in_box == (Move.PASTE in moves)
            assert injection.wake_at is None
            break
        assert injection.wake_at is not None
        if not isinstance(done, Typed):
            continue
        moves.append(done.move)
        if done.move is Move.PASTE:
            assert (sight, done.data) == (Sight.READY, message.data)
            pasted_at = now
        elif done.move is Move.SUBMIT:
            assert (sight, done.data) == (Sight.OURS, ENTER)
            assert Move.PASTE in moves
            assert now >= pasted_at + manners.gap
        else:
            assert (sight, done.move) == (Sight.LEFTOVER, Move.CLEAR)
            assert Move.PASTE not in moves
    assert moves.count(Move.PASTE) <= 1
    assert moves.count(Move.CLEAR) <= MOST_CLEARS
    assert moves.count(Move.SUBMIT) <= manners.submits


@given(sights=st.lists(st.sampled_from(Sight), min_size=1, max_size=20))
def test_who_looks_when_told_comes_to_an_end(sights: list[Sight]) -> None:
    injection = Injection(bracketed("hello"), Manners(), 0.0)
    now = 0.0
    for number in range(1000):
        if isinstance(injection.step(sights[number % len(sights)], now), Outcome):
            break
        assert injection.wake_at is not None
        now = max(injection.wake_at, now + 0.01)
    assert injection.stage in (Stage.DELIVERED, Stage.FAILED)


# On recorded screens.


@pytest.mark.parametrize("is_ready", [True, False])
def test_of_the_recorded_screens_only_those_are_pasted_into_that_take_a_message(
    is_ready: bool,
) -> None:
    rules = {provider.value: each for provider, each in shipped_rules().items()}
    wrong = []
    judged = [label for label in agents() if label.ready == is_ready and label.provider in rules]
    for label in judged:
        provider = rules[label.provider]
        prompt = Layout(screen(label), provider).prompt
        verdict = decide(screen(label), provider, version=label.version or "")
        box = prompt.text if prompt and prompt.state == "draft" else ""
        sight = sight_of(verdict, box, bracketed("hello").text)
        if (sight is Sight.READY) != is_ready:
            wrong.append((label.file, sight))
    assert len(judged) > 50
    assert not wrong


@pytest.mark.parametrize(
    "file",
    [
        "claude/claude_idle_typed_unsent_120x40_3",
        "codex/codex_idle_typed_unsent_120x40_3",
        "copilot/029_idle-draft-long-paste_120x40",
        "gemini/030_idle-draft-long-paste_120x40",
        "opencode/022_idle-draft-multiline-paste_120x40",
    ],
)
def test_a_long_paste_is_seen_by_the_placeholder_that_stands_for_it(file: str) -> None:
    label = next(label for label in labels() if label.file == f"{file}.txt")
    provider = next(e for p, e in shipped_rules().items() if p.value == label.provider)
    prompt = Layout(screen(label), provider).prompt
    assert prompt is not None
    verdict = decide(screen(label), provider, version=label.version or "")
    assert sight_of(verdict, prompt.text, bracketed(PARAGRAPHS).text) is Sight.OURS
