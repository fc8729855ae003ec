"""A pane that changed is captured; one that did not is not captured again."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.tmux.changes import CaptureLedger
from tests.terminal.tmux.listed import pane


def settled() -> CaptureLedger:
    """A ledger in which pane %3, silent since 2000, was captured at 2001."""
    ledger = CaptureLedger()
    ledger.captured(pane(window_activity=2000), time=2001)
    return ledger


def test_a_pane_never_seen_is_captured() -> None:
    assert CaptureLedger().stale([pane("%1"), pane("%2")], now=2000) == ["%1", "%2"]


def test_a_silent_pane_is_not_captured_again() -> None:
    assert settled().stale([pane(window_activity=2000)], now=2005) == []


@pytest.mark.parametrize(
    "change",
    [
        {"window_activity": 2001},
        {"pane_pid": 301},
        {"width": 81},
        {"height": 25},
        {"cursor_x": 1},
        {"cursor_y": 1},
        {"is_cursor_visible": False},
        {"history_size": 1},
        {"is_alternate": True},
        {"is_dead": True},
        {"window_id": "@9"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_pane_of_which_anything_changed_is_captured(change: dict[str, Any]) -> None:
    assert settled().stale([pane(**{"window_activity": 2000, **change})], now=2005) == ["%3"]


def test_a_capture_in_the_second_of_the_last_output_is_made_again() -> None:
    ledger = CaptureLedger()
    ledger.captured(pane(window_activity=2000), time=2000)
    assert ledger.stale([pane(window_activity=2000)], now=2001) == ["%3"]


def test_no_capture_is_believed_for_ever_nor_when_the_clock_was_set_back() -> None:
    assert settled().stale([pane(window_activity=2000)], now=2032) == ["%3"]
    assert settled().stale([pane(window_activity=2000)], now=1999) == ["%3"]


def test_a_pane_that_is_gone_is_forgotten() -> None:
    ledger = settled()
    assert ledger.stale([], now=2002) == []
    assert ledger.stale([pane(window_activity=2000)], now=2003) == ["%3"]


@pytest.mark.requirement("TR-13")
def test_a_pane_listed_twice_is_captured_once() -> None:
    assert CaptureLedger().stale([pane(), pane(session_id="$9")], now=2000) == ["%3"]


@pytest.mark.requirement("TR-66")
@given(st.lists(st.tuples(st.sampled_from(["print", "look", "wait"]), st.integers(0, 15))))
def test_whatever_is_printed_when_no_look_shows_an_old_screen(
    steps: list[tuple[str, int]],
) -> None:
    """Time is in tenths of seconds; tmux tells whole ones."""
    ledger, now, printed, last_print, shown = CaptureLedger(), 10_000, 0, 10_000, -1
    for step, tenths in steps:
        now += tenths
        if step == "print":
            printed, last_print = printed + 1, now
        elif step == "look":
            listed = pane(window_activity=last_print // 10)
            if ledger.stale([listed], now // 10):
                ledger.captured(listed, now // 10)
                shown = printed
            assert shown == printed
