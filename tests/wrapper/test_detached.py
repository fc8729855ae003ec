"""Agents without a terminal: started apart, found without a daemon, ended, and killed."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import psutil
import pytest

from bullpen.agents.instances import Instance, Instances
from bullpen.agents.processes import start_of
from bullpen.agents.registry import AgentRegistry
from bullpen.api.runtime import Paths
from bullpen.connection import Connection, SocketTransport
from bullpen.terminal.pty import PtyProcess
from bullpen.testing.tmux import eventually
from bullpen.wrapper import detached, reach
from bullpen.wrapper.attaching import AskInfo
from tests.cli.commands import PROGRAM, Done, execute

SECONDS = 30


@pytest.fixture
async def paths(home: Path) -> AsyncIterator[Paths]:
    """Where wrappers of this test are; those that still run are ended."""
    paths = await asyncio.to_thread(Paths.resolve)
    yield paths
    for each in await asyncio.to_thread(reach.running, paths):
        os.kill(each.pid, signal.SIGKILL)
        assert await reach.wait_gone(each, SECONDS)


async def start(*words: str, profile: str = "dummy") -> Done:
    return await execute("start", profile, "--no-start", "--wait-ready", *words)


async def found(paths: Paths, name: str) -> Instance:
    return await asyncio.to_thread(reach.find, paths, name)


async def children(pid: int) -> list[psutil.Process]:
    return await asyncio.to_thread(lambda: psutil.Process(pid).children(recursive=True))


async def gone(processes: list[psutil.Process]) -> None:
    await eventually(lambda: asyncio.to_thread(lambda: not any(map(_is_there, processes))))


def _is_there(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def files(paths: Paths) -> list[str]:
    """What says that somebody is there."""
    registry = AgentRegistry().directory
    return sorted(
        path.name
        for directory in (paths.agents, registry)
        for path in directory.glob("*")
        if not path.name.startswith(".")
    )


async def test_who_starts_an_agent_is_told_what_it_goes_without(paths: Paths) -> None:
    profile = paths.profiles / "gem.toml"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(
        'provider = "gemini"\nidle_regex = "> $"\n'
        'command = ["{python}", "-c", "print(\'> \', end=\'\', flush=True); input()"]\n'
    )
    done = await start(profile="gem")
    assert done.code == 0, done
    assert "Gemini CLI was not used here before" in done.err
    assert "Gemini CLI" not in done.out


async def test_who_waits_for_an_agent_that_ends_is_told_what_it_said_last(paths: Paths) -> None:
    profile = paths.profiles / "brief.toml"
    profile.parent.mkdir(parents=True, exist_ok=True)
    script = "import time; print('no such model'); time.sleep(1); raise SystemExit(7)"
    profile.write_text(f'idle_regex = "never> $"\ncommand = ["{{python}}", "-c", "{script}"]\n')
    done = await start(profile="brief")
    assert done.code == 1
    assert done.err == (
        "bullpen: brief ended with status 7 before it was ready:\n  no such model\n"
    )


async def test_where_nobody_could_be_attached_to_nobody_is_started(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = home / "x".ljust(77 - len(str(home)), "x")  # where the daemon's own socket still fits
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    done = await start()
    assert done.code == 1, done
    assert re.search(r"socket path .*/bullpend\.agents/\w+\.sock has \d+ bytes and may", done.err)
    assert "BULLPEN_HOME" in done.err
    assert await asyncio.to_thread(reach.running, Paths.resolve()) == ()


@pytest.mark.requirement("S-141", "S-142", "S-144", "S-22", "S-12")
async def test_an_agent_is_started_apart_logged_and_stopped(paths: Paths) -> None:
    started = await start()
    assert started.code == 0, started
    said = re.match(r"Started dummy \(PID: (\d+)\)\n", started.out)
    assert said is not None
    agent = await found(paths, "dummy")
    assert agent.pid == int(said[1])
    assert os.getsid(agent.pid) == agent.pid  # no terminal is theirs to lose
    assert agent.log == str(paths.agent_logs / "dummy.log")
    [entry] = await asyncio.to_thread(AgentRegistry().entries)
    assert (entry.agent_type, entry.port, entry.pid) == ("dummy", agent.port, agent.pid)
    await eventually(
        lambda: asyncio.to_thread(lambda: AgentRegistry().entries()[0].status == "IDLE")
    )
    assert (await execute("logs", "dummy", "-n", "1")).out == "> "
    below = await children(agent.pid)
    stopped = await execute("stop", "dummy")
    assert stopped.out == f"stopped dummy (PID: {agent.pid})\n"
    assert await reach.wait_gone(agent, 0)
    await gone(below)
    assert await asyncio.to_thread(files, paths) == []
    assert (await execute("logs", "dummy")).out.startswith("[DUMMY] Ready\n> ")
    assert (await execute("stop", "dummy")).code == 4


async def test_a_wrapper_that_is_killed_leaves_nothing_that_is_believed(paths: Paths) -> None:
    await start()
    agent = await found(paths, "dummy")
    below = await children(agent.pid)
    assert below
    os.kill(agent.pid, signal.SIGKILL)
    assert await reach.wait_gone(agent, SECONDS)
    await gone(below)
    left = await asyncio.to_thread(files, paths)
    assert {"dummy.json", "dummy.sock", f"{agent.agent_id}.json"} <= set(left)
    # The files are there, and nobody falls for them.
    assert await asyncio.to_thread(AgentRegistry().list_agents) == {}
    assert await asyncio.to_thread(reach.running, paths) == ()
    for command in ("attach", "stop"):
        assert (await execute(command, "dummy")).code == 4
    assert len(await asyncio.to_thread(reach.leftovers, paths)) == 2
    # The next of its name takes its place, and what cannot be its own is taken away.
    again = await start()
    assert again.out.startswith("Started dummy (PID: ")
    assert (await found(paths, "dummy")).pid != agent.pid
    assert f"{agent.agent_id}.json" in await asyncio.to_thread(files, paths)  # now its own
    assert (await execute("stop", "--all")).code == 0
    assert await asyncio.to_thread(files, paths) == []


async def test_what_the_killed_left_can_be_taken_away(paths: Paths) -> None:
    await start()
    agent = await found(paths, "dummy")
    os.kill(agent.pid, signal.SIGKILL)
    assert await reach.wait_gone(agent, SECONDS)
    cleaned = await execute("doctor", "--clean", "--json")
    check = next(each for each in cleaned.json["checks"] if each["name"] == "leftovers")
    assert check["level"] == "ok"
    assert "2 taken away" in check["said"]
    assert await asyncio.to_thread(files, paths) == []


@pytest.mark.requirement("S-10", "S-76")
async def test_two_of_one_name_are_two_agents(paths: Paths) -> None:
    one, two = await asyncio.gather(start(), start())
    names = {line.split()[1] for done in (one, two) for line in done.lines[:1]}
    assert names == {"dummy", "dummy-2"}
    agents = [await found(paths, each) for each in sorted(names)]
    assert len({each.pid for each in agents}) == 2
    assert len({each.port for each in agents}) == 2
    assert len({each.agent_id for each in agents}) == 2
    assert len(await asyncio.to_thread(AgentRegistry().list_agents)) == 2
    stopped = await execute("stop", "--all", "--json")
    assert {each["name"] for each in stopped.json["stopped"]} == names
    assert await asyncio.to_thread(files, paths) == []


async def test_a_wrapper_that_does_not_listen_is_killed(
    paths: Paths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reach, "STOP_ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(reach, "STEP_SECONDS", 0.2)
    started = await detached.start(paths, "dummy", starts_daemon=False, ready_seconds=SECONDS)
    agent = started.instance
    below = await children(agent.pid)
    os.kill(agent.pid, signal.SIGSTOP)
    assert await reach.end(agent) == "killed"
    await gone(below)
    assert await asyncio.to_thread(files, paths) == []


async def test_nobody_is_killed_who_has_the_number_of_a_dead_wrapper(paths: Paths) -> None:
    process = await asyncio.create_subprocess_exec("sleep", "60")
    former = Instance(name="claude", profile="claude", pid=process.pid, start="long ago")
    await asyncio.to_thread(Instances(paths.agents).write, former)
    assert (await execute("stop", "claude")).code == 4
    assert await reach.end(former) == "stopped"  # it is not there, whoever has its number
    await asyncio.to_thread(reach._signal, former, signal.SIGKILL)
    start = await asyncio.to_thread(start_of, process.pid)
    living = msgspec.structs.replace(former, start=start or "")
    await asyncio.to_thread(reach._signal, living, signal.SIGTERM)
    assert await process.wait() == -signal.SIGTERM  # and not killed before


async def test_what_cannot_be_started_is_told_with_the_reason(paths: Paths, home: Path) -> None:
    directory = home / ".config/bullpen/profiles"
    directory.mkdir(parents=True)
    (directory / "mine.toml").write_text('command = "no-such-program"\nidle_regex = "> $"\n')
    missing = await start(profile="mine")
    assert missing.code == 1
    assert "no-such-program" in missing.err
    unknown = await start(profile="dumy")
    assert unknown.code == 1
    assert "there is no profile 'dumy'; did you mean dummy?" in unknown.err
    with socket.socket() as serving:
        serving.bind(("127.0.0.1", 0))
        taken = await start("--port", str(serving.getsockname()[1]))
    assert taken.code == 1
    assert "is taken; choose another" in taken.err
    assert await asyncio.to_thread(files, paths) == []


@pytest.mark.requirement("S-144")
async def test_in_the_foreground_it_ends_with_the_command(paths: Paths) -> None:
    process = await asyncio.create_subprocess_exec(
        *(PROGRAM, "start", "dummy", "--no-start", "-f", "--name", "there"),
        stdin=subprocess.DEVNULL,
    )
    await eventually(lambda: asyncio.to_thread(lambda: bool(reach.running(paths))))
    agent = await found(paths, "there")
    assert agent.pid == process.pid
    process.terminate()
    async with asyncio.timeout(SECONDS):
        await process.wait()
    assert await asyncio.to_thread(files, paths) == []


async def heard(process: PtyProcess, text: bytes) -> bytes:
    read = b""
    async with asyncio.timeout(SECONDS):
        while text not in read:
            data = await process.read()
            assert data, f"ended after {read!r}"
            read += data
    return read


async def test_a_terminal_that_was_attached_is_given_back_as_it_was(paths: Paths) -> None:
    await start()
    shell = f"stty -g; {PROGRAM} attach dummy; echo code=$?; stty -g; echo over"
    async with await PtyProcess.spawn(["sh", "-c", shell], columns=91, rows=31) as terminal:
        modes = (await heard(terminal, b"\n")).split()[0]
        await heard(terminal, b"> ")
        await terminal.write(b"hello\r")  # which the agent's terminal makes a newline of
        await heard(terminal, b"You said: hello")
        agent = await found(paths, "dummy")
        transport = SocketTransport.unix(agent.socket)
        async with Connection.builder().connect(transport) as asking:
            info = await asking.request(AskInfo())
            assert (info.columns, info.rows, info.viewers) == (91, 31, 1)
            terminal.resize(77, 20)

            async def has_followed() -> bool:
                return (await asking.request(AskInfo())).columns == 77

            await eventually(has_followed)
        await terminal.write(b"\x1c\x1c")
        rest = await heard(terminal, b"over")
    assert b"[dummy: detached]" in rest
    assert b"code=0" in rest
    assert modes in rest.split()
    assert not await reach.wait_gone(agent, 0)


async def test_attaching_needs_a_terminal(paths: Paths) -> None:
    await start()
    done = await execute("attach", "dummy")
    assert done.code == 1
    assert "this is no terminal" in done.err


@pytest.mark.requirement("S-09", "S-180", "S-26")
async def test_a_profile_of_ones_own_is_a_command(paths: Paths, home: Path) -> None:
    directory = home / ".config/bullpen/profiles"
    directory.mkdir(parents=True)
    dummy = Path(detached.__file__).parents[1] / "agents/profiles/dummy_agent.py"
    (directory / "myagent.toml").write_text(
        f'command = ["{sys.executable}", "-u", "{dummy}", "0"]\nidle_regex = "> $"\n'
    )
    command = [PROGRAM, "myagent", "--no-start", "--name", "me"]
    async with await PtyProcess.spawn(command) as terminal:
        await heard(terminal, b"[DUMMY] Ready\r\n> ")
        agent = await found(paths, "me")
        assert agent.profile == "myagent"
        assert not agent.is_detached
        await terminal.write(b"exit\r")
        async with asyncio.timeout(SECONDS):
            while await terminal.read():
                pass
            assert await terminal.wait() == 0
    assert await asyncio.to_thread(files, paths) == []
