"""The panes of one tmux server, looked at again and again, and what there is to say of them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

import msgspec

from bullpen.model.events import PANE_CLOSED, PANE_LISTED
from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.places import is_same_server
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.model.views import PaneState
from bullpen.observe.pane import PaneVerdict
from bullpen.observe.poll import (
    MOST_PROCESSES,
    Pace,
    PaneWatch,
    ProcessMark,
    Sight,
    place_of,
    report_of,
)
from bullpen.observe.reports import ServerReport
from bullpen.observe.snapshot import (
    Front,
    Programs,
    Rules,
    has_decisive_tones,
    judge_front,
    read_front,
)
from bullpen.observe.sources.port import Emit, Now
from bullpen.terminal.tmux.errors import TmuxError, TmuxNoServer, TmuxServerGone
from bullpen.terminal.tmux.generations import PaneGenerations, PaneInstance
from bullpen.terminal.tmux.listing import PaneInfo
from bullpen.terminal.tmux.panes import HISTORY_LINES, PaneSnapshot, TmuxPanes
from bullpen.terminal.tmux.processes import ProcessInfo, ProcessTable
from bullpen.terminal.tmux.runner import TmuxCommandRunner
from bullpen.terminal.tmux.server import TmuxServer
from bullpen.terminal.tmux.target import ServerIdentity, TmuxTarget

__all__ = ["LookSettings", "PaneScreen", "ScreenListener", "ServerWatch"]

logger = logging.getLogger("bullpen.observe.poller")

LISTED_SECONDS = 60.0
JUDGED_AT_ONCE = 10  # panes, before others in the loop have their turn
SKIPPED_LOOKS = 3  # in a row without a capture: then it is no pane that is just closing


class PaneScreen(msgspec.Struct, frozen=True):
    """What a pane shows now, for whoever reads more in it than the poller does."""

    pane: PaneInstanceId
    provider: Provider | None
    has_process: bool
    """The provider is known by the command line of a process, not by what the pane shows."""
    lines: tuple[str, ...]
    """Some history, then the screen."""
    width: int


class ScreenListener(Protocol):
    """Whoever wants to see every screen that is not as it was."""

    def see(self, screen: PaneScreen) -> None:
        """Take a screen, or who is in it, as it is now."""
        ...

    def forget(self, pane: PaneInstanceId) -> None:
        """The pane is gone."""
        ...


class LookSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all servers are looked at by."""

    rules: Rules
    programs: Programs
    pace: Pace
    now: Now
    emit: Emit
    next_number: Callable[[], int]
    """Makes event ids of one source unique, also across restarts."""
    listeners: Sequence[ScreenListener] = ()
    is_listening: Callable[[TmuxTarget], Awaitable[bool]]
    """Tells whether there is still a server behind a socket."""
    host_names: frozenset[str] = frozenset()
    """What tmux calls a pane whose program has set no title."""
    history_lines: int = HISTORY_LINES
    """How many lines above each screen are captured with it."""


class _Pane:
    """One life of a pane, and the last look at it."""

    def __init__(self, pane: PaneInstanceId, watch: PaneWatch) -> None:
        self.id = pane
        self.watch = watch
        self.listed: tuple[PaneInfo, ...] = ()
        self.snapshot: PaneSnapshot | None = None
        self.front = Front()
        self.judged: PaneVerdict | None = None
        self.sight: Sight | None = None


