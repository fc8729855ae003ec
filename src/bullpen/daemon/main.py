"""The daemon's life: from its lock to its last words.

It begins with what must be there first and ends in the opposite order: lock, log, store, sources,
gateway and projection, and only when those have looked once, the socket. At the end the looking
stops, the socket is closed and removed, and what is known is kept.
"""

import asyncio
import contextlib
import gc
import logging
import os
import secrets
import sys
from collections.abc import AsyncIterator, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any, Self

from bullpen.api.client import Client
from bullpen.api.methods import PROTOCOL_VERSION, DaemonInfo
from bullpen.api.options import DaemonOptions
from bullpen.api.runtime import Paths, prepare
from bullpen.api.settings import Settings, resolve
from bullpen.daemon.alarms import Alarms
from bullpen.daemon.alerts import AlertLedger
from bullpen.daemon.departures import Departures
from bullpen.daemon.door import open_door
from bullpen.daemon.inside import Companion, open_inside
from bullpen.daemon.isolated import isolated_sources, keep_panes
from bullpen.daemon.latency import Latencies
from bullpen.daemon.lock import InstanceLock
from bullpen.daemon.log import Log, open_log
from bullpen.daemon.post import Post
from bullpen.daemon.reach import Reach
from bullpen.daemon.service import Service
from bullpen.daemon.signals import Stop, stop_on_signals
from bullpen.daemon.snapshots import Snapshots
from bullpen.daemon.sources import Surroundings, local_sources, screen_rules, utc_now
from bullpen.daemon.talk import TalkService
from bullpen.daemon.wrappers import Wrapper, sighting
from bullpen.errors import BullpenError
from bullpen.model.alerts import Alert, AlertLevel, ResolvePolicy
from bullpen.model.reasons import Reason
from bullpen.model.records import Restored
from bullpen.model.states import EvidenceTier, SourceKind
from bullpen.model.version import VERSION
from bullpen.model.views import PaneState, StateChange
from bullpen.observe.gateway import Gateway
from bullpen.observe.pipeline import Pipeline
from bullpen.observe.projection import Projection
from bullpen.observe.sources.port import Now
from bullpen.store.database import Database
from bullpen.store.opening import open_memory
from bullpen.store.push import PushAddresses
from bullpen.store.store import Store

__all__ = ["Daemon", "run"]

logger = logging.getLogger("bullpen.daemon")

REMEMBERED = 10_000  # observations that are told apart from those read again after a restart
HOUSEKEEPING_SECONDS = 60.0
LONGEST_TICK_MS = 1000  # sources are heard of at least so often: three times are stale
KEEP_PANES_SECONDS = 5.0
WATCH_SECONDS = 2.0
EVENTS_KEPT = 500_000
FIRST_LOOK_SECONDS = 5.0
STORE_SECONDS = 5.0


def run(options: DaemonOptions, companions: Sequence[Companion] = ()) -> int:
    """Run the daemon until it is told to stop, with what serves beside it; return the exit code."""
    paths = Paths.resolve(socket=options.socket_path)
    settings = resolve(paths.config, os.environ, _flags(options)).settings
    prepare(paths)
    with InstanceLock(paths.lock), InstanceLock(paths.state_lock):
        log = open_log(
            paths.log,
            level=settings.daemon.log_level,
            max_bytes=settings.daemon.log_max_bytes,
            files=settings.daemon.log_files,
            console=sys.stderr if options.foreground else None,
        )
        try:
            asyncio.run(_run(settings, paths, log, companions))
        finally:
            log.close()
    return 0


async def _run(settings: Settings, paths: Paths, log: Log, companions: Sequence[Companion]) -> None:
    with stop_on_signals() as stop:
        async with Daemon(settings, paths, stop=stop, log=log, companions=companions):
            gc.collect()
            gc.freeze()  # what is there by now stays: to look through it again blocks the loop
            reason = await stop.wait()
            logger.info("stopping: %s", reason)


def _flags(options: DaemonOptions) -> dict[str, object]:
    flags = {
        "observe.poll_interval_ms": options.poll_interval_ms,
        "observe.tmux_socket": options.tmux_socket,
        "daemon.isolate_sources": options.isolate_sources,
        "daemon.log_level": options.log_level,
    }
    return {key: value for key, value in flags.items() if value is not None}


