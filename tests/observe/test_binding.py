"""The tie between a pane and its agent: a table, and what no sequence of events can do to it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.observations import PaneInstanceId
from bullpen.model.states import BindingState, Presence
from bullpen.observe.binding import (
    MOST_TOMBSTONES,
    BindingEvent,
    Tombstones,
    presence,
    transition,
)

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
UNMANAGED = BindingState.UNMANAGED
HEURISTIC = BindingState.MANAGED_HEURISTIC
FRESH = BindingState.MANAGED_DETERMINISTIC_FRESH
STALE = BindingState.MANAGED_DETERMINISTIC_STALE


@pytest.mark.requirement("BND-2", "BND-3", "BND-4", "BND-5", "BND-6", "BND-7", "TG-5")
@pytest.mark.parametrize(
    ("state", "event", "after"),
    [
        (UNMANAGED, BindingEvent.SIGNATURE, HEURISTIC),
        (HEURISTIC, BindingEvent.HANDSHAKE, FRESH),
        (FRESH, BindingEvent.WENT_STALE, STALE),
        (STALE, BindingEvent.HANDSHAKE, FRESH),
        (HEURISTIC, BindingEvent.NO_AGENT, UNMANAGED),
        (FRESH, BindingEvent.NO_AGENT, FRESH),
        (FRESH, BindingEvent.EXITED, UNMANAGED),
        (STALE, BindingEvent.EXITED, UNMANAGED),
        (UNMANAGED, BindingEvent.WENT_STALE, UNMANAGED),
    ],
)
def test_the_table(state: BindingState, event: BindingEvent, after: BindingState) -> None:
    assert transition(state, event) is after


@given(st.lists(st.sampled_from(BindingEvent)))
def test_only_no_agent_or_an_exit_ends_the_presence_of_an_agent(events: list[BindingEvent]) -> None:
    state = UNMANAGED
    for event in events:
        before, state = state, transition(state, event)
        if presence(before) is Presence.MANAGED and presence(state) is Presence.UNMANAGED:
            assert event in (BindingEvent.NO_AGENT, BindingEvent.EXITED)


@given(st.lists(st.sampled_from(BindingEvent)))
def test_an_exit_ends_it_from_anywhere(events: list[BindingEvent]) -> None:
    state = UNMANAGED
    for event in events:
        state = transition(state, event)
    assert transition(state, BindingEvent.EXITED) is UNMANAGED


@pytest.mark.requirement("BND-9")
def test_a_tombstone_stands_for_two_minutes() -> None:
    graves = Tombstones()
    gone = PaneInstanceId("%0", 1, START, "1.1")
    graves.bury(gone, START)
    last = START + timedelta(seconds=120)
    assert graves.covers(gone, last)
    assert not graves.covers(gone, last + timedelta(microseconds=1))
    graves.sweep(last)
    assert len(graves) == 1
    graves.sweep(last + timedelta(microseconds=1))
    assert len(graves) == 0


@pytest.mark.requirement("TR-55")
def test_tombstones_are_bounded() -> None:
    graves = Tombstones()
    for number in range(MOST_TOMBSTONES + 10):
        graves.bury(PaneInstanceId(f"%{number}", 1, START, "1.1"), START)
    assert len(graves) == MOST_TOMBSTONES
