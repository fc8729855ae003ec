"""A program on a pseudo-terminal of ours: its bytes, its size, its end.

The program leads a session of its own with the terminal as its controlling one, so that job
control, window sizes and hang-ups work as in any terminal. Nothing is buffered here: a program that
is not read from waits, and so does whoever writes to a program that does not read. If this process
dies, even by SIGKILL, the kernel hangs the terminal up, and on Linux kills the program.
"""

import asyncio
import contextlib
import errno
import os
import shlex
import signal
import sys
import termios
import tty
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from bullpen.connection.errors import CommandNotFound
from bullpen.connection.transports.group import GroupLeader
from bullpen.errors import BullpenError
from bullpen.terminal.line_discipline import edit_characters, is_to_suspend

__all__ = ["EXEC_HELPER", "PtyClosed", "PtyProcess"]

DEFAULT_TERM = "xterm-256color"
READ_BYTES = 2**16
START_SECONDS = 10.0  # for a helper that takes milliseconds
STEP_SECONDS = 0.25  # from SIGHUP to SIGTERM to SIGKILL: to the end in less than a second
MAX_LINE_BYTES = 4095 if sys.platform == "linux" else 1023  # with its end, where lines are edited

EXEC_HELPER = Path(__file__).with_name("pty_exec.py")
"""Becomes a program that dies with us; see there."""


class PtyClosed(BullpenError):
    """The terminal was closed, or nobody is left on its other side. Nothing more can be written."""

    def __init__(self, command: str) -> None:
        super().__init__(f"the terminal of {command} is closed")
        self.command = command


