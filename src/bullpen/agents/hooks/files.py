"""Reading a settings file and replacing it: whole or not at all, in its place, with its mode."""

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from bullpen.agents.hooks.errors import SettingsError

__all__ = ["MARK", "read", "remove", "replace"]

MARK = "\ufeff"
"""The byte order mark some editors put first. It is kept, and is no part of the text."""

MAX_BYTES = 16 * 2**20
PRIVATE = 0o600
PRIVATE_DIRECTORY = 0o700


def read(path: Path) -> str | None:
    """Return the text of a file, with its newlines as they are; None if there is no file.

    Raises:
        SettingsError: it cannot be read.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SettingsError(path, f"it is larger than {MAX_BYTES >> 20} MiB")
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingsError(path, error.strerror or str(error)) from error
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise SettingsError(path, f"byte {error.start} is not UTF-8") from error


def replace(path: Path, text: str, *, before: str | None) -> None:
    """Put a text in the place of the one that was read.

    A link stays one: what it leads to is replaced. The mode stays, and so does the owner where
    that is ours to say. What is not there yet is made for nobody but its owner.

    Raises:
        SettingsError: somebody has changed it meanwhile, or it cannot be written.
    """
    target = Path(os.path.realpath(path))
    try:
        target.parent.mkdir(mode=PRIVATE_DIRECTORY, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise SettingsError(path, error.strerror or str(error)) from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode())
            _take_after(file.fileno(), target)
            file.flush()
            os.fsync(file.fileno())
        if read(path) != before:
            raise SettingsError(path, "it was changed meanwhile; try again")
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise SettingsError(path, error.strerror or str(error)) from error
        raise


def remove(path: Path, *, before: str, directories: int = 0) -> None:
    """Remove a file that was ours alone, and as many directories as were made for it.

    Raises:
        SettingsError: somebody has changed it meanwhile, or it cannot be removed.
    """
    if read(path) != before:
        raise SettingsError(path, "it was changed meanwhile; try again")
    target = Path(os.path.realpath(path))
    try:
        target.unlink()
    except OSError as error:
        raise SettingsError(path, error.strerror or str(error)) from error
    with contextlib.suppress(OSError):  # somebody has put something there
        for directory in target.parents[:directories]:
            directory.rmdir()


def _take_after(descriptor: int, target: Path) -> None:
    """Give a new file the mode and the owner of the one it replaces."""
    try:
        found = target.stat()
    except FileNotFoundError:
        os.fchmod(descriptor, PRIVATE)
        return
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
    with contextlib.suppress(PermissionError):  # not ours to say: it becomes ours
        os.fchown(descriptor, found.st_uid, found.st_gid)
