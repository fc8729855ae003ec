"""The ledger of alerts: what is wrong, since when, how often, and who ends it. Without a clock.

A condition that is noticed again is counted, not told again. One of policy `auto` is over when its
condition is; one of policy `operator` stays until somebody has acknowledged it, so that what went
wrong in the night is still there in the morning. Whatever changes is returned, to be stored.
"""

from collections import deque
from collections.abc import Callable, Iterable
from datetime import datetime

import msgspec

from bullpen.model.alerts import Alert, AlertLevel, ResolvePolicy

__all__ = ["AlertLedger"]

MOST_OPEN = 1000  # conditions have names of panes and sources in them, of which there are few
MOST_RESOLVED = 500


class AlertLedger:
    """All alerts that are open, and the last ones that were."""

    def __init__(
        self,
        make_id: Callable[[], str],
        *,
        most_open: int = MOST_OPEN,
        most_resolved: int = MOST_RESOLVED,
    ) -> None:
        self._make_id = make_id
        self._most_open = most_open
        self._open: dict[str, Alert] = {}  # by key, the one least recently noticed first
        self._resolved: deque[Alert] = deque(maxlen=most_resolved)

    def restore(self, alerts: Iterable[Alert]) -> None:
        """Know alerts of an earlier run. Their conditions may be over: then they are cleared."""
        for alert in sorted(alerts, key=lambda each: each.last_seen_at):
            if alert.is_open:
                self._open[alert.key] = alert
            else:
                self._resolved.append(alert)

    @property
    def open(self) -> tuple[Alert, ...]:
        """Those that still hold, newest first."""
        return tuple(sorted(self._open.values(), key=_newest, reverse=True))

    @property
    def all(self) -> tuple[Alert, ...]:
        """Those and the last ones that were resolved, newest first."""
        return tuple(sorted((*self._open.values(), *self._resolved), key=_newest, reverse=True))

    def find(self, alert_id: str) -> Alert | None:
        """Return an alert by its id."""
        return next((each for each in self.all if each.alert_id == alert_id), None)

    def raise_alert(
        self,
        key: str,
        level: AlertLevel,
        code: str,
        message: str,
        *,
        policy: ResolvePolicy = ResolvePolicy.AUTO,
        now: datetime,
    ) -> tuple[Alert, ...]:
        """Say that a condition holds. Return the alerts that are different by it.

        Noticed again, it has the level and the words of the last time; one that an operator has to
        acknowledge stays so.
        """
        known = self._open.pop(key, None)
        if known is None:
            alert = Alert(
                alert_id=self._make_id(),
                key=key,
                level=level,
                code=code,
                message=message,
                policy=policy,
                raised_at=now,
                last_seen_at=now,
            )
        else:
            stays = ResolvePolicy.OPERATOR in (policy, known.policy)
            alert = msgspec.structs.replace(
                known,
                level=level,
                code=code,
                message=message,
                policy=ResolvePolicy.OPERATOR if stays else ResolvePolicy.AUTO,
                last_seen_at=now,
                count=known.count + 1,
            )
        self._open[key] = alert
        return (alert, *self._resolve_surplus(now))

    def clear(self, key: str, *, now: datetime) -> tuple[Alert, ...]:
        """Say that a condition is over. Return the alerts that are different by it."""
        alert = self._open.get(key)
        if alert is None or alert.policy is ResolvePolicy.OPERATOR:
            return ()
        return (self._resolve(alert, now),)

    def acknowledge(self, alert_id: str, *, now: datetime) -> Alert | None:
        """Note that somebody knows. Return the alert; None if there is no such one.

        One of policy `operator` is resolved by it. Twice is the same as once.
        """
        alert = self.find(alert_id)
        if alert is None or not alert.is_open:
            return alert
        alert = msgspec.structs.replace(alert, acknowledged_at=alert.acknowledged_at or now)
        if alert.policy is ResolvePolicy.OPERATOR:
            return self._resolve(alert, now)
        self._open[alert.key] = alert
        return alert

    def _resolve(self, alert: Alert, now: datetime) -> Alert:
        alert = msgspec.structs.replace(alert, resolved_at=now)
        del self._open[alert.key]
        self._resolved.append(alert)
        return alert

    def _resolve_surplus(self, now: datetime) -> tuple[Alert, ...]:
        surplus = list(self._open.values())[: max(0, len(self._open) - self._most_open)]
        return tuple(self._resolve(alert, now) for alert in surplus)


def _newest(alert: Alert) -> tuple[datetime, datetime]:
    return alert.raised_at, alert.last_seen_at
