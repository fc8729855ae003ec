"""Copies of all states that can be gone back to: to save, to list, to load.

All of it runs inside a transaction of the `Database`. A copy carries the checksum of its content
and is not given out if that does not hold.
"""

import hashlib
import sqlite3
from collections.abc import Callable
from datetime import datetime

import msgspec

from bullpen.model.records import Restored, SnapshotInfo
from bullpen.store.encoding import decode_json, encode_json, encode_text
from bullpen.store.errors import SnapshotInvalid, SnapshotNotFound
from bullpen.store.states import read_states
from bullpen.store.tables import SNAPSHOTS

__all__ = ["list_snapshots", "load_snapshot", "save_snapshot"]

_NEWEST_FIRST = "ORDER BY created_at DESC, rowid DESC"
_INSERT = (
    f"INSERT INTO state_snapshot_v2 ({SNAPSHOTS.names}, content) "  # noqa: S608 - our names
    f"VALUES ({', '.join('?' * (SNAPSHOTS.names.count(',') + 2))})"
)
_LOAD = SNAPSHOTS.select.replace(" FROM ", ", content FROM ") + " WHERE snapshot_id = ?"
_FORGET = (
    "DELETE FROM state_snapshot_v2 WHERE rowid NOT IN "  # noqa: S608 - nothing from outside
    f"(SELECT rowid FROM state_snapshot_v2 {_NEWEST_FIRST} LIMIT ?)"
)


def save_snapshot(
    connection: sqlite3.Connection, reason: str, now: datetime, ids: Callable[[], str], keep: int
) -> SnapshotInfo:
    """Keep a copy of all states as they are, and of all copies the newest `keep`."""
    states = read_states(connection)
    content = encode_json(states)
    info = SnapshotInfo(
        snapshot_id=ids(),
        created_at=now,
        reason=reason,
        panes=len(states.panes),
        sessions=len(states.sessions),
        last_ingest_seq=states.last_ingest_seq,
        size_bytes=len(content.encode()),
        sha256=_checksum(content),
    )
    connection.execute(_INSERT, (*SNAPSHOTS.row(info), content))
    connection.execute(_FORGET, [keep])
    return info


def list_snapshots(connection: sqlite3.Connection) -> tuple[SnapshotInfo, ...]:
    """Return what copies there are, the newest first."""
    return SNAPSHOTS.records(connection.execute(f"{SNAPSHOTS.select} {_NEWEST_FIRST}"))


def load_snapshot(
    connection: sqlite3.Connection, snapshot_id: str
) -> tuple[SnapshotInfo, Restored]:
    """Return a copy.

    Raises:
        SnapshotNotFound: there is none of that name.
        SnapshotInvalid: it is not what was saved, or this version cannot read it.
    """
    row = connection.execute(_LOAD, [encode_text(snapshot_id)]).fetchone()
    if row is None:
        raise SnapshotNotFound(snapshot_id)
    *cells, content = row
    try:
        info = SNAPSHOTS.record(cells)
        if not isinstance(content, str) or _checksum(content) != info.sha256:
            raise SnapshotInvalid(snapshot_id, "its checksum does not match")
        return info, decode_json(content, Restored)
    except (msgspec.MsgspecError, ValueError) as error:
        raise SnapshotInvalid(snapshot_id, str(error)) from error


def _checksum(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()
