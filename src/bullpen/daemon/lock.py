"""One at a time: a lock that its holder's death releases.

The file holds the holder's pid, for those who come too late. It is never removed: whoever unlinked
it could take it from somebody who has just opened it.
"""

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from bullpen.errors import BullpenError

__all__ = ["AlreadyRunning", "InstanceLock", "LockError"]

LONGEST_PID_BYTES = 20


class LockError(BullpenError):
    """A lock cannot be taken, by anybody. Nothing has been changed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"cannot lock {path}: {reason}")
        self.path = path
        self.reason = reason


class AlreadyRunning(BullpenError):
    """Somebody else holds the lock; `pid` says who, if that can be told."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(f"already running{f' (pid {pid})' if pid else ''}: {path} is locked")
        self.path = path
        self.pid = pid


class InstanceLock:
    """The right to be the only one. Taken for a block, or from `acquire` to `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock, or fail at once.

        Raises:
            AlreadyRunning: somebody else has it.
            LockError: the file cannot be used for it.
        """
        while self._fd < 0:
            fd = self._open()
            try:
                self._lock(fd)
                if self._is_current(fd):
                    os.ftruncate(fd, 0)
                    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
                    self._fd = fd
            except OSError as error:
                raise LockError(self.path, error.strerror or str(error)) from error
            finally:
                if self._fd != fd:
                    os.close(fd)

    def release(self) -> None:
        """Let the next one have it. Without it, nothing happens."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with contextlib.suppress(OSError):
                os.ftruncate(fd, 0)
            os.close(fd)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _open(self) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise LockError(self.path, error.strerror or str(error)) from error
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
            os.close(fd)
            what = "it is not a file" if found.st_uid == os.getuid() else "it is somebody else's"
            raise LockError(self.path, what)
        return fd

    def _lock(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(self.path, _read_pid(fd)) from None

    def _is_current(self, fd: int) -> bool:
        """Whether what we locked is still what the next one would lock."""
        try:
            return os.path.samestat(os.fstat(fd), self.path.stat())
        except FileNotFoundError:
            return False


def _read_pid(fd: int) -> int | None:
    text = os.pread(fd, LONGEST_PID_BYTES, 0).strip()
    return int(text) if text.isdigit() else None
