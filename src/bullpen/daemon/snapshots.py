"""Copies of the state: saved now and then and at the end, and gone back to with care.

Going back is tried before it is done: a dry run says what would become of it, and only the same
snapshot can be restored after that, for a while. What a snapshot says of panes of a tmux server
that no longer runs is never believed.
"""

import asyncio
import secrets
from datetime import datetime, timedelta

from bullpen.api.errors import ApiError
from bullpen.api.methods import RestoreReport
from bullpen.model.reasons import Reason
from bullpen.model.records import Restored, SnapshotInfo
from bullpen.observe.pipeline import Pipeline
from bullpen.observe.sources.port import Now
from bullpen.store.errors import SnapshotInvalid, SnapshotNotFound, StoreError
from bullpen.store.store import Store

__all__ = ["Snapshots"]

TRIED_FOR = timedelta(minutes=10)


class Snapshots:
    """Saves, lists and restores."""

    def __init__(self, store: Store, pipeline: Pipeline, now: Now) -> None:
        self._store = store
        self._pipeline = pipeline
        self._now = now
        self._tried: tuple[str, datetime] | None = None

    async def save_every(self, period: timedelta) -> None:
        """Save one every so often, until cancelled."""
        while True:
            await asyncio.sleep(period.total_seconds())
            await self.save("periodic")

    async def save(self, reason: str) -> SnapshotInfo:
        """Save one, with all that is known at this moment.

        Raises:
            ApiError: it could not be written.
        """
        await self._pipeline.flush()
        now = self._now()
        try:
            return await self._store.save_snapshot(reason, now, lambda: _name(now))
        except StoreError as error:
            raise ApiError(Reason.STORE_UNAVAILABLE, str(error)) from error

    async def list(self) -> tuple[SnapshotInfo, ...]:
        """Return what there is, newest first."""
        return await self._store.list_snapshots()

    async def restore(self, snapshot_id: str, *, dry_run: bool) -> RestoreReport:
        """Go back to a snapshot, or say what that would do.

        Raises:
            ApiError: there is no such snapshot, it is damaged, or it was not tried before.
        """
        info, restored = await self._load(snapshot_id)
        now = self._now()
        if dry_run:
            self._tried = (snapshot_id, now)
            return self._report(info, restored, dry_run=True)
        if self._tried is None or self._tried[0] != snapshot_id or now - self._tried[1] > TRIED_FOR:
            raise ApiError(
                Reason.DRY_RUN_REQUIRED, f"restoring {snapshot_id} was not tried with a dry run"
            )
        self._tried = None
        await self.save("before_restore")
        report = self._report(info, restored, dry_run=False)
        self._pipeline.adopt(restored)
        return report

    async def _load(self, snapshot_id: str) -> tuple[SnapshotInfo, Restored]:
        try:
            return await self._store.load_snapshot(snapshot_id)
        except SnapshotNotFound as error:
            raise ApiError(Reason.SNAPSHOT_NOT_FOUND, str(error)) from error
        except SnapshotInvalid as error:
            raise ApiError(Reason.SNAPSHOT_INVALID, str(error)) from error
        except StoreError as error:
            raise ApiError(Reason.STORE_UNAVAILABLE, str(error)) from error

    def _report(self, info: SnapshotInfo, restored: Restored, *, dry_run: bool) -> RestoreReport:
        there = {each.pane_instance_id for each in self._pipeline.projection.panes()}
        alive = sum(each.pane_instance_id in there for each in restored.panes)
        dropped = len(restored.panes) - alive
        problems = (f"{dropped} panes are not there any more",) if dropped else ()
        return RestoreReport(
            snapshot=info,
            dry_run=dry_run,
            is_valid=True,
            problems=problems,
            panes_restored=alive,
            panes_dropped=dropped,
            sessions_restored=len(restored.sessions),
        )


def _name(now: datetime) -> str:
    return f"{now:%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"