class PtyProcess(GroupLeader):
    """A program on a terminal, from `spawn` to `terminate` (or leaving a block)."""

    def __init__(self, command: Sequence[str], master: int) -> None:
        super().__init__()
        self.command = shlex.join(command)
        self.tty = ""
        """The terminal, as programs on it know it."""
        self._fd = master
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.SubprocessTransport | None = None
        self._reading = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._waiters: set[asyncio.Future[None]] = set()

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str | os.PathLike[str]],
        *,
        columns: int = 80,
        rows: int = 24,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        term: str = DEFAULT_TERM,
        is_raw: bool = False,
    ) -> Self:
        """Start a program on a new terminal. `env` is all of its environment but TERM.

        On Linux it lives as long as the thread that called this, which therefore is the one of a
        loop that runs to the end of the process.

        A raw terminal neither echoes nor edits lines. Programs with a screen of their own make it
        so themselves; what is typed before they do is mangled otherwise.

        Raises:
            CommandNotFound: there is no such program, or it may not be run, or not there.
        """
        words = [os.fspath(word) for word in command]
        if not words:
            raise CommandNotFound("", "the command is empty")
        master, slave = os.openpty()
        report, theirs = os.pipe()
        process: Self | None = None
        try:
            os.set_blocking(master, False)
            os.set_blocking(report, False)
            termios.tcsetwinsize(master, (rows, columns))
            edit_characters(slave)
            if is_raw:
                tty.setraw(slave)
            process = cls(words, master)
            process.tty = os.ttyname(slave)
            await process._start(words, slave, theirs, _environment(env, term), cwd)
            os.close(theirs)
            theirs = -1
            await process._started(words[0], report)
        except BaseException as error:
            if process is not None and process.pid:
                await process.terminate(seconds=0)
            elif process is not None:
                process.close()
            else:
                os.close(master)
            if isinstance(error, OSError | ValueError):  # the latter for a null byte in a word
                raise CommandNotFound(words[0], error) from error
            raise
        finally:
            for fd in (slave, report, theirs):
                if fd >= 0:
                    os.close(fd)
        return process

    async def _start(
        self,
        words: list[str],
        slave: int,
        report: int,
        environment: dict[str, str],
        cwd: str | Path | None,
    ) -> None:
        await self._loop.subprocess_exec(
            lambda: self,
            *(sys.executable, "-I", "-S", str(EXEC_HELPER), str(report), str(os.getpid()), *words),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment,
            cwd=cwd,
            start_new_session=True,
            pass_fds=(report,),
        )

    async def _started(self, program: str, report: int) -> None:
        """Wait until the helper has become the program."""
        async with asyncio.timeout(START_SECONDS):
            await self._ready(report, self._loop.add_reader, self._loop.remove_reader)
        said = os.read(report, 16)
        if said:
            raise CommandNotFound(program, os.strerror(int(said)))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.terminate()

    # Bytes.

    async def read(self, limit: int = READ_BYTES) -> bytes:
        """Return what the program wrote, exactly, as soon as there is any; nothing at the end.

        The end is that nobody has the terminal open any more, or that it is closed here. One
        reader at a time; a cancelled read has taken nothing.
        """
        async with self._reading:
            while self._fd >= 0:
                try:
                    return os.read(self._fd, limit)
                except BlockingIOError:
                    await self._ready(self._fd, self._loop.add_reader, self._loop.remove_reader)
                except OSError as error:
                    if error.errno != errno.EIO:  # so Linux says that nobody is left
                        raise
                    return b""
        return b""

    async def pump(self, take: Callable[[bytes], Awaitable[None] | None]) -> None:
        """Hand all that the program writes to a function, piece by piece, until the end.

        If it returns something to wait for, nothing is read until then. It is called by the loop
        itself, which is what makes this faster than to `read` again and again.
        """
        async with self._reading:
            while self._fd >= 0:
                fd, stopped = self._fd, _Stopped(self._loop)
                self._waiters.add(stopped.future)
                self._loop.add_reader(fd, self._hand_over, fd, take, stopped)
                try:
                    await stopped.future
                finally:
                    self._waiters.discard(stopped.future)
                    if self._fd >= 0:
                        self._loop.remove_reader(fd)
                if stopped.by is None:
                    return
                await stopped.by

    def _hand_over(
        self, fd: int, take: Callable[[bytes], Awaitable[None] | None], stopped: "_Stopped"
    ) -> None:
        if stopped.future.done():
            return
        try:
            data = os.read(fd, READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            data = b""
            if error.errno != errno.EIO:  # so Linux says that nobody is left
                stopped.future.set_exception(error)
                return
        try:
            stopped.by = take(data) if data else None
        except Exception as error:  # what fails in a callback would be nobody's  # noqa: BLE001
            stopped.future.set_exception(error)
            return
        if stopped.by is not None or not data:
            stopped.future.set_result(None)

    async def write(self, data: bytes) -> None:
        """Type bytes, whole and in the order of the calls; wait while the program does not read.

        Cancelled, it may have typed a part.

        Raises:
            PtyClosed: there is nobody to type to.
        """
        view = memoryview(data)
        async with self._writing:
            while view:
                try:
                    view = view[os.write(self._fd, view) :]
                except BlockingIOError:
                    await self._ready(self._fd, self._loop.add_writer, self._loop.remove_writer)
                except OSError as error:  # nobody is left on the other side, or it is closed
                    raise PtyClosed(self.command) from error

    async def _ready(
        self,
        fd: int,
        add: Callable[[int, Callable[[], None]], object],
        remove: Callable[[int], object],
    ) -> None:
        """Wait until a descriptor is ready, or all are closed."""
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.add(waiter)
        add(fd, lambda: None if waiter.done() else waiter.set_result(None))
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)
            remove(fd)

    @property
    def line_limit(self) -> int | None:
        """How many bytes a line may have; None if the program reads keys, not lines.

        Of a longer one the kernel drops what is too much, without a word.
        """
        try:
            is_by_line = termios.tcgetattr(self._fd)[3] & termios.ICANON
        except (OSError, termios.error):  # closed, or nobody is left
            return None
        return MAX_LINE_BYTES if is_by_line else None

    # Signals.

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the kernel tells the program by SIGWINCH."""
        if self._fd >= 0:
            with contextlib.suppress(OSError, termios.error):  # nobody is left on it
                termios.tcsetwinsize(self._fd, (rows, columns))

    @property
    def foreground(self) -> int:
        """The process group in front, to which the keyboard belongs; the program's if unknown."""
        try:
            return os.tcgetpgrp(self._fd) or self.pid
        except OSError:  # closed, or nobody is left
            return self.pid

    def interrupt(self) -> None:
        """Send SIGINT to the process group in front, as Ctrl-C does in a cooked terminal."""
        self.send_signal(signal.SIGINT)

    def send_signal(self, number: int) -> None:
        """Signal the process group in front; if there is nobody, nothing happens."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self._has_group:
                os.killpg(self.foreground, number)

    async def suspend(self) -> bool:
        """Stop the program if Ctrl-Z, which was typed, is to do that; return whether it is."""
        if self._fd < 0 or not await asyncio.to_thread(is_to_suspend, self._fd, self.pid):
            return False
        return self._signal(signal.SIGSTOP)

    # The end.

    @property
    def status(self) -> int | None:
        """The exit status; negative for a signal; None before the end."""
        if self._transport is None or not self._exited.is_set():
            return None
        return self._transport.get_returncode()

    async def wait(self) -> int:
        """Wait for the program's end and return its status. Output may still be unread."""
        await self._exited.wait()
        return cast("int", self.status)

    async def terminate(self, *, seconds: float = STEP_SECONDS) -> None:
        """End the program and its group: SIGHUP, SIGTERM, SIGKILL, each after so many seconds.

        Whoever reads meanwhile gets its last words. Afterwards the terminal is closed and nothing
        is left of the program, whatever it ignores.
        """
        try:
            for number in (signal.SIGHUP, signal.SIGTERM):
                if seconds and self._signal(number):
                    self._signal(signal.SIGCONT)  # one that stands still hears nothing
                    if await self._wait_group(seconds):
                        break
        finally:
            self._kill()
            self.close()
            async with asyncio.timeout(START_SECONDS):
                await self._exited.wait()

    def close(self) -> None:
        """Hang up. The program is told by SIGHUP; whoever still reads or writes is told, too."""
        if self._fd < 0:
            return
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        os.close(self._fd)
        self._fd = -1
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

    def process_exited(self) -> None:
        super().process_exited()
        if self._transport is not None:
            self._transport.close()

    def _kill(self) -> None:
        """Kill the group, and the one in front if that is another."""
        front = self.foreground
        self._signal(signal.SIGKILL)
        if front != self.pid and self._fd >= 0:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(front, signal.SIGKILL)


class _Stopped:
    """Why handing over stopped: to wait for something, or since there will be no more."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.future: asyncio.Future[None] = loop.create_future()
        self.by: Awaitable[None] | None = None


def _environment(given: Mapping[str, str] | None, term: str) -> dict[str, str]:
    environment = dict(os.environ if given is None else given)
    environment["TERM"] = term
    if "LC_CTYPE" not in environment:
        environment["BULLPEN_LC_CTYPE"] = "unset"  # for the helper, which takes it away again
    return environment
