"""The source that looks: at every pane of every tmux server, and at agents in other terminals."""

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from bullpen.model.observations import Observation
from bullpen.model.states import SourceKind
from bullpen.model.views import PaneState
from bullpen.observe.poll import REFRESH_SECONDS, Pace
from bullpen.observe.snapshot import Programs, Rules
from bullpen.observe.sources.outside import OutsideAgents
from bullpen.observe.sources.port import Emit, Now, Source, SourceTrouble
from bullpen.observe.sources.screens import LookSettings, ScreenListener, ServerWatch
from bullpen.observe.sources.terminals import FoundServer, TmuxFinder, is_listening
from bullpen.terminal.tmux.panes import HISTORY_LINES
from bullpen.terminal.tmux.processes import (
    ProcessReader,
    ProcessTable,
    ProcessTableUnavailable,
)
from bullpen.terminal.tmux.runner import TmuxCommandRunner
from bullpen.terminal.tmux.server import TmuxServer
from bullpen.terminal.tmux.target import TmuxTarget

__all__ = ["Finder", "PollerSource"]

logger = logging.getLogger("bullpen.observe.poller")

INTERVAL_SECONDS = 1.0
NO_TIME = timedelta(0)
FIND_EVERY = timedelta(seconds=1.5)  # while there is a server to look at: every other look
MOST_FORMER = 64  # servers that do not run and whose panes are still counted on from


class Finder(Protocol):
    """Whoever knows which servers there are."""

    async def find(self, connected: Collection[str] = ()) -> list[FoundServer]:
        """Return the servers, each once, without asking the connected ones."""
        ...


