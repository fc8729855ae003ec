"""We know how late we are, and say so only if it is often and for long."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.daemon.latency import Latencies, LatencyWindow
from bullpen.model.states import EvidenceTier


def window(limit: float = 2.0) -> LatencyWindow:
    return LatencyWindow(limit)


def fill(filled: LatencyWindow, latency: float, count: int = 200, *, now: float = 0.0) -> None:
    for _ in range(count):
        filled.add(latency, now)


@pytest.mark.requirement("A6-2")
def test_three_breaches_in_a_row_are_one_that_counts() -> None:
    slow = window()
    fill(slow, 2.001)
    assert [slow.look(now).is_breached for now in (60, 120, 180, 240)] == [False, False, True, True]


@pytest.mark.requirement("A6-2")
def test_the_limit_itself_is_no_breach() -> None:
    exact = window()
    fill(exact, 2.0)
    assert not any(exact.look(now).is_breached for now in range(10))


@pytest.mark.requirement("A6-2")
def test_a_good_look_between_begins_the_count_anew() -> None:
    mixed = window()
    fill(mixed, 3.0)
    assert [mixed.look(1).is_breached, mixed.look(2).is_breached] == [False, False]
    fill(mixed, 0.1, 9000)
    assert not mixed.look(3).is_breached
    fill(mixed, 3.0, 9000)
    assert [mixed.look(now).is_breached for now in (4, 5, 6)] == [False, False, True]


@pytest.mark.requirement("A6-2")
def test_too_few_samples_are_not_judged() -> None:
    few = window()
    fill(few, 60.0, 199)
    assert not any(few.look(now).is_breached for now in range(10))
    few.add(60.0, 9)
    assert [few.look(now).is_breached for now in (10, 11, 12)] == [False, False, True]


@pytest.mark.requirement("A6-2")
def test_what_is_older_than_ten_minutes_is_forgotten() -> None:
    old = window()
    fill(old, 9.0, now=0.0)
    for now in (1, 2, 3):
        old.look(now)
    assert old.read(600.0).samples == 200
    forgotten = old.look(600.1)
    assert (forgotten.samples, forgotten.p95_ms, forgotten.is_breached) == (0, 0.0, False)


def test_reading_the_figures_is_no_look() -> None:
    slow = window()
    fill(slow, 3.0)
    slow.look(0)
    slow.look(1)
    assert not any(slow.read(2).is_breached for _ in range(5))
    assert slow.look(3).is_breached
    assert slow.read(4).is_breached


def test_a_time_before_its_cause_is_none() -> None:
    skewed = window()
    skewed.add(-3.0, 0.0)
    assert skewed.read(0.0).p50_ms == 0.0


@given(st.lists(st.floats(0, 100), min_size=1, max_size=500))
def test_the_figures_are_among_the_samples_and_as_many_lie_below_them(values: list[float]) -> None:
    filled = window()
    for value in values:
        filled.add(value, 0.0)
    reading = filled.read(0.0)
    for percent, found in ((50, reading.p50_ms / 1000), (95, reading.p95_ms / 1000)):
        assert any(found == pytest.approx(value) for value in values)
        below = sum(value <= found + 1e-9 for value in values)
        assert below >= len(values) * percent / 100


def test_the_memory_is_bounded() -> None:
    busy = LatencyWindow(2.0, most_samples=1000)
    fill(busy, 1.0, 5000)
    assert busy.read(0.0).samples == 1000


@pytest.mark.requirement("A6-2")
def test_each_tier_has_its_own_limit() -> None:
    both = Latencies()
    for _ in range(200):
        both.add(EvidenceTier.DETERMINISTIC, 3.0, 0.0)
        both.add(EvidenceTier.HEURISTIC, 3.0, 0.0)
    for now in (1, 2):
        both.look(now)
    seen = both.look(3)
    assert seen == both.read(3)
    breached = {tier.value: (each.is_breached, each.limit_ms) for tier, each in seen.items()}
    assert breached == {"deterministic": (True, 2000.0), "heuristic": (False, 5000.0)}
