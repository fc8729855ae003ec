"""A program is started, spoken to over its stdio, and gone with all its kin afterwards."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from bullpen.connection import Connection, ConnectionClosed, ProcessExited, SubprocessTransport
from bullpen.connection.errors import CommandNotFound
from bullpen.connection.transports import process
from bullpen.testing import Recorder
from tests.connection.transports.leftovers import descriptors, wait_gone, wait_threads

PROGRAMS = Path(__file__).parent / "programs"
AGENT = [sys.executable, "-I", str(PROGRAMS / "agent.py")]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes that do not end by themselves stopped sooner."""
    monkeypatch.setattr(process, "STOP_SECONDS", 0.3)


@pytest.mark.requirement("T-29")
async def test_a_program_answers_over_its_stdio() -> None:
    async with Connection.builder().connect(SubprocessTransport(AGENT)) as agent:
        assert await agent.request("echo", {"value": [1, "é", None]}) == [1, "é", None]


async def test_it_gets_the_environment_and_the_directory_it_is_given(home: Path) -> None:
    transport = SubprocessTransport(AGENT, env={"WHERE": "here"}, cwd=home)
    async with Connection.builder().connect(transport) as agent:
        place = await agent.request("place")
    assert place["env"]["WHERE"] == "here"
    assert "HOME" not in place["env"]
    assert place["cwd"].endswith(home.name)


@pytest.mark.requirement("L-25")
async def test_it_is_the_leader_of_a_group_of_its_own() -> None:
    transport = SubprocessTransport(AGENT)
    async with Connection.builder().connect(transport) as agent:
        assert (await agent.request("place"))["group"] == transport.pid != os.getpgrp()


async def test_lines_on_stdout_that_are_no_messages_are_survived() -> None:
    async with Connection.builder().connect(SubprocessTransport(AGENT)) as agent:
        await agent.request("write_stdout", {"text": "Welcome to agent 1.0!\n\n\r\n"})
        assert await agent.request("echo", {"value": 1}) == 1
        assert agent.stats().malformed == 1


# Its end


@pytest.mark.requirement("D-48", "L-26", "contract:X1")
async def test_a_killed_program_is_reported_with_its_signal_and_the_tail_of_stderr() -> None:
    transport = SubprocessTransport(AGENT)
    async with Connection.builder().connect(transport) as agent:
        await agent.request("write_stderr", {"size": 10})
        waiting = asyncio.ensure_future(agent.request("never_answer"))
        await asyncio.sleep(0)
        os.kill(transport.pid or 0, signal.SIGKILL)
        with pytest.raises(ConnectionClosed) as caught:
            await waiting
        cause = caught.value.cause
        assert isinstance(cause, ProcessExited)
        assert cause.status == -signal.SIGKILL
        assert cause.stderr_tail == "xxxxxxxxxx\nthe last line\n"
        assert "was ended by signal 9: xxxxxxxxxx\nthe last line" in str(cause)
        assert cause.command.endswith("agent.py")


@pytest.mark.requirement("L-26")
async def test_a_program_that_fails_is_reported_with_its_status_and_its_reason() -> None:
    async with Connection.builder().connect(SubprocessTransport(AGENT)) as agent:
        with pytest.raises(ConnectionClosed) as caught:
            await agent.request("exit", {"status": 3, "saying": "no such model"})
        cause = caught.value.cause
        assert isinstance(cause, ProcessExited)
        assert (cause.status, cause.stderr_tail) == (3, "no such model")
        assert not agent.is_clean


async def test_a_program_that_succeeds_has_closed_the_connection_cleanly() -> None:
    async with Connection.builder().connect(SubprocessTransport(AGENT)) as agent:
        with pytest.raises(ConnectionClosed):
            await agent.request("exit", {"status": 0, "saying": "bye"})
        assert agent.is_clean


@pytest.mark.requirement("contract:X2")
async def test_what_a_program_said_before_it_failed_is_received_first() -> None:
    code = r"print('{\"method\":\"said\",\"params\":[1]}\n' * 5000, flush=True); exit(1)"
    recorder = Recorder()
    transport = SubprocessTransport([sys.executable, "-Ic", code])
    await transport.start(recorder)
    assert isinstance(await recorder.wait_end(), ProcessExited)
    assert len(recorder.messages) == 5000
    await transport.close()


