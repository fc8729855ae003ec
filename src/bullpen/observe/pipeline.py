"""From the gateway's log to what we say, and from there to the disk.

Two readers follow the log, at their own pace. One folds it into the projection at once, so that
what we say does not wait for a disk. The other keeps it: observations and the states they led to
are written in one transaction, and only then acknowledged. While nothing can be written the first
goes on, the second tries again, and nothing is lost as long as the log can hold it.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from bullpen.api.errors import ApiError
from bullpen.api.methods import IngestReply
from bullpen.errors import BullpenError
from bullpen.model.observations import PaneInstanceId
from bullpen.model.records import BindingLink, Commit, Ingested, Restored
from bullpen.model.states import EvidenceTier, SourceKind
from bullpen.model.views import PaneState, SessionState, StateChange
from bullpen.observe.gateway import Gateway, Outcome, ingest_reply
from bullpen.observe.projection import Projection
from bullpen.observe.records import Step
from bullpen.observe.refusals import Refusals
from bullpen.observe.sources.port import Now

__all__ = ["Keeper", "Pipeline"]

logger = logging.getLogger("bullpen.observe")

BATCH = 500
RETRY_SECONDS = 2.0
LIVE = timedelta(seconds=60)  # what is older when it arrives is history that was read


class Keeper(Protocol):
    """Where a step is written: all of it or nothing. `bullpen.store.Store` in production."""

    async def commit(self, commit: Commit) -> None:
        """Write a step."""
        ...


class Pipeline:
    """Drives what observations become, at each tick and whenever a source has something."""

    def __init__(
        self,
        gateway: Gateway,
        projection: Projection,
        keeper: Keeper,
        now: Now,
        *,
        pull_seconds: float = 1.0,
        tick_seconds: float = 1.0,
        on_changes: Callable[[tuple[StateChange, ...]], None] = lambda _: None,
        on_latency: Callable[[EvidenceTier, timedelta], None] = lambda *_: None,
        on_store_trouble: Callable[[BullpenError | None], None] = lambda _: None,
    ) -> None:
        self.gateway = gateway
        self.projection = projection
        self._keeper = keeper
        self._now = now
        self._pull_seconds = pull_seconds
        self._tick_seconds = tick_seconds
        self._on_changes = on_changes
        self._on_latency = on_latency
        self._on_store_trouble = on_store_trouble
        self._unsaved = _Unsaved()
        self._refusals = Refusals()
        self._something_to_keep = asyncio.Event()
        self._keeping: asyncio.Task[bool] | None = None

    async def run(self) -> None:
        """Follow the sources until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(), name="pipeline:follow")
            group.create_task(self._keep_on(), name="pipeline:keep")

    def restore(self, restored: Restored) -> None:
        """Begin with what an earlier run has kept."""
        self.projection.restore(restored, self._now())

    def adopt(self, restored: Restored) -> None:
        """Take up what a snapshot says of panes and sessions that are there."""
        now = self._now()
        self.projection.adopt(restored, now)
        self._take(self.projection.tick(self.gateway.links(), now), (), now)

    async def tick(self) -> None:
        """Ask every source, and let time pass."""
        await self.gateway.pull_sources()
        self.fold()

    def fold(self) -> Step:
        """Fold all that is in the log; return what the last batch did."""
        now, links = self._now(), self.gateway.links()
        step = Step()
        for _ in range(BATCH):
            batch = self.gateway.unfolded(BATCH)
            step = self.projection.apply(batch, links, now)
            self._take(step, batch, now)
            if len(batch) < BATCH:
                break
        return step

    def ingest(self, kind: SourceKind, raw_events: Sequence[Any]) -> IngestReply:
        """Take what a source delivers itself, and say at once what became of it.

        Raises:
            ApiError: all of it was refused.
        """
        self.fold()
        outcomes = self.gateway.ingest(kind, raw_events)
        folded = {each.ingest_seq: each for each in self.fold().outcomes}
        return ingest_reply([_with_reason(each, folded) for each in outcomes])

    def bind(self, pane: PaneInstanceId, session_key: str, expected_version: int) -> PaneState:
        """Put a session into a pane because somebody says so.

        Raises:
            Refused: it has changed meanwhile.
            KeyError: there is no such pane or session.
        """
        now = self._now()
        step = self.projection.bind(pane, session_key, expected_version, self.gateway.links(), now)
        self._take(step, (), now)
        state = self.projection.records.panes[pane].state
        assert state is not None
        return state

    async def flush(self) -> None:
        """Write what is not yet written; once, whatever becomes of it."""
        if self._keeping is not None:
            await asyncio.wait([self._keeping])
        await self._keep()

    # ------------------------------------------------------------------------------------- folding

    async def _follow(self) -> None:
        """Pull at every period and whenever there is news; fold what came, and at every tick."""
        loop = asyncio.get_running_loop()
        next_pull = next_tick = loop.time()
        while True:
            pause = max(min(next_pull, next_tick) - loop.time(), 0.0)
            has_news = await self.gateway.wait_for_events(pause)
            now = loop.time()
            if now >= next_pull:
                next_pull = max(next_pull + self._pull_seconds, now)
                await self.gateway.pull_sources()
            elif has_news:
                await self.gateway.pull_sources(only_nudged=True)
            if now >= next_tick:
                next_tick = max(next_tick + self._tick_seconds, now)
                self.fold()
            elif has_news:
                self.fold()

    def _take(self, step: Step, batch: Sequence[Ingested], now: datetime) -> None:
        self._unsaved.add(step)
        if batch or not self._unsaved.is_empty or self.gateway.is_checkpoint_due:
            self._something_to_keep.set()
        if step.changes:
            self._on_changes(step.changes)
            for each in batch:
                late = now - each.observation.observed_at
                if timedelta(0) <= late <= LIVE:
                    self._on_latency(each.observation.tier, late)
        for folded in step.outcomes:
            if folded.reason is not None:
                self.gateway.note_dropped(folded.source_kind, folded.reason)
                self._refusals.note(
                    folded.source_kind, folded.session_key, folded.reason, folded.message
                )

    # ------------------------------------------------------------------------------------- keeping

    async def _keep_on(self) -> None:
        while True:
            await self._something_to_keep.wait()
            self._something_to_keep.clear()
            if not await self._keep():
                await asyncio.sleep(RETRY_SECONDS)
                self._something_to_keep.set()

    async def _keep(self) -> bool:
        """Write all that there is to write; return whether that was possible.

        A write that has begun comes to its end, whoever ceases to wait for it: one that was given
        up and done after all would be done twice.
        """
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.create_task(self._write(), name="pipeline:write")
        return await asyncio.shield(self._keeping)

    async def _write(self) -> bool:
        while True:
            try:
                delivery = self.gateway.take(BATCH)
            except ApiError as error:
                logger.warning("the log went on without the store: %s", error.message)
                continue
            saving, self._unsaved = self._unsaved, _Unsaved()
            commit = saving.commit(
                observations=delivery.events,
                cursors=self.gateway.checkpoint(),
                health=self.gateway.health() if delivery.token else (),
            )
            try:
                await self._keeper.commit(commit)
            except BullpenError as error:
                self._unsaved = saving.followed_by(self._unsaved)
                self._on_store_trouble(error)
                return False
            self._on_store_trouble(None)
            if delivery.token is None:
                return True
            self.gateway.ack(delivery.token)
            if len(delivery.events) < BATCH and self._unsaved.is_empty:
                return True


