"""Agents in terminals outside of tmux: real ones on a PTY, and tables made of values."""

import asyncio
import os
import pty
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from bullpen.model.observations import Observation
from bullpen.model.states import Provider
from bullpen.observe.snapshot import Programs
from bullpen.observe.sources.outside import MOST_AGENTS, OutsideAgents
from bullpen.observe.sources.poller import PollerSource
from bullpen.terminal.tmux import ProcessInfo, ProcessTable
from bullpen.testing.tmux import PrivateTmux
from tests.observe.poller.conftest import Watch
from tests.observe.poller.looking import RULES, Ear, FakeFinder, FakeProcesses, Time, process
from tests.observe.poller.looking import listen as listen_to
from tests.observe.poller.test_tmux import look_until, program


class Outside:
    """What is said of one table after the other, a second apart."""

    def __init__(self) -> None:
        self.time = Time()
        self.said: list[Observation] = []
        self.numbers = iter(range(1_000_000))
        self.agents = OutsideAgents(
            Programs(RULES), self.said.append, lambda: next(self.numbers), refresh_seconds=10.0
        )

    async def look(
        self, *processes: ProcessInfo, servers: tuple[int, ...] = (), panes: tuple[str, ...] = ()
    ) -> list[str]:
        """Return what is said of a table, in a word each."""
        before = len(self.said)
        self.time.pass_by(1)
        init = process(1, "/sbin/init", parent=0, tty="")
        table = ProcessTable([init, *processes])
        await self.agents.look(table, self.time(), server_pids=servers, pane_ttys=panes)
        return [each.event_type for each in self.said[before:]]


@pytest.fixture
def tty() -> Iterator[str]:
    """A terminal of ours."""
    primary, secondary = os.openpty()
    yield os.ttyname(secondary)
    os.close(primary)
    os.close(secondary)


async def test_an_agent_on_a_terminal_is_told_at_once_and_now_and_then(tty: str) -> None:
    outside = Outside()
    agent = process(50, "/usr/bin/claude", "--resume", tty=tty)
    assert await outside.look(agent) == ["activity.unknown"]
    [said] = outside.said
    assert (said.provider, said.session_key) == (Provider.CLAUDE, "process:50:s50")
    assert (said.pane_id, said.tmux_server, said.confidence) == (None, None, 1.0)
    assert said.origin is not None
    assert (said.origin.pid, said.origin.process_start, said.origin.tty) == (50, "s50", tty)
    assert said.payload == {"argv0": "/usr/bin/claude", "tty": tty}
    words = [word for _ in range(25) for word in await outside.look(agent)]
    assert words == ["activity.unknown"] * 2
    assert len({each.event_id for each in outside.said}) == len(outside.said)


async def test_an_agent_is_gone_when_it_was_missed_twice(tty: str) -> None:
    outside = Outside()
    agent = process(50, "codex", tty=tty)
    await outside.look(agent)
    assert await outside.look() == []
    assert await outside.look(agent) == []
    assert await outside.look() == []
    assert await outside.look() == ["session.ended"]
    assert outside.said[-1].session_key == "process:50:s50"
    assert await outside.look() == []
    assert len(outside.agents) == 0


async def test_another_process_with_the_same_id_is_another_agent(tty: str) -> None:
    outside = Outside()
    agent = process(50, "codex", tty=tty)
    await outside.look(agent)
    later = msgspec.structs.replace(agent, start="later")
    assert await outside.look(later) == ["activity.unknown"]
    assert await outside.look(later) == ["session.ended"]
    assert outside.said[-1].session_key == "process:50:s50"


async def test_an_agent_that_is_stopped_is_still_there(tty: str) -> None:
    outside = Outside()
    agent = process(50, "codex", tty=tty)
    await outside.look(agent)
    for _ in range(3):
        await outside.look(msgspec.structs.replace(agent, is_foreground=False))
    assert "session.ended" not in [each.event_type for each in outside.said]


@pytest.mark.parametrize(
    "others",
    [
        lambda tty: [process(50, "codex", "app-server", tty=tty)],
        lambda tty: [process(50, "claude", "mcp", "serve", tty=tty)],
        lambda tty: [process(50, "vim", "claude.md", tty=tty)],
        lambda tty: [process(50, "claude", tty="")],
        lambda tty: [msgspec.structs.replace(process(50, "claude", tty=tty), is_foreground=False)],
        lambda tty: [process(40, "tmux", "new"), process(50, "claude", parent=40, tty=tty)],
        lambda tty: [process(40, "tmux: server"), process(50, "claude", parent=40, tty=tty)],
        lambda tty: [process(30, "weird-tmux"), process(50, "claude", parent=30, tty=tty)],
        lambda tty: [process(50, "claude", tty="/dev/pts/99999")],
        lambda tty: [process(50, "claude", tty="/dev/null")],
    ],
    ids=[
        *("app-server", "mcp", "editor", "no-terminal", "background", "tmux", "tmux-title"),
        *("known-server", "no-such-terminal", "terminal-of-root"),
    ],
)
async def test_who_serves_or_is_in_tmux_or_on_no_terminal_is_none(
    tty: str, others: Callable[[str], list[ProcessInfo]]
) -> None:
    if os.getuid() == 0 and others(tty)[0].tty == "/dev/null":
        pytest.skip("everything is root's own")
    outside = Outside()
    assert await outside.look(*others(tty), servers=(30,)) == []


