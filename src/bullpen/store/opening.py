"""Opening the database whatever state its file is in.

A damaged file is put aside and a new one begun; where nothing can be written the database is in
memory. Both are told in words. Somebody else's lock and a later version are left to the caller:
there the data are whole, and going on without them would be wrong.
"""

import asyncio
import contextlib
import sqlite3
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bullpen.store.database import Database, translate
from bullpen.store.errors import StoreCorrupt, StoreError, StoreFull, StoreUnavailable
from bullpen.store.files import make_private, put_aside
from bullpen.store.migrate import check_version, migrate
from bullpen.store.tables import (
    ALERTS,
    BINDINGS,
    CURSORS,
    HEALTH,
    LOG,
    PANES,
    SESSIONS,
    SNAPSHOTS,
    Table,
)

__all__ = ["Opened", "open_database"]

TABLES: tuple[Table[Any], ...] = (
    ALERTS,
    BINDINGS,
    CURSORS,
    HEALTH,
    LOG,
    PANES,
    SESSIONS,
    SNAPSHOTS,
)


class Opened(NamedTuple):
    """A database, whether it outlives us, and what somebody should know about that."""

    database: Database
    is_persistent: bool
    notices: tuple[str, ...] = ()


async def open_database(path: Path, now: datetime, *, lock_timeout_seconds: float) -> Opened:
    """Open the database of a path, or what can be had in its place.

    Raises:
        StoreLocked: another process holds it.
        StoreTooNew: a later version of bullpen wrote it.
    """
    notices: list[str] = []
    try:
        try:
            database = await _open_file(path, lock_timeout_seconds)
        except StoreCorrupt as error:
            aside = await _put_aside(path, now)
            notices.append(f"{error}; it was kept as {aside}, and a new one was begun")
            database = await _open_file(path, lock_timeout_seconds)
    except (StoreUnavailable, StoreFull, StoreCorrupt) as error:
        notices.append(f"{error}; everything is kept in memory only, until the next start")
        return Opened(await open_memory(), is_persistent=False, notices=tuple(notices))
    return Opened(database, is_persistent=True, notices=tuple(notices))


async def open_memory() -> Database:
    """Open a database that ends with us."""
    return await Database.open(None, prepare=partial(migrate, path="memory"))


async def _open_file(path: Path, lock_timeout_seconds: float) -> Database:
    try:
        await asyncio.to_thread(make_private, path)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or str(error)) from error
    await asyncio.to_thread(_refuse_newer, path, lock_timeout_seconds)
    return await Database.open(
        path,
        prepare=partial(_prepare, path=str(path)),
        lock_timeout_seconds=lock_timeout_seconds,
    )


async def _put_aside(path: Path, now: datetime) -> Path:
    try:
        return await asyncio.to_thread(put_aside, path, now)
    except OSError as error:
        raise StoreUnavailable(str(path), error.strerror or str(error)) from error


def _refuse_newer(path: Path, lock_timeout_seconds: float) -> None:
    """Look at the version over a connection that can change nothing, not even at its end."""
    try:
        with contextlib.closing(
            sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=lock_timeout_seconds
            )
        ) as connection:
            check_version(connection, str(path))
    except sqlite3.Error as error:
        raise translate(error, str(path)) from error


def _prepare(connection: sqlite3.Connection, path: str) -> None:
    """Check a database and bring it to the schema of this version."""
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise StoreCorrupt(path, verdict)
    try:
        migrate(connection, path)
        for table in TABLES:
            connection.execute(f"{table.select} LIMIT 0")
    except (sqlite3.OperationalError, sqlite3.IntegrityError) as error:
        raise _schema_error(error, path) from error


def _schema_error(error: sqlite3.Error, path: str) -> StoreError:
    translated = translate(error, path)
    if type(translated) is StoreError:  # a table or a column is missing, or there already
        return StoreCorrupt(path, str(error))
    return translated
