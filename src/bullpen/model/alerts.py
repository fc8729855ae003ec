"""What an operator should know: alerts, from when they are raised until they are resolved."""

from datetime import datetime
from enum import StrEnum

import msgspec

__all__ = ["Alert", "AlertLevel", "ResolvePolicy"]


class AlertLevel(StrEnum):
    """How bad it is."""

    WARN = "warn"
    DEGRADED = "degraded"
    ESCALATE = "escalate"


class ResolvePolicy(StrEnum):
    """Who ends an alert."""

    AUTO = "auto"
    """It ends when its condition does."""
    OPERATOR = "operator"
    """It stays until somebody has acknowledged it."""


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, however often it was noticed."""

    alert_id: str
    key: str
    """What it is about: the same condition has the same key."""
    level: AlertLevel
    code: str
    """A word of the error table, such as `slo_breach`."""
    message: str
    policy: ResolvePolicy = ResolvePolicy.AUTO
    raised_at: datetime
    last_seen_at: datetime
    count: int = 1
    acknowledged_at: datetime | None = None
    resolved_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether it still holds."""
        return self.resolved_at is None
