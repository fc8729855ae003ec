"""Two ends in one process: the very object that is sent is received, and nothing is serialized."""

import asyncio
from collections import deque

from bullpen.connection.errors import SendBufferFull, TransportClosed
from bullpen.connection.transport import Receiver, Transport
from bullpen.jsonrpc.wire import Batch, Message, Response

__all__ = ["ChannelTransport", "channel_pair", "create_paired_transports"]

CONGESTED_MESSAGES = 1024  # beyond this, senders who can wait do so
MAX_UNREAD_MESSAGES = 100_000  # what an end that stopped reading may cost
RESPONSE_RESERVE = 1.25  # responses may fill a quarter more, so that answering never waits

_ANSWERS = (Response, Batch)


class ChannelTransport(Transport):
    """One end of a channel. Make both with `channel_pair`."""

    def __init__(self) -> None:
        self._other: ChannelTransport | None = None
        self._receiver: Receiver | None = None
        self._unread: deque[Message] = deque()
        self._delivery_is_due = False
        self._is_paused = False
        self._is_closing = False
        self._other_has_closed = False
        self._has_ended = False
        self._relief: asyncio.Future[None] | None = None

    def join(self, other: "ChannelTransport") -> None:
        """Make this and another end the two ends of one channel."""
        self._other, other._other = other, self

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._deliver_soon()

    def send(self, message: Message) -> None:
        other = self._other
        if self._is_closing or other is None or other._is_closing or self._receiver is None:
            raise TransportClosed("the channel is not open")
        unread = len(other._unread)
        if unread >= CONGESTED_MESSAGES:
            reserve = RESPONSE_RESERVE if message.__class__ in (Response, Batch) else 1.0
            if unread >= MAX_UNREAD_MESSAGES * reserve:
                raise SendBufferFull(MAX_UNREAD_MESSAGES)
            self.is_congested = True
        other._unread.append(message)
        if not other._delivery_is_due:
            other._deliver_soon()

    async def drain(self) -> None:
        while self.is_congested and not self._is_closing:
            if self._relief is None or self._relief.done():
                self._relief = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._relief)

    async def close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self._unread.clear()
        self._relieve()
        if self._other is not None:
            self._other._other_has_closed = True
            self._other._relieve()
            self._other._deliver_soon()
        self._end()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self._deliver_soon()

    def _deliver_soon(self) -> None:
        if self._receiver is not None and not self._delivery_is_due:
            self._delivery_is_due = True
            asyncio.get_running_loop().call_soon(self._deliver)

    def _deliver(self) -> None:
        self._delivery_is_due = False
        receiver, unread = self._receiver, self._unread
        if receiver is None:
            return
        # Only what is there now: an endless exchange must not keep the loop to itself.
        for _ in range(len(unread)):
            if self._is_paused or not unread:
                break
            receiver.receive(unread.popleft(), 0)
        other = self._other
        if other is not None and other.is_congested and len(unread) < CONGESTED_MESSAGES:
            other._relieve()
        if self._other_has_closed and not unread:
            self._end()
        elif unread and not self._is_paused:
            self._deliver_soon()

    def _relieve(self) -> None:
        self.is_congested = False
        if self._relief is not None and not self._relief.done():
            self._relief.set_result(None)

    def _end(self) -> None:
        if self._receiver is not None and not self._has_ended:
            self._has_ended = True
            self._receiver.receive_end(None)


def channel_pair() -> tuple[ChannelTransport, ChannelTransport]:
    """Return two connected ends; what is sent into one comes out of the other."""
    left, right = ChannelTransport(), ChannelTransport()
    left.join(right)
    return left, right


create_paired_transports = channel_pair
