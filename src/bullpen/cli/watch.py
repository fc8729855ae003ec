"""`bullpen watch`: what becomes of every agent, as it happens."""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from datetime import datetime

import click
import msgspec

from bullpen.api.client import Client, Resync, Told
from bullpen.api.errors import DaemonUnavailable
from bullpen.api.lookup import find_agent
from bullpen.api.runtime import Paths
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import SECONDS, complete_agents, json_option, may_start, no_start_option
from bullpen.cli.output import Cell, columns, print_json_line, state_cell, text
from bullpen.model.appearance import EVIDENCE
from bullpen.model.states import Activity
from bullpen.model.views import AgentState, StateChange, Summary

__all__ = ["TIMEOUT", "Transitions", "command"]

TIMEOUT = 3


@click.command(name="watch")
@click.option(
    "--agent",
    metavar="AGENT",
    shell_complete=complete_agents,
    help="Only this one: a name, a pane or a session.",
)
@click.option(
    "--until-count", type=click.IntRange(min=1), metavar="N", help="End after so many changes."
)
@click.option("--timeout", type=SECONDS, metavar="SECONDS", help="End after so long.")
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context,
    *,
    agent: str | None,
    until_count: int | None,
    timeout: float | None,
    as_json: bool,
) -> None:
    """Print what becomes of every agent, a line for each change, until it is ended.

    First comes what is so now. The mark behind a state says how it is known: = the program said so
    itself, ~ it was read off its screen or its process.

    With --json each line is an object with a type: resync has everything there is, first and
    whenever changes were missed; state_changed is one change of an agent, a pane or a session;
    summary_changed has the numbers.

    \b
    Examples:
      bullpen watch
      bullpen watch --agent claude-1 --until-count 1 --timeout 600
      bullpen watch --json | jq -r 'select(.type == "state_changed") | .agent.activity // empty'

    \b
    Exit codes:
      0  ended as it was told, or by whoever read it
      1  there is no daemon, or it went away
      2  wrong usage
      3  the time is over before there were as many changes as --until-count says
    """  # noqa: D301 - click wants the character, not its name
    printing: _Printer = _JsonLines(agent) if as_json else _Lines(agent)
    code = asyncio.run(
        _watch(daemon_paths(), printing, start=may_start(), count=until_count, timeout=timeout)
    )
    context.exit(code)


async def _watch(
    paths: Paths, printing: "_Printer", *, start: bool, count: int | None, timeout: float | None
) -> int:
    """Return the exit code. Whichever is first ends it: the count, the time, or who reads it."""

    async def work() -> None:
        left = count
        async with contextlib.aclosing(_follow(paths, start=start)) as following:
            async for told in following:
                shown = printing.show(told)
                if left is not None and (left := left - shown) <= 0:
                    return

    working = asyncio.create_task(work())
    with _when_nobody_reads(working.cancel):
        await asyncio.wait([working], timeout=timeout)
    if not working.done():
        working.cancel()
        await asyncio.wait([working])
        return TIMEOUT if count is not None else 0
    if not working.cancelled():
        working.result()
    return 0


async def _follow(paths: Paths, *, start: bool) -> AsyncGenerator[Told, None]:
    """Yield what is told, also over the next connection if one was cut off for reading slowly."""
    nonce, version = "", None
    while True:
        async with Client.connect(paths, start=start and not nonce) as client:
            if client.info.nonce != nonce:
                nonce, version = client.info.nonce, None  # another daemon counts anew
            has_told = False
            try:
                async for told in client.subscribe(since_version=version):
                    has_told = True
                    if isinstance(told, StateChange | Resync):
                        version = told.version
                    yield told
            except DaemonUnavailable:
                if not has_told:
                    raise


