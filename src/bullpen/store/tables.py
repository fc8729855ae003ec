"""The tables: which column keeps which part of a record, and how.

A record is any of our structs. The SQL that makes the tables is in `migrations/`.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from bullpen.model.alerts import Alert
from bullpen.model.records import BindingLink, Ingested, SnapshotInfo
from bullpen.model.sources import CursorState, SourceHealth
from bullpen.model.states import SourceKind
from bullpen.model.views import PaneState, SessionState
from bullpen.store.encoding import (
    INTEGER,
    JSON,
    REAL,
    TEXT,
    TIME,
    Cell,
    Codec,
    decode_json,
)

__all__ = [
    "ALERTS",
    "BINDINGS",
    "CURSORS",
    "HEALTH",
    "LOG",
    "PANES",
    "SESSIONS",
    "SNAPSHOTS",
    "Column",
    "SourceHealthRow",
    "StateTable",
    "Table",
]

logger = logging.getLogger("bullpen.store")

T = TypeVar("T")

THE_RECORD = "."


class Column(NamedTuple):
    """A column, how it is kept, and where in the record its value is: at its name, if not said."""

    name: str
    codec: Codec
    path: str = ""


class Table(Generic[T]):
    """A table of records of one type."""

    def __init__(self, name: str, kind: type[T], key: str, *columns: Column) -> None:
        self.name = name
        self.kind = kind
        self.key = key
        self.names = ", ".join(column.name for column in columns)
        self._codecs = [column.codec for column in columns]
        self._paths = [(column.path or column.name).split(".") for column in columns]
        self._values = [_getter(column) for column in columns]
        keys = key.split(", ")
        places = ", ".join("?" * len(columns))
        updates = ", ".join(f"{c.name} = excluded.{c.name}" for c in columns if c.name not in keys)
        is_key = " AND ".join(f"{each} = ?" for each in keys)
        # Every name in here is ours; values are bound.
        self.insert = f"INSERT INTO {name} ({self.names}) VALUES ({places})"  # noqa: S608
        self.upsert = f"{self.insert} ON CONFLICT ({key}) DO UPDATE SET {updates}"
        self.select = f"SELECT {self.names} FROM {name}"  # noqa: S608
        self.delete = f"DELETE FROM {name} WHERE {is_key}"  # noqa: S608

    def row(self, record: object) -> tuple[Cell, ...]:
        """Return the cells of a record."""
        values = (value(record) for value in self._values)
        return tuple(
            None if value is None else codec.encode(value)
            for codec, value in zip(self._codecs, values, strict=True)
        )

    def record(self, row: Sequence[Any]) -> T:
        """Return the record of a row that was selected.

        Raises:
            msgspec.MsgspecError, ValueError: there is something else in the row.
        """
        content: dict[str, Any] = {}
        for path, codec, cell in zip(self._paths, self._codecs, row, strict=True):
            *parents, name = path
            part = content
            for parent in parents:
                part = part.setdefault(parent, {})
            part[name] = None if cell is None and codec is not REAL else codec.decode(cell)
        return msgspec.convert(content, self.kind)

    def records(self, rows: Iterable[Sequence[Any]]) -> tuple[T, ...]:
        """Return the records of rows, without those that this version cannot read.

        To go on without a row is better than not to start for it.
        """
        records = []
        for row in rows:
            try:
                records.append(self.record(row))
            except (msgspec.MsgspecError, ValueError) as error:
                logger.warning("a row of %s cannot be read and is left out: %s", self.name, error)
        return tuple(records)


class StateTable(Table[T]):
    """A table of states. Each is kept whole, as JSON, and read from that alone.

    A state takes the place of an earlier version only.
    """

    def __init__(self, name: str, kind: type[T], key: str, *columns: Column) -> None:
        versions = (
            Column("state_version", INTEGER),
            Column("updated_at", TIME),
            Column("state", JSON, THE_RECORD),
        )
        super().__init__(name, kind, key, *columns, *versions)
        self.upsert += f" WHERE excluded.state_version > {name}.state_version"
        self.select = f"SELECT state FROM {name}"  # noqa: S608
        is_key = " AND ".join(f"{each} = ?" for each in key.split(", "))
        self.version = f"SELECT state_version FROM {name} WHERE {is_key}"  # noqa: S608

    def record(self, row: Sequence[Any]) -> T:
        return decode_json(row[0], self.kind)


def _getter(column: Column) -> Callable[[Any], Any]:
    if column.path == THE_RECORD:
        return lambda record: record
    return attrgetter(column.path or column.name)


class SourceHealthRow(msgspec.Struct, frozen=True):
    """How a source fares, together with which one it is."""

    source_kind: SourceKind
    health: SourceHealth


PANE_KEY = "pane_id, generation, birth_ts, server"
_PANE_COLUMNS = (
    Column("pane_id", TEXT, "pane_instance_id.pane_id"),
    Column("generation", INTEGER, "pane_instance_id.generation"),
    Column("birth_ts", TIME, "pane_instance_id.birth_ts"),
    Column("server", TEXT, "pane_instance_id.server"),
)

LOG = Table(
    "events_raw_v2",
    Ingested,
    "provider, source_kind, event_id",
    Column("ingest_seq", INTEGER),
    Column("provider", TEXT, "observation.provider"),
    Column("source_kind", TEXT, "observation.source_kind"),
    Column("event_id", TEXT, "observation.event_id"),
    Column("tier", TEXT, "observation.tier"),
    Column("observed_at", TIME, "observation.observed_at"),
    Column("session_key", TEXT, "observation.session_key"),
    Column("event_type", TEXT, "observation.event_type"),
    Column("pane_id", TEXT, "observation.pane_id"),
    Column("pane_generation", INTEGER, "observation.pane_generation"),
    Column("pane_birth_ts", TIME, "observation.pane_birth_ts"),
    Column("tmux_server", TEXT, "observation.tmux_server"),
    Column("source_event_id", TEXT, "observation.source_event_id"),
    Column("payload", JSON, "observation.payload"),
    Column("confidence", REAL, "observation.confidence"),
    Column("origin", JSON, "observation.origin"),
)

SESSIONS = StateTable(
    "session_state_v2",
    SessionState,
    "session_key",
    Column("session_key", TEXT),
    Column("presence", TEXT),
    Column("evidence_mode", TEXT),
    Column("deterministic_last_seen", TIME),
    Column("winner_tier", TEXT),
    Column("activity_state", TEXT),
    Column("activity_source", TEXT),
    Column("representative_pane_instance_id", JSON),
    Column("provider", TEXT),
    Column("agent", TEXT),
)

PANES = StateTable(
    "pane_state_v2",
    PaneState,
    PANE_KEY,
    *_PANE_COLUMNS,
    Column("presence", TEXT),
    Column("evidence_mode", TEXT),
    Column("binding_state", TEXT),
    Column("signature_class", TEXT),
    Column("signature_reason", TEXT),
    Column("signature_confidence", REAL),
    Column("no_agent_streak", INTEGER),
    Column("activity_state", TEXT),
    Column("provider", TEXT),
    Column("agent", TEXT),
    Column("session_key", TEXT),
    Column("deterministic_last_seen", TIME),
)

BINDINGS = Table(
    "binding_link_v2",
    BindingLink,
    f"{PANE_KEY}, bound_at",
    *_PANE_COLUMNS,
    Column("bound_at", TIME),
    Column("session_key", TEXT),
    Column("source_kind", TEXT),
    Column("title", TEXT),
    Column("unbound_at", TIME),
)

CURSORS = Table(
    "cursor_state_v2",
    CursorState,
    "source_kind",
    Column("source_kind", TEXT),
    Column("fetched_cursor", TEXT),
    Column("committed_cursor", TEXT),
    Column("checkpoint_ts", TIME),
)

HEALTH = Table(
    "source_health_v2",
    SourceHealthRow,
    "source_kind",
    Column("source_kind", TEXT),
    Column("status", TEXT, "health.status"),
    Column("checked_at", TIME, "health.checked_at"),
    Column("reason", TEXT, "health.reason"),
    Column("last_event_at", TIME, "health.last_event_at"),
    Column("accepted", INTEGER, "health.accepted"),
    Column("dropped", JSON, "health.dropped"),
    Column("version", TEXT, "health.version"),
    Column("is_absent", JSON, "health.is_absent"),
)

ALERTS = Table(
    "alert_ledger_v1",
    Alert,
    "alert_id",
    Column("alert_id", TEXT),
    Column("key", TEXT),
    Column("level", TEXT),
    Column("code", TEXT),
    Column("message", TEXT),
    Column("policy", TEXT),
    Column("raised_at", TIME),
    Column("last_seen_at", TIME),
    Column("count", INTEGER),
    Column("acknowledged_at", TIME),
    Column("resolved_at", TIME),
)

SNAPSHOTS = Table(
    "state_snapshot_v2",
    SnapshotInfo,
    "snapshot_id",
    Column("snapshot_id", TEXT),
    Column("created_at", TIME),
    Column("reason", TEXT),
    Column("panes", INTEGER),
    Column("sessions", INTEGER),
    Column("last_ingest_seq", INTEGER),
    Column("size_bytes", INTEGER),
    Column("sha256", TEXT),
)
