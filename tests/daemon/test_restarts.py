"""A process that fails comes back later each time, and not at all for a while if it fails often."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.daemon.restarts import RestartHistory, RestartPolicy, Verdict, after_failure

POLICY = RestartPolicy()
NEVER_STABLE = 0.0


def fail(
    times: list[float], *, ran_seconds: float = NEVER_STABLE, chance: float = 0.5
) -> list[Verdict]:
    """Let a process fail at these times; return the verdicts."""
    history, verdicts = RestartHistory(), []
    for now in times:
        history, verdict = after_failure(
            history, now, ran_seconds=ran_seconds, chance=chance, policy=POLICY
        )
        verdicts.append(verdict)
    return verdicts


@pytest.mark.requirement("A4-2")
def test_the_pause_doubles_from_a_second() -> None:
    assert [each.pause_seconds for each in fail([0, 2, 5, 10])] == [1, 2, 4, 8]


@pytest.mark.requirement("A4-2")
def test_a_pause_is_at_most_half_a_minute_however_long_it_goes_on() -> None:
    history, pauses = RestartHistory(), []
    for count in range(2000):
        history, verdict = after_failure(
            history, count * 151.0, ran_seconds=NEVER_STABLE, chance=0.5, policy=POLICY
        )
        pauses.append(verdict.pause_seconds)
        assert not verdict.is_held_down  # four in any ten minutes
    assert pauses[4:7] == [16, 30, 30]
    assert max(pauses) == 30


@pytest.mark.requirement("A4-2")
@given(
    chance=st.floats(0, 1),
    streak=st.integers(0, 10_000),
)
def test_chance_makes_a_pause_shorter_or_longer_by_a_fifth_at_most(
    chance: float, streak: int
) -> None:
    _, verdict = after_failure(
        RestartHistory((), streak), 0.0, ran_seconds=NEVER_STABLE, chance=chance, policy=POLICY
    )
    base = min(30.0, 2.0 ** min(streak, 10))
    assert 0.8 * base <= verdict.pause_seconds <= 1.2 * base + 1e-9


@pytest.mark.requirement("A4-2")
def test_the_whole_width_of_chance_is_used() -> None:
    assert fail([0], chance=0.0)[0].pause_seconds == pytest.approx(0.8)
    assert fail([0], chance=1.0)[0].pause_seconds == pytest.approx(1.2)


@pytest.mark.requirement("A4-3", "A4-4")
def test_the_fifth_failure_in_ten_minutes_holds_it_down_for_five() -> None:
    *before, fifth = fail([0, 150, 300, 450, 600])
    assert not any(each.is_held_down for each in before)
    assert fifth == Verdict(300.0, is_held_down=True)
    assert not fail([0, 150, 300, 450, 600.1])[-1].is_held_down


@pytest.mark.requirement("A4-3")
def test_after_being_held_down_the_budget_is_new_and_the_pauses_are_still_long() -> None:
    verdicts = fail([0, 1, 2, 3, 4, 305, 340, 380, 420, 460])
    assert [each.is_held_down for each in verdicts] == [False] * 4 + [True] + [False] * 4 + [True]
    assert [each.pause_seconds for each in verdicts[5:9]] == [30, 30, 30, 30]


def test_one_that_was_well_for_a_while_begins_anew() -> None:
    assert [each.pause_seconds for each in fail([0, 200, 400], ran_seconds=60)] == [1, 1, 1]
    assert [each.pause_seconds for each in fail([0, 200, 400], ran_seconds=59.9)] == [1, 2, 4]


@pytest.mark.requirement("A4-3")
def test_being_well_between_failures_does_not_spend_less_of_the_budget() -> None:
    assert fail([0, 100, 200, 300, 400], ran_seconds=60)[-1].is_held_down


@pytest.mark.requirement("A4-3", "A4-4")
@given(
    gaps=st.lists(st.floats(0, 1000), max_size=60),
    chances=st.lists(st.floats(0, 1), min_size=60, max_size=60),
    runs=st.lists(st.floats(0, 1000), min_size=60, max_size=60),
)
def test_it_never_fails_more_often_than_the_budget_without_being_held_down(
    gaps: list[float], chances: list[float], runs: list[float]
) -> None:
    history, now = RestartHistory(), 0.0
    since_held: list[float] = []
    for gap, chance, ran in zip(gaps, chances, runs, strict=False):
        now += gap
        history, verdict = after_failure(
            history, now, ran_seconds=ran, chance=chance, policy=POLICY
        )
        since_held.append(now)
        in_window = [at for at in since_held if now - at <= POLICY.window_seconds]
        assert verdict.is_held_down == (len(in_window) >= POLICY.budget)
        assert len(history.failures) < POLICY.budget  # what is remembered is bounded
        if verdict.is_held_down:
            assert verdict.pause_seconds == POLICY.hold_down_seconds
            since_held.clear()
        else:
            assert 0.8 <= verdict.pause_seconds <= 36
