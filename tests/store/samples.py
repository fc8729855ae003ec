"""Plain records for tests that do not care what is in them."""

import contextlib
import itertools
import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bullpen.model.alerts import Alert, AlertLevel
from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.records import BindingLink, Ingested
from bullpen.model.states import (
    Activity,
    EvidenceMode,
    EvidenceTier,
    Presence,
    Provider,
    SourceKind,
)
from bullpen.model.views import PaneState, SessionState

T0 = datetime(2026, 1, 31, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)

PANE = PaneInstanceId("%1", 0, T0, "4711:1")


def observation(event_id: str = "e1", **fields: Any) -> Observation:
    given: dict[str, Any] = {
        "provider": Provider.CLAUDE,
        "source_kind": SourceKind.CLAUDE_HOOKS,
        "tier": EvidenceTier.DETERMINISTIC,
        "observed_at": T0,
        "session_key": "claude:a",
        "event_type": "turn.started",
    }
    return Observation(event_id=event_id, **(given | fields))


def ingested(seq: int, event_id: str | None = None, **fields: Any) -> Ingested:
    return Ingested(seq, observation(event_id or f"e{seq}", **fields))


def pane(version: int = 1, instance: PaneInstanceId = PANE, **fields: Any) -> PaneState:
    return PaneState(pane_instance_id=instance, state_version=version, updated_at=T0, **fields)


def session(version: int = 1, key: str = "claude:a") -> SessionState:
    return SessionState(
        session_key=key,
        presence=Presence.MANAGED,
        evidence_mode=EvidenceMode.DETERMINISTIC,
        winner_tier=EvidenceTier.DETERMINISTIC,
        activity_state=Activity.RUNNING,
        activity_source=SourceKind.CLAUDE_HOOKS,
        provider=Provider.CLAUDE,
        state_version=version,
        updated_at=T0,
    )


def link(session_key: str = "claude:a", bound_at: datetime = T0, **fields: Any) -> BindingLink:
    given: dict[str, Any] = {"pane_instance_id": PANE, "source_kind": SourceKind.CLAUDE_HOOKS}
    return BindingLink(session_key=session_key, bound_at=bound_at, **(given | fields))


def alert(alert_id: str = "a1", **fields: Any) -> Alert:
    given: dict[str, Any] = {
        "key": "poller",
        "level": AlertLevel.WARN,
        "code": "slo_breach",
        "message": "slow",
        "raised_at": T0,
        "last_seen_at": T0,
    }
    return Alert(alert_id=alert_id, **(given | fields))


def counted(prefix: str = "s") -> Callable[[], str]:
    """Return a function that mints s1, s2, s3."""
    numbers = itertools.count(1)
    return lambda: f"{prefix}{next(numbers)}"


def sql(path: Path, statement: str, *values: object) -> list[Any]:
    """Run a statement on a database from outside, as anybody with the file could."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, values).fetchall()
