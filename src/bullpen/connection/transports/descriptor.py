"""Any pair of file descriptors the event loop can watch: sockets, pipes, terminals.

They are read and written here directly, without asyncio's own transports in between: a read goes
into one buffer that is kept for ever (allocating one per read costs more than the rest of a small
message), and what the operating system does not take at once stays in a queue we can measure.
"""

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Callable
from typing import Any

from bullpen.connection.errors import TransportClosed
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.frames import CONGESTED_BYTES, FLUSH_SECONDS, FrameTransport

__all__ = ["DescriptorTransport"]

READ_BYTES = 2**18  # what a Unix socket holds by default, and a good deal of a TCP window
UNWATCHABLE = {errno.EPERM, errno.EINVAL}  # so Linux and macOS say it of a device for nothing
MOST_LAST_READS = 64  # far more than the kernel holds: a peer that goes on for ever is cut off


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
        self._is_file = False
        self._is_reading = False
        self._is_paused = False
        self._is_writing = False
        self._is_mute = False  # nothing that is written can reach anybody
        self._loss: TransportClosed | None = None  # why, until it is reported
        self._all_sent: asyncio.Future[None] | None = None
        self._is_closed = False

    async def open(self, receiver: Receiver) -> None:
        for fd in {self._read_fd, self._write_fd}:
            os.set_blocking(fd, False)
        # Linux refuses to watch one; macOS does, and never tells its end.
        self._is_file = stat.S_ISREG(os.fstat(self._read_fd).st_mode)
        self._attach(receiver)
        self.resume()

    async def close(self) -> None:
        if self._is_closed:
            return
        if self._loop is not None and not self._is_closing:
            self._flush()
        self._is_closing = True
        self._end_locally()
        try:
            await self._wait_sent()
            await self._hang_up()
        finally:  # also when nobody waits for it any more
            self._release_all()

    def pause(self) -> None:
        self._is_paused = True
        self._stop_reading()

    def resume(self) -> None:
        self._is_paused = False
        if self._has_ended or self._is_closed or self._loop is None:
            return
        self._start_reading()
        if self._loss is not None:
            self._loop.call_soon(self._read_last, self._loss)

    # Reading

    def _start_reading(self) -> None:
        if self._is_reading or self._loop is None:
            return
        self._is_reading = True
        if not self._is_file:
            try:
                self._loop.add_reader(self._read_fd, self._read)
            except OSError as error:
                if error.errno not in UNWATCHABLE:
                    raise
                self._is_file = True
        if self._is_file:  # it always has something to say
            self._loop.call_soon(self._read_file)

    def _stop_reading(self) -> None:
        if self._is_reading and self._loop is not None:
            self._is_reading = False
            self._loop.remove_reader(self._read_fd)

    def _read(self) -> bool:
        """Read once; return whether there may be more."""
        try:
            size = os.readv(self._read_fd, (self._buffer,))
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            self._stop_reading()
            self._end(None if self._is_hangup(error) else _gone(error))
            return False
        if size:
            self._feed(bytes(self._buffer[:size]))
            return True
        self._stop_reading()
        self._end(None)  # the peer said its last word; it may still want to hear ours
        return False

    def _read_file(self) -> None:
        if self._is_reading and self._loop is not None:
            self._read()
            self._loop.call_soon(self._read_file)

    def _read_last(self, cause: TransportClosed | None) -> None:
        """Hand up what had come before the end, which the reading may explain better; then end."""
        for _ in range(MOST_LAST_READS):
            if not self._is_reading or not self._read():
                break
        if not self._is_paused:
            self._stop_reading()
            self._end(cause)

    def _is_hangup(self, error: OSError) -> bool:
        # A terminal reports the end of the program behind it as an input error.
        return error.errno == errno.EIO and os.isatty(self._read_fd)

    # Writing

    def _write(self, data: bytes) -> None:
        if self._is_mute:
            return
        if self._unsent:
            self._unsent += data
        else:
            try:
                sent = os.write(self._write_fd, data)
            except OSError as error:
                sent = self._count_written(error, len(data))
            if sent == len(data):
                return
            self._unsent += memoryview(data)[sent:]
            self._is_writing = True
            self._loop.add_writer(self._write_fd, self._write_more)  # type: ignore[union-attr]
        if len(self._unsent) > CONGESTED_BYTES:
            self._back_up()

    def _write_more(self) -> None:
        with memoryview(self._unsent) as unsent, unsent[:READ_BYTES] as chunk:
            size = len(chunk)
            try:
                sent = os.write(self._write_fd, chunk)
            except OSError as error:
                sent = self._count_written(error, size)
        del self._unsent[: None if self._is_mute else sent]
        if not self._unsent:
            self._stop_writing()
        if len(self._unsent) <= CONGESTED_BYTES // 4:
            self._relieve()

    def _count_written(self, error: OSError, size: int) -> int:
        if isinstance(error, BlockingIOError | InterruptedError):
            return 0
        self._lose(error)
        return size  # nobody will read it

    def _unsent_bytes(self) -> int:
        return len(self._unsent)

    def _lose(self, error: OSError) -> None:
        """Learn that nobody reads what is written. What had come before is still handed up."""
        self._is_mute = True
        self._loss = _gone(error)
        if self._loop is not None:
            # Not now: this may be inside a `send`, whose caller expects nothing to come in.
            self._loop.call_soon(self._read_last, self._loss)

    def _stop_writing(self) -> None:
        if self._is_writing and self._loop is not None:
            self._is_writing = False
            self._loop.remove_writer(self._write_fd)
        if self._all_sent is not None and not self._all_sent.done():
            self._all_sent.set_result(None)

    # Closing

    def _end_locally(self) -> None:
        """Report the end and nothing after it; what still comes is read and forgotten."""
        self._end(None)
        self._receiver = None
        if self._loop is not None and not self._is_closed:
            self._start_reading()  # a peer that cannot get rid of its own words may not read ours

    async def _wait_sent(self) -> None:
        if self._unsent and not self._is_mute:
            if self._all_sent is None:
                self._all_sent = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._all_sent], timeout=FLUSH_SECONDS)

    async def _hang_up(self) -> None:
        """Part with the peer, where that takes more than closing the descriptors."""

    def _release_all(self) -> None:
        if self._is_closed:
            return
        self._is_closed = self._is_mute = True
        self._stop_reading()
        self._stop_writing()
        self._unsent.clear()
        self._relieve()
        if self._release is not None:
            self._release()
        else:
            for fd in {self._read_fd, self._write_fd} - {-1}:
                with contextlib.suppress(OSError):
                    os.close(fd)


def _gone(error: OSError) -> TransportClosed:
    return TransportClosed(f"the peer is gone: {error.strerror or error}")
