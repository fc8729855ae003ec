"""The append-only log of observations: to append, to read back, to forget the oldest.

All of it runs inside a transaction of the `Database`.
"""

import sqlite3
from collections.abc import Iterable
from datetime import datetime

from bullpen.model.observations import PaneInstanceId
from bullpen.model.records import Ingested
from bullpen.store.encoding import INTEGER, Cell, encode_text, encode_time
from bullpen.store.tables import LOG

__all__ = ["allow_removal", "append", "last_ingest_seq", "read_log", "remove_allowed"]

_APPEND = f"{LOG.insert} ON CONFLICT ({LOG.key}) DO NOTHING"
_OWNER = (
    "SELECT session_key FROM events_raw_v2 WHERE provider = ? AND source_kind = ? AND event_id = ?"
)
_APPEND_RENAMED = (
    f"INSERT INTO events_raw_v2 ({LOG.names}, given_event_id) "  # noqa: S608 - our names
    f"VALUES ({', '.join('?' * (LOG.names.count(',') + 2))}) ON CONFLICT ({LOG.key}) DO NOTHING"
)
_EVENT_ID = LOG.names.split(", ").index("event_id")
_READ = LOG.select.replace(" event_id,", " COALESCE(given_event_id, event_id),")


def append(connection: sqlite3.Connection, observations: Iterable[Ingested]) -> int:
    """Append what is not in the log yet, and return how much that was.

    The same event of the same session is there once, however often it comes.
    """
    return sum(_append(connection, each) for each in observations)


def _append(connection: sqlite3.Connection, ingested: Ingested) -> int:
    row = LOG.row(ingested)
    if connection.execute(_APPEND, row).rowcount:
        return 1
    observation = ingested.observation
    event_id = encode_text(observation.event_id)
    key = (encode_text(observation.provider), encode_text(observation.source_kind), event_id)
    (owner,) = connection.execute(_OWNER, key).fetchone()
    if owner == encode_text(observation.session_key):
        return 0
    # Another session of the source came first with this id, which is no reason to lose this one.
    longer = encode_text(f"{observation.event_id} of {observation.session_key}")
    renamed = (*row[:_EVENT_ID], longer, *row[_EVENT_ID + 1 :], event_id)
    return connection.execute(_APPEND_RENAMED, renamed).rowcount


def read_log(
    connection: sqlite3.Connection,
    *,
    after_seq: int,
    limit: int,
    session_key: str | None = None,
    pane: PaneInstanceId | None = None,
) -> tuple[Ingested, ...]:
    """Return what came after a number, in order: all of it, or of one session, or of one pane."""
    conditions = ["ingest_seq > ?"]
    values: list[Cell] = [after_seq]
    if session_key is not None:
        conditions.append("session_key = ?")
        values.append(encode_text(session_key))
    if pane is not None:
        conditions += ["pane_id = ?", "pane_generation = ?", "pane_birth_ts = ?"]
        conditions.append("COALESCE(tmux_server, '') = ?")
        values += [
            encode_text(pane.pane_id),
            INTEGER.encode(pane.generation),
            encode_time(pane.birth_ts),
            encode_text(pane.server),
        ]
    query = f"{_READ} WHERE {' AND '.join(conditions)} ORDER BY ingest_seq LIMIT ?"
    return LOG.records(connection.execute(query, [*values, limit]))


def last_ingest_seq(connection: sqlite3.Connection) -> int:
    """Return the number of the newest observation; 0 if there is none."""
    (number,) = connection.execute("SELECT MAX(ingest_seq) FROM events_raw_v2").fetchone()
    return number or 0


def allow_removal(connection: sqlite3.Connection, older_than: datetime, keep: int) -> None:
    """Say what may go: what is older, but for the newest `keep`.

    One is always kept, so that no number is given twice.
    """
    row = connection.execute(
        "SELECT ingest_seq FROM events_raw_v2 ORDER BY ingest_seq DESC LIMIT 1 OFFSET ?",
        [max(keep, 1)],
    ).fetchone()
    through_seq = row[0] if row else 0
    connection.execute(
        "UPDATE retention_v1 SET observed_before = ?, through_seq = ?",
        [encode_time(older_than), through_seq],
    )


def remove_allowed(connection: sqlite3.Connection, limit: int) -> int:
    """Remove some of what may go, and return how much that was."""
    return connection.execute(
        "DELETE FROM events_raw_v2 WHERE rowid IN ("
        "SELECT log.rowid FROM retention_v1 AS retention "
        "CROSS JOIN events_raw_v2 AS log INDEXED BY events_raw_v2_by_time "
        "WHERE log.observed_at < retention.observed_before "
        "AND log.ingest_seq <= retention.through_seq LIMIT ?)",
        [limit],
    ).rowcount