@pytest.mark.requirement("L-26", "L-30")
async def test_stderr_is_always_read_and_only_its_end_is_kept() -> None:
    transport = SubprocessTransport(AGENT)
    async with Connection.builder().connect(transport) as agent:
        await agent.request("write_stderr", {"size": 1_000_000})
        assert len(transport.stderr_tail) == 64 * 1024
        assert transport.stderr_tail.endswith("xxx\nthe last line\n")


@pytest.mark.requirement("L-25", "L-26")
async def test_its_exit_is_noticed_though_a_child_of_its_own_keeps_stdout_open() -> None:
    async with Connection.builder().connect(SubprocessTransport(AGENT)) as agent:
        child = await agent.request("start_child", {"temper": "meek"})
        with pytest.raises(ConnectionClosed) as caught:
            await agent.request("exit", {"status": 4, "saying": ""})
        assert isinstance(caught.value.cause, ProcessExited)
        assert caught.value.cause.status == 4
    await wait_gone(child)


async def test_one_that_closes_its_stdout_and_lives_on_has_closed_the_connection_cleanly() -> None:
    transport = SubprocessTransport(AGENT)
    async with Connection.builder().connect(transport) as agent:
        with pytest.raises(ConnectionClosed):
            await agent.request("close_stdout")
        assert agent.is_clean
        assert transport.status is None


# How it is ended


@pytest.mark.requirement("contract:X3")
async def test_the_end_of_stdin_ends_a_program_that_listens() -> None:
    transport = SubprocessTransport(AGENT)
    async with Connection.builder().connect(transport) as agent:
        await agent.request("echo", {"value": 1})
    assert transport.status == 0


@pytest.mark.requirement("contract:X3")
async def test_what_it_still_has_to_say_is_read_so_that_it_can_end() -> None:
    transport = SubprocessTransport(AGENT)
    async with Connection.builder().connect(transport) as agent:
        await agent.request("speak_at_the_end", {"size": 1_000_000})
    assert transport.status == 0


@pytest.mark.requirement("contract:X3", "L-25")
@pytest.mark.parametrize(
    ("ignoring_sigterm", "number"), [(False, signal.SIGTERM), (True, signal.SIGKILL)]
)
async def test_one_that_does_not_listen_is_told_ever_louder(
    impatient: None, ignoring_sigterm: bool, number: int
) -> None:
    transport = SubprocessTransport(AGENT)
    async with Connection.builder().connect(transport) as agent:
        await agent.request("stay", {"ignoring_sigterm": ignoring_sigterm})
    assert transport.status == -number


@pytest.mark.requirement("contract:X3", "L-25")
@pytest.mark.parametrize("temper", ["meek", "stubborn"])
async def test_its_children_end_with_it(impatient: None, temper: str) -> None:
    async with Connection.builder().connect(SubprocessTransport(AGENT)) as agent:
        child = await agent.request("start_child", {"temper": temper})
        assert psutil.pid_exists(child)
    await wait_gone(child)


@pytest.mark.requirement("L-25")
async def test_children_it_leaves_behind_are_asked_before_they_are_killed(home: Path) -> None:
    environment = {**os.environ, "WITNESS": str(home / "tidied-up")}
    async with Connection.builder().connect(SubprocessTransport(AGENT, env=environment)) as agent:
        await agent.request("start_child", {"temper": "tidy"})
    assert "tidied-up" in os.listdir(home)  # noqa: PTH208


