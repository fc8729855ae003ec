"""The waiter wakes its agent with exactly what it was handed, and is else not to be noticed."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.agents.hooks import waiter
from bullpen.agents.hooks.waiter import EVENTS, waiter_command, wake_hook
from bullpen.api.locations import socket_path
from bullpen.jsonrpc.errors import OVERLOADED, REQUEST_CANCELLED, SHUTTING_DOWN
from bullpen.mail.doors import Handed
from bullpen.model.deliveries import ReceiptState
from bullpen.testing.tmux import eventually
from tests.daemon.doors.hooked import AGENT, SECRET, listening

ODD = '! first\n日本語 😀\t"quoted" \\ <tag> & </system-reminder>\n\n  indented'
SECONDS = 30.0


@pytest.fixture
def socket(home: Path) -> Path:
    return Path(socket_path(os.environ, os.getuid()))


@asynccontextmanager
async def waiting(secret: str = SECRET) -> AsyncIterator[Process]:
    """Run a waiter as the agent does, in the background."""
    environment = {**os.environ, "BULLPEN_SECRET": secret}
    process = await asyncio.create_subprocess_exec(
        *waiter_command(), stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=environment
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def outcome(process: Process) -> tuple[int | None, bytes, bytes]:
    async with asyncio.timeout(SECONDS):
        out, err = await process.communicate()
    return process.returncode, out, err


@pytest.mark.requirement("door:wake")
@pytest.mark.parametrize("size", [1, 300_000], ids=["odd", "long"])
async def test_what_it_is_handed_is_on_its_stderr_to_the_byte(socket: Path, size: int) -> None:
    text = ODD + "x" * size
    async with listening(socket) as hooked, waiting() as process:
        handed = await hooked.hand_over(hooked.wake, text)
        said = f"[from bob]\n{text}".encode()
        assert await outcome(process) == (2, b"", said)
    assert handed.outcome is Handed.TAKEN
    assert hooked.steps == [ReceiptState.INJECTED]
    assert hooked.secrets == [SECRET]


@pytest.mark.requirement("door:wake")
async def test_of_two_only_the_newer_wakes(socket: Path) -> None:
    async with listening(socket) as hooked, waiting() as older:
        await hooked.until(lambda: hooked.wake.reaches(AGENT))
        async with waiting() as newer:
            assert await outcome(older) == (0, b"", b"")
            await hooked.hand_over(hooked.wake, "hello")
            assert await outcome(newer) == (2, b"", b"[from bob] hello")


async def test_without_a_secret_it_does_not_even_begin(socket: Path) -> None:
    async with listening(socket) as hooked, waiting(secret="") as process:
        assert await outcome(process) == (0, b"", b"")
    assert hooked.secrets == []


@pytest.mark.requirement("door:wake")
async def test_a_daemon_that_comes_back_finds_it_waiting(socket: Path) -> None:
    async with waiting() as process:
        async with listening(socket) as hooked:
            await hooked.until(lambda: hooked.wake.reaches(AGENT))
        async with listening(socket) as hooked:
            await hooked.hand_over(hooked.wake, "hello")
            assert await outcome(process) == (2, b"", b"[from bob] hello")


async def test_a_daemon_that_does_not_know_it_is_left_alone(socket: Path) -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = json.loads(await reader.readline())
        error = {"code": -32601, "message": "no such method"}
        answer = {"jsonrpc": "2.0", "id": asked["id"], "error": error}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()
        writer.close()

    socket.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with await asyncio.start_unix_server(refuse, str(socket)), waiting() as process:
        assert await outcome(process) == (0, b"", b"")


async def test_a_socket_somebody_else_may_have_put_there_is_told_no_secret(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiter, "RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(waiter, "GIVE_UP_SECONDS", 0.1)
    monkeypatch.setenv("BULLPEN_SECRET", SECRET)
    async with listening(socket) as hooked:
        socket.parent.chmod(0o777)
        assert await asyncio.to_thread(waiter.main) == 0
    assert hooked.secrets == []


AGENT_PROGRAM = """
import os, subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.requirement("door:wake")
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_it_goes_when_its_agent_was_killed(socket: Path) -> None:
    environment = {**os.environ, "BULLPEN_SECRET": SECRET}
    async with listening(socket) as hooked:
        agent = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", AGENT_PROGRAM, *waiter_command()),
            stdin=PIPE,
            stdout=PIPE,
            env=environment,
        )
        assert agent.stdout is not None
        child = int(await agent.stdout.readline())
        await hooked.until(lambda: hooked.wake.reaches(AGENT))
        agent.send_signal(signal.SIGKILL)
        await agent.communicate()
        await eventually(lambda: asyncio.to_thread(_is_gone, child))
        await eventually(lambda: not hooked.wake.reaches(AGENT))


def _is_gone(pid: int) -> bool:
    """Whether a process has ended, though nobody may have taken notice of it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_the_words_of_a_daemon_that_ends_are_known() -> None:
    assert waiter.TRY_AGAIN == (OVERLOADED, SHUTTING_DOWN, REQUEST_CANCELLED)


def test_the_hook_runs_it_without_a_shell_between() -> None:
    hook = wake_hook("told", "shown")
    assert (hook["command"], *hook["args"]) == waiter_command()
    assert hook["asyncRewake"] is True
    assert (hook["rewakeMessage"], hook["rewakeSummary"]) == ("told", "shown")
    assert waiter.LIFE_SECONDS < hook["timeout"] < 2**31 / 1000  # as the program's clock counts
    assert EVENTS == ("SessionStart", "UserPromptSubmit")
