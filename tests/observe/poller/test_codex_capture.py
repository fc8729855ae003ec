"""What `codex exec --json` prints in a pane is read, each line once; no file is taken for it."""

import shlex
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.exec_lines import MOST_COUNTED, LineTracker, json_lines
from bullpen.observe.sources.codex_capture import CodexCapture
from bullpen.observe.sources.screens import PaneScreen
from bullpen.testing.tmux import PrivateTmux
from tests.observe.poller.conftest import Watch
from tests.observe.poller.looking import Time
from tests.observe.poller.test_tmux import look_until

STARTED = '{"type":"thread.started","thread_id":"t-1"}'
TURN = '{"type":"turn.started"}'
ITEM = '{"type":"item.completed","item":{"id":"item_0","type":"agent_message","text":"Hello  you"}}'
DONE = '{"type":"turn.completed","usage":{"input_tokens":1}}'

PANE = PaneInstanceId("%1", 1, datetime(2026, 1, 1, tzinfo=UTC), "10.1000")


def cut(lines: list[str], width: int) -> list[str]:
    """Return the rows of a screen on which lines are printed; a row loses its last spaces."""
    return [
        line[at : at + width].rstrip()
        for line in lines
        for at in range(0, max(len(line), 1), width)
    ]


# ------------------------------------------------------------------------------------- the lines


@pytest.mark.requirement("CX-14")
def test_lines_are_json_objects_with_a_type() -> None:
    rows = [
        "$ codex exec --json hi",
        STARTED,
        "{not json}",
        ITEM[:76],
        DONE,
        '{"no":"type"}',
        '{"type":7}',
        '["type"]',
        f"  {TURN}",
        "",
        TURN,
    ]
    assert json_lines(rows, 80) == [STARTED, DONE, TURN]


texts = st.text(st.sampled_from('abc "\\{}é\n'), max_size=60)


@given(words=st.lists(texts, max_size=6), width=st.integers(20, 70))
def test_lines_are_put_together_from_the_rows_of_any_screen(words: list[str], width: int) -> None:
    lines = [
        msgspec.json.encode({"type": f"item.{number}", "text": " ".join(word.split())}).decode()
        for number, word in enumerate(words)
    ]
    assert json_lines(cut(["$ codex", *lines, "$ "], width), width) == lines


def test_a_line_whose_beginning_has_scrolled_away_is_left_out() -> None:
    assert json_lines(cut([ITEM, TURN], 40)[1:], 40) == [TURN]


def test_a_line_that_is_not_yet_whole_waits() -> None:
    rows = cut([STARTED, ITEM], 40)
    assert json_lines(rows[:-1], 40) == [STARTED]
    assert json_lines(rows, 40) == [STARTED, ITEM]


def new(tracker: LineTracker, *lines: str) -> list[str]:
    return [each.text for each in tracker.new(lines)]


@pytest.mark.requirement("CX-15")
def test_the_same_screen_is_read_once() -> None:
    tracker = LineTracker()
    assert new(tracker, "a", "b", "b") == ["a", "b", "b"]
    for _ in range(10):
        assert new(tracker, "a", "b", "b") == []


@pytest.mark.requirement("TR-38")
def test_an_identical_line_that_comes_later_is_another_one() -> None:
    tracker = LineTracker()
    assert new(tracker, "a", "b") == ["a", "b"]
    assert new(tracker, "a", "b", "a", "b") == ["a", "b"]
    assert new(tracker, "b", "a", "b", "b") == ["b"]
    [last] = tracker.new(["a", "b", "b", "a"])
    assert last.id.endswith(".3")


def test_lines_that_come_back_into_sight_are_not_new() -> None:
    tracker = LineTracker()
    assert new(tracker, "c", "d") == ["c", "d"]
    assert new(tracker, "a", "b", "c", "d", "e") == ["e"]


def test_after_a_screen_was_cleared_everything_is_new() -> None:
    tracker = LineTracker()
    assert new(tracker, "a", "b") == ["a", "b"]
    assert new(tracker) == []
    assert new(tracker, "a") == ["a"]


def test_a_line_that_cannot_be_read_for_a_while_repeats_no_other() -> None:
    tracker = LineTracker()
    new(tracker, "a", "b", "c")
    assert new(tracker, "a", "b") == []
    assert new(tracker, "a", "d") == ["d"]


@given(
    lines=st.lists(st.sampled_from("abc"), max_size=30),
    steps=st.lists(st.integers(0, 3), max_size=20),
    height=st.integers(4, 12),
)
def test_however_a_screen_scrolls_no_line_is_told_twice(
    lines: list[str], steps: list[int], height: int
) -> None:
    unique = [f"{each}{number}" for number, each in enumerate(lines)]
    tracker = LineTracker()
    end, told = 0, []
    for step in [*steps, len(unique)]:
        first = end
        end = min(len(unique), end + step)
        told += new(tracker, *unique[max(0, end - height) : end])
        assert told[-1:] == unique[end - 1 : end] or end == first
    assert len(told) == len(set(told))
    assert told == [each for each in unique if each in told]


@given(lines=st.lists(st.sampled_from("ab"), max_size=30))
def test_as_long_as_nothing_scrolls_away_every_line_is_told(lines: list[str]) -> None:
    tracker = LineTracker()
    told = [each for end in range(len(lines) + 1) for each in new(tracker, *lines[:end])]
    assert told == lines


@pytest.mark.requirement("TR-55")
def test_what_is_remembered_is_bounded() -> None:
    tracker = LineTracker()
    for number in range(2 * MOST_COUNTED):
        new(tracker, str(number))
    assert len(tracker._counts) == MOST_COUNTED


# ------------------------------------------------------------------------------------ the source


