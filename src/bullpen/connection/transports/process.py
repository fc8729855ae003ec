"""A program we started, in a session and process group of its own, and what its transports share.

It is told to end by the end of its stdin, then by SIGTERM, then by SIGKILL, both to the whole
group, since what was started may be a wrapper (npx, uvx) around what answers. Should this process
die without a word, the end of stdin is what tells the program: the kernel closes the pipe.
"""

import asyncio
import contextlib
import logging
import os
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from bullpen.connection.errors import CommandNotFound, ProcessExited, TransportClosed
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.descriptor import MOST_LAST_READS, DescriptorTransport
from bullpen.connection.transports.group import GroupLeader

__all__ = ["ChildProcess", "Drain", "ProcessTransport"]

logger = logging.getLogger("bullpen.connection")

TAIL_BYTES = 2**16  # of stderr, the end of which says why a program died
STOP_SECONDS = 2.0  # between the end of stdin, SIGTERM and SIGKILL
EXIT_SECONDS = 0.5  # from the end of its output to the end of a process, if the one means the other


class ProcessTransport(DescriptorTransport):
    """A transport to a program it starts. When the program ends, its status says why."""

    def __init__(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._command = tuple(command)
        self._env = env
        self._cwd = cwd
        self._process: ChildProcess | None = None
        self._exit_timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The process id, which is also that of its group; None before it is started."""
        return self._process.pid if self._process is not None else None

    @property
    def status(self) -> int | None:
        """The exit status; negative for a signal; None before the end."""
        return self._process.status if self._process is not None else None

    @property
    def stderr_tail(self) -> str:
        """The last 64 KiB of what it wrote to stderr."""
        return self._process.stderr_tail if self._process is not None else ""

    async def _spawn(self) -> "ChildProcess":
        self._process = await ChildProcess.spawn(
            self._command, env=self._env, cwd=self._cwd, on_exit=self._process_exited
        )
        return self._process

    async def open(self, receiver: Receiver) -> None:
        await super().open(receiver)
        if self.status is not None and self._loop is not None:  # it did not wait for us
            self._loop.call_soon(self._process_exited)

    async def close(self) -> None:
        await super().close()
        if self._process is not None:  # one that was killed is gone only when that is known
            await self._process.wait(STOP_SECONDS)

    def _process_exited(self) -> None:
        """Do not wait for the end of its output: a child of its own may keep that open."""
        if self._loop is not None and not self._is_closing:
            self._loss = TransportClosed("the process ended")
            self._read_last(self._loss)

    def _end(self, cause: Exception | None) -> None:
        if self._is_closing or self._process is None or not _is_end_of_stream(cause):
            super()._end(cause)
        elif self._process.status is not None:
            super()._end(self._process.exited() if self._process.status else None)
        elif self._exit_timer is None and self._loop is not None:
            # Most likely the process is about to end and to say why. If it stays, it has hung up.
            self._exit_timer = self._loop.call_later(EXIT_SECONDS, super()._end, cause)

    async def _hang_up(self) -> None:
        if self._process is not None:
            self._stop_writing()
            self._is_mute = True
            self._process.close_stdin()
            await self._process.stop()

    def _release_all(self) -> None:
        super()._release_all()
        if self._exit_timer is not None:
            self._exit_timer.cancel()
        if self._process is not None:
            self._process.release()


class ChildProcess(GroupLeader):
    """A running program: its pipes, its end, and how to bring that about."""

    def __init__(self, command: Sequence[str], on_exit: Callable[[], None]) -> None:
        super().__init__()
        self.command = shlex.join(command)
        self.stdin = -1
        self.stdout = -1
        self._on_exit = on_exit
        self._stdout: Drain | None = None
        self._stderr: Drain | None = None
        self._transport: asyncio.SubprocessTransport | None = None
        self._is_released = False

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str | os.PathLike[str]],
        *,
        env: Mapping[str, str] | None,
        cwd: str | Path | None,
        on_exit: Callable[[], None],
        on_stderr: Callable[[bytes], None] | None = None,
    ) -> "ChildProcess":
        """Start a program. What it writes to stderr is told as it comes, and the last of it kept.

        Raises:
            CommandNotFound: there is none, or it may not be run, or not there.
        """
        words = [os.fspath(word) for word in command]
        if not words:
            raise CommandNotFound("", "the command is empty")
        process = cls(words, on_exit)
        ours: list[int] = []
        theirs: list[int] = []
        try:
            _make_pipes(ours, theirs)
            await asyncio.get_running_loop().subprocess_exec(
                lambda: process,
                *words,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                env=env,
                cwd=cwd,
                start_new_session=True,
            )
        except BaseException as error:
            _close_all(ours)
            if isinstance(error, OSError | ValueError):  # the latter for a null byte in a word
                raise CommandNotFound(words[0], error) from error
            raise
        finally:
            _close_all(theirs)
        process.stdin, process.stdout, stderr = ours
        process._stderr = Drain(stderr, on_data=on_stderr)
        return process

    def drain_stdout(self, on_data: Callable[[bytes], None], on_end: Callable[[], None]) -> None:
        """Read its stdout to the end, for it is not what we speak over."""
        self._stdout = Drain(self.stdout, on_data=on_data, on_end=on_end)
        self.stdout = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()

    def process_exited(self) -> None:
        super().process_exited()
        if self._is_released:
            self.release()
        else:
            self._on_exit()

    @property
    def status(self) -> int | None:
        """The exit status; negative for a signal; None before the end."""
        if self._transport is None or not self._exited.is_set():
            return None
        return self._transport.get_returncode()

    @property
    def stderr_tail(self) -> str:
        """The last of what it wrote to stderr."""
        return self._stderr.text if self._stderr is not None else ""

    def exited(self) -> ProcessExited:
        """Return its end as an error."""
        return ProcessExited(self.command, self.status, self.stderr_tail)

    async def wait(self, seconds: float) -> bool:
        """Wait a while for its end; return whether it came."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._exited.wait()
        return self._exited.is_set()

    async def stop(self, *, by_force: bool = False, seconds: float | None = None) -> None:
        """End it and its group: let it go by itself, now that its stdin ends, unless by force.

        `seconds` is how long each step may take before the next, louder one.
        """
        seconds = STOP_SECONDS if seconds is None else seconds
        self.close_stdin()
        if await self.wait(0 if by_force else seconds) and not self._has_group:
            return
        self._signal(signal.SIGTERM)
        if await self._wait_group(seconds):
            return
        self._signal(signal.SIGKILL)
        if not await self.wait(seconds):
            logger.error("%s does not end", self.command)

    def close_stdin(self) -> None:
        """Tell it that nothing more will come."""
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1

    def release(self) -> None:
        """Let go of it now. Whatever of its group still runs is killed."""
        self._signal(signal.SIGKILL)
        self._has_group = False
        self.close_stdin()
        if self.stdout >= 0:
            os.close(self.stdout)
            self.stdout = -1
        for drain in (self._stdout, self._stderr):
            if drain is not None:
                drain.close()
        self._is_released = True
        if self._transport is not None and self._exited.is_set():
            self._transport.close()


class Drain:
    """Reads a descriptor to its end, whatever comes, and keeps the last of it."""

    def __init__(
        self,
        fd: int,
        *,
        on_data: Callable[[bytes], None] | None = None,
        on_end: Callable[[], None] | None = None,
    ) -> None:
        self._fd = fd
        self._on_data = on_data
        self._on_end = on_end
        self._tail = bytearray()
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    @property
    def text(self) -> str:
        """What was read last, with what can be read now."""
        for _ in range(MOST_LAST_READS):
            if not self._read():
                break
        return self._tail.decode(errors="replace")

    def close(self) -> None:
        """Release the descriptor."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            self._loop.remove_reader(fd)
            os.close(fd)

    def _read(self) -> bool:
        """Read once; return whether there may be more."""
        if self._fd < 0:
            return False
        try:
            data = os.read(self._fd, TAIL_BYTES)
        except (BlockingIOError, InterruptedError):
            return False
        self._tail += data
        del self._tail[:-TAIL_BYTES]
        if data and self._on_data is not None:
            self._on_data(data)
        if not data:
            self.close()
            if self._on_end is not None:
                self._on_end()
        return bool(data)


def _is_end_of_stream(cause: Exception | None) -> bool:
    return cause is None or isinstance(cause, TransportClosed)


def _make_pipes(ours: list[int], theirs: list[int]) -> None:
    """Add the ends of stdin, stdout and stderr to the lists, as far as it gets."""
    for child_writes in (False, True, True):
        read_end, write_end = os.pipe()
        ours.append(read_end if child_writes else write_end)
        theirs.append(write_end if child_writes else read_end)


def _close_all(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
