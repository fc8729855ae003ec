"""Transports without an operating system: every message moves when the test says so.

`create_mock_transport` puts a test in the place of the peer. `byte_pair` is a stream in memory
that can be cut anywhere. `Recorder` stands in for a connection and writes down what a transport
hands up.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from bullpen.connection.errors import SendBufferFull, TransportClosed
from bullpen.connection.transport import Decode, Receiver, Transport
from bullpen.connection.transports.frames import CONGESTED_BYTES, FrameTransport
from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.wire import Error, Id, Message, Notification, Request, Response

__all__ = [
    "MemoryTransport",
    "MockPeer",
    "MockTransport",
    "Recorder",
    "UnexpectedMessage",
    "byte_pair",
    "create_mock_transport",
]

WAIT_SECONDS = 5.0  # a test that waits this long for a message waits for ever

M = TypeVar("M", Request, Notification, Response)


class UnexpectedMessage(AssertionError):
    """The connection sent something else than the test waited for."""

    def __init__(self, expected: type, got: Message) -> None:
        super().__init__(f"expected a {expected.__name__.lower()}, got {got!r}")
        self.got = got


def create_mock_transport() -> "tuple[MockTransport, MockPeer]":
    """Return a transport for the connection under test, and its peer for the test itself.

    transport, mock = create_mock_transport()
    async with builder.connect(transport):
        mock.send_request("initialize", {"version": 1})
        response = await mock.receive_response()
        assert response.result == {"version": 1}
    """
    transport = MockTransport()
    return transport, MockPeer(transport)


class MockTransport(Transport):
    """The connection's side: it keeps what is sent until the peer takes it."""

    def __init__(self) -> None:
        self.receiver: Receiver | None = None
        self.sent: deque[Message] = deque()
        self.unread: deque[Message] = deque()  # of the peer, while not open or paused
        self.has_ended = False
        self.end_is_due = False
        self.end_cause: Exception | None = None
        self.is_paused = False
        self.is_full = False
        self.is_closed = False
        self.changed = asyncio.Event()  # something was sent, or the transport closed
        self.relieved = asyncio.Event()

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.deliver()

    def send(self, message: Message) -> None:
        if self.receiver is None or self.is_closed:
            raise TransportClosed("the transport is not open")
        if self.is_full and not isinstance(message, Response):
            raise SendBufferFull(0)
        self.sent.append(message)
        self.changed.set()

    async def drain(self) -> None:
        while self.is_congested and not self.is_closed:
            self.relieved.clear()
            await self.relieved.wait()

    async def close(self) -> None:
        self.is_closed = True
        self.relieved.set()
        self.changed.set()
        self.unread.clear()
        self.end_is_due = True
        self.is_paused = False
        self.deliver()

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.deliver()

    def deliver(self) -> None:
        """Hand up what the peer has sent, and its end."""
        receiver = self.receiver
        if receiver is None:
            return
        while self.unread and not self.is_paused:
            receiver.receive(self.unread.popleft(), 0)
        if self.end_is_due and not self.unread and not self.is_paused and not self.has_ended:
            self.has_ended = True
            receiver.receive_end(self.end_cause)