class ServerWatch:
    """Looks at one server, which may not run, and says of its panes what is new.

    The server may be started, end, hang or talk nonsense at any time. `trouble` says what is wrong
    with it; that none runs is no trouble.
    """

    def __init__(
        self,
        runner: TmuxCommandRunner,
        settings: LookSettings,
        *,
        known: Iterable[PaneState] = (),
    ) -> None:
        self._runner = runner
        self._settings = settings
        self._tmux = TmuxPanes(
            runner,
            history_lines=settings.history_lines,
            generations=PaneGenerations(_known_instances(known, runner.target)),
            clock=lambda: settings.now().timestamp(),
        )
        self._panes: dict[PaneInstance, _Pane] = {}
        self._skipped: dict[str, int] = {}
        self._listed: tuple[ServerIdentity, datetime] | None = None
        self.is_connected = False
        self.trouble = ""

    @property
    def target(self) -> TmuxTarget:
        """Which server it is."""
        return self._runner.target

    @property
    def server_pid(self) -> int | None:
        """The process of the server, while it is there and has panes."""
        return next((each.server.pid for each in self._panes), None)

    @property
    def ttys(self) -> Iterator[str]:
        """The terminals of its panes."""
        return (each.snapshot.info.tty for each in self._panes.values() if each.snapshot)

    @property
    def version(self) -> str:
        """The version of tmux, as far as it is known."""
        return self._runner.version if isinstance(self._runner, TmuxServer) else ""

    def __len__(self) -> int:
        return len(self._panes)

    async def look(self, processes: ProcessTable | None) -> None:
        """Look once. What goes wrong is in `trouble` afterwards."""
        try:
            await self._look(processes)
        except TmuxNoServer:
            self.leave()
        except TmuxError as error:
            if isinstance(error, TmuxServerGone) and not await self._settings.is_listening(
                self.target
            ):
                self.leave()
            else:
                self.fail(str(error))

    def fail(self, trouble: str) -> None:
        """It could not be looked at, though it seems to be there."""
        self.is_connected = False
        self.trouble = trouble

    def leave(self) -> None:
        """No server runs there: all its panes are gone."""
        if self.is_connected or self._panes:
            logger.warning("no tmux runs at %s any more; until one does, none is seen", self.target)
        self.is_connected = False
        self.trouble = ""
        self._listed = None
        for instance in list(self._panes):
            self._close(instance, "its server is gone")
        self._skipped.clear()

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._runner.aclose()

    # ------------------------------------------------------------------------------------- looking

    async def _look(self, processes: ProcessTable | None) -> None:
        snapshots = await self._tmux.look(processes)
        now = self._settings.now()
        self._close_departed()
        panes = [self._take(each, now) for each in _by_pane(snapshots)]
        await self._judge([pane for pane in panes if pane.judged is None])
        for pane in panes:
            self._tell(pane, now)
        self._note_skipped({each.id.pane_id for each in panes})
        self.is_connected = True
        self._tell_listing(now)

    def _close_departed(self) -> None:
        current = set(self._tmux.generations.instances)
        ids = {each.pane_id for each in current}
        for instance in self._panes.keys() - current:
            is_respawned = instance.pane_id in ids
            self._close(instance, "another program has its id" if is_respawned else "it was closed")

    def _take(self, snapshots: Sequence[PaneSnapshot], now: datetime) -> _Pane:
        """Note what a pane is like now, and forget what was made of it if that is different."""
        snapshot = snapshots[0]
        pane = self._panes.get(snapshot.instance)
        if pane is None:
            printed_at = datetime.fromtimestamp(snapshot.info.window_activity, UTC)
            watch = PaneWatch(self._settings.pace, last_output_at=min(printed_at, now))
            pane = self._panes[snapshot.instance] = _Pane(_instance_id(snapshot.instance), watch)
        before, listed_before = pane.snapshot, pane.listed
        if snapshot.processes is None:
            snapshot = msgspec.structs.replace(snapshot, processes=_remembered(before, snapshot))
        pane.snapshot = snapshot
        pane.listed = tuple(each.info for each in snapshots)
        if before is not None and before.capture.lines != snapshot.capture.lines:
            pane.watch.last_output_at = now
        if before is None or _judged_by(before) != _judged_by(snapshot):
            pane.judged = pane.sight = None
        elif pane.listed != listed_before:
            pane.sight = None
        return pane

    async def _judge(self, panes: Sequence[_Pane]) -> None:
        settings = self._settings
        doubtful: list[_Pane] = []
        for number, pane in enumerate(panes, 1):
            assert pane.snapshot is not None
            pane.front = read_front(pane.snapshot, settings.programs)
            pane.judged = judge_front(pane.snapshot, pane.front, settings.rules)
            if has_decisive_tones(pane.judged.verdict, settings.rules):
                doubtful.append(pane)
            if number % JUDGED_AT_ONCE == 0:
                await asyncio.sleep(0)
        painted = await self._tmux.paint(each.snapshot for each in doubtful if each.snapshot)
        for pane, snapshot in zip(doubtful, painted, strict=True):
            if snapshot.painted:
                pane.judged = judge_front(snapshot, pane.front, settings.rules)
        for pane in panes:
            self._show(pane)

    def _note_skipped(self, seen: set[str]) -> None:
        listed = {each.pane_id for each in self._tmux.generations.instances}
        self._skipped = {each: self._skipped.get(each, 0) + 1 for each in listed - seen}
        unseen = [each for each, looks in self._skipped.items() if looks >= SKIPPED_LOOKS]
        self.trouble = f"{self.target}: cannot capture {', '.join(unseen)}" if unseen else ""

    # -------------------------------------------------------------------------------------- telling

    def _show(self, pane: _Pane) -> None:
        assert pane.snapshot is not None
        assert pane.judged is not None
        inputs = pane.judged.signature.inputs
        screen = PaneScreen(
            pane.id,
            pane.judged.provider,
            inputs.provider_hint or inputs.cmd_match,
            pane.snapshot.capture.lines,
            pane.snapshot.info.width,
        )
        for listener in self._settings.listeners:
            listener.see(screen)

    def _tell(self, pane: _Pane, now: datetime) -> None:
        sight = pane.sight = pane.sight or self._sight(pane)
        if not pane.watch.see(sight, now):
            return
        self._emit(
            pane,
            sight.event_type,
            now,
            msgspec.to_builtins(report_of(sight, pane.watch)),
            confidence=sight.judged.signature.confidence,
        )

    def _sight(self, pane: _Pane) -> Sight:
        assert pane.judged is not None
        assert pane.snapshot is not None
        below, front = pane.snapshot.processes, pane.front
        has_agent = pane.judged.provider is not None
        return Sight(
            judged=pane.judged,
            place=place_of(pane.listed, self.target.socket_path, self._settings.host_names),
            agent=_mark(front.agent) if has_agent and front.agent else None,
            processes=None if below is None else tuple(map(_mark, below[:MOST_PROCESSES])),
            is_agent_gone=not has_agent and bool(below) and not front.agents,
            is_front_shell=front.is_shell,
        )

    def _tell_listing(self, now: datetime) -> None:
        instances = self._tmux.generations.instances
        if not instances:
            return
        server = instances[0].server
        if self._listed is not None and self._listed[0] == server:
            age = (now - self._listed[1]).total_seconds()
            if 0 <= age < LISTED_SECONDS:
                return
        self._listed = (server, now)
        report = ServerReport(str(server), tuple(map(_instance_id, instances)))
        self._settings.emit(
            Observation(
                event_id=f"{server}:{self._settings.next_number()}",
                provider=Provider.OTHER,
                source_kind=SourceKind.POLLER,
                tier=EvidenceTier.HEURISTIC,
                observed_at=now,
                session_key=f"server:{server}",
                event_type=PANE_LISTED,
                payload=msgspec.to_builtins(report),
                tmux_server=str(server),
            )
        )

    def _close(self, instance: PaneInstance, why: str) -> None:
        pane = self._panes.pop(instance)
        self._emit(pane, PANE_CLOSED, self._settings.now(), {"reason": why})
        for listener in self._settings.listeners:
            listener.forget(pane.id)

    def _emit(
        self,
        pane: _Pane,
        event_type: str,
        now: datetime,
        payload: Any,
        *,
        confidence: float = 1.0,
    ) -> None:
        self._settings.emit(
            Observation(
                event_id=f"{pane.id}:{self._settings.next_number()}",
                provider=pane.watch.provider,
                source_kind=SourceKind.POLLER,
                tier=EvidenceTier.HEURISTIC,
                observed_at=now,
                session_key=session_key(pane.id),
                event_type=event_type,
                pane_id=pane.id.pane_id,
                pane_generation=pane.id.generation,
                pane_birth_ts=pane.id.birth_ts,
                payload=payload,
                confidence=confidence,
                tmux_server=pane.id.server,
            )
        )