def translate(line: str) -> tuple[str, str | None, Any] | None:
    """Say what a line means, like the one that knows Codex."""
    value = msgspec.json.decode(line)
    if value["type"] == "error":
        return None
    return value["type"], value.get("thread_id"), value


class Capture:
    """The source, and what it said."""

    def __init__(self) -> None:
        self.time = Time()
        self.source = CodexCapture(self.time, translate)
        self.said: list[Observation] = []

    async def open(self) -> "Capture":
        await self.source.open(self.said.append)
        return self

    def see(
        self, *lines: str, provider: Provider | None = Provider.CODEX, **changes: Any
    ) -> list[str]:
        """Show a screen; return what was said of it."""
        before = len(self.said)
        options = {"has_process": provider is not None, "width": 80, **changes}
        rows = tuple(cut(list(lines), options["width"]))
        self.source.see(PaneScreen(PANE, provider, lines=rows, **options))
        return [each.event_type for each in self.said[before:]]


@pytest.mark.requirement("SRC-4", "CX-14")
async def test_what_codex_prints_is_told_with_thread_and_pane() -> None:
    capture = await Capture().open()
    assert capture.see(STARTED, TURN, ITEM) == ["thread.started", "turn.started", "item.completed"]
    said = capture.said[-1]
    assert (said.source_kind, said.tier) == (SourceKind.CODEX_CAPTURE, EvidenceTier.DETERMINISTIC)
    assert (said.provider, said.session_key) == (Provider.CODEX, "codex:t-1")
    assert said.pane_instance_id == PANE
    assert said.source_event_id
    assert (said.observed_at, said.confidence) == (capture.time(), 1.0)
    assert said.payload["item"]["text"] == "Hello  you"
    assert len({each.event_id for each in capture.said}) == 3


@pytest.mark.requirement("CX-13", "TR-38")
async def test_json_in_a_pane_without_codex_is_a_file() -> None:
    capture = await Capture().open()
    assert capture.see(STARTED, TURN, provider=None) == []
    assert capture.see(STARTED, TURN, provider=Provider.CLAUDE) == []
    assert capture.see(STARTED, TURN, has_process=False) == []
    assert capture.see(STARTED, TURN, DONE) == [
        "turn.completed"
    ]  # what was there before is no news


@pytest.mark.requirement("CX-15")
async def test_the_same_screen_ten_times_is_one_word_per_line() -> None:
    capture = await Capture().open()
    for _ in range(10):
        capture.see(STARTED, TURN)
    assert len(capture.said) == 2


async def test_the_last_words_of_codex_count_and_what_follows_does_not() -> None:
    capture = await Capture().open()
    capture.see(STARTED, TURN)
    assert capture.see(STARTED, TURN, DONE, "$ ", provider=None) == ["turn.completed"]
    assert capture.see(STARTED, TURN, DONE, "$ cat", TURN, "$ ", provider=None) == []
    again = '{"type":"thread.started","thread_id":"t-2"}'
    assert capture.see(STARTED, TURN, DONE, TURN, again) == ["thread.started"]
    assert capture.said[-1].session_key == "codex:t-2"


async def test_without_a_thread_it_is_the_session_of_the_pane() -> None:
    capture = await Capture().open()
    capture.see(TURN)
    assert capture.said[-1].session_key == "pane:10.1000:%1:1"


async def test_what_means_nothing_is_not_told() -> None:
    capture = await Capture().open()
    assert capture.see('{"type":"error"}', TURN) == ["turn.started"]


async def test_a_screen_read_anew_after_a_restart_has_the_same_ids() -> None:
    first, second = await Capture().open(), await Capture().open()
    first.see(STARTED, TURN)
    second.see(STARTED, TURN)
    assert [each.event_id for each in first.said] == [each.event_id for each in second.said]


async def test_a_pane_that_is_gone_is_forgotten_and_so_is_all_when_closed() -> None:
    capture = await Capture().open()
    capture.see(STARTED)
    capture.source.forget(PANE)
    assert len(capture.source) == 0
    capture.see(STARTED)
    await capture.source.aclose()
    assert len(capture.source) == 0
    assert capture.see(TURN) == []
    await capture.source.look()


@pytest.mark.tmux
@pytest.mark.requirement("SRC-4", "CX-13", "CX-15")
async def test_a_real_pane_is_read_through_the_looks_of_the_poller(
    tmux: PrivateTmux, watch: Watch
) -> None:
    printed = shlex.quote(f"{STARTED}\n{TURN}\n{ITEM}\n{DONE}")
    capture = await Capture().open()
    ear = await watch(tmux, listeners=[capture.source])
    await tmux.run("resize-window", "-t", "%0", "-x", "50", "-y", "20")
    narrow = f"stty -echo; printf '%s\\n' {printed}; "
    shell = await tmux.new_pane(f"{narrow} exec sleep 1000")
    agent = await tmux.new_pane(shlex.join(["bash", "-c", f"{narrow} exec -a codex sleep 1000"]))
    for pane_id in (agent, shell):
        await tmux.run("resize-window", "-t", pane_id, "-x", "50", "-y", "20")
    await look_until(ear, lambda: len(capture.said) >= 4)
    for _ in range(3):
        await ear.look()
    assert [each.event_type for each in capture.said] == [
        *("thread.started", "turn.started", "item.completed", "turn.completed")
    ]
    assert {each.pane_id for each in capture.said} == {agent}
    assert capture.said[2].payload == msgspec.json.decode(ITEM)
    assert {each.session_key for each in capture.said} == {"codex:t-1"}
    await tmux.run("kill-pane", "-t", agent)
    await look_until(ear, lambda: len(capture.source) == 2)
