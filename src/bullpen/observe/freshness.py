"""How recently a source was heard of: the age of the link, not of what it said.

A hook is an edge: what it said holds until something contradicts it, however long that is. But a
source that has not been heard of for a while may have missed the next edge.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from bullpen.model.states import HealthStatus

__all__ = ["DOWN_AFTER", "FRESH_FOR", "Freshness", "Link"]

FRESH_FOR = timedelta(seconds=3)
DOWN_AFTER = timedelta(seconds=15)


class Freshness(StrEnum):
    """Whether a source can be believed to have told us the latest."""

    FRESH = "fresh"
    STALE = "stale"
    DOWN = "down"


class Link(msgspec.Struct, frozen=True):
    """When a source was last heard of, and how it fares."""

    heard_at: datetime
    status: HealthStatus = HealthStatus.HEALTHY

    def age(self, now: datetime) -> timedelta:
        """Return for how long nothing was heard; never negative, clocks differ a little."""
        return max(now - self.heard_at, timedelta(0))

    def freshness(self, now: datetime) -> Freshness:
        """Return how fresh it is. Both limits are still on the better side."""
        age = self.age(now)
        if age > DOWN_AFTER or self.status is HealthStatus.DOWN:
            return Freshness.DOWN
        return Freshness.STALE if age > FRESH_FOR else Freshness.FRESH
