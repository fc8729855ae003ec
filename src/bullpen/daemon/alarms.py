"""What an operator should know: the ledger and the latencies, kept on disk and in the log."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from bullpen.api.methods import LatencyStatus
from bullpen.daemon.alerts import AlertLedger
from bullpen.daemon.latency import Latencies
from bullpen.errors import BullpenError
from bullpen.model.alerts import Alert, AlertLevel, ResolvePolicy
from bullpen.model.reasons import Reason
from bullpen.model.records import Commit
from bullpen.model.sources import SourceHealth
from bullpen.model.states import EvidenceTier, HealthStatus, SourceKind
from bullpen.observe.pipeline import Keeper
from bullpen.observe.sources.port import Now

__all__ = ["Alarms"]

logger = logging.getLogger("bullpen.daemon")

SOURCE_DOWN = "source_down"
LOG_UNAVAILABLE = "log_unavailable"
NOTICED_FOR = timedelta(minutes=1)
DOWN_FOR = timedelta(seconds=60)  # before anybody is told: most come back by themselves

_LEVELS = {
    AlertLevel.WARN: logging.WARNING,
    AlertLevel.DEGRADED: logging.WARNING,
    AlertLevel.ESCALATE: logging.ERROR,
}


class Alarms:
    """Raises, clears and keeps alerts. Nothing here waits: writing is done by `keep`."""

    def __init__(self, ledger: AlertLedger, latencies: Latencies, now: Now) -> None:
        self._ledger = ledger
        self._latencies = latencies
        self._now = now
        self._unsaved: dict[str, Alert] = {}
        self._noticed_at: dict[str, datetime] = {}
        self._down_since: dict[SourceKind, datetime] = {}
        self._something_to_keep = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None

    @property
    def open(self) -> tuple[Alert, ...]:
        """Those that still hold, newest first."""
        return self._ledger.open

    @property
    def all(self) -> tuple[Alert, ...]:
        """Those and the last ones that were resolved, newest first."""
        return self._ledger.all

    def sound(
        self,
        key: str,
        level: AlertLevel,
        reason: Reason | str,
        message: str,
        *,
        policy: ResolvePolicy = ResolvePolicy.AUTO,
    ) -> None:
        """Say that a condition holds. Only the first time it is logged."""
        code = reason.word if isinstance(reason, Reason) else reason
        is_new = all(each.key != key for each in self._ledger.open)
        if is_new:
            logger.log(_LEVELS[level], "%s: %s", code, message)
        self._note(
            self._ledger.raise_alert(key, level, code, message, policy=policy, now=self._now()),
            is_news=is_new,
        )

    def clear(self, key: str) -> None:
        """Say that a condition is over."""
        if cleared := self._ledger.clear(key, now=self._now()):
            logger.info("over: %s", cleared[0].message)
            self._note(cleared, is_news=True)

    def acknowledge(self, alert_id: str) -> Alert | None:
        """Note that somebody knows; None if there is no such alert."""
        alert = self._ledger.acknowledge(alert_id, now=self._now())
        if alert is not None:
            self._note((alert,), is_news=True)
        return alert

    def trouble(self, reason: Reason, message: str, kind: SourceKind | None) -> None:
        """Take what the gateway says an operator should know."""
        level = AlertLevel.WARN if reason is Reason.ACK_TIMEOUT else AlertLevel.DEGRADED
        key = f"{reason.word}:{kind or ''}"
        self._noticed_at[key] = self._now()
        self.sound(key, level, reason, message)

    def clear_past(self) -> None:
        """Clear what the gateway has noticed once, and not since: nobody says when it is over."""
        now = self._now()
        for key, at in tuple(self._noticed_at.items()):
            if not timedelta(0) <= now - at < NOTICED_FOR:
                del self._noticed_at[key]
                self.clear(key)

    def begin_anew(self) -> None:
        """Clear what was a condition of an earlier run. What still holds will be noticed again."""
        for alert in self._ledger.open:
            self.clear(alert.key)

    # ----------------------------------------------------------------------- sources and the log

    def judge_sources(self, health: Iterable[tuple[SourceKind, SourceHealth]]) -> None:
        """Sound an alarm for each source that has been down for a minute; it ends with that."""
        now = self._now()
        for kind, each in health:
            if each.status is not HealthStatus.DOWN or each.is_absent:
                self._down_since.pop(kind, None)
                self.clear(f"{SOURCE_DOWN}:{kind}")
                continue
            since = min(self._down_since.get(kind, now), now)  # a clock may be set back
            self._down_since[kind] = since
            if now - since > DOWN_FOR:
                reason = each.reason or "it does not say why"
                self.sound(
                    f"{SOURCE_DOWN}:{kind}",
                    AlertLevel.DEGRADED,
                    SOURCE_DOWN,
                    f"{kind} is down: {reason}",
                )

    def judge_log(self, trouble: str) -> None:
        """Sound an alarm while the log cannot be written."""
        if trouble:
            self.sound("log", AlertLevel.WARN, LOG_UNAVAILABLE, f"records are lost: {trouble}")
        else:
            self.clear("log")

    # ---------------------------------------------------------------------------------- latencies

    def note_latency(self, tier: EvidenceTier, latency: timedelta) -> None:
        """Note how long it took until something was said."""
        self._latencies.add(tier, latency.total_seconds(), self._now().timestamp())

    def judge_latencies(self) -> None:
        """Look at the latencies; to be done at equal intervals."""
        for tier, reading in self._latencies.look(self._now().timestamp()).items():
            key = f"slo:{tier}"
            if reading.is_breached:
                message = (
                    f"95 of 100 {tier} changes are told within {reading.p95_ms:.0f} ms,"
                    f" which should be {reading.limit_ms:.0f}"
                )
                self.sound(key, AlertLevel.DEGRADED, Reason.SLO_BREACH, message)
            else:
                self.clear(key)

    def latencies(self) -> dict[str, LatencyStatus]:
        """Return the figures by tier."""
        readings = self._latencies.read(self._now().timestamp())
        return {
            tier.value: LatencyStatus(
                samples=each.samples,
                p50_ms=each.p50_ms,
                p95_ms=each.p95_ms,
                limit_ms=each.limit_ms,
                is_breached=each.is_breached,
            )
            for tier, each in readings.items()
        }

    # ------------------------------------------------------------------------------------- keeping

    async def keep(self, keeper: Keeper) -> None:
        """Write what changes until cancelled. What cannot be written is tried with the next."""
        while True:
            await self._something_to_keep.wait()
            self._something_to_keep.clear()
            await self.flush(keeper)

    async def flush(self, keeper: Keeper) -> None:
        """Write what is not yet written; once, whatever becomes of it."""
        saving, self._unsaved = self._unsaved, {}
        try:
            await keeper.commit(Commit(alerts=tuple(saving.values())))
        except BullpenError:
            self._unsaved = saving | self._unsaved  # whoever writes states says that it fails

    def _note(self, alerts: tuple[Alert, ...], *, is_news: bool) -> None:
        self._unsaved.update((each.alert_id, each) for each in alerts)
        if is_news:
            self._something_to_keep.set()
            self.on_change()
