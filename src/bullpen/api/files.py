"""Small files that several processes share: replaced whole, and by one of them at a time."""

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["locked", "write_private"]

LOCK_SECONDS = 5.0
LOOK_SECONDS = 0.01  # nothing tells when somebody else lets go of a lock


def write_private(path: Path, content: str | bytes) -> None:
    """Write a file that only the user can read, whole or not at all.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    data = content.encode() if isinstance(content, str) else content
    # A name that begins with a dot is nobody's: it is passed over by whoever reads the directory.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(data)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that is a file, for a block. The kernel frees it when its holder dies.

    Raises:
        TimeoutError: somebody else has not let go of it in time.
        OSError: it cannot be opened.
    """
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        _take(lock, path)
        yield
    finally:
        os.close(lock)


def _take(lock: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                held = f"somebody has held {path.name} for {LOCK_SECONDS:g} s"
                raise TimeoutError(held) from None
            time.sleep(LOOK_SECONDS)
        else:
            return
