"""What tests of the poller share: a time of their own, a tmux made of values, and an ear."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bullpen.model.observations import Observation
from bullpen.observe.poll import PollReport
from bullpen.observe.sources.poller import PollerSource
from bullpen.observe.sources.port import SourceTrouble
from bullpen.observe.sources.terminals import FoundServer
from bullpen.terminal.rules import shipped_rules
from bullpen.terminal.tmux import (
    Answer,
    PaneInfo,
    ProcessInfo,
    ProcessReader,
    ProcessTable,
    TmuxError,
    TmuxNotFound,
    TmuxTarget,
)
from bullpen.terminal.tmux.processes import ProcessTableUnavailable
from bullpen.testing.tmux import FakeTmux
from tests.terminal.tmux.listed import pane, printed

__all__ = [
    "RULES",
    "Ear",
    "FakeFinder",
    "FakeProcesses",
    "FakeServer",
    "Time",
    "listen",
    "process",
    "report",
]

RULES = shipped_rules()

_MARK = re.compile(r"\|[0-9a-f]{16}\|")


class Time:
    """The time, which passes when a test says so."""

    def __init__(self) -> None:
        self.at = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.at

    def pass_by(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class FakeServer(FakeTmux):
    """A tmux server whose panes a test puts there."""

    def __init__(self, path: str = "/fake/tmux.sock") -> None:
        super().__init__(self._say)
        self._target = TmuxTarget(path, "FakeServer")
        self.panes: dict[str, PaneInfo] = {}
        self.links: list[PaneInfo] = []
        self.screens: dict[str, str] = {}
        self.painted: dict[str, str] = {}
        self.error: Exception | None = None
        self.is_closed = False

    def put(self, pane_id: str, screen: str = "", *, painted: str = "", **changes: Any) -> None:
        """Put a pane there, or change one."""
        changes.setdefault("pane_pid", int(pane_id[1:]) + 100)
        changes.setdefault("window_id", f"@{pane_id[1:]}")
        before = self.panes.get(pane_id)
        self.panes[pane_id] = (
            pane(pane_id, **changes)
            if before is None
            else msgspec.structs.replace(before, **changes)
        )
        self.screens[pane_id] = screen
        self.painted[pane_id] = painted or screen

    def take(self, pane_id: str) -> None:
        """Take a pane away."""
        del self.panes[pane_id]

    async def aclose(self) -> None:
        self.is_closed = True

    async def run_many(
        self, commands: Sequence[Sequence[str]], *, timeout_seconds: float | None = None
    ) -> list[Answer | TmuxError]:
        if self.error is not None:
            raise self.error
        return await super().run_many(commands, timeout_seconds=timeout_seconds)

    def _say(self, words: Sequence[str]) -> bytes:
        if words[0] == "list-panes":
            mark = _MARK.findall(words[-1])[-1]
            listed = [*self.panes.values(), *self.links]
            return b"".join(printed(each, mark) for each in listed)
        pane_id = words[words.index("-t") + 1]
        if pane_id not in self.screens:
            raise TmuxNotFound(words[0], f"can't find pane: {pane_id}")
        screens = self.painted if "-e" in words else self.screens
        lines = screens[pane_id].split("\n")[: self.panes[pane_id].height]
        lines += [""] * (self.panes[pane_id].height - len(lines))
        return ("\n".join(lines) + "\n").encode()


class FakeFinder:
    """Finds the servers a test has started."""

    def __init__(self, *servers: FakeTmux) -> None:
        self.servers = list(servers)
        self.asked: list[set[str]] = []  # which servers were connected whenever it was asked

    async def find(self, connected: Collection[str] = ()) -> list[FoundServer]:
        self.asked.append(set(connected))
        return [FoundServer(each.target, is_listening=True) for each in self.servers]

    def runner(self, target: TmuxTarget) -> FakeTmux:
        """Return what speaks to a server."""
        return next(each for each in self.servers if each.target == target)


class FakeProcesses(ProcessReader):
    """A process table of a test's own."""

    def __init__(self, processes: Iterable[ProcessInfo] = ()) -> None:
        super().__init__()
        self.processes = list(processes)
        self.is_broken = False

    async def read(self) -> ProcessTable:
        if self.is_broken:
            raise ProcessTableUnavailable("cannot read /proc: it is not there")
        return ProcessTable(self.processes)


def process(pid: int, *argv: str, parent: int = 1, tty: str = "/dev/none/3") -> ProcessInfo:
    """A process in front of its terminal."""
    return ProcessInfo(
        pid=pid,
        parent_pid=parent,
        group=pid,
        argv=argv,
        tty=tty,
        start=f"s{pid}",
        start_time=1_700_000_000.0 + pid,
        is_foreground=True,
    )


class Ear:
    """Looks through a source and keeps what it says."""

    def __init__(self, source: PollerSource) -> None:
        self.source = source
        self.said: list[Observation] = []
        self.trouble = ""
        self.is_down = False

    async def look(self) -> list[Observation]:
        """Look once; return what was said of it."""
        before = len(self.said)
        self.trouble, self.is_down = "", False
        try:
            await self.source.look()
        except SourceTrouble as trouble:
            self.trouble, self.is_down = str(trouble), trouble.is_down
        return self.said[before:]

    def of(self, pane_id: str, *, server: str | None = None) -> list[Observation]:
        """Return all that was said of a pane."""
        return [
            each
            for each in self.said
            if each.pane_id == pane_id and server in (None, each.tmux_server)
        ]

    def types(self, pane_id: str) -> list[str]:
        """Return what was said of a pane, in a word each."""
        return [each.event_type for each in self.of(pane_id)]

    def state(self) -> Mapping[str, str]:
        """Return what was last said of each pane that is there."""
        last = {each.pane_id: each.event_type for each in self.said if each.pane_id}
        return {key: value for key, value in last.items() if value != "pane.closed"}


async def listen(source: PollerSource) -> Ear:
    """Open a source and listen to it."""
    ear = Ear(source)
    await source.open(ear.said.append)
    return ear


def report(observation: Observation) -> PollReport:
    """Return what an observation of a pane tells."""
    return msgspec.convert(observation.payload, PollReport)
