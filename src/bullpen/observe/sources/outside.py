"""Agents in terminals that are no panes of tmux: known by their processes, and by nothing else."""

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator
from datetime import datetime
from pathlib import Path

import msgspec

from bullpen.model.events import SESSION_ENDED, activity_event
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Activity, EvidenceTier, Provider, SourceKind
from bullpen.observe.poll import REFRESH_SECONDS
from bullpen.observe.signature import WEIGHT_PROCESS
from bullpen.observe.snapshot import Programs
from bullpen.observe.sources.port import Emit
from bullpen.terminal.tmux.processes import ProcessInfo, ProcessTable

__all__ = ["OutsideAgents"]

MISSED_LOOKS = 2  # in a row: then the process is gone
MOST_AGENTS = 256


class OutsideReport(msgspec.Struct, frozen=True):
    """What there is to tell of a process. Its arguments may be somebody's words: not those."""

    argv0: str
    tty: str


class _Agent:
    def __init__(self, process: ProcessInfo, provider: Provider) -> None:
        self.process = process
        self.provider = provider
        self.cwd = ""
        self.missed = 0
        self.told_at: datetime | None = None

    @property
    def key(self) -> str:
        return f"process:{self.process.pid}:{self.process.start}"

    def is_in(self, table: ProcessTable, programs: Programs) -> bool:
        now = table.get(self.process.pid)
        return (
            now is not None
            and now.start == self.process.start
            and programs.provider_of(now.argv) is self.provider
        )


class OutsideAgents:
    """Finds agents in the process table that are below no tmux server, and says they are there.

    An agent counts if it is in front of a terminal of the user's when it is found; from then on it
    is there until its process is gone. What an agent itself started, or one that serves, is none.
    """

    def __init__(
        self,
        programs: Programs,
        emit: Emit,
        next_number: Callable[[], int],
        *,
        refresh_seconds: float = REFRESH_SECONDS,
    ) -> None:
        self._programs = programs
        self._emit = emit
        self._next_number = next_number
        self._refresh_seconds = refresh_seconds
        self._agents: dict[tuple[int, str], _Agent] = {}

    def __len__(self) -> int:
        return len(self._agents)

    async def look(
        self,
        table: ProcessTable,
        now: datetime,
        *,
        server_pids: Collection[int] = (),
        pane_ttys: Collection[str] = (),
    ) -> None:
        """Look through the table, without what is below some tmux servers or in their panes."""
        for key, agent in list(self._agents.items()):
            agent.missed = 0 if agent.is_in(table, self._programs) else agent.missed + 1
            if agent.missed == MISSED_LOOKS:
                del self._agents[key]
                self._tell(agent, SESSION_ENDED, now)
        found = self._find(table, server_pids, pane_ttys)
        new = [each for each in found if _key(each) not in self._agents]
        for process in await asyncio.to_thread(_ours, new) if new else ():
            provider = self._programs.provider_of(process.argv)
            if provider is not None and len(self._agents) < MOST_AGENTS:
                self._agents[_key(process)] = _Agent(process, provider)
        due = [
            each for each in self._agents.values() if not each.missed and self._is_due(each, now)
        ]
        if due:
            directories = await asyncio.to_thread(_directories, [each.process.pid for each in due])
            for agent, cwd in zip(due, directories, strict=True):
                agent.cwd, agent.told_at = cwd, now
                self._tell(agent, activity_event(Activity.UNKNOWN), now)

    def _is_due(self, agent: _Agent, now: datetime) -> bool:
        if agent.told_at is None:
            return True
        return not 0 <= (now - agent.told_at).total_seconds() < self._refresh_seconds

    def _find(
        self, table: ProcessTable, server_pids: Collection[int], pane_ttys: Collection[str]
    ) -> Iterator[ProcessInfo]:
        for process in table:
            if not (process.tty and process.is_foreground) or process.tty in pane_ttys:
                continue
            if self._programs.provider_of(process.argv) is None:
                continue
            above = list(_above(process, table))
            if not any(
                each.pid in server_pids or _is_tmux(each) or self._programs.provider_of(each.argv)
                for each in above
            ):
                yield process

    def _tell(self, agent: _Agent, event_type: str, now: datetime) -> None:
        process = agent.process
        self._emit(
            Observation(
                event_id=f"{agent.key}:{self._next_number()}",
                provider=agent.provider,
                source_kind=SourceKind.POLLER,
                tier=EvidenceTier.HEURISTIC,
                observed_at=now,
                session_key=agent.key,
                event_type=event_type,
                payload=msgspec.to_builtins(OutsideReport(process.argv[0], process.tty)),
                confidence=WEIGHT_PROCESS,
                origin=Origin(
                    pid=process.pid,
                    process_start=process.start,
                    tty=process.tty,
                    cwd=agent.cwd,
                ),
            )
        )


def _key(process: ProcessInfo) -> tuple[int, str]:
    return process.pid, process.start


def _above(process: ProcessInfo, table: ProcessTable) -> Iterator[ProcessInfo]:
    seen = {process.pid}
    parent = table.get(process.parent_pid)
    while parent is not None and parent.pid not in seen:
        yield parent
        seen.add(parent.pid)
        parent = table.get(parent.parent_pid)


def _is_tmux(process: ProcessInfo) -> bool:
    """Whether it is a tmux server, which some systems show as `tmux: server`."""
    name = process.argv[0].rpartition("/")[2] if process.argv else ""
    return name.partition(":")[0] == "tmux"


def _ours(processes: list[ProcessInfo]) -> list[ProcessInfo]:
    """Those on a terminal of the user's own."""
    found = []
    for each in processes:
        with contextlib.suppress(OSError):
            if Path(each.tty).stat().st_uid == os.getuid():
                found.append(each)
    return found


def _directories(pids: list[int]) -> list[str]:
    return list(map(_directory, pids))


def _directory(pid: int) -> str:
    if not sys.platform.startswith("linux"):
        return ""  # a program would have to be run to find out
    try:
        return str(Path(f"/proc/{pid}/cwd").readlink())
    except OSError:
        return ""
