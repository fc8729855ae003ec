"""What an agent is called, and which of its panes stands for it."""

from datetime import UTC, datetime, timedelta

import pytest

from bullpen.model.observations import PaneInstanceId
from bullpen.model.states import Provider
from bullpen.observe.titles import Candidate, choose_title, clean_title, representative

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


def candidate(pane: str, handshake: float, active: float) -> Candidate:
    return Candidate(
        PaneInstanceId(pane, 1, START),
        START + timedelta(seconds=handshake),
        START + timedelta(seconds=active),
    )


@pytest.mark.requirement("TTL-2", "TTL-3")
@pytest.mark.parametrize(
    ("candidates", "chosen"),
    [
        ([candidate("%2", 1, 9), candidate("%1", 2, 0)], "%1"),
        ([candidate("%1", 2, 1), candidate("%2", 2, 3)], "%2"),
        ([candidate("%3", 2, 1), candidate("%10", 2, 1), candidate("%2", 2, 1)], "%10"),
    ],
    ids=["latest-handshake", "then-latest-activity", "then-lexical-order"],
)
def test_the_pane_that_stands_for_a_session(candidates: list[Candidate], chosen: str) -> None:
    for order in (candidates, candidates[::-1]):
        found = representative(order)
        assert found is not None
        assert found.pane_id == chosen


def test_a_session_without_a_pane_has_none() -> None:
    assert representative([]) is None


@pytest.mark.requirement("TTL-4", "TTL-5", "TTL-6", "TTL-7", "TTL-8", "SRC-9", "Q16")
def test_each_title_in_turn() -> None:
    titles = {"canonical": "named", "bound": "before", "live": "✳ shown", "path": "/srv/place/"}
    for expected in ("named", "before", "shown", "place"):
        assert choose_title(**titles, provider=Provider.CODEX) == expected
        del titles[next(iter(titles))]
    assert choose_title(provider=Provider.CODEX) == "codex"
    assert choose_title() == "pane"


@pytest.mark.parametrize(
    ("title", "clean"),
    [
        ("✳ Claude Code", "Claude Code"),
        ("⠂ Fix the tests", "Fix the tests"),
        ("⠋ Refactor | x1", "Refactor | x1"),
        ("[ ! ] Action Required | x1", "x1"),
        ("[ . ] Action Required | x1", "x1"),
        ("◇  Ready (proj)   ", "Ready (proj)"),
        ("OC | Greeting", "Greeting"),
        ("plain", "plain"),
        ("✳", "✳"),
    ],
)
def test_a_title_is_the_same_whether_its_program_is_busy_or_not(title: str, clean: str) -> None:
    assert clean_title(title) == clean


def test_a_title_is_one_line_of_bounded_length() -> None:
    assert choose_title(canonical="a\n\tb\x1b[31m" + "c" * 500) == ("a b [31m" + "c" * 500)[:200]
