"""How a source stands with the gateway, without I/O."""

from collections import Counter
from datetime import datetime

from bullpen.model.sources import SourceHealth
from bullpen.model.states import HealthStatus
from bullpen.observe.health import status_when_unreachable

__all__ = ["Standing"]


class Standing:
    """How a source fares as the gateway sees it, and what became of what it said."""

    def __init__(self, now: datetime) -> None:
        self.status = HealthStatus.DEGRADED
        self.reason = "it was not heard of yet"
        self.is_absent = False
        self.checked_at = now
        self.last_event_at: datetime | None = None
        self.accepted = 0
        self.dropped: Counter[str] = Counter()
        self.dropped_there: Counter[str] = Counter()  # by the source itself
        self.version = ""
        self._reached_at = now

    def note_report(self, health: SourceHealth, now: datetime) -> None:
        """Take a source's own word on how it fares."""
        self.status, self.reason = health.status, health.reason
        self.is_absent = health.is_absent
        self.checked_at = health.checked_at if health.checked_at.tzinfo else now
        self.dropped_there = Counter(health.dropped)
        self.version = health.version
        self._reached_at = now

    def note_unreachable(self, reason: str, now: datetime) -> None:
        """Note that it could not be asked; how bad that is depends on for how long."""
        self.status = status_when_unreachable((now - self._reached_at).total_seconds())
        self.reason, self.checked_at, self.is_absent = reason, now, False
