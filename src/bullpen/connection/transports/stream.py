"""Any pair of async streams: `asyncio.StreamWriter` and `StreamReader`, or what behaves like them.

For streams somebody else made. Where the descriptors can be had, the other transports are faster.
"""

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from bullpen.connection.errors import TransportClosed
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.frames import CONGESTED_BYTES, FLUSH_SECONDS, FrameTransport

__all__ = ["Reader", "StreamTransport", "Writer"]

READ_BYTES = 2**18
CLOSE_SECONDS = 1.0  # for a stream to say good-bye, a TLS one for example


class Writer(Protocol):
    """Where to write. `drain` returns when more may be written."""

    def write(self, data: bytes, /) -> Any: ...

    async def drain(self) -> None: ...

    def close(self) -> Any: ...


class Reader(Protocol):
    """Where to read. `read` returns b"" at the end."""

    async def read(self, n: int, /) -> bytes: ...


class StreamTransport(FrameTransport):
    """Frames on a writer and a reader, in this order; it owns both and closes them."""

    def __init__(self, writer: Writer, reader: Reader, **options: Any) -> None:
        super().__init__(**options)
        self._writer = writer
        self._reader = reader
        self._unsent: list[bytes] = []
        self._undrained_bytes = 0  # unsent, or sent and not known to be gone
        self._has_unsent = asyncio.Event()
        self._has_drained = asyncio.Event()
        self._may_read = asyncio.Event()
        self._has_read_all = asyncio.Event()
        self._is_mute = False  # nothing that is written can reach anybody
        self._is_closed = asyncio.Event()

    async def open(self, receiver: Receiver) -> None:
        self._attach(receiver)
        self._has_drained.set()
        self._may_read.set()
        receiver.run_worker(self._read(), "read")
        receiver.run_worker(self._write_unsent(), "write")

    async def close(self) -> None:
        if self._is_closing:
            await self._is_closed.wait()
            return
        if self._loop is not None:
            self._flush()
        self._is_closing = True
        self._end(None)
        self._receiver = None  # what still comes is read and forgotten
        self._may_read.set()
        try:
            if self._loop is not None:
                await _wait(self._has_drained.wait(), FLUSH_SECONDS)
            await self._close_streams()
        finally:
            self._is_mute = True
            self._has_unsent.set()  # wakes the worker, which has nothing more to do
            self._relieve()
            self._abort()
            self._is_closed.set()

    def pause(self) -> None:
        self._may_read.clear()

    def resume(self) -> None:
        self._may_read.set()

    async def _read(self) -> None:
        cause = None
        try:
            while data := await self._reader.read(READ_BYTES):
                await self._may_read.wait()
                self._feed(data)
        except TransportClosed as error:  # a reader of ours knows why
            cause = error
        except (OSError, EOFError) as error:
            cause = _gone(error)
        self._has_read_all.set()
        await self._may_read.wait()
        self._end(cause)

    def _write(self, data: bytes) -> None:
        if self._is_mute:
            return
        self._unsent.append(data)
        self._undrained_bytes += len(data)
        self._has_unsent.set()
        self._has_drained.clear()
        if self._undrained_bytes > CONGESTED_BYTES:
            self._back_up()

    async def _write_unsent(self) -> None:
        try:
            await self._has_unsent.wait()
            while not self._is_mute:
                self._has_unsent.clear()
                data = b"".join(self._unsent)
                self._unsent.clear()
                self._writer.write(data)
                await self._writer.drain()
                self._undrained_bytes -= len(data)
                if not self._undrained_bytes:
                    self._has_drained.set()
                if self._undrained_bytes <= CONGESTED_BYTES // 4:
                    self._relieve()
                await self._has_unsent.wait()
        except (OSError, RuntimeError) as error:  # the latter from a transport that is closed
            await self._lose(error)

    def _unsent_bytes(self) -> int:
        return self._undrained_bytes

    async def _lose(self, error: Exception) -> None:
        """Learn that nobody reads what is written. What had come before is still handed up."""
        self._is_mute = True
        self._unsent.clear()
        self._undrained_bytes = 0
        self._has_drained.set()
        self._relieve()
        await _wait(self._has_read_all.wait(), FLUSH_SECONDS)  # which may know better why
        await self._may_read.wait()
        self._end(_gone(error))

    async def _close_streams(self) -> None:
        if self._undrained_bytes:
            self._abort()
        for stream in (self._writer, self._reader):
            closed = _closer(stream)()
            if inspect.isawaitable(closed):
                await _wait(closed, CLOSE_SECONDS)
        wait_closed = getattr(self._writer, "wait_closed", None)
        if wait_closed is not None:
            await _wait(wait_closed(), CLOSE_SECONDS)

    def _abort(self) -> None:
        """Drop what was written: asyncio would keep the descriptor until somebody read it."""
        transport = getattr(self._writer, "transport", None)
        if transport is not None:
            transport.close()
            if transport.get_write_buffer_size():
                transport.abort()


def _gone(error: Exception) -> TransportClosed:
    return TransportClosed(f"the peer is gone: {getattr(error, 'strerror', None) or error}")


def _closer(stream: Any) -> Callable[[], Any]:
    # An asyncio reader has no `close`; over a pipe it has a transport of its own that has one.
    for owner in (stream, getattr(stream, "_transport", None)):
        close = getattr(owner, "close", None)
        if close is not None:
            return close  # type: ignore[no-any-return]
    return lambda: None


async def _wait(waiting: Awaitable[Any], seconds: float) -> None:
    """Wait for something to end, in whatever way, and not for long."""
    # NotImplementedError: asyncio's own pipe protocol cannot say when it is closed.
    with contextlib.suppress(TimeoutError, OSError, NotImplementedError):
        async with asyncio.timeout(seconds):
            await waiting
