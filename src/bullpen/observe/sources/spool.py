"""What hooks have left in a directory while nobody took their deliveries.

A hook's shim writes one file per delivery, `<provider>-*.json`, under another name first and then
renamed, so that a file is always whole:

    {"provider": "claude", "payload": {...}, "at": 1794734159.097, "pid": 15684,
     "tmux": "/tmp/tmux-1000/default,123,0", "tmux_pane": "%3", "cwd": "/home/dev/project"}

`at` is in seconds since the epoch, or in ISO 8601. A file is removed after what it says was taken,
so that nothing is lost; what is read twice has the same time and process, and hence the same id.
Files nobody can read, and those that nobody wants, are moved to `bad/`, of which the newest stay.
"""

import asyncio
import contextlib
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bullpen.agents.providers.lenient import decode_leniently
from bullpen.model.observations import Origin
from bullpen.observe.sources.port import SourceTrouble

__all__ = ["Spool", "SpoolReport", "Spooled"]

FILES_PER_LOOK: Final = 200  # more of them wait for the next look
BYTES_PER_LOOK: Final = 16 * 2**20
FILE_LIMIT: Final = 16 * 2**20  # hooks hand on what a tool read or wrote
BAD_FILES_KEPT: Final = 50
MILLISECONDS_FROM: Final = 1e11  # as seconds that is the year 5138


class Spooled(msgspec.Struct, frozen=True, kw_only=True):
    """One delivery that was left."""

    name: str
    """Of its file."""
    payload: Any
    at: datetime
    origin: Origin


class SpoolReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one look has come to."""

    taken: int = 0
    bad: int = 0
    """How many were moved to `bad/`."""
    has_more: bool = False


Take = Callable[[Spooled], Awaitable[None]]


class Spool:
    """The deliveries of one provider's hooks that wait in a directory."""

    def __init__(
        self,
        directory: Path,
        provider: str,
        *,
        files_per_look: int = FILES_PER_LOOK,
        bytes_per_look: int = BYTES_PER_LOOK,
        file_limit: int = FILE_LIMIT,
    ) -> None:
        self._directory = directory
        self._prefix = f"{provider}-"
        self._files_per_look = files_per_look
        self._bytes_per_look = bytes_per_look
        self._file_limit = file_limit

    async def drain(self, take: Take) -> SpoolReport:
        """Hand over what waits, oldest first, and remove it; the rest waits for the next look.

        `take` refuses with `SourceTrouble`; the file is then moved to `bad/`. If it fails in any
        other way, what was not taken stays.

        Raises:
            OSError: the directory is there and cannot be read or changed.
        """
        found, bad, has_more = await asyncio.to_thread(self._read)
        done: list[str] = []
        try:
            for each in found:
                try:
                    await take(each)
                except SourceTrouble:
                    bad.append(each.name)
                else:
                    done.append(each.name)
        finally:
            if done or bad:
                await asyncio.to_thread(self._settle, done, bad)
        return SpoolReport(taken=len(done), bad=len(bad), has_more=has_more)

    async def empty(self, take: Take) -> list[str]:
        """Drain it for a source; return what was wrong, in words for the source's health.

        Raises:
            SourceTrouble: nothing of it can be read.
        """
        try:
            report = await self.drain(take)
        except OSError as error:
            raise SourceTrouble(f"cannot read what hooks have spooled: {error}") from error
        if report.bad:
            return [f"{report.bad} spooled deliveries were put aside as unreadable"]
        return []

    def _read(self) -> tuple[list[Spooled], list[str], bool]:
        names = self._waiting()
        found: list[Spooled] = []
        bad: list[str] = []
        size = 0
        for count, (name, length) in enumerate(names):
            if count >= self._files_per_look or (count and size + length > self._bytes_per_look):
                return found, bad, True
            size += length
            try:
                found.append(_parse(name, self._read_file(name)))
            except FileNotFoundError:
                continue  # somebody else took it
            except (OSError, ValueError):
                bad.append(name)
        return found, bad, False

    def _waiting(self) -> list[tuple[str, int]]:
        """Return the names and sizes of the files, oldest first."""
        files: list[tuple[int, str, int]] = []
        try:
            entries = os.scandir(self._directory)
        except FileNotFoundError:
            return []
        with entries:
            for entry in entries:
                if entry.name.startswith(self._prefix) and entry.name.endswith(".json"):
                    with contextlib.suppress(FileNotFoundError):
                        about = entry.stat(follow_symlinks=False)
                        files.append((about.st_mtime_ns, entry.name, about.st_size))
        return [(name, size) for _, name, size in sorted(files)]

    def _read_file(self, name: str) -> bytes:
        # Neither a link to somewhere else nor a pipe that holds us up.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(self._directory / name, flags)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_size > self._file_limit:
                raise ValueError(f"{name} is no file, or too long")
            return _read_all(descriptor, status.st_size)
        finally:
            os.close(descriptor)

    def _settle(self, done: Iterable[str], bad: Iterable[str]) -> None:
        for name in done:
            (self._directory / name).unlink(missing_ok=True)
        place = self._directory / "bad"
        for name in bad:
            place.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                (self._directory / name).replace(place / name)
        if bad:
            _keep_newest(place)


def _keep_newest(place: Path) -> None:
    with os.scandir(place) as entries:
        files = sorted(entries, key=lambda entry: entry.stat(follow_symlinks=False).st_mtime_ns)
    for entry in files[:-BAD_FILES_KEPT]:
        Path(entry.path).unlink(missing_ok=True)


def _read_all(descriptor: int, size: int) -> bytes:
    pieces: list[bytes] = []
    while size > 0 and (piece := os.read(descriptor, size)):
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _parse(name: str, data: bytes) -> Spooled:
    value = decode_leniently(data)
    if not isinstance(value, dict) or "payload" not in value:
        raise ValueError(f"{name} is no delivery")
    return Spooled(
        name=name,
        payload=value["payload"],
        at=_parse_time(value.get("at")),
        origin=Origin(
            pid=value["pid"] if type(value.get("pid")) is int else 0,
            process_start=_text(value, "process_start"),
            tty=_text(value, "tty"),
            cwd=_text(value, "cwd"),
            tmux_pane=_text(value, "tmux_pane"),
            # The server's pid and a session follow; the path itself may hold commas.
            tmux_socket=_text(value, "tmux").rsplit(",", 2)[0],
        ),
    )


def _text(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _parse_time(at: object) -> datetime:
    if isinstance(at, str):
        parsed = datetime.fromisoformat(at)
        return parsed.astimezone(UTC) if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    if isinstance(at, int | float) and not isinstance(at, bool):
        try:
            return datetime.fromtimestamp(at / 1000 if at > MILLISECONDS_FROM else at, UTC)
        except (OverflowError, OSError) as error:
            raise ValueError(f"{at} is no time") from error
    raise ValueError(f"{at!r} is no time")
