"""Any pair of file descriptors the event loop can watch: sockets, pipes, terminals.

They are read and written here directly, without asyncio's own transports in between: a read goes
into one buffer that is kept for ever (allocating one per read costs more than the rest of a small
message), and what the operating system does not take at once stays in a queue we can measure.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any

from bullpen.connection.errors import TransportClosed
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.frames import CONGESTED_BYTES, FLUSH_SECONDS, FrameTransport

__all__ = ["DescriptorTransport"]

READ_BYTES = 2**18  # what a Unix socket holds by default, and a good deal of a TCP window


class DescriptorTransport(FrameTransport):
    """Frames on two descriptors, which may be the same; it owns them and closes them."""

    def __init__(
        self,
        read_fd: int = -1,
        write_fd: int = -1,
        *,
        release: Callable[[], None] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._release = release
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._unsent = bytearray()
        self._is_reading = False
        self._is_writing = False
        self._all_sent: asyncio.Future[None] | None = None
        self._is_closed = False

    async def open(self, receiver: Receiver) -> None:
        self._attach(receiver)
        for fd in {self._read_fd, self._write_fd}:
            os.set_blocking(fd, False)
        self.resume()

    async def close(self) -> None:
        if self._is_closed:
            return
        if self._loop is not None and not self._is_closing:
            self._flush()
            self._is_closing = True
            await self._wait_sent()
        self._release_descriptors()
        self._end(None)

    def pause(self) -> None:
        if self._is_reading and self._loop is not None:
            self._is_reading = False
            self._loop.remove_reader(self._read_fd)

    def resume(self) -> None:
        if not self._is_reading and not self._has_ended and self._loop is not None:
            self._is_reading = True
            self._loop.add_reader(self._read_fd, self._read)

    def _read(self) -> None:
        try:
            size = os.readv(self._read_fd, (self._buffer,))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            # A terminal reports the end of the program behind it as an input error.
            self._end_reading(None if os.isatty(self._read_fd) else error)
            return
        if size:
            self._feed(bytes(self._buffer[:size]))
        else:
            self._end_reading(None)

    def _write(self, data: bytes) -> None:
        if self._is_closed:
            return
        if self._unsent:
            self._unsent += data
        else:
            try:
                sent = os.write(self._write_fd, data)
            except OSError as error:
                sent = self._count_written(error, data)
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._is_writing = True
            self._loop.add_writer(self._write_fd, self._write_more)  # type: ignore[union-attr]
        if len(self._unsent) > CONGESTED_BYTES:
            self._back_up()

    def _write_more(self) -> None:
        chunk = bytes(self._unsent[:READ_BYTES])
        try:
            sent = os.write(self._write_fd, chunk)
        except OSError as error:
            sent = self._count_written(error, chunk)
        del self._unsent[:sent]
        if not self._unsent:
            self._stop_writing()
        if len(self._unsent) <= CONGESTED_BYTES // 4:
            self._relieve()

    def _count_written(self, error: OSError, data: bytes) -> int:
        if isinstance(error, BlockingIOError | InterruptedError):
            return 0
        self._lose(error)
        return len(data)  # nobody will read it

    def _unsent_bytes(self) -> int:
        return len(self._unsent)

    def _end_reading(self, error: OSError | None) -> None:
        self.pause()
        if error is None:
            self._end(None)  # the peer said its last word; it may still want to hear ours
        else:
            self._lose(error)

    def _lose(self, error: OSError) -> None:
        """Learn that the other end is gone altogether."""
        self._is_closing = True
        self.pause()
        self._unsent.clear()
        self._stop_writing()
        self._relieve()
        self._end(TransportClosed(f"the peer is gone: {error.strerror or error}"))

    async def _wait_sent(self) -> None:
        if self._unsent:
            self._all_sent = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_sent], timeout=FLUSH_SECONDS)

    def _stop_writing(self) -> None:
        if self._is_writing and self._loop is not None:
            self._is_writing = False
            self._loop.remove_writer(self._write_fd)
        if self._all_sent is not None and not self._all_sent.done():
            self._all_sent.set_result(None)

    def _release_descriptors(self) -> None:
        self._is_closing = self._is_closed = True
        self.pause()
        self._stop_writing()
        self._unsent.clear()
        self._relieve()
        if self._release is not None:
            self._release()
        else:
            for fd in {self._read_fd, self._write_fd} - {-1}:
                with contextlib.suppress(OSError):
                    os.close(fd)
