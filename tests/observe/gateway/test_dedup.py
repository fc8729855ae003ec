"""The same fact counts once, however often it is told within what can be rewound."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import Provider
from bullpen.observe.dedup import DedupWindow
from tests.observe.gateway.worlds import NOON, observation


@pytest.mark.requirement("RES-1", "Q4")
def test_the_same_fact_is_known_again() -> None:
    window = DedupWindow()
    assert not window.has(observation("1"), NOON)
    window.add(observation("1"), NOON)
    assert window.has(observation("1", event_type="turn.completed"), NOON)


@pytest.mark.requirement("RES-2", "Q4")
@pytest.mark.parametrize(
    "changes",
    [{"session_key": "claude:other"}, {"provider": Provider.CODEX}, {"event_id": "2"}],
    ids=["session", "provider", "id"],
)
def test_a_fact_that_differs_in_a_part_of_the_key_is_another(changes: dict[str, Any]) -> None:
    window = DedupWindow()
    window.add(observation("1"), NOON)
    assert not window.has(observation(**{"event_id": "1", **changes}), NOON)


def test_parts_of_the_key_do_not_run_together() -> None:
    window = DedupWindow()
    window.add(observation("b:c", session_key="a"), NOON)
    assert not window.has(observation("c", session_key="a:b"), NOON)


@pytest.mark.requirement("A2-4")
def test_it_is_remembered_for_twelve_minutes_after_it_was_last_met() -> None:
    window = DedupWindow()
    window.add(observation("1"), NOON)
    assert window.has(observation("1"), NOON + timedelta(minutes=11))
    assert window.has(observation("1"), NOON + timedelta(minutes=23))
    assert not window.has(observation("1"), NOON + timedelta(minutes=35, seconds=1))
    assert len(window) == 0


@pytest.mark.requirement("A2-4")
def test_it_is_bounded_in_number_too() -> None:
    window = DedupWindow(capacity=3)
    for number in range(5):
        window.add(observation(str(number)), NOON)
    assert len(window) == 3
    assert not window.has(observation("1"), NOON)
    assert window.has(observation("2"), NOON)


def test_an_id_that_is_always_the_same_is_taken_once_only() -> None:
    window = DedupWindow()
    heartbeat = observation("heartbeat-%5", event_type="heartbeat")
    window.add(heartbeat, NOON)
    assert window.has(heartbeat, NOON + timedelta(seconds=1))


def test_a_clock_that_goes_back_makes_nothing_forgotten() -> None:
    window = DedupWindow()
    window.add(observation("1"), NOON)
    window.add(observation("2"), NOON - timedelta(hours=1))
    assert window.has(observation("1"), NOON)
    assert window.has(observation("2"), NOON + timedelta(minutes=12))


@given(
    steps=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 300))),
    capacity=st.integers(1, 4),
)
def test_it_forgets_by_age_and_number_as_a_plain_list_would(
    steps: list[tuple[str, int]], capacity: int
) -> None:
    window = DedupWindow(capacity=capacity)
    model: list[tuple[str, int]] = []  # what was met when, the oldest first
    now = 0
    for event_id, seconds in steps:
        now += seconds
        model = [(each, at) for each, at in model if now - at <= 720]
        at = NOON + timedelta(seconds=now)
        is_known = event_id in [each for each, _ in model]
        assert window.has(observation(event_id), at) is is_known
        if not is_known:
            window.add(observation(event_id), at)
        model = [entry for entry in model if entry[0] != event_id] + [(event_id, now)]
        model = model[-capacity:]
        assert len(window) == len(model)