class _Unsaved:
    """The states that are not written yet, the latest of each."""

    def __init__(self) -> None:
        self._panes: dict[PaneInstanceId, PaneState | None] = {}
        self._sessions: dict[str, SessionState | None] = {}
        self._bindings: dict[tuple[PaneInstanceId, datetime], BindingLink] = {}

    @property
    def is_empty(self) -> bool:
        return not (self._panes or self._sessions or self._bindings)

    def add(self, step: Step) -> None:
        self._panes.update((each.pane_instance_id, each) for each in step.panes)
        self._panes.update(dict.fromkeys(step.removed_panes))
        self._sessions.update((each.session_key, each) for each in step.sessions)
        self._sessions.update(dict.fromkeys(step.removed_sessions))
        self._bindings.update(
            ((each.pane_instance_id, each.bound_at), each) for each in step.bindings
        )

    def followed_by(self, later: "_Unsaved") -> "_Unsaved":
        self._panes.update(later._panes)
        self._sessions.update(later._sessions)
        self._bindings.update(later._bindings)
        return self

    def commit(self, **more: Any) -> Commit:
        return Commit(
            panes=tuple(each for each in self._panes.values() if each),
            removed_panes=tuple(key for key, each in self._panes.items() if each is None),
            sessions=tuple(each for each in self._sessions.values() if each),
            removed_sessions=tuple(key for key, each in self._sessions.items() if each is None),
            bindings=tuple(self._bindings.values()),
            **more,
        )


def _with_reason(outcome: Outcome, folded: dict[int, Any]) -> Outcome:
    """Return what became of an observation at the gateway and after it."""
    after = folded.get(outcome.ingest_seq or 0)
    if after is None or after.reason is None:
        return outcome
    return msgspec.structs.replace(outcome, reason=after.reason, message=after.message)
