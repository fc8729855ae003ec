"""The user's own terminal while it belongs to the wrapped program: raw, and given back after.

It is opened anew for us, so that not waiting for it is our affair and not the shell's: should we be
killed, the shell finds its descriptors as they were. Its modes are put back on every other way out,
and while we are stopped.
"""

import asyncio
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable
from typing import Any

from bullpen.errors import BullpenError

__all__ = ["NoTerminal", "UserTerminal"]

READ_BYTES = 65_536


class NoTerminal(BullpenError):
    """There is no terminal to run in. The agent can be started without one: `bullpen start`."""

    def __init__(self) -> None:
        super().__init__("this is no terminal; start the agent without one by `bullpen start`")


class UserTerminal:
    """The terminal on standard input and output."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._modes: list[Any] = termios.tcgetattr(fd)
        self._writing = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()
        self._is_raw = False
        self._is_open = True

    @classmethod
    def open(cls) -> "UserTerminal":
        """Open the terminal we were started in.

        Raises:
            NoTerminal: there is none.
        """
        if not (os.isatty(0) and os.isatty(1)):
            raise NoTerminal
        try:
            fd = os.open(os.ttyname(0), os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:  # of a user we were before, perhaps
            raise NoTerminal from error
        return cls(fd)

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows; of one that does not say, the usual."""
        try:
            rows, columns = termios.tcgetwinsize(self._fd)
        except (OSError, termios.error):  # it is gone
            return 80, 24
        return columns or 80, rows or 24

    @property
    def is_ours(self) -> bool:
        """Whether we are in front; only then may its modes be changed."""
        try:
            return os.tcgetpgrp(self._fd) == os.getpgrp()
        except OSError:
            return False

    def make_raw(self) -> None:
        """Have every key at once and as it is, and nothing shown but what is written."""
        if self._is_open and self.is_ours:
            with contextlib.suppress(OSError, termios.error):
                tty.setraw(self._fd, termios.TCSADRAIN)
                self._is_raw = True

    def restore(self) -> None:
        """Put its modes back."""
        if self._is_raw and self.is_ours:
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._fd, termios.TCSADRAIN, self._modes)
            self._is_raw = False

    def stop(self) -> None:
        """Stop ourselves as a program in a terminal does; return when we are let go on."""
        self.restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        self.make_raw()

    def close(self) -> None:
        """Put it back and let go of it."""
        if self._is_open:
            self.restore()
            self._is_open = False
            self._loop.remove_reader(self._fd)
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            for waiter in self._waiters:
                if not waiter.done():
                    waiter.set_result(None)

    async def read(self) -> bytes:
        """Return what was typed; nothing when the terminal is gone."""
        while self._is_open:
            try:
                return os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                await self._ready(self._loop.add_reader, self._loop.remove_reader)
            except OSError:
                return b""
        return b""

    def write_now(self, data: bytes) -> int:
        """Show bytes as far as that needs no waiting; return how many."""
        if self._writing.locked() or not self._is_open:
            return 0
        try:
            return os.write(self._fd, data)
        except OSError:
            return 0

    async def write(self, data: bytes) -> None:
        """Show bytes as they are and whole, waiting while the terminal takes none.

        On a terminal that is gone they are shown to nobody.
        """
        view = memoryview(data)
        async with self._writing:
            while view and self._is_open:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    await self._ready(self._loop.add_writer, self._loop.remove_writer)
                except OSError:
                    return

    async def _ready(
        self, add: Callable[[int, Callable[[], None]], object], remove: Callable[[int], object]
    ) -> None:
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        add(self._fd, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            if self._is_open:
                remove(self._fd)
