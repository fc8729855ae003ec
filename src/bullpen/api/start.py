"""Starting the daemon for whoever needs it first.

It is started apart from us: in a session of its own, with nothing on stdin, and what it says before
it can log goes to its log. Of several who find no daemon at once, one starts it and the others wait
for it to answer; should two be started all the same, the daemon's own lock decides.
"""

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec

from bullpen.api.errors import DaemonStartError
from bullpen.api.methods import GetInfo
from bullpen.api.runtime import Paths, prepare
from bullpen.connection import Connection, SocketTransport
from bullpen.errors import BullpenError

__all__ = ["ALREADY_RUNNING", "daemon_command", "start_daemon"]

ALREADY_RUNNING = 3
"""The exit status of a daemon that found another one."""

START_SECONDS = 10.0
ANSWER_SECONDS = 2.0  # for a daemon that is there to say so
ELSEWHERE_SECONDS = 3.0  # for a daemon at another socket to end, should it be about to
FIRST_LOOK_SECONDS = 0.03  # nothing tells when somebody else's daemon answers: we have to look
LONGEST_LOOK_SECONDS = 0.25
TAIL_BYTES = 16_384
TAIL_LINES = 12


def daemon_command(paths: Paths) -> list[str]:
    """Return the command that starts the daemon of these paths."""
    # -P: whatever lies in the directory we are called from is not what is meant by `bullpen`.
    return [sys.executable, "-P", "-m", "bullpen", "daemon", "--background", *paths.arguments]


async def start_daemon(
    paths: Paths,
    *,
    command: Sequence[str] | None = None,
    timeout_seconds: float = START_SECONDS,
) -> None:
    """Start the daemon unless one answers, and wait until it does.

    Raises:
        DaemonStartError: it ended, or did not answer in time. One that is still trying is left be.
        DirectoryError: our directories cannot be used.
        SocketPathError: no socket can be made at such a path.
    """
    await asyncio.to_thread(prepare, paths)
    loop = asyncio.get_running_loop()
    deadline, pause = loop.time() + timeout_seconds, FIRST_LOOK_SECONDS
    child: _Child | None = None
    was_refused = False  # another daemon had the lock: a living one is waited for
    patient_until = deadline
    with _StartLock(paths.start_lock) as lock:
        while not await _answers(paths):
            if loop.time() > deadline:
                raise await _late(paths, child, timeout_seconds)
            if child is not None and child.has_ended:
                was_refused = child.was_refused or await _is_held(paths.lock)
                if not was_refused:
                    raise await _failed(paths, child)
                child = None
            is_held = was_refused and await _is_held(paths.lock)
            if was_refused and not is_held and await _is_held(paths.state_lock):
                # It has our state, and listens elsewhere; unless it is just ending, for good.
                is_held = True
                patient_until = min(patient_until, loop.time() + ELSEWHERE_SECONDS)
                if loop.time() > patient_until:
                    raise await _elsewhere(paths)
            if child is None and not is_held and lock.take():
                # Whoever had the lock before us may have started one since we looked.
                if await _answers(paths):
                    return
                child = await _launch(command or daemon_command(paths), paths)
            await _wait(child, pause)
            pause = min(pause * 2, LONGEST_LOOK_SECONDS)


async def _answers(paths: Paths) -> bool:
    transport = SocketTransport.unix(str(paths.socket))
    try:
        async with Connection.builder().name("start").connect(transport) as connection:
            await connection.request(GetInfo.METHOD, timeout=ANSWER_SECONDS)
    except BullpenError:
        return False
    return True


async def _wait(child: "_Child | None", seconds: float) -> None:
    """Wait until it is worth looking again."""
    if child is None:
        await asyncio.sleep(seconds)
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await child.ended.wait()


async def _is_held(lock: Path) -> bool:
    """Whether another process holds the daemon's lock: then it is the one to wait for."""
    return await asyncio.to_thread(_has_holder, lock)


def _has_holder(lock: Path) -> bool:
    try:
        os.kill(int(lock.read_text(encoding="ascii")), 0)
    except (OSError, ValueError):
        return False
    # The pid may be another's by now, or of one that has ended and was not waited for. Only then
    # do we get the lock, for a moment in which nobody else can want it.
    try:
        fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


# ----------------------------------------------------------------------------------- the process


class _Child:
    """A daemon that we started and do not own: it outlives us, and its end is noted."""

    def __init__(self, process: "subprocess.Popen[bytes]", log_size: int) -> None:
        self.process = process
        self.log_size = log_size
        self.ended = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        # Should we live long, somebody has to bury it.
        threading.Thread(target=self._bury, name="bullpen-daemon", daemon=True).start()

    @property
    def has_ended(self) -> bool:
        return self.ended.is_set()

    @property
    def was_refused(self) -> bool:
        return self.process.returncode == ALREADY_RUNNING

    def _bury(self) -> None:
        self.process.wait()
        with contextlib.suppress(RuntimeError):  # the loop may be gone long since
            self._loop.call_soon_threadsafe(self.ended.set)


async def _launch(command: Sequence[str], paths: Paths) -> _Child:
    try:
        process, log_size = await asyncio.to_thread(_spawn, command, paths.log)
    except OSError as error:
        raise DaemonStartError(
            f"the daemon cannot be started: {error.strerror or error}", paths.log
        ) from error
    return _Child(process, log_size)


def _spawn(command: Sequence[str], log: Path) -> "tuple[subprocess.Popen[bytes], int]":
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(log, flags, 0o600)
    except OSError:  # the daemon itself says that it has no log, and is of use without
        descriptor = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            start_new_session=True,
            cwd="/",  # which nobody will want to unmount
        )
        return process, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


class _StartLock:
    """Held by the one who is starting a daemon; free as soon as that one is done or dead."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = -1

    def take(self) -> bool:
        """Return whether we have it, without waiting."""
        if self._fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self._path, flags, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
            self._fd = fd
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


# ---------------------------------------------------------------------------------- what went wrong


async def _failed(paths: Paths, child: _Child) -> DaemonStartError:
    status = child.process.returncode
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    tail = await asyncio.to_thread(_tail, paths.log, child.log_size)
    return DaemonStartError(f"the daemon {how} when it was started", paths.log, tail)


async def _late(paths: Paths, child: _Child | None, seconds: float) -> DaemonStartError:
    who = f" (pid {child.process.pid})" if child is not None and not child.has_ended else ""
    tail = await asyncio.to_thread(_tail, paths.log, child.log_size) if child is not None else []
    return DaemonStartError(
        f"the daemon{who} does not answer within {seconds:g} s", paths.log, tail
    )


async def _elsewhere(paths: Paths) -> DaemonStartError:
    pid = await asyncio.to_thread(paths.state_lock.read_text, encoding="ascii")
    return DaemonStartError(
        f"another daemon, pid {pid.strip()}, has the state in {paths.state_directory} and listens "
        "at another socket: end it, or set BULLPEN_HOME to have one apart from it",
        paths.log,
    )


def _tail(log: Path, since: int) -> list[str]:
    """Return the last lines of the log, of those since it had some size."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            begin = since if since <= size else 0  # it was put aside meanwhile
            file.seek(max(begin, size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    return [line for raw in text.splitlines()[-TAIL_LINES:] for line in _readable(raw)]


def _readable(line: str) -> Iterator[str]:
    """Yield what a line of the log says to a person."""
    try:
        record = msgspec.json.decode(line, type=dict[str, object])
        yield f"{record['level']}: {record['event']}"
        yield from str(record.get("exception", "")).splitlines()[-3:]
    except (ValueError, KeyError):  # no record of ours, but a traceback perhaps
        yield line
