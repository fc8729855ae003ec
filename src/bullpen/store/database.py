"""SQLite behind an event loop: one writer, some readers, whole transactions.

The only module that begins and ends transactions. A write is one hop to the writer's thread and
back, however many statements it has; it is committed as a whole or not at all. Readers see the
last commit and never wait for the writer.
"""

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from bullpen.store.errors import (
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreLocked,
    StoreUnavailable,
)
from bullpen.store.threads import ConnectionThreads

__all__ = ["Database", "translate"]

logger = logging.getLogger("bullpen.store")

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MEMORY = ":memory:"
LOCKED_SECONDS = 0.25  # for a lock that has been waited for in vain just before

_ERRORS: dict[int, type[StoreLocked | StoreFull | StoreUnavailable | StoreCorrupt]] = {
    sqlite3.SQLITE_BUSY: StoreLocked,
    sqlite3.SQLITE_LOCKED: StoreLocked,
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_PERM: StoreUnavailable,
    sqlite3.SQLITE_AUTH: StoreUnavailable,
    sqlite3.SQLITE_READONLY: StoreUnavailable,
    sqlite3.SQLITE_CANTOPEN: StoreUnavailable,
    sqlite3.SQLITE_IOERR: StoreUnavailable,
    sqlite3.SQLITE_NOLFS: StoreUnavailable,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
    sqlite3.SQLITE_NOTADB: StoreCorrupt,
}


class Database:
    """A database file, or one in memory if there is no path."""

    def __init__(
        self,
        writer: ConnectionThreads,
        readers: ConnectionThreads | None,
        path: str,
        lock_timeout_seconds: float = 5.0,
    ):
        self._writer = writer
        self._readers = readers
        self._path = path
        self._lock_timeout_seconds = lock_timeout_seconds
        self._is_locked = False  # the writer's own: somebody else was found to hold the file

    @classmethod
    async def open(
        cls,
        path: Path | None,
        *,
        prepare: Work[object] | None = None,
        lock_timeout_seconds: float = 5.0,
        readers: int = 2,
        limit: int = 256,
        patience_seconds: float = 30.0,
    ) -> Self:
        """Open a file, which is made if it is not there, or a database in memory.

        `prepare` gets the writer's connection before anybody else, outside of any transaction. At
        most `limit` writes, and as many reads, wait for their turn.

        Raises:
            StoreError: it cannot be opened for writing, or `prepare` failed.
        """
        name = MEMORY if path is None else str(path)

        def connect_writer() -> sqlite3.Connection:
            return _connect(name, lock_timeout_seconds, lambda it: _prepare_writer(it, prepare))

        def connect_reader() -> sqlite3.Connection:
            return _connect(name, lock_timeout_seconds, _prepare_reader)

        writer = ConnectionThreads(
            connect_writer, name="store-writer", limit=limit, patience_seconds=patience_seconds
        )
        await writer.start()
        if path is None:  # which no other connection can see
            return cls(writer, None, name)
        pool = ConnectionThreads(
            connect_reader,
            name="store-reader",
            count=readers,
            limit=limit,
            patience_seconds=patience_seconds,
        )
        try:
            await pool.start()
        except BaseException:
            await writer.aclose(lock_timeout_seconds)
            raise
        return cls(writer, pool, name, lock_timeout_seconds)

    async def write(self, work: Work[T]) -> T:
        """Run work in a transaction of its own and commit it; whatever it raises rolls it back.

        A caller who is cancelled does not know whether it was written.

        Raises:
            StoreError: it was not written.
        """
        return await self._writer.run(lambda connection: self._write(connection, work))

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads; all it reads is of one moment."""
        if self._readers is None:
            return await self._writer.run(lambda connection: self._read_memory(connection, work))
        return await self._readers.run(lambda connection: self._read(connection, work))

    async def aclose(self, timeout_seconds: float = 5.0) -> None:
        """Do what was asked before, then close. Calling it again is harmless."""
        self._writer.refuse()
        try:
            if self._readers is not None:
                await self._readers.aclose(timeout_seconds)
        finally:  # the writer last: only who closes alone takes the write-ahead log into the file
            self._writer.stop()
        await self._writer.aclose(timeout_seconds)

    # --------------------------------------------------------------------------- in the threads

    def _write(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        """Write; once somebody has waited in vain for the lock, those behind him wait little."""
        try:
            result = self._transact(connection, "BEGIN IMMEDIATE", work)
        except StoreLocked:
            self._wait_for_lock(connection, min(LOCKED_SECONDS, self._lock_timeout_seconds))
            self._is_locked = True
            raise
        if self._is_locked:
            self._is_locked = False
            self._wait_for_lock(connection, self._lock_timeout_seconds)
        return result

    def _wait_for_lock(self, connection: sqlite3.Connection, seconds: float) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1000)}")

    def _read(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        return self._transact(connection, "BEGIN", work)

    def _read_memory(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        connection.execute("PRAGMA query_only = ON")
        try:
            return self._read(connection, work)
        finally:
            connection.execute("PRAGMA query_only = OFF")

    def _transact(self, connection: sqlite3.Connection, begin: str, work: Work[T]) -> T:
        try:
            connection.execute(begin)
            try:
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:  # else SQLite has rolled it back already
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise translate(error, self._path) from error
        return result


def translate(error: sqlite3.Error, path: str) -> StoreError:
    """Return our error for one of SQLite's."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest tells how, not what
    kind = _ERRORS.get(code)
    return StoreError(f"{path}: {error}") if kind is None else kind(path, str(error))


def _connect(name: str, lock_timeout_seconds: float, prepare: Work[None]) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            name, timeout=lock_timeout_seconds, isolation_level=None, cached_statements=256
        )
        try:
            prepare(connection)
        except BaseException:
            connection.close()
            raise
    except sqlite3.Error as error:
        raise translate(error, name) from error
    return connection


def _prepare_writer(connection: sqlite3.Connection, prepare: Work[object] | None) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode not in ("wal", "memory"):
        logger.warning(
            "the file system allows no write-ahead log; readers will wait for the writer"
        )
    connection.execute("PRAGMA synchronous = NORMAL")  # survives our end; a power cut costs seconds
    connection.execute("PRAGMA checkpoint_fullfsync = ON")  # or on macOS it may cost everything
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {16 * 2**20}")  # after a large transaction
    _try_to_write(connection)
    if prepare is not None:
        prepare(connection)


def _try_to_write(connection: sqlite3.Connection) -> None:
    """Fail now if the file cannot be written, which opens without a word and begins to be read."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("PRAGMA user_version = 0")
    finally:
        connection.execute("ROLLBACK")


def _prepare_reader(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA query_only = ON")
