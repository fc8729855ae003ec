"""The states of panes, sessions, sources and alerts: to write what a step changed, to read it all.

All of it runs inside a transaction of the `Database`.
"""

import sqlite3
from collections.abc import Iterable
from datetime import datetime
from typing import TypeVar

from bullpen.model.alerts import Alert
from bullpen.model.observations import PaneInstanceId
from bullpen.model.records import Commit, Restored
from bullpen.store.encoding import INTEGER, Cell, encode_text, encode_time
from bullpen.store.errors import StaleVersion
from bullpen.store.log import last_ingest_seq
from bullpen.store.tables import (
    ALERTS,
    BINDINGS,
    CURSORS,
    HEALTH,
    PANES,
    SESSIONS,
    SourceHealthRow,
    StateTable,
    Table,
)

__all__ = ["read_alerts", "read_states", "remove_history", "write_states"]

T = TypeVar("T")

_SAME_PANE = (
    "pane_id = link.pane_id AND generation = link.generation "
    "AND birth_ts = link.birth_ts AND server = link.server"
)
_IS_LATEST_ENDED = (
    "link.bound_at = (SELECT MAX(bound_at) FROM binding_link_v2 "  # noqa: S608 - nothing from outside
    f"WHERE {_SAME_PANE} AND unbound_at IS NOT NULL)"
)
_OF_LIVING_PANE = f"EXISTS (SELECT 1 FROM pane_state_v2 WHERE {_SAME_PANE})"  # noqa: S608 - likewise


def write_states(connection: sqlite3.Connection, commit: Commit) -> None:
    """Write all states of a step. What is both written and removed is removed.

    Raises:
        StaleVersion: a state as late or later is stored.
    """
    for pane in commit.panes:
        key = _pane_key(pane.pane_instance_id)
        _swap(connection, PANES, pane, key, str(pane.pane_instance_id), pane.state_version)
    for session in commit.sessions:
        name = session.session_key
        _swap(connection, SESSIONS, session, (encode_text(name),), name, session.state_version)
    connection.executemany(PANES.delete, map(_pane_key, commit.removed_panes))
    connection.executemany(
        SESSIONS.delete, ((encode_text(key),) for key in commit.removed_sessions)
    )
    _put(connection, BINDINGS, commit.bindings)
    _put(connection, CURSORS, commit.cursors)
    _put(connection, HEALTH, (SourceHealthRow(*each) for each in commit.health))
    _put(connection, ALERTS, commit.alerts)


def _swap(
    connection: sqlite3.Connection,
    table: StateTable[T],
    state: T,
    key: tuple[Cell, ...],
    name: str,
    version: int,
) -> None:
    if connection.execute(table.upsert, table.row(state)).rowcount:
        return
    (stored,) = connection.execute(table.version, key).fetchone()
    raise StaleVersion(name, stored, version)


def _put(connection: sqlite3.Connection, table: Table[T], records: Iterable[T]) -> None:
    connection.executemany(table.upsert, map(table.row, records))


def _pane_key(pane: PaneInstanceId) -> tuple[Cell, ...]:
    return (
        encode_text(pane.pane_id),
        INTEGER.encode(pane.generation),
        encode_time(pane.birth_ts),
        encode_text(pane.server),
    )


def read_states(connection: sqlite3.Connection) -> Restored:
    """Return all that a restart goes on from."""
    links = f"WHERE unbound_at IS NULL OR {_IS_LATEST_ENDED}"
    health = _read(connection, HEALTH, "ORDER BY source_kind")
    return Restored(
        panes=_read(connection, PANES, f"ORDER BY {PANES.key}"),
        sessions=_read(connection, SESSIONS, f"ORDER BY {SESSIONS.key}"),
        bindings=_read(connection, BINDINGS, f"AS link {links} ORDER BY {BINDINGS.key}"),
        cursors=_read(connection, CURSORS, "ORDER BY source_kind"),
        health=tuple((row.source_kind, row.health) for row in health),
        alerts=_read(connection, ALERTS, "WHERE resolved_at IS NULL ORDER BY raised_at, alert_id"),
        last_ingest_seq=last_ingest_seq(connection),
    )


def read_alerts(
    connection: sqlite3.Connection, *, include_resolved: bool, limit: int
) -> tuple[Alert, ...]:
    """Return the alerts there are, the newest first."""
    which = "" if include_resolved else "WHERE resolved_at IS NULL "
    return _read(connection, ALERTS, f"{which}ORDER BY raised_at DESC, alert_id LIMIT {limit:d}")


def remove_history(connection: sqlite3.Connection, older_than: datetime) -> int:
    """Forget alerts that were resolved and links that ended before, and return how many.

    The latest link of a pane that is still there stays.
    """
    before = [encode_time(older_than)]
    alerts = connection.execute("DELETE FROM alert_ledger_v1 WHERE resolved_at < ?", before)
    links = connection.execute(
        "DELETE FROM binding_link_v2 AS link WHERE unbound_at < ? "  # noqa: S608 - nothing from outside
        f"AND NOT ({_IS_LATEST_ENDED} AND {_OF_LIVING_PANE})",
        before,
    )
    return alerts.rowcount + links.rowcount


def _read(connection: sqlite3.Connection, table: Table[T], rest: str) -> tuple[T, ...]:
    return table.records(connection.execute(f"{table.select} {rest}"))