class MockPeer:
    """The test's side. What it sends is received before the call returns.

    Receiving is strict: the next thing the connection sent must be what is asked for.
    """

    def __init__(self, transport: MockTransport) -> None:
        self._transport = transport
        self._last_id = 0

    # Sending to the connection

    def send_request(self, method: str, params: Any = UNSET, *, id: Id | UnsetType = UNSET) -> Id:
        """Send a request; return its id, which is minted unless given."""
        if isinstance(id, UnsetType):
            self._last_id += 1
            id = self._last_id
        self.send_raw(Request(id, method, params))
        return id

    def send_notification(self, method: str, params: Any = UNSET) -> None:
        """Send a notification."""
        self.send_raw(Notification(method, params))

    def send_response(self, id: Id, result: Any = UNSET, *, error: Error | None = None) -> None:
        """Answer a request of the connection's, with a result or an error."""
        if error is None:
            self.send_raw(Response(id, None if result is UNSET else result))
        else:
            self.send_raw(Response(id, error=error))

    def send_raw(self, message: Message) -> None:
        """Send any message, also one that no peer should send: `Malformed`, `Batch`."""
        if self._transport.end_is_due:
            raise TransportClosed("the mock is closed")
        self._transport.unread.append(message)
        self._transport.deliver()

    def close(self, cause: Exception | None = None) -> None:
        """End the connection from this side: cleanly, or as if `cause` had happened."""
        if not self._transport.end_is_due:
            self._transport.end_is_due = True
            self._transport.end_cause = cause
            self._transport.deliver()

    # Receiving from the connection

    async def receive_request(self) -> Request:
        """Return the request that the connection sent next."""
        return await self._receive_kind(Request)

    async def receive_notification(self) -> Notification:
        """Return the notification that the connection sent next."""
        return await self._receive_kind(Notification)

    async def receive_response(self) -> Response:
        """Return the response that the connection sent next."""
        return await self._receive_kind(Response)

    async def receive(self) -> Message:
        """Return what the connection sent next, whatever it is.

        Raises:
            TransportClosed: it closed and will send nothing any more.
        """
        transport = self._transport
        async with asyncio.timeout(WAIT_SECONDS):
            while not transport.sent:
                if transport.is_closed:
                    raise TransportClosed("the connection has closed its transport")
                transport.changed.clear()
                await transport.changed.wait()
        return transport.sent.popleft()

    @property
    def unreceived(self) -> tuple[Message, ...]:
        """What the connection has sent and the test has not received."""
        return tuple(self._transport.sent)

    # Conditions

    @property
    def is_paused(self) -> bool:
        """Whether the connection has stopped reading."""
        return self._transport.is_paused

    @property
    def is_closed(self) -> bool:
        """Whether the connection has closed its transport."""
        return self._transport.is_closed

    async def wait_closed(self) -> None:
        """Wait until the connection has closed its transport."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self._transport.is_closed:
                self._transport.changed.clear()
                await self._transport.changed.wait()

    def congest(self, *, full: bool = False) -> None:
        """Have senders wait, as if nobody read; `full` refuses all but responses."""
        self._transport.is_congested = True
        self._transport.is_full = full

    def relieve(self) -> None:
        """Let senders go on."""
        self._transport.is_congested = self._transport.is_full = False
        self._transport.relieved.set()

    async def _receive_kind(self, kind: type[M]) -> M:
        message = await self.receive()
        if not isinstance(message, kind):
            raise UnexpectedMessage(kind, message)
        return message


Cut = Callable[[bytes], Iterable[bytes]]


def byte_pair(cut: int | Cut = 2**16, **options: Any) -> "tuple[MemoryTransport, MemoryTransport]":
    """Return two ends of a stream in memory that arrives in pieces.

    `cut` is the length of the pieces, or a function that makes pieces of some bytes. Each piece is
    read in a round of the event loop of its own.
    """
    left, right = MemoryTransport(cut, **options), MemoryTransport(cut, **options)
    left.other, right.other = right, left
    return left, right


class MemoryTransport(FrameTransport):
    """One end of a stream in memory. Make both with `byte_pair`."""

    def __init__(self, cut: int | Cut, **options: Any) -> None:
        super().__init__(**options)
        self.other: MemoryTransport | None = None
        self._cut = cut
        self._incoming: deque[bytes] = deque()
        self._incoming_bytes = 0
        self._read_is_due = False
        self._is_paused = False
        self._other_has_closed = False

    async def open(self, receiver: Receiver) -> None:
        self._attach(receiver)
        self._read_soon()

    async def close(self) -> None:
        if self._loop is not None and not self._is_closing:
            self._flush()
        self._is_closing = True
        self._relieve()
        self._end(None)
        self._receiver = None
        self._incoming.clear()
        other, self.other = self.other, None
        if other is not None:
            other._other_has_closed = True
            other._read_soon()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._read_soon()

    def _write(self, data: bytes) -> None:
        other = self.other
        if other is None or other._is_closing:
            return  # nobody will read it; the end, which is on its way, says so
        other._incoming.extend(_pieces(data, self._cut))
        other._incoming_bytes += len(data)
        other._read_soon()
        if other._incoming_bytes > CONGESTED_BYTES:
            self._back_up()

    def _unsent_bytes(self) -> int:
        return self.other._incoming_bytes if self.other is not None else 0

    def _read_soon(self) -> None:
        if self._loop is not None and not self._read_is_due:
            self._read_is_due = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_is_due = False
        if self._is_paused:
            return
        if self._incoming:
            piece = self._incoming.popleft()
            self._incoming_bytes -= len(piece)
            self._feed(piece)
            if self.other is not None and self._incoming_bytes <= CONGESTED_BYTES // 4:
                self.other._relieve()
            self._read_soon()
        elif self._other_has_closed:
            self._end(None)


def _pieces(data: bytes, cut: int | Cut) -> Iterator[bytes]:
    if isinstance(cut, int):
        for start in range(0, len(data), cut):
            yield data[start : start + cut]
    else:
        yield from (piece for piece in cut(data) if piece)


class Recorder:
    """Receives what a transport hands up, in the place of a connection."""

    def __init__(self) -> None:
        self.decode: Decode = decode_frame
        self.messages: list[Message] = []
        self.sizes: list[int] = []
        self.ends: list[Exception | None] = []
        self.after_the_end: list[Message] = []  # which no transport should hand up
        self._workers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def receive(self, message: Message, size: int) -> None:
        (self.after_the_end if self.ends else self.messages).append(message)
        self.sizes.append(size)
        self._changed.set()

    def receive_burst(self, messages: Iterable[Message], sizes: Iterable[int]) -> None:
        for message, size in zip(messages, sizes, strict=True):
            self.receive(message, size)

    def receive_end(self, cause: Exception | None) -> None:
        self.ends.append(cause)
        self._changed.set()

    def run_worker(self, work: Coroutine[Any, Any, None], name: str) -> None:
        worker = asyncio.get_running_loop().create_task(work, name=name)
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    async def wait_for(self, count: int) -> list[Message]:
        """Wait until so many messages have come; return all there are."""
        await self._until(lambda: len(self.messages) >= count)
        return self.messages

    async def wait_end(self) -> Exception | None:
        """Wait for the end and return its cause."""
        await self._until(lambda: bool(self.ends))
        return self.ends[0]

    async def stop_workers(self) -> None:
        """Cancel what the transport left running, as a connection does after closing it."""
        workers = list(self._workers)
        for worker in workers:
            worker.cancel()
        if workers:
            await asyncio.wait(workers, timeout=WAIT_SECONDS)

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._changed.clear()
            await self._changed.wait()
