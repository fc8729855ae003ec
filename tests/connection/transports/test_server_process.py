"""A server is started, names its port, is connected to, and is gone afterwards."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path

import psutil
import pytest

from bullpen.connection import (
    AddressError,
    Connection,
    ConnectionClosed,
    ProcessExited,
    ServerProcessTransport,
    StartError,
    TransportError,
)
from bullpen.connection.errors import BadPortLine, CommandNotFound, ExitedEarly, StartTimeout
from bullpen.connection.transports.subprocess import PORT_LINE
from tests.connection.transports.leftovers import descriptors, wait_gone, wait_until

SERVER = [sys.executable, "-I", str(Path(__file__).parent / "programs/server.py")]


def has_children() -> bool:
    return bool(psutil.Process().children())


@pytest.mark.requirement("D-18", "T-30")
async def test_opening_returns_when_the_server_can_be_spoken_to() -> None:
    transport = ServerProcessTransport([*SERVER, "well"])
    async with Connection.builder().connect(transport) as server:
        assert await server.request("who") == transport.pid
    assert not has_children()


@pytest.mark.requirement("D-18")
async def test_what_the_server_prints_later_is_read_so_that_it_can_go_on() -> None:
    async with Connection.builder().connect(ServerProcessTransport([*SERVER, "well"])) as server:
        assert await server.request("print", {"size": 1_000_000})


@pytest.mark.requirement("D-18")
@pytest.mark.parametrize(
    ("does", "seconds", "error", "words"),
    [
        ("exits", 30, ExitedEarly, "exited with status 3: no licence before it was ready"),
        ("exits having named its port", 30, ExitedEarly, "exited with status 4"),
        ("names a port there is not", 30, BadPortLine, "no port in 'listening on port 123456'"),
        ("names a port it does not serve", 30, AddressError, "Connection refused"),
        ("says something else", 1, BadPortLine, "no port in 'Hello'"),
        ("closes its stdout", 30, BadPortLine, "no port in 'Hello'"),
        ("says too much", 30, BadPortLine, "no port in 'Hello'"),
        ("says nothing", 1, StartTimeout, "was not ready within 1 s"),
    ],
)
async def test_each_way_not_to_come_up_has_its_own_error_and_leaves_no_process(
    does: str, seconds: float, error: type[TransportError], words: str
) -> None:
    before = descriptors()
    transport = ServerProcessTransport([*SERVER, does], start_seconds=seconds)
    with pytest.raises(error, match=re.escape(words)):
        await Connection.builder().open(transport)
    assert not has_children()
    await asyncio.sleep(0)
    assert descriptors() == before


@pytest.mark.requirement("D-18")
async def test_a_server_that_cannot_be_run_is_said_to_be_so() -> None:
    with pytest.raises(CommandNotFound, match="no-such-server"):
        await Connection.builder().open(ServerProcessTransport(["no-such-server"]))
    assert issubclass(CommandNotFound, StartError)


@pytest.mark.requirement("D-18")
@pytest.mark.parametrize("_", range(5))
async def test_one_that_ends_at_once_has_exited_early_however_soon_that_is_seen(_: int) -> None:
    with pytest.raises(ExitedEarly, match="false exited with status 1"):
        await Connection.builder().open(ServerProcessTransport(["false"]))


@pytest.mark.requirement("D-18", "L-25")
async def test_a_start_that_is_cancelled_leaves_no_process() -> None:
    transport = ServerProcessTransport([*SERVER, "says nothing"])
    starting = asyncio.ensure_future(Connection.builder().open(transport))
    await wait_until(lambda: transport.pid is not None)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert not has_children()


@pytest.mark.requirement("D-48", "L-26")
async def test_a_killed_server_is_reported_with_its_signal() -> None:
    transport = ServerProcessTransport([*SERVER, "well"])
    async with Connection.builder().connect(transport) as server:
        os.kill(await server.request("who"), signal.SIGKILL)
        await server.wait_closed()
        assert isinstance(server.cause, ProcessExited)
        assert server.cause.status == -signal.SIGKILL


async def test_a_server_that_hangs_up_and_lives_on_has_closed_cleanly_and_is_stopped() -> None:
    transport = ServerProcessTransport([*SERVER, "well"])
    async with Connection.builder().connect(transport) as server:
        with pytest.raises(ConnectionClosed):
            await server.request("hang up")
        assert server.is_clean
    await wait_gone(transport.pid or 0)


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("CLI server listening on port 4141", "4141"),
        ("opencode server listening on http://127.0.0.1:4096", "4096"),
        ("listening on [::1]:80 ", "80"),
    ],
)
def test_the_port_is_found_in_the_words_of_known_servers(line: str, port: str) -> None:
    found = re.search(PORT_LINE, line)
    assert found
    assert found[1] == port


async def test_other_words_can_be_waited_for() -> None:
    code = r"""
import socket, sys
server = socket.create_server(("127.0.0.1", 0))
print("ready=<%d>!" % server.getsockname()[1], flush=True)
server.accept()[0].sendall(b'{"method": "hello"}\n')
sys.stdin.read()
"""
    heard = asyncio.Event()
    builder = Connection.builder().on_notification("hello", lambda *_: heard.set())
    transport = ServerProcessTransport([sys.executable, "-Ic", code], port_line=r"ready=<(\d+)>")
    async with builder.connect(transport), asyncio.timeout(5):
        await heard.wait()