@contextlib.contextmanager
def _when_nobody_reads(leave: Callable[[], object]) -> Iterator[None]:
    """Be told when the other end of a pipe is closed, though there may be nothing to write yet."""
    loop = asyncio.get_running_loop()
    try:
        descriptor = sys.stdout.fileno()
        mode = os.fstat(descriptor).st_mode
    except (OSError, ValueError):
        yield
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        yield
        return

    def has_left() -> None:
        loop.remove_reader(descriptor)
        leave()

    loop.add_reader(descriptor, has_left)  # nothing ever comes from there but its end
    try:
        yield
    finally:
        loop.remove_reader(descriptor)


class _Printer:
    """Prints what is told; returns how many changes that were."""

    def __init__(self, subject: str | None) -> None:
        self._subject = subject

    def show(self, told: Told) -> int:
        raise NotImplementedError

    def _is_meant(self, agent: AgentState | None, name: str) -> bool:
        if self._subject is None or self._subject == name:
            return True
        return agent is not None and find_agent([agent], self._subject) is not None


class _JsonLines(_Printer):
    def show(self, told: Told) -> int:
        if isinstance(told, Resync):
            fields = msgspec.structs.asdict(told)
            if self._subject is not None:
                agents = [each for each in told.agents if self._is_meant(each, each.name)]
                fields = {"version": told.version, "agents": agents}
            print_json_line(type="resync", **fields)
            return 0
        if isinstance(told, Summary):
            if self._subject is None:
                print_json_line(type="summary_changed", summary=told)
            return 0
        is_agent = told.kind in ("agent", "agent_removed")
        if self._subject is not None and not (is_agent and self._is_meant(told.agent, told.key)):
            return 0
        print_json_line(type="state_changed", **msgspec.structs.asdict(told))
        return 1


class _Lines(_Printer):
    def __init__(self, subject: str | None) -> None:
        super().__init__(subject)
        self._transitions = Transitions()

    def show(self, told: Told) -> int:
        rows = [
            row for agent, name, row in self._transitions.of(told) if self._is_meant(agent, name)
        ]
        for row in rows:
            click.echo(columns([row])[0])
        return 0 if isinstance(told, Resync) else len(rows)


Row = tuple[AgentState | None, str, list[Cell]]


class Transitions:
    """Turns what is told into a line for each agent that does something else than before."""

    def __init__(self) -> None:
        self._known: dict[str, Activity] = {}

    def of(self, told: Told) -> Iterable[Row]:
        """Yield the agent if it is known, its name, and what to print."""
        if isinstance(told, Resync):
            yield from self._resync(told)
        elif isinstance(told, StateChange) and told.kind == "agent" and told.agent is not None:
            yield from self._became(told.agent, told.at)
        elif isinstance(told, StateChange) and told.kind == "agent_removed":
            yield from self._left(told.key, told.agent, told.at)

    def _resync(self, everything: Resync) -> Iterator[Row]:
        for agent in everything.agents:
            yield from self._became(agent, agent.since)
        names = {agent.name for agent in everything.agents}
        for name in [name for name in self._known if name not in names]:
            yield from self._left(name, None, None)

    def _became(self, agent: AgentState, at: datetime) -> Iterator[Row]:
        before = self._known.get(agent.name)
        if before is agent.activity:
            return
        self._known[agent.name] = agent.activity
        yield (
            agent,
            agent.name,
            [
                Cell(_clock(at)),
                text(agent.name),
                state_cell(agent.activity),
                Cell(EVIDENCE[agent.evidence_mode]),
                Cell(f"was {before}" if before else "is here"),
                text(agent.title),
            ],
        )

    def _left(self, name: str, agent: AgentState | None, at: datetime | None) -> Iterator[Row]:
        before = self._known.pop(name, None)
        was = Cell(f"was {before}" if before else "")
        row = [Cell(_clock(at)), text(name), state_cell(Activity.EXITED), Cell(""), was, Cell("")]
        yield agent, name, row


def _clock(at: datetime | None) -> str:
    return at.astimezone().strftime("%H:%M:%S") if at else "--:--:--"