@pytest.mark.requirement("contract:X3")
async def test_a_close_that_is_cancelled_kills_it_at_once() -> None:
    transport = SubprocessTransport(AGENT)
    connection = await Connection.builder().open(transport)
    await connection.request("stay", {"ignoring_sigterm": True})
    closing = asyncio.ensure_future(transport.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await wait_gone(transport.pid or 0)
    await connection.aclose()
    assert transport.status == -signal.SIGKILL


@pytest.mark.requirement("contract:X3", "L-25")
async def test_nothing_is_left_of_it() -> None:
    await asyncio.sleep(0)  # what the loop needs for itself is open
    before = descriptors(), threading.active_count()
    for end in ("exit", "close"):
        async with Connection.builder().connect(SubprocessTransport(AGENT)) as agent:
            await agent.request("start_child", {"temper": "meek"})
            if end == "exit":
                with pytest.raises(ConnectionClosed):
                    await agent.request("exit", {"status": 1, "saying": "x" * 100_000})
    await asyncio.sleep(0)
    assert psutil.Process().children() == []
    await wait_threads(before[1])  # asyncio has one wait for the exit, on some systems
    assert descriptors() == before[0]


async def test_a_program_whose_starter_is_killed_learns_so_by_the_end_of_its_stdin() -> None:
    starter = """
import asyncio, os, sys
from bullpen.connection import Connection, SubprocessTransport
async def main():
    transport = SubprocessTransport(sys.argv[1:])
    async with Connection.builder().connect(transport) as agent:
        await agent.request("echo", {"value": 1})
        print(transport.pid, flush=True)
        os.kill(os.getpid(), 9)
asyncio.run(main())
"""
    command = [sys.executable, "-Ic", starter, *AGENT]
    starting = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    output, _ = await starting.communicate()
    assert starting.returncode == -signal.SIGKILL
    await wait_gone(int(output))


# What cannot be started


@pytest.mark.requirement("D-18", "L-26")
@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-program"], "No such file"),
        (["echo $HOME"], "No such file"),
        ([str(PROGRAMS / "agent.py")], "Permission denied"),
        ([str(PROGRAMS)], "Permission denied"),
        (["echo", "a\0b"], "embedded null byte"),
        ([], "the command is empty"),
    ],
    ids=["absent", "for a shell", "not executable", "a directory", "null byte", "empty"],
)
async def test_a_command_that_cannot_be_run_is_said_to_be_so(
    command: list[str], reason: str
) -> None:
    before = descriptors()
    with pytest.raises(CommandNotFound, match=reason):
        await Connection.builder().open(SubprocessTransport(command))
    assert descriptors() == before


async def test_a_directory_that_is_not_there_is_said_to_be_so(home: Path) -> None:
    with pytest.raises(CommandNotFound, match="absent"):
        await Connection.builder().open(SubprocessTransport(AGENT, cwd=home / "absent"))


def test_before_it_is_started_there_is_nothing_to_tell() -> None:
    transport = SubprocessTransport(AGENT)
    assert (transport.pid, transport.status, transport.stderr_tail) == (None, None, "")


# Without a connection


async def test_what_a_program_says_on_stderr_is_told_as_it_comes() -> None:
    heard, spoke = bytearray(), asyncio.Event()

    def hear(data: bytes) -> None:
        heard.extend(data)
        spoke.set()

    talk = "import sys; print('hello', file=sys.stderr, flush=True); sys.stdin.read()"
    child = await process.ChildProcess.spawn(
        [sys.executable, "-Ic", talk], env=None, cwd=None, on_exit=lambda: None, on_stderr=hear
    )
    async with asyncio.timeout(10):
        await spoke.wait()
    assert (bytes(heard), child.stderr_tail) == (b"hello\n", "hello\n")
    await child.stop()
    assert child.status == 0
    child.release()


async def test_a_program_that_hears_nothing_is_ended_as_soon_as_its_starter_wants() -> None:
    deaf = "import signal, sys; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('x', flush=1)"
    child = await process.ChildProcess.spawn(
        [sys.executable, "-Ic", f"{deaf}; signal.pause()"],
        env=None,
        cwd=None,
        on_exit=lambda: None,
    )
    is_deaf = asyncio.Event()
    child.drain_stdout(lambda _: is_deaf.set(), lambda: None)
    async with asyncio.timeout(10):
        await is_deaf.wait()
    begun = asyncio.get_running_loop().time()
    await child.stop(by_force=True, seconds=0.1)
    assert asyncio.get_running_loop().time() - begun < process.STOP_SECONDS
    assert child.status == -signal.SIGKILL
    child.release()