async def test_who_is_in_a_pane_is_none_whoever_his_parents_are(tty: str) -> None:
    outside = Outside()
    assert await outside.look(process(50, "claude", tty=tty), panes=(tty,)) == []


async def test_a_circle_of_parents_is_walked_once(tty: str) -> None:
    outside = Outside()
    circle = [process(40, "sh", parent=41), process(41, "sh", parent=40)]
    said = await outside.look(process(50, "claude", tty=tty, parent=40), *circle)
    assert said == ["activity.unknown"]


async def test_what_an_agent_started_is_not_another_one(tty: str) -> None:
    outside = Outside()
    await outside.look(
        process(50, "node", "/x/@openai/codex/bin/codex.js", tty=tty),
        process(51, "/x/codex/codex", tty=tty, parent=50),
        process(40, "claude", tty=tty),
        process(60, "claude", "-p", tty=tty, parent=40),
    )
    assert sorted(each.session_key for each in outside.said) == ["process:40:s40", "process:50:s50"]


async def test_no_more_than_some_are_remembered(tty: str) -> None:
    outside = Outside()
    crowd = [process(pid, "claude", tty=tty) for pid in range(10, 10 + MOST_AGENTS + 20)]
    await outside.look(*crowd)
    assert len(outside.agents) == MOST_AGENTS


@pytest.mark.requirement("TR-11")
async def test_nobody_is_gone_because_the_table_cannot_be_read(tty: str) -> None:
    processes = FakeProcesses([process(50, "claude", tty=tty)])
    time = Time()
    ear = await listen_to(PollerSource(time, RULES, finder=FakeFinder(), processes=processes))
    await ear.look()
    processes.is_broken = True
    for _ in range(5):
        time.pass_by(1)
        await ear.look()
    assert ear.is_down
    assert [each.event_type for each in ear.said] == ["activity.unknown"]
    processes.is_broken = False
    processes.processes.clear()
    for _ in range(2):
        time.at += timedelta(seconds=1)
        await ear.look()
    assert [each.event_type for each in ear.said] == ["activity.unknown", "session.ended"]


@pytest.mark.parametrize("tmux_only", [False, True])
async def test_agents_outside_of_tmux_can_be_left_out(tty: str, tmux_only: bool) -> None:
    processes = FakeProcesses([process(50, "claude", tty=tty)])
    poller = PollerSource(
        Time(), RULES, finder=FakeFinder(), processes=processes, tmux_only=tmux_only
    )
    ear = await listen_to(poller)
    await ear.look()
    assert len(ear.said) == (0 if tmux_only else 1)


# --------------------------------------------------------------------------------- real terminals


TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.argv[1], "-c", "import time; time.sleep(1000)"])
"""


@asynccontextmanager
async def on_terminal(name: str, *, cwd: Path) -> AsyncIterator[int]:
    """Run a program of some name in front of a terminal of its own; give its pid."""
    primary, secondary = pty.openpty()
    child = await asyncio.to_thread(
        subprocess.Popen,
        [sys.executable, "-c", TAKE_TERMINAL, name],
        stdin=secondary,
        stdout=secondary,
        stderr=secondary,
        cwd=cwd,
        start_new_session=True,
    )
    os.close(secondary)
    try:
        yield child.pid
    finally:
        child.kill()
        await asyncio.to_thread(child.wait)
        os.close(primary)


def outside_of(ear: Ear, pid: int) -> list[Observation]:
    return [each for each in ear.said if each.origin is not None and each.origin.pid == pid]


async def test_a_real_agent_on_a_terminal_is_seen_until_it_ends(
    watch: Watch, tmp_path: Path
) -> None:
    ear = await watch(tmux_only=False)
    async with on_terminal("claude", cwd=tmp_path) as pid:
        await look_until(ear, lambda: bool(outside_of(ear, pid)))
        [said] = outside_of(ear, pid)
        assert said.event_type == "activity.unknown"
        assert said.provider is Provider.CLAUDE
        assert said.origin is not None
        assert said.origin.tty.startswith("/dev/")
        if sys.platform.startswith("linux"):
            assert said.origin.cwd == str(tmp_path)
            assert said.session_key == f"process:{pid}:{said.origin.process_start}"
    await look_until(ear, lambda: outside_of(ear, pid)[-1].event_type == "session.ended")


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux here")
@pytest.mark.tmux
async def test_an_agent_in_a_pane_is_not_told_twice_not_even_of_a_server_nobody_looks_at(
    tmux: PrivateTmux, another: PrivateTmux, watch: Watch
) -> None:
    await another.start(program("claude"))
    pane_id = await tmux.new_pane(program("claude"))
    ear = await watch(tmux, only=True, tmux_only=False)
    async with AsyncExitStack() as stack:
        pid = await stack.enter_async_context(on_terminal("codex", cwd=Path("/")))
        await look_until(ear, lambda: bool(outside_of(ear, pid)) and bool(ear.of(pane_id)))
        for _ in range(3):
            await ear.look()
        ours = {f"process:{pid}"}
        keys = [each.session_key.split(":") for each in ear.said if each.origin]
        others = {":".join(each[:2]) for each in keys}  # the start may have a time of day
        # Other agents of whoever runs the tests may be there, but none of these two.
        panes = await another.run("list-panes", "-a", "-F", "#{pane_pid}")
        panes += "\n" + await tmux.run("list-panes", "-a", "-F", "#{pane_pid}")
        assert ours <= others
        assert others.isdisjoint(f"process:{each}" for each in panes.split())
