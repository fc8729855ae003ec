"""The files of a database: to make them private, to put damaged ones aside."""

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

__all__ = ["make_private", "put_aside"]

SUFFIXES = ("", "-wal", "-shm")  # SQLite's own: the file, its write-ahead log, the log's index


def make_private(path: Path) -> None:
    """Make the file and its directory if they are not there, and let nobody else read the file.

    Raises:
        OSError: the system does not let us.
    """
    if not path.parent.is_dir():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    # An old file is not opened here: closing it would drop every lock that this process has on it.
    for suffix in SUFFIXES:
        file = path.with_name(path.name + suffix)
        with contextlib.suppress(FileNotFoundError, PermissionError):  # not there, or not ours
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def put_aside(path: Path, now: datetime) -> Path:
    """Rename a database and all that belongs to it, and return its new name, which is nobody's.

    Raises:
        OSError: the system does not let us.
    """
    name = f"{path.name}.corrupt-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    aside = path.with_name(name)
    attempt = 1
    while aside.exists():
        attempt += 1
        aside = path.with_name(f"{name}.{attempt}")
    # The log first: without its file it is nothing, but a new file must not find an old log.
    for suffix in reversed(SUFFIXES):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))
    return aside
