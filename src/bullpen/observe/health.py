"""How a source fares, from what became of its looks; without I/O.

One look that succeeds makes a source healthy. One that could not see everything, crashed or hung
makes it degraded; several crashes or hangs in a row, or a source that says it is blind, make it
down. A source that is down and yet says something is not down.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from bullpen.model.states import HealthStatus

__all__ = ["Health", "Look", "status_when_unreachable", "step", "worst"]

FAILURES_UNTIL_DOWN = 3  # crashes and hangs in a row
UNREACHABLE_UNTIL_DOWN_SECONDS = 15.0  # the age at which a source's word counts as down


class Look(StrEnum):
    """What became of a look."""

    SUCCEEDED = "succeeded"
    PARTIAL = "partial"
    """It could not see all it should."""
    BLIND = "blind"
    """It sees nothing."""
    FAILED = "failed"
    """It crashed."""
    TIMED_OUT = "timed_out"
    EMITTED = "emitted"
    """Between two looks, something was seen."""


class Health(msgspec.Struct, frozen=True):
    """How a source fares since when, and why."""

    status: HealthStatus
    since: datetime
    checked_at: datetime
    reason: str = ""
    failures: int = 0
    """Crashes and hangs in a row, up to the latest look."""


_HEALTHY, _DEGRADED, _DOWN = HealthStatus.HEALTHY, HealthStatus.DEGRADED, HealthStatus.DOWN

_NEXT: dict[Look, dict[HealthStatus, HealthStatus]] = {
    Look.SUCCEEDED: {_HEALTHY: _HEALTHY, _DEGRADED: _HEALTHY, _DOWN: _HEALTHY},
    Look.PARTIAL: {_HEALTHY: _DEGRADED, _DEGRADED: _DEGRADED, _DOWN: _DEGRADED},
    Look.BLIND: {_HEALTHY: _DOWN, _DEGRADED: _DOWN, _DOWN: _DOWN},
    Look.FAILED: {_HEALTHY: _DEGRADED, _DEGRADED: _DEGRADED, _DOWN: _DOWN},
    Look.TIMED_OUT: {_HEALTHY: _DEGRADED, _DEGRADED: _DEGRADED, _DOWN: _DOWN},
    Look.EMITTED: {_HEALTHY: _HEALTHY, _DEGRADED: _DEGRADED, _DOWN: _DEGRADED},
}
_FAILURES = (Look.FAILED, Look.TIMED_OUT)
_ORDER = (_HEALTHY, _DEGRADED, _DOWN)


def step(health: Health, look: Look, now: datetime, reason: str = "") -> Health:
    """Return how a source fares after a look."""
    if look is Look.EMITTED:
        if health.status is not _DOWN:
            return health
        reason, failures = health.reason, health.failures
    else:
        failures = health.failures + 1 if look in _FAILURES else 0
    status = _NEXT[look][health.status]
    if look in _FAILURES and failures >= FAILURES_UNTIL_DOWN:
        status = _DOWN
    since = health.since if status is health.status else now
    return Health(status, since, now, "" if status is _HEALTHY else reason, failures)


def status_when_unreachable(seconds: float) -> HealthStatus:
    """Return the status of a source that has not answered for so long."""
    return _DOWN if seconds > UNREACHABLE_UNTIL_DOWN_SECONDS else _DEGRADED


def worst(first: HealthStatus, *others: HealthStatus) -> HealthStatus:
    """Return the one that is furthest from healthy."""
    return max((first, *others), key=_ORDER.index)