def session_key(pane: PaneInstanceId) -> str:
    """Return the key of the session that a pane itself stands for."""
    return f"pane:{pane.server}:{pane.pane_id}:{pane.generation}"


def _by_pane(snapshots: Iterable[PaneSnapshot]) -> list[list[PaneSnapshot]]:
    """The snapshots of each pane, which are several if its window is linked."""
    panes: dict[str, list[PaneSnapshot]] = {}
    for each in snapshots:
        panes.setdefault(each.info.pane_id, []).append(each)
    return list(panes.values())


def _judged_by(snapshot: PaneSnapshot) -> object:
    """All that decides who is in a pane and what it does."""
    info = snapshot.info
    return (
        info.current_command,
        info.title,
        info.height,
        info.tty,
        info.is_dead,
        info.cursor_x,
        info.cursor_y,
        info.is_cursor_visible,
        snapshot.processes,
        snapshot.capture.lines,
    )


def _remembered(
    before: PaneSnapshot | None, snapshot: PaneSnapshot
) -> tuple[ProcessInfo, ...] | None:
    """What is known of the processes of a pane when the process table cannot be read.

    As long as tmux names the same command, what was known is the best guess: to know nothing of an
    agent that runs in an interpreter would be to lose it.
    """
    if before is None or before.info.current_command != snapshot.info.current_command:
        return None
    return before.processes


def _mark(process: ProcessInfo) -> ProcessMark:
    return ProcessMark(process.pid, process.start)


def _instance_id(instance: PaneInstance) -> PaneInstanceId:
    born = datetime.fromtimestamp(round(instance.birth, 3), UTC)
    return PaneInstanceId(instance.pane_id, instance.generation, born, str(instance.server))


def _known_instances(known: Iterable[PaneState], target: TmuxTarget) -> Iterable[PaneInstance]:
    """The panes of a server as they were known before a restart of ours."""
    at_target = [
        each for each in known if is_same_server(each.place.tmux_socket, target.socket_path)
    ]
    for each in sorted(at_target, key=lambda each: each.pane_instance_id.generation):
        pane = each.pane_instance_id
        pid, _, start_time = pane.server.partition(".")
        if pid.isdecimal() and start_time.isdecimal():
            yield PaneInstance(
                ServerIdentity(int(pid), int(start_time)),
                pane.pane_id,
                pane.generation,
                pane.birth_ts.timestamp(),
                each.place.pane_pid,
            )
