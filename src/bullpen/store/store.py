"""The store: what one step of the projection writes, and what a restart finds."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Self

import msgspec

from bullpen.model.alerts import Alert
from bullpen.model.observations import PaneInstanceId
from bullpen.model.records import Commit, Ingested, Restored, SnapshotInfo
from bullpen.store import log, snapshots, states
from bullpen.store.database import Database
from bullpen.store.opening import Opened, open_database, open_memory

__all__ = ["Store", "StoreCounts"]

SNAPSHOTS_KEPT = 96  # a day of one every 15 minutes
PRUNED_AT_ONCE = 1000  # rows: some milliseconds, then others have their turn


class StoreCounts(msgspec.Struct, frozen=True):
    """What was written since the store was opened."""

    commits: int = 0
    observations: int = 0
    duplicates: int = 0
    """Observations that were in the log already."""


class Store:
    """What outlives a restart. Made by `open`; one per file."""

    def __init__(self, opened: Opened, path: Path | None, *, snapshots_kept: int) -> None:
        self._database = opened.database
        self._snapshots_kept = snapshots_kept
        self.path = path
        self.is_persistent = opened.is_persistent
        self.notices = opened.notices
        """What somebody should know: the file was damaged, or nothing can be written."""
        self.counts = StoreCounts()

    @classmethod
    async def open(
        cls,
        path: Path | None,
        *,
        now: datetime,
        lock_timeout_seconds: float = 5.0,
        snapshots_kept: int = SNAPSHOTS_KEPT,
    ) -> Self:
        """Open the store in a file, which is made if needed; without a path it is in memory.

        A damaged file is put aside; where nothing can be written the store is in memory: see
        `notices` and `is_persistent`.

        Raises:
            StoreLocked: another process holds the file.
            StoreTooNew: a later version of bullpen wrote it; it was not touched.
        """
        if path is None:
            opened = Opened(await open_memory(), is_persistent=False)
        else:
            opened = await open_database(path, now, lock_timeout_seconds=lock_timeout_seconds)
        return cls(opened, path, snapshots_kept=snapshots_kept)

    @property
    def database(self) -> Database:
        """Where it is kept: for what else is kept there. It is closed with the store."""
        return self._database

    async def aclose(self, timeout_seconds: float = 5.0) -> None:
        """Write what was asked before, then close. Calling it again is harmless."""
        await self._database.aclose(timeout_seconds)

    async def commit(self, commit: Commit) -> None:
        """Write all of a step, or nothing of it. Observations that are there already stay as is.

        Raises:
            StaleVersion: a state as late or later is stored.
            StoreFull: there is no room; the same step can be written once there is.
            StoreError: it could not be written.
        """
        if commit.is_empty:
            return

        def write(connection: Connection) -> int:
            appended = log.append(connection, commit.observations)
            states.write_states(connection, commit)
            return appended

        appended = await self._database.write(write)
        self.counts = StoreCounts(
            self.counts.commits + 1,
            self.counts.observations + appended,
            self.counts.duplicates + len(commit.observations) - appended,
        )

    async def restore(self) -> Restored:
        """Return all states as they were last written."""
        return await self._database.read(states.read_states)

    async def events(
        self,
        after_seq: int = 0,
        limit: int = 500,
        *,
        session_key: str | None = None,
        pane: PaneInstanceId | None = None,
    ) -> tuple[Ingested, ...]:
        """Return what is in the log after a number, in order: of everybody, a session or a pane."""
        read = partial(
            log.read_log, after_seq=after_seq, limit=limit, session_key=session_key, pane=pane
        )
        return await self._database.read(read)

    async def alerts(
        self, *, include_resolved: bool = False, limit: int = 500
    ) -> tuple[Alert, ...]:
        """Return the alerts, the newest first: the open ones, or the resolved ones too."""
        return await self._database.read(
            lambda it: states.read_alerts(it, include_resolved=include_resolved, limit=limit)
        )

    async def prune(self, older_than: datetime, keep: int) -> int:
        """Forget what is older, and return how many rows that were.

        Of the log the newest `keep` stay, however old. Alerts go if they were resolved before that
        time, links if they ended before it and are not the last of a pane that is still there.
        """
        await self._database.write(lambda it: log.allow_removal(it, older_than, keep))
        removed = await self._database.write(lambda it: states.remove_history(it, older_than))
        while some := await self._database.write(_remove_some):
            removed += some
        return removed

    async def save_snapshot(
        self, reason: str, now: datetime, ids: Callable[[], str]
    ) -> SnapshotInfo:
        """Keep a copy of all states, under an id from `ids`, and of all copies the newest."""
        keep = self._snapshots_kept
        return await self._database.write(
            lambda it: snapshots.save_snapshot(it, reason, now, ids, keep)
        )

    async def list_snapshots(self) -> tuple[SnapshotInfo, ...]:
        """Return the copies there are, the newest first."""
        return await self._database.read(snapshots.list_snapshots)

    async def load_snapshot(self, snapshot_id: str) -> tuple[SnapshotInfo, Restored]:
        """Return a copy. Nothing is changed by it.

        Raises:
            SnapshotNotFound: there is none of that name.
            SnapshotInvalid: it is not what was saved.
        """
        return await self._database.read(lambda it: snapshots.load_snapshot(it, snapshot_id))


def _remove_some(connection: Connection) -> int:
    return log.remove_allowed(connection, PRUNED_AT_ONCE)
