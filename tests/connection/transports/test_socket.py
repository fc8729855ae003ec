"""Sockets are reached, refused in words, and closed without losing what was said last."""

import asyncio
import contextlib
import errno
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import (
    AddressError,
    Connection,
    Notification,
    SocketTransport,
    TransportClosed,
)
from bullpen.testing import Recorder
from tests.connection.transports.leftovers import descriptors


@pytest.fixture
def path(home: Path) -> str:
    return str(home / "run/socket")


@pytest.fixture
def busy(path: str) -> Iterator[socket.socket]:
    """A Unix server with a queue of one, which is full."""
    with socket.socket(socket.AF_UNIX) as server, contextlib.ExitStack() as queue:
        server.bind(path)
        server.listen(0)
        server.setblocking(False)
        while True:
            waiting = queue.enter_context(socket.socket(socket.AF_UNIX))
            waiting.setblocking(False)
            try:
                waiting.connect(path)
            except BlockingIOError:
                break
        yield server


@pytest.mark.requirement("T-31")
async def test_a_path_too_long_for_a_unix_socket_is_explained() -> None:
    path = "/tmp/" + "x" * 200
    with pytest.raises(AddressError, match=r"the path has 205 bytes; a Unix socket's may have 10"):
        await SocketTransport.unix(path).start(Recorder())


async def test_a_unix_socket_that_is_not_there_is_said_to_be_so(path: str) -> None:
    with pytest.raises(AddressError, match=f"unix://{path}: No such file or directory"):
        await SocketTransport.unix(path).start(Recorder())


async def test_a_unix_socket_nobody_serves_is_said_to_be_so(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
    with pytest.raises(AddressError, match="Connection refused"):
        await SocketTransport.unix(path).start(Recorder())


async def test_a_port_nobody_serves_is_said_to_be_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(AddressError, match=f"tcp://127.0.0.1:{port}: Connection refused"):
        await SocketTransport.tcp("127.0.0.1", port).start(Recorder())


@pytest.mark.parametrize("port", [0, 65536, -1])
async def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(AddressError, match="from 1 to 65535"):
        await SocketTransport.tcp("127.0.0.1", port).start(Recorder())


@pytest.mark.parametrize("host", ["no.such.host.invalid", "x" * 300])
async def test_a_host_nobody_knows_is_said_to_be_so(host: str) -> None:
    with pytest.raises(AddressError, match=host):
        await SocketTransport.tcp(host, 80).start(Recorder())


async def test_every_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as dead:
        closed = dead.getsockname()
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def resolve(*_: Any, **__: Any) -> list[Any]:
            kind = (socket.AF_INET, socket.SOCK_STREAM, 6, "")
            return [(*kind, closed), (*kind, server.getsockname())]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        transport = SocketTransport.tcp("two.addresses", 80)
        await transport.start(Recorder())
        await transport.close()


async def test_a_busy_server_is_waited_for(path: str, busy: socket.socket) -> None:
    recorder = Recorder()
    transport = SocketTransport.unix(path)
    starting = asyncio.ensure_future(transport.start(recorder))
    await asyncio.sleep(0)
    assert not starting.done()
    loop = asyncio.get_running_loop()
    (await loop.sock_accept(busy))[0].close()
    async with asyncio.timeout(5):
        await starting
        served, _ = await loop.sock_accept(busy)
        with served:
            await loop.sock_sendall(served, b'{"method": "at last"}\n')
            await recorder.wait_for(1)
    await transport.close()


async def give_up(transport: SocketTransport) -> None:
    before = descriptors()
    starting = asyncio.ensure_future(transport.start(Recorder()))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not starting.done()
    starting.cancel()
    await asyncio.wait([starting])
    assert descriptors() == before


@pytest.mark.usefixtures("busy")
async def test_a_connecting_that_is_given_up_leaves_no_descriptor(path: str) -> None:
    await give_up(SocketTransport.unix(path))


async def test_the_same_over_tcp() -> None:
    with socket.socket() as server, contextlib.ExitStack() as queue:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for _ in range(3):  # more than there is room for: the last of them hear nothing
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        await give_up(SocketTransport.tcp(*server.getsockname()))


@pytest.mark.requirement("T-08", "contract:X2")
async def test_on_a_unix_socket_a_peer_that_read_not_everything_has_still_ended_cleanly() -> None:
    ours, theirs = socket.socketpair()
    recorder = Recorder()
    transport = SocketTransport.over(ours)
    await transport.start(recorder)
    transport.send(Notification("unread"))
    theirs.send(b'{"method": "last"}\n')
    theirs.close()
    async with asyncio.timeout(5):
        assert await recorder.wait_end() is None
    assert recorder.messages == [Notification("last")]
    await transport.close()


async def test_a_reset_over_the_network_is_no_clean_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        recorder = Recorder()
        transport = SocketTransport.tcp(*server.getsockname())
        await transport.start(recorder)
        theirs, _ = server.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        theirs.close()
        async with asyncio.timeout(5):
            cause = await recorder.wait_end()
        assert isinstance(cause, TransportClosed)
        assert os.strerror(errno.ECONNRESET) in str(cause)
        await transport.close()


@pytest.mark.requirement("L-23")
async def test_closing_with_something_unread_loses_nothing_of_what_was_sent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = SocketTransport.tcp(*server.getsockname())
        await transport.start(Recorder())
        theirs, _ = server.accept()
        with theirs:
            theirs.sendall(b'{"method": "never read"}\n' * 1000)
            transport.send(Notification("last", ["x" * 1000]))
            await transport.close()
            received = b""
            while data := theirs.recv(2**16):
                received += data
    assert received.endswith(b'x"]}\n')


async def test_a_lone_message_does_not_wait_for_others_to_fill_a_packet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        transport = SocketTransport.tcp(*server.getsockname())
        async with Connection.builder().connect(transport):
            assert transport._socket is not None
            assert transport._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class HungUpOn(socket.socket):
    """A socket whose peer has gone, as macOS has them: nothing can be set any more."""

    def setsockopt(self, *_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


async def test_a_peer_that_went_at_once_is_told_by_reading() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        theirs = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
        theirs.close()
        ours = HungUpOn(accepted.family, accepted.type, fileno=accepted.detach())
        recorder = Recorder()
        transport = SocketTransport.over(ours)
        await transport.start(recorder)
        async with asyncio.timeout(20):
            assert await recorder.wait_end() is None
        await transport.close()


async def test_one_that_was_taken_over_and_never_opened_is_closed() -> None:
    ours, theirs = socket.socketpair()
    await SocketTransport.over(ours).close()
    with theirs:
        assert theirs.recv(1) == b""