class PollerSource(Source):
    """Looks at screens, titles and processes, and emits what is new.

    A server that does not answer within an interval keeps nobody waiting: it is left out until it
    does. What was said about its panes stands meanwhile.
    """

    kind = SourceKind.POLLER

    def __init__(
        self,
        now: Now,
        rules: Rules,
        *,
        finder: Finder | None = None,
        interval_seconds: float = INTERVAL_SECONDS,
        refresh_seconds: float = REFRESH_SECONDS,
        history_lines: int = HISTORY_LINES,
        known: Iterable[PaneState] = (),
        listeners: Sequence[ScreenListener] = (),
        processes: ProcessReader | None = None,
        make_runner: Callable[[TmuxTarget], TmuxCommandRunner] = TmuxServer,
        tmux_only: bool = False,
        troubles: Sequence[str] = (),
    ) -> None:
        """Nothing is looked at before the first look.

        Args:
            now: the time.
            rules: what screens are judged by.
            finder: whoever knows which tmux servers there are.
            interval_seconds: between two looks.
            refresh_seconds: after how long something is told again that has not changed.
            history_lines: how many lines above a screen are captured with it.
            known: panes from before a restart, which keep their identity.
            listeners: whoever wants to be shown every screen that changed.
            processes: whoever knows which processes there are.
            make_runner: makes what commands are given to a server by.
            tmux_only: whether agents in other terminals are not looked for.
            troubles: what is wrong from the start, such as rules that cannot be read.
        """
        super().__init__(now)
        self._given_troubles = tuple(troubles)
        self.interval_seconds = interval_seconds
        self._programs = Programs(rules)
        self._finder = finder or TmuxFinder()
        self._known = tuple(known)
        self._processes = processes or ProcessReader()
        self._make_runner = make_runner
        self._tmux_only = tmux_only
        # Events of a run of ours before this one have smaller numbers.
        self._numbers = itertools.count(int(now().timestamp() * 1000))
        self._servers: dict[str, ServerWatch] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._late: set[str] = set()
        self._found_at: datetime | None = None
        self._outside = OutsideAgents(
            self._programs, self._say, self._next_number, refresh_seconds=refresh_seconds
        )
        self._settings = LookSettings(
            rules=rules,
            programs=self._programs,
            pace=Pace.of(interval_seconds, refresh_seconds=refresh_seconds),
            now=now,
            emit=self._say,
            next_number=self._next_number,
            listeners=tuple(listeners),
            is_listening=is_listening,
            host_names=_host_names(),
            history_lines=history_lines,
        )
        self._troubles: tuple[str, ...] = ()

    async def open(self, emit: Emit) -> None:
        await super().open(emit)
        if isinstance(self._finder, TmuxFinder):
            configured = self._finder.configured
            logger.info("the tmux server is %s, by %s", configured, configured.source)

    @property
    def sockets(self) -> tuple[str, ...]:
        """The servers that answered when they were last looked at."""
        return tuple(path for path, each in self._servers.items() if each.is_connected)

    def __len__(self) -> int:
        return sum(map(len, self._servers.values()))

    async def look(self) -> None:
        table, table_trouble = await self._read_processes()
        late = await self._look_at_servers(table)
        if table is not None and not self._tmux_only:
            servers = self._servers.values()
            await self._outside.look(
                table,
                self._now(),
                server_pids={each.server_pid for each in servers if each.server_pid},
                pane_ttys={tty for each in servers for tty in each.ttys},
            )
        troubles = [each.trouble for each in self._servers.values() if each.trouble]
        self._complain(
            [*self._given_troubles, *table_trouble, *late, *troubles],
            is_blind=table is None and not self.sockets,
        )

    async def aclose(self) -> None:
        for task in self._looking.values():
            task.cancel()
        await asyncio.gather(*self._looking.values(), return_exceptions=True)
        self._looking.clear()
        for server in self._servers.values():
            await server.aclose()
        self._servers.clear()

    def _say(self, observation: Observation) -> None:
        self._emit(observation)

    def _next_number(self) -> int:
        return next(self._numbers)

    async def _read_processes(self) -> tuple[ProcessTable | None, list[str]]:
        try:
            return await self._processes.read(), []
        except ProcessTableUnavailable as error:
            return None, [str(error)]

    # ------------------------------------------------------------------------------------- servers

    async def _look_at_servers(self, table: ProcessTable | None) -> list[str]:
        """Look at all servers at once; return what is to be said of those that are late."""
        started = []
        for server in await self._follow():
            path = server.target.socket_path
            if path not in self._looking:
                task = asyncio.create_task(self._look_at(server, table))
                self._looking[path] = task
                if path not in self._late:  # who was late once is not waited for until it answers
                    started.append(task)
        if started:
            await asyncio.wait(started, timeout=self.interval_seconds)
        self._looking = {path: task for path, task in self._looking.items() if not task.done()}
        self._late |= self._looking.keys()
        self._late -= set(self.sockets) - self._looking.keys()
        return [f"{path}: tmux has not answered in time" for path in self._looking]

    async def _look_at(self, server: ServerWatch, table: ProcessTable | None) -> None:
        try:
            await server.look(table)
        except Exception as error:
            # One server must not hide the others.
            logger.exception("a look at %s failed", server.target)
            server.fail(f"{server.target}: {error!r}")
        self.version = server.version or self.version

    async def _follow(self) -> list[ServerWatch]:
        """Return the servers to look at now; say of those that ended that their panes are gone."""
        busy = {*self.sockets, *self._looking}
        now = self._now()
        is_known = self._found_at is not None and NO_TIME <= now - self._found_at < FIND_EVERY
        if busy and is_known:
            return [server for path, server in self._servers.items() if path in busy]
        self._found_at = now
        found = await self._finder.find(busy)
        running = {each.target.socket_path: each.target for each in found if each.is_listening}
        for path, target in running.items():
            if path not in self._servers:
                logger.info("tmux at %s (%s) is looked at", path, target.source)
                self._servers[path] = ServerWatch(
                    self._make_runner(target), self._settings, known=self._known
                )
        for path, server in self._servers.items():
            if path not in running and path not in busy:
                server.leave()
        there = {*running, *busy}
        await self._drop_former([path for path in self._servers if path not in there])
        return [server for path, server in self._servers.items() if path in there]

    async def _drop_former(self, paths: list[str]) -> None:
        for path in paths[:-MOST_FORMER]:
            await self._servers.pop(path).aclose()

    def _complain(self, troubles: list[str], *, is_blind: bool) -> None:
        """Log what is new, and raise all of it."""
        before, self._troubles = self._troubles, tuple(troubles)
        for each in troubles:
            if each not in before:
                logger.warning("%s", each)
        if before and not troubles:
            logger.info("everything can be seen again")
        if troubles:
            raise SourceTrouble("; ".join(troubles), is_down=is_blind)


def _host_names() -> frozenset[str]:
    name = socket.gethostname()
    return frozenset([name, name.partition(".")[0]]) - {""}
