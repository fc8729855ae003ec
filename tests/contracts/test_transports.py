"""Every transport keeps the same promises."""

import asyncio
import itertools
import os
import pty
import re
import socket
import sys
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from bullpen.connection import (
    ContentLengthFramer,
    DescriptorTransport,
    LineFramer,
    SocketTransport,
    StreamTransport,
    SubprocessTransport,
    Transport,
    TransportClosed,
    WebSocketTransport,
    channel_pair,
)
from bullpen.connection.transport import Receiver
from bullpen.jsonrpc.framing import Framer
from bullpen.jsonrpc.wire import Message
from bullpen.testing.conformance import TransportContract
from bullpen.testing.transports import MockPeer, byte_pair, create_mock_transport

pytestmark = pytest.mark.requirement("T-01", "T-08", "T-20", "T-24", "T-25", "T-27", "T-47", "D-06")

PROGRAMS = Path(__file__).parents[1] / "connection/transports/programs"

Pair = AsyncIterator[tuple[Transport, Transport]]


class SocketContract(TransportContract):
    can_half_close = True
    make_framer: type[Framer] = LineFramer

    async def half_close(self, far: Transport) -> None:
        assert isinstance(far, SocketTransport)
        assert far._socket is not None
        far._socket.shutdown(socket.SHUT_WR)

    def accepting(
        self, server: socket.socket, near: SubprocessTransport | None = None
    ) -> SocketTransport:
        """Return the far end, which is whoever connects first: the near end, or its process."""

        async def accept() -> socket.socket:
            try:
                async with asyncio.timeout(20):
                    connected, _ = await asyncio.get_running_loop().sock_accept(server)
            except TimeoutError:
                raise AssertionError(near.stderr_tail if near else "nobody connects") from None
            return connected

        return SocketTransport(accept, framer=self.make_framer())


