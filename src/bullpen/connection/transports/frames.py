"""What every transport that moves bytes shares: frames in, frames out, and their limits.

Outgoing frames are gathered until the event loop comes round, then written in one go: a hundred
small messages cost one system call. The first after a read is written at once, since a lone
request should not wait for others that may never come; what a read is answered with leaves at its
end.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Callable

from bullpen.connection.errors import SendBufferFull, TransportClosed
from bullpen.connection.transport import Decode, Receiver, Transport
from bullpen.jsonrpc.codec import encode_message
from bullpen.jsonrpc.errors import INVALID_REQUEST, FrameTooLongError
from bullpen.jsonrpc.framing import Frame, Framer, LineFramer
from bullpen.jsonrpc.wire import Batch, Error, Malformed, Message, Response

__all__ = ["FLUSH_SECONDS", "MAX_UNSENT_BYTES", "FrameTransport", "Tap"]

MAX_UNSENT_BYTES = 64 * 2**20  # what a peer that stopped reading may cost us
RESPONSE_RESERVE = 1.25  # responses may fill a quarter more, so that answering never waits
FLUSH_SECONDS = 0.5  # a peer that does not read must not hold the close
CONGESTED_BYTES = 2**20  # beyond this, senders who can wait do so

_ANSWERS = (Response, Batch)

Tap = Callable[[str, bytes], None]
"""Sees the direction, "in" or "out", and the bytes as they come and go."""


class FrameTransport(Transport):
    """A transport whose messages travel as frames on a byte stream.

    The subclass moves the bytes: it calls `_feed` with what it read, implements `_write`, and
    says with `_back_up` and `_relieve` whether the operating system takes what was written.
    """

    def __init__(
        self,
        *,
        framer: Framer | None = None,
        max_unsent_bytes: int = MAX_UNSENT_BYTES,
        tap: Tap | None = None,
    ) -> None:
        self._framer = framer or LineFramer()
        self._max_unsent = max_unsent_bytes
        self._tap = tap
        self._receiver: Receiver | None = None
        self._decode: Decode
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unflushed: list[bytes] = []
        self._unflushed_bytes = 0
        self._is_feeding = False
        self._may_write_at_once = True
        self._is_backed_up = False
        self._relief: asyncio.Future[None] | None = None  # what `drain` waits for
        self._is_closing = False
        self._has_ended = False

    def send(self, message: Message) -> None:
        if self._is_closing or self._loop is None:
            raise TransportClosed("the transport is not open")
        payload = encode_message(message)
        unflushed_bytes = self._unflushed_bytes + len(payload)
        if unflushed_bytes > CONGESTED_BYTES or self._is_backed_up:
            self._check_room(unflushed_bytes, is_response=message.__class__ in _ANSWERS)
            self.is_congested = True
        self._unflushed.append(payload)
        self._unflushed_bytes = unflushed_bytes
        if not self._is_feeding:
            if self._may_write_at_once:
                self._may_write_at_once = False
                self._flush()
            elif len(self._unflushed) == 1:
                self._loop.call_soon(self._flush)

    async def drain(self) -> None:
        self._flush()
        while self.is_congested and not self._is_closing:
            if self._relief is None or self._relief.done():
                self._relief = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._relief)
            self._flush()  # others may have sent meanwhile; only after a flush is relief promised

    @abstractmethod
    def _write(self, data: bytes) -> None:
        """Write bytes; never waits."""

    @abstractmethod
    def _unsent_bytes(self) -> int:
        """How many written bytes the operating system has not taken yet."""

    def _attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._decode = receiver.decode
        self._loop = asyncio.get_running_loop()

    def _feed(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            return
        frames = self._framer.feed(data)
        if self._tap is not None:
            self._tap("in", data)
        self._is_feeding = True
        try:
            if self._framer.has_faults:
                self._feed_faulty(receiver, frames)
            else:
                receiver.receive_burst(map(self._decode, frames), map(len, frames))  # type: ignore[arg-type]
        finally:
            self._is_feeding = False
            self._may_write_at_once = True
            if self._unflushed:
                self._flush()

    def _feed_faulty(self, receiver: Receiver, frames: list[Frame]) -> None:
        for frame in frames:
            if isinstance(frame, bytes):
                receiver.receive(self._decode(frame), len(frame))
            elif isinstance(frame, FrameTooLongError):
                answer = Error(INVALID_REQUEST, f"Invalid Request: {frame}", {"limit": frame.limit})
                receiver.receive(Malformed(answer), 0)
            else:
                self._flush()
                self._end(frame)

    def _flush(self) -> None:
        if self._unflushed:
            data = self._framer.frame(self._unflushed)
            self._unflushed.clear()
            self._unflushed_bytes = 0
            self.is_congested = self._is_backed_up
            if self._tap is not None:
                self._tap("out", data)
            self._write(data)

    def _check_room(self, unflushed_bytes: int, *, is_response: bool) -> None:
        limit = int(self._max_unsent * RESPONSE_RESERVE) if is_response else self._max_unsent
        if unflushed_bytes + self._unsent_bytes() > limit:
            raise SendBufferFull(limit)

    def _back_up(self) -> None:
        """Learn that the operating system takes no more for now."""
        self._is_backed_up = self.is_congested = True

    def _relieve(self) -> None:
        """Learn that it does again, or that it never will: whoever waits may go on."""
        self._is_backed_up = self.is_congested = False
        if self._relief is not None and not self._relief.done():
            self._relief.set_result(None)

    def _end(self, cause: Exception | None) -> None:
        """Tell the receiver, once, that nothing more will come."""
        if self._receiver is not None and not self._has_ended:
            self._has_ended = True
            self._receiver.receive_end(cause)
