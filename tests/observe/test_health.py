"""A source's health follows from its looks, by a table."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.states import HealthStatus
from bullpen.observe.health import Health, Look, status_when_unreachable, step, worst

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HEALTHY, DEGRADED, DOWN = HealthStatus.HEALTHY, HealthStatus.DEGRADED, HealthStatus.DOWN
TROUBLES = st.sampled_from(sorted(set(Look) - {Look.SUCCEEDED, Look.EMITTED}))


def after(*looks: Look, begin: HealthStatus = DEGRADED) -> Health:
    health = Health(begin, NOON, NOON, "it has not looked yet")
    for number, look in enumerate(looks, 1):
        health = step(health, look, NOON + timedelta(seconds=number), look.value)
    return health


@pytest.mark.requirement("SRC-8")
@pytest.mark.parametrize(
    ("look", "from_healthy", "from_degraded", "from_down"),
    [
        (Look.SUCCEEDED, HEALTHY, HEALTHY, HEALTHY),
        (Look.PARTIAL, DEGRADED, DEGRADED, DEGRADED),
        (Look.BLIND, DOWN, DOWN, DOWN),
        (Look.FAILED, DEGRADED, DEGRADED, DOWN),
        (Look.TIMED_OUT, DEGRADED, DEGRADED, DOWN),
        (Look.EMITTED, HEALTHY, DEGRADED, DEGRADED),
    ],
)
def test_a_look_leads_from_each_status_to_one(
    look: Look, from_healthy: HealthStatus, from_degraded: HealthStatus, from_down: HealthStatus
) -> None:
    assert after(look, begin=HEALTHY).status is from_healthy
    assert after(look, begin=DEGRADED).status is from_degraded
    assert after(look, begin=DOWN).status is from_down


@pytest.mark.requirement("SRC-8")
@given(looks=st.lists(st.sampled_from(list(Look)), min_size=1))
def test_after_any_row_of_looks_the_latest_decide(looks: list[Look]) -> None:
    status = after(*looks).status
    said = [each for each in looks if each is not Look.EMITTED]
    is_failing = len(said) >= 3 and set(said[-3:]) <= {Look.FAILED, Look.TIMED_OUT}
    assert (status is HEALTHY) == (said[-1:] == [Look.SUCCEEDED])
    if looks[-1] is Look.BLIND or (is_failing and looks[-1] is not Look.EMITTED):
        assert status is DOWN
    if looks[-1] in (Look.PARTIAL, Look.EMITTED) or not (is_failing or Look.BLIND in looks):
        assert status is not DOWN


@given(looks=st.lists(TROUBLES))
def test_one_success_makes_any_source_healthy(looks: list[Look]) -> None:
    health = after(*looks, Look.SUCCEEDED)
    assert (health.status, health.reason, health.failures) == (HEALTHY, "", 0)


def test_crashes_and_hangs_in_a_row_count_together() -> None:
    assert after(Look.FAILED, Look.TIMED_OUT).status is DEGRADED
    assert after(Look.FAILED, Look.TIMED_OUT, Look.FAILED).status is DOWN
    assert after(Look.FAILED, Look.PARTIAL, Look.FAILED, Look.FAILED).status is DEGRADED


def test_it_is_said_why_and_since_when() -> None:
    health = after(Look.SUCCEEDED, Look.FAILED, Look.PARTIAL)
    assert (health.reason, health.since) == ("partial", NOON + timedelta(seconds=2))
    assert health.checked_at == NOON + timedelta(seconds=3)


def test_a_source_that_is_down_and_says_something_keeps_its_reason() -> None:
    health = after(Look.BLIND, Look.EMITTED)
    assert (health.status, health.reason) == (DEGRADED, "blind")


def test_a_source_that_says_something_is_otherwise_as_it_was() -> None:
    health = after(Look.SUCCEEDED)
    assert step(health, Look.EMITTED, NOON + timedelta(seconds=9)) is health


@pytest.mark.parametrize(("seconds", "status"), [(0, DEGRADED), (15, DEGRADED), (15.001, DOWN)])
def test_a_source_out_of_reach_is_degraded_then_down(seconds: float, status: HealthStatus) -> None:
    assert status_when_unreachable(seconds) is status


def test_the_worst_of_several_statuses_counts() -> None:
    assert worst(HEALTHY) is HEALTHY
    assert worst(DEGRADED, HEALTHY) is DEGRADED
    assert worst(HEALTHY, DOWN, DEGRADED) is DOWN