@pytest.mark.requirement("T-28", "T-32", "contract:X4")
class TestSocketpair(SocketContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        left, right = socket.socketpair()
        near, far = (SocketTransport.over(s, framer=self.make_framer()) for s in (left, right))
        yield near, far


class TestSocketpairWithContentLength(TestSocketpair):
    make_framer = ContentLengthFramer


@pytest.mark.requirement("T-30", "T-46")
class TestTcp(SocketContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        with socket.create_server(("127.0.0.1", 0)) as server:
            server.setblocking(False)
            host, port = server.getsockname()
            yield SocketTransport.tcp(host, port, framer=self.make_framer()), self.accepting(server)


class TestTcpWithContentLength(TestTcp):
    make_framer = ContentLengthFramer


@pytest.mark.requirement("T-28")
class TestPipes(TransportContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        (a, b), (c, d) = os.pipe(), os.pipe()
        yield DescriptorTransport(a, d), DescriptorTransport(c, b)


@pytest.mark.requirement("T-32")
class TestTerminal(TransportContract):
    can_flush = False  # what is in a terminal when one end closes is gone

    @asynccontextmanager
    async def pair(self) -> Pair:
        near, far = pty.openpty()
        tty.setraw(far)
        yield DescriptorTransport(near, near), DescriptorTransport(far, far)


class UnixContract(SocketContract):
    @pytest.fixture(autouse=True)
    def _directory(self, home: Path) -> None:
        self.paths = (str(home / f"run/{n}") for n in itertools.count())

    @contextmanager
    def listening(self) -> Iterator[tuple[str, socket.socket]]:
        path = next(self.paths)
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            server.setblocking(False)
            yield path, server


@pytest.mark.requirement("T-31")
class TestUnix(UnixContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        with self.listening() as (path, server):
            yield SocketTransport.unix(path), self.accepting(server)


@pytest.mark.requirement("T-29", "contract:X3", "contract:X4", "L-25")
class TestSubprocess(UnixContract):
    """The far end is behind a process that copies its stdio from and to a socket."""

    @asynccontextmanager
    async def pair(self) -> Pair:
        with self.listening() as (path, server):
            near = SubprocessTransport([sys.executable, "-I", PROGRAMS / "pump.py", path])
            yield near, self.accepting(server, near)


@pytest.mark.requirement("T-44", "L-40")
class TestStdio(UnixContract):
    """The process in between speaks `StdioTransport` itself."""

    can_half_close = False

    @asynccontextmanager
    async def pair(self) -> Pair:
        with self.listening() as (path, server):
            near = SubprocessTransport([sys.executable, "-I", PROGRAMS / "bridge.py", path])
            yield near, self.accepting(server, near)


@pytest.mark.requirement("T-28", "T-32")
class TestStreams(TransportContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        left, right = socket.socketpair()
        near_reader, near_writer = await asyncio.open_connection(sock=left)
        far_reader, far_writer = await asyncio.open_connection(sock=right)
        near = StreamTransport(near_writer, near_reader)
        yield near, StreamTransport(far_writer, far_reader)


class TestStreamsOverPipes(TransportContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        (a, b), (c, d) = os.pipe(), os.pipe()
        near = StreamTransport(await open_pipe_writer(d), await open_pipe_reader(a))
        yield near, StreamTransport(await open_pipe_writer(b), await open_pipe_reader(c))


class WebSocketContract(TransportContract):
    open_seconds = 1.0  # two sides have to shake hands

    @asynccontextmanager
    async def accepting(self, listening: socket.socket) -> AsyncIterator[WebSocketTransport]:
        """Serve on a socket; whoever connects first is the far end."""
        accepted: asyncio.Future[ServerConnection] = asyncio.get_running_loop().create_future()
        is_over = asyncio.Event()

        async def hold(websocket: ServerConnection) -> None:
            accepted.set_result(websocket)
            await is_over.wait()

        unix = listening.family == socket.AF_UNIX
        options: dict[str, Any] = {"max_size": 2**26, "compression": None, "close_timeout": 0.5}
        async with serve(hold, sock=listening, unix=unix, **options):
            yield WebSocketTransport(lambda: accepted)
            is_over.set()


@pytest.mark.requirement("T-48")
class TestWebSocket(WebSocketContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"ws://127.0.0.1:{listening.getsockname()[1]}"
            async with self.accepting(listening) as far:
                yield WebSocketTransport(url), far


class TestWebSocketOverUnix(WebSocketContract):
    @pytest.fixture(autouse=True)
    def _directory(self, home: Path) -> None:
        self.paths = (str(home / f"run/{n}") for n in itertools.count())

    @asynccontextmanager
    async def pair(self) -> Pair:
        path = next(self.paths)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            async with self.accepting(listening) as far:
                yield WebSocketTransport.unix(path), far


@pytest.mark.requirement("T-35")
class TestChannel(TransportContract):
    carries_bytes = False

    @asynccontextmanager
    async def pair(self) -> Pair:
        yield channel_pair()


class TestBytesInMemory(TransportContract):
    @asynccontextmanager
    async def pair(self) -> Pair:
        yield byte_pair()


class FarMock(Transport):
    """The far end of a mock: a transport that does what a test would do with its peer."""

    def __init__(self, mock: MockPeer) -> None:
        self._mock = mock
        self._is_open = False

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._is_open = True
        receiver.run_worker(self._receive(), "receive")

    def send(self, message: Message) -> None:
        if not self._is_open:
            raise TransportClosed("the transport is not open")
        self._mock.send_raw(message)

    async def close(self) -> None:
        self._mock.close()
        if self._is_open:
            self._is_open = False
            self._receiver.receive_end(None)

    async def _receive(self) -> None:
        while self._is_open:
            try:
                message = await self._mock.receive()
            except TransportClosed:
                await self.close()
                return
            self._receiver.receive(message, 0)


@pytest.mark.requirement("T-36")
class TestMock(TransportContract):
    carries_bytes = False
    can_congest = False  # it is told to, and then it does

    @asynccontextmanager
    async def pair(self) -> Pair:
        transport, mock = create_mock_transport()
        yield transport, FarMock(mock)


GUIDE = (Path(__file__).parents[2] / "docs/howto/write-a-transport.md").read_text(encoding="utf-8")
guide: dict[str, Any] = {"__name__": "write_a_transport"}
exec("".join(re.findall(r"(?ms)^```python\n(.*?)^```", GUIDE)), guide)
ContractOfTheGuide: Any = guide["TestListTransport"]


@pytest.mark.requirement("T-23", "T-26")
class TestTheTransportOfTheGuide(ContractOfTheGuide):  # type: ignore[misc]
    """The page `docs/howto/write-a-transport.md`, word for word."""


async def test_the_guides_transport_is_used_as_the_guide_says() -> None:
    await guide["main"]()


async def open_pipe_reader(fd: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(fd, "rb"))
    return reader


async def open_pipe_writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(fd, "wb")
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
