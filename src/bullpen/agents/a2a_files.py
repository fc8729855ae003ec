"""The directories under `~/.a2a`, whose files Synapse and others read and write, too."""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bullpen.api.files import locked, write_private
from bullpen.errors import BullpenError

__all__ = ["hold", "read_fields", "write_fields"]

PRIVATE_DIRECTORY = 0o700


@contextlib.contextmanager
def hold(directory: Path, lock: str, trouble: Callable[[OSError], BullpenError]) -> Iterator[None]:
    """Be the only one to change a directory for the length of a block. It is made if need be.

    Raises:
        BullpenError: what `trouble` makes of it that it cannot be had.
    """
    with contextlib.ExitStack() as held:
        try:
            for each in (directory.parent, directory):
                each.mkdir(mode=PRIVATE_DIRECTORY, exist_ok=True, parents=each is not directory)
            held.enter_context(locked(directory / lock))
        except OSError as error:
            raise trouble(error) from error
        yield


def read_fields(path: Path, most_bytes: int) -> bytes:
    """Return what stands in a file, or the first of it; who waits at a pipe waits for ever.

    Raises:
        OSError: it cannot be read, or is no file.
    """
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(f"{path.name} is no file")
        return file.read(most_bytes)


def write_fields(path: Path, fields: msgspec.Struct) -> None:
    """Write a file as people can read it, whole or not at all.

    Raises:
        OSError: it cannot be written; what was there is still there.
    """
    write_private(path, msgspec.json.format(msgspec.json.encode(fields), indent=2) + b"\n")
