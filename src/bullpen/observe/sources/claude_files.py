"""Reading the state files that processes of Claude Code keep, as far as those processes live."""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.claude.sessions import SessionFile, parse_session_file

__all__ = ["SessionFiles"]

MOST_FILES: Final = 1000
FILE_LIMIT: Final = 2**14  # thirty times what it is
# A file that is torn now is whole at the next look, unless something else is wrong with it.
LOOKS_UNTIL_TROUBLE: Final = 3
PROC: Final = Path("/proc")
_DEAD: Final = (b"Z", b"X", b"x")


class _Read(msgspec.Struct, frozen=True):
    """What was read of one file."""

    data: bytes
    file: SessionFile | None
    failures: int = 0
    reason: str = ""


class SessionFiles:
    """The directory, read again and again.

    The files are small, and read each time: two words of equal length may be written within one
    tick of the clock that files are dated by.
    """

    def __init__(self, directory: Path, *, proc: Path = PROC) -> None:
        self._directory = directory
        self._proc = str(proc)  # joined as text: it is done for each process at each look
        self._known: dict[str, _Read] = {}

    @property
    def exist(self) -> bool:
        """Whether the program keeps such files at all: versions before 2.1.139 do not."""
        return self._directory.is_dir()

    @property
    def troubles(self) -> tuple[str, ...]:
        """The files that could not be read for several looks, and why."""
        return tuple(
            f"{name}: {read.reason}"
            for name, read in self._known.items()
            if read.failures >= LOOKS_UNTIL_TROUBLE
        )

    def read(self) -> list[SessionFile]:
        """Return what the living processes say. It blocks, though not for long.

        A file that is torn says what it said before.

        Raises:
            OSError: the directory is there and cannot be read.
        """
        known, self._known = self._known, {}
        try:
            with os.scandir(self._directory) as entries:
                found = [entry for entry in entries if _is_ours(entry.name)][:MOST_FILES]
        except (FileNotFoundError, NotADirectoryError):
            return []
        for entry in found:
            with contextlib.suppress(FileNotFoundError):  # its process has just ended
                self._known[entry.name] = _read(entry, known.get(entry.name))
        files = [read.file for read in self._known.values() if read.file is not None]
        # Where there is no /proc, as on macOS, the start is written as a date.
        is_alive = self._is_alive if os.path.isdir(self._proc) else _exists  # noqa: PTH112 - text
        return [file for file in files if is_alive(file)]

    def _is_alive(self, file: SessionFile) -> bool:
        """Whether it is the process that wrote the file, and not another with its number."""
        try:
            stat = _read_bytes(f"{self._proc}/{file.pid}/stat")
            # The name in parentheses may contain both spaces and parentheses.
            values = stat[stat.rindex(b")") + 2 :].split()
            state, start = values[0], values[19].decode()
        except (OSError, ValueError, IndexError):
            return False
        return state not in _DEAD and file.process_start in ("", start)


def _is_ours(name: str) -> bool:
    stem, dot, suffix = name.rpartition(".")
    return suffix == "json" and bool(dot) and stem.isascii() and stem.isdecimal()


def _read(entry: os.DirEntry[str], before: _Read | None) -> _Read:
    last = before.file if before else None
    failures = before.failures + 1 if before else 1
    data = b""
    try:
        data = _read_bytes(entry.path)
        if before is not None and before.data == data and not before.failures:
            return before
        file = parse_session_file(data)
    except FileNotFoundError:
        raise
    except (OSError, NotUnderstood) as error:
        return _Read(data, last, failures, str(error))
    if entry.name != f"{file.pid}.json":
        return _Read(data, None, failures, f"it is about process {file.pid}")
    return _Read(data, file)


def _read_bytes(path: str) -> bytes:
    # A pipe in its place must not hold us up.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return os.read(descriptor, FILE_LIMIT)
    finally:
        os.close(descriptor)


def _exists(file: SessionFile) -> bool:
    try:
        os.kill(file.pid, 0)
    except OSError:  # there is none, or it is another user's
        return False
    return True