class Daemon:
    """All rooms, composed, for the length of an `async with` block."""

    def __init__(
        self,
        settings: Settings,
        paths: Paths,
        *,
        stop: Stop | None = None,
        now: Now = utc_now,
        log: Log | None = None,
        companions: Sequence[Companion] = (),
    ) -> None:
        self._companions = companions
        self._settings = settings
        self._paths = paths
        self._stop = stop or Stop()
        self._now = now
        self._log = log
        self._nonce = secrets.token_hex(16)
        self._started_at = now()
        self._stack = contextlib.AsyncExitStack()
        self._is_store_well = True
        self._sightings = 0
        self.post: Post
        self.reach: Reach
        self.talk: TalkService
        self.pipeline: Pipeline
        self.service: Service
        self.alarms: Alarms
        self._store: Store

    async def __aenter__(self) -> Self:
        async with contextlib.AsyncExitStack() as stack:
            await self._begin(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()
        logger.info("stopped")

    async def _begin(self, stack: contextlib.AsyncExitStack) -> None:
        restored = await self._open_store(stack)
        await self._open_gateway(stack, restored)
        await self._open_post(stack)
        snapshots = Snapshots(self._store, self.pipeline, self._now)
        self.service = Service(
            self.pipeline,
            self.alarms,
            snapshots,
            self._now,
            describe=self._describe,
            deliver=self.pipeline.gateway.deliver,
            stop=lambda: self._stop.ask("somebody asked for it"),
            talk=self.talk,
            reach=self.reach,
        )
        self.alarms.on_change = self.service.tell_summary
        stack.push_async_callback(self._keep_all, snapshots)
        await self._open_sources(stack, restored.panes)
        await self._look_once()
        # The socket is closed after the looking has stopped, and before anything else is let go.
        await stack.enter_async_context(
            open_door(self._paths, self.service.builder, self._note_door)
        )
        await stack.enter_async_context(_background(self._work(snapshots)))
        logger.info("watching; listening at %s", self._paths.socket)

    async def _open_store(self, stack: contextlib.AsyncExitStack) -> Restored:
        self._store = await Store.open(
            self._paths.state_db,
            now=self._now(),
            snapshots_kept=self._settings.daemon.snapshots_kept,
        )
        stack.push_async_callback(self._store.aclose)
        restored = await self._store.restore()
        self.alarms = self._make_alarms(restored.alerts)
        return restored

    async def _open_gateway(self, stack: contextlib.AsyncExitStack, restored: Restored) -> None:
        gateway = Gateway(
            self._now,
            nonce=self._nonce,
            owner_uid=os.getuid(),
            last_ingest_seq=restored.last_ingest_seq,
            on_trouble=self.alarms.trouble,
        )
        stack.push_async_callback(gateway.aclose)
        recent = max(restored.last_ingest_seq - REMEMBERED, 0)
        gateway.restore(restored, await self._store.events(recent, REMEMBERED))
        self.pipeline = self._make_pipeline(gateway)
        self.pipeline.restore(restored)

    async def _open_post(self, stack: contextlib.AsyncExitStack) -> None:
        self.post = await stack.enter_async_context(
            Post.open(
                self._store,
                self._settings.mail,
                self._paths,
                self._now,
                agents=self.pipeline.projection.agents,
                on_wrapper=self._tell_wrapper,
                on_rules=self._note_rules,
            )
        )
        rules = await asyncio.to_thread(screen_rules, self._settings, self._paths)
        self.talk = TalkService(self.post, PushAddresses(await self._database_of_tasks(stack)))
        self.reach = Reach(self.post, rules, find_pane=self._pane_of)

    async def _open_sources(
        self, stack: contextlib.AsyncExitStack, known_panes: tuple[PaneState, ...]
    ) -> None:
        around = Surroundings(
            settings=self._settings,
            paths=self._paths,
            now=self._now,
            environment=dict(os.environ),
            known_panes=known_panes,
            panes=self._panes,
        )
        gateway, kinds = self.pipeline.gateway, self._settings.sources.enabled
        if self._settings.daemon.isolate_sources:
            sources = isolated_sources(gateway, kinds, around, self.alarms)
            await stack.enter_async_context(sources)
        else:
            await stack.enter_async_context(local_sources(gateway, kinds, around))

    async def _database_of_tasks(self, stack: contextlib.AsyncExitStack) -> Database:
        """Return where that is kept which is forgotten with tasks."""
        if self._settings.mail.store == "sqlite":
            return self._store.database
        memory = await open_memory()
        stack.push_async_callback(memory.aclose, STORE_SECONDS)
        return memory

    def _make_alarms(self, alerts: Iterable[Alert]) -> Alarms:
        limits = self._settings.daemon
        latencies = Latencies(
            {
                EvidenceTier.DETERMINISTIC: limits.slo_deterministic_ms / 1000,
                EvidenceTier.HEURISTIC: limits.slo_heuristic_ms / 1000,
            }
        )
        ledger = AlertLedger(lambda: secrets.token_hex(4))
        ledger.restore(alerts)
        alarms = Alarms(ledger, latencies, self._now)
        alarms.begin_anew()
        for notice in self._store.notices:
            alarms.sound(
                "store",
                AlertLevel.DEGRADED,
                Reason.STORE_UNAVAILABLE,
                notice,
                policy=ResolvePolicy.OPERATOR,
            )
        return alarms

    def _make_pipeline(self, gateway: Gateway) -> Pipeline:
        observe = self._settings.observe
        pull_ms = tick_ms = min(observe.poll_interval_ms, LONGEST_TICK_MS)
        if self._settings.daemon.isolate_sources:
            pull_ms, tick_ms = observe.source_pull_ms, observe.gateway_pull_ms
        return Pipeline(
            gateway,
            Projection(poll_interval=timedelta(milliseconds=observe.poll_interval_ms)),
            self._store,
            self._now,
            pull_seconds=pull_ms / 1000,
            tick_seconds=tick_ms / 1000,
            on_changes=self._tell,
            on_latency=self.alarms.note_latency,
            on_store_trouble=self._note_store,
        )

    def _tell(self, changes: tuple[StateChange, ...]) -> None:
        self.service.tell(changes)
        self.post.changed({each.agent.name for each in changes if each.agent is not None})

    def _tell_wrapper(self, wrapper: Wrapper) -> None:
        """Say what a wrapper says of its agent, where it is looked for."""
        self.reach.wrapper_changed(wrapper)
        wrapped = self.pipeline.projection.records.wrapped
        if wrapper.is_there:
            pids = (wrapper.pid, *wrapper.doors.get("pids", ()))
            socket = wrapper.said.tmux.rsplit(",", 2)[0]
            wrapped.note(
                wrapper.name,
                pids,
                tmux_socket=socket,
                pane_id=wrapper.said.tmux_pane,
                sessions=wrapper.sessions,
            )
        else:
            wrapped.forget(wrapper.name)
        if SourceKind.PTY in self._settings.sources.enabled:
            self._sightings += 1
            seen = sighting(wrapper, f"{self._nonce}:{self._sightings}", self._now())
            self.pipeline.ingest(SourceKind.PTY, [seen])

    def _pane_of(self, agent: str) -> PaneState | None:
        seen = self.post.contacts.agent(agent)
        if seen is None or seen.pane is None:
            return None
        record = self.pipeline.projection.records.panes.get(seen.pane)
        return record.state if record is not None else None

    async def _look_once(self) -> None:
        """Wait until the poller has looked, so that the first answer is not an empty one."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK_SECONDS):
                while SourceKind.POLLER in self._settings.sources.enabled:
                    await self.pipeline.tick()
                    health = dict(self.pipeline.gateway.health())
                    if health[SourceKind.POLLER].last_event_at is not None:
                        return
                    if not await self.pipeline.gateway.wait_for_events(0.2):
                        return

    async def _work(self, snapshots: Snapshots) -> None:
        period = timedelta(minutes=self._settings.daemon.snapshot_minutes)
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pipeline.run())
            group.create_task(self.post.run())
            group.create_task(self.reach.run())
            group.create_task(self.talk.watch.run())
            group.create_task(self.alarms.keep(self._store))
            group.create_task(snapshots.save_every(period))
            for companion in self._companions:
                group.create_task(self._accompany(companion))
            group.create_task(self._keep_house())
            group.create_task(self._keep_watch())
            group.create_task(Departures(self.pipeline, self._now).run())
            if self._settings.daemon.isolate_sources:
                group.create_task(self._keep_panes())

    async def _accompany(self, companion: Companion) -> None:
        """Let something serve beside us; that it cannot is no reason to end."""

        def open_client(
            pid: int, *, peer: str = "", is_boss: bool = False
        ) -> AbstractAsyncContextManager[Client]:
            return open_inside(self.service.builder, pid, peer=peer, is_boss=is_boss)

        try:
            await companion(open_client, self._paths, self._settings)
        except Exception:  # the boundary: what serves beside us is not us
            logger.exception("%s has failed", companion.__module__)

    async def _keep_house(self) -> None:
        while True:
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            self.alarms.judge_latencies()
            kept_for = timedelta(days=self._settings.daemon.retention_days)
            with contextlib.suppress(BullpenError):  # told when a state cannot be written
                await self._store.prune(self._now() - kept_for, EVENTS_KEPT)
                await self.post.forget()

    async def _keep_watch(self) -> None:
        """Say what befalls our own parts, should nobody else."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self.alarms.clear_past()
            self.alarms.judge_sources(self.pipeline.gateway.health())
            if self._log is not None:
                self.alarms.judge_log(self._log.trouble)

    async def _keep_panes(self) -> None:
        """Tell the sources which panes there are, also a poller that is started anew."""
        kept: tuple[object, ...] = ()
        while True:
            panes = self.pipeline.projection.panes()
            seen = tuple(
                (each.pane_instance_id, each.provider, each.place.current_path) for each in panes
            )
            if seen != kept:
                await asyncio.to_thread(keep_panes, self._paths, panes)
                kept = seen
            await asyncio.sleep(KEEP_PANES_SECONDS)

    async def _panes(self) -> tuple[PaneState, ...]:
        return self.pipeline.projection.panes()

    async def _keep_all(self, snapshots: Snapshots) -> None:
        with contextlib.suppress(BullpenError):
            await snapshots.save("shutdown")
        await self.alarms.flush(self._store)

    def _note_store(self, error: BullpenError | None) -> None:
        if error is not None:
            self._is_store_well = False
            self.alarms.sound(
                "store:write", AlertLevel.DEGRADED, Reason.STORE_UNAVAILABLE, str(error)
            )
        elif not self._is_store_well:
            self._is_store_well = True
            self.alarms.clear("store:write")

    def _note_rules(self, trouble: str) -> None:
        if trouble:
            said = f"messages go by the rules from before: {trouble}"
            self.alarms.sound("policy", AlertLevel.DEGRADED, "policy_invalid", said)
        else:
            self.alarms.clear("policy")

    def _note_door(self, error: BullpenError | None) -> None:
        if error is not None:
            self.alarms.sound("socket", AlertLevel.DEGRADED, "socket_lost", str(error))
        else:
            self.alarms.clear("socket")

    def _describe(self) -> DaemonInfo:
        projection, gateway = self.pipeline.projection, self.pipeline.gateway
        return DaemonInfo(
            pid=os.getpid(),
            version=VERSION,
            protocol_version=PROTOCOL_VERSION,
            nonce=self._nonce,
            started_at=self._started_at,
            socket_path=str(self._paths.socket),
            state_path=str(self._paths.state_db),
            log_path=str(self._paths.log),
            is_persistent=self._store.is_persistent,
            is_isolated=self._settings.daemon.isolate_sources,
            poll_interval_ms=self._settings.observe.poll_interval_ms,
            tmux_sockets=tuple(
                sorted({each.place.tmux_socket for each in projection.panes()} - {""})
            ),
            buffers={**gateway.buffers(), **projection.sizes()},
        )


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and task.exception() is not None:
            logger.error("the daemon's work failed", exc_info=task.exception())
