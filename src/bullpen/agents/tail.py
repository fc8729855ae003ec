"""Following an append-only file of lines, such as an agent program's transcript, by looking at it.

Each look reads what was added since the last, and never more than a bound. A line that is not
complete yet waits for its end; a line longer than the limit is skipped and counted. The file is not
kept open: it may vanish and come back. One that became shorter, or another, or was written anew
below us is read from its beginning, and the batch says so. Inodes are used again soon after a file
is removed, so the last bytes that were read are compared as well.
"""

import asyncio
import os
import stat
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["FileTail", "TailBatch", "TailLine", "TailPosition"]

BYTES_PER_LOOK: Final = 2**20  # what is more is read next time
LINE_LIMIT: Final = 2 * 2**20  # a tool's output or a pasted image may be long; a state never is
FINGERPRINT_BYTES: Final = 64
CHUNK_BYTES: Final = 2**16

NEWLINE: Final = b"\n"


class TailPosition(msgspec.Struct, frozen=True):
    """Where to go on: the beginning of the first line that was not read, in one certain file."""

    inode: int
    device: int
    offset: int
    before: bytes = b""
    """The last bytes before it, by which the file is known to be the same."""


class TailLine(msgspec.Struct, frozen=True):
    """A complete line, without its newline, and where in the file it begins."""

    offset: int
    data: bytes


class TailBatch(msgspec.Struct, frozen=True, kw_only=True):
    """What one look has found."""

    lines: tuple[TailLine, ...] = ()
    restarted: str = ""
    """Why reading began anew: `replaced` by another file, `truncated`, or `rewritten`."""
    skipped: int = 0
    """How many lines were too long; each is counted once, when it is found to be."""
    has_more: bool = False
    """There is more to read already."""
    is_missing: bool = False
    """There is no such file now, or it is none that has lines."""


class FileTail:
    """Follows one file, from its beginning, from a position, or from its last few lines."""

    def __init__(
        self,
        path: Path | str,
        *,
        position: TailPosition | None = None,
        last_lines: int | None = None,
        bytes_per_look: int = BYTES_PER_LOOK,
        line_limit: int = LINE_LIMIT,
    ) -> None:
        """Nothing is read yet.

        Args:
            path: the file, which need not be there.
            position: where an earlier tail was, if the file is still the one it read.
            last_lines: with how many of the lines that are there at the first look to begin; all
                of them if None, or if there is a position. No more than `bytes_per_look` are
                searched for them.
            bytes_per_look: how much to read at once, at most.
            line_limit: how long a line may be.
        """
        self._path = os.fspath(path)  # as text: it is looked at again and again
        self._last_lines = last_lines
        self._bytes_per_look = bytes_per_look
        self._line_limit = line_limit
        self._identity: tuple[int, int] | None = None  # inode and device, of what we are in
        self._seen: tuple[int, ...] = ()  # what `stat` said when all had been read
        self._partial = bytearray()  # what is known of the line that is not complete
        self._is_skipping: bool  # until the end of a line that is too long
        self._line_offset: int  # where the line that is not complete begins
        self._before_line: bytes  # the last bytes up to there
        self._offset: int  # how far was read
        self._before: bytes  # the last bytes up to there
        if position is None:
            self._go_to(0, b"")
        else:
            self._identity = (position.inode, position.device)
            self._go_to(position.offset, position.before)

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self._path)

    @property
    def position(self) -> TailPosition | None:
        """Where a later tail can go on; None as long as the file was never there."""
        if self._identity is None:
            return None
        return TailPosition(*self._identity, self._line_offset, self._before_line)

    async def read(self) -> TailBatch:
        """Look once, in a thread. Never to be called twice at the same time.

        Raises:
            OSError: the file is there and cannot be read. The next look tries again.
        """
        return await asyncio.to_thread(self.read_blocking)

    def read_blocking(self) -> TailBatch:
        """Look once, for a caller that is in a thread already.

        Raises:
            OSError: the file is there and cannot be read. The next look tries again.
        """
        try:
            if self._seen and _content_of(os.stat(self._path)) == self._seen:  # noqa: PTH116 - text
                return TailBatch()
            # A pipe in its place must not hold us up.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return self._nothing_there()
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return self._nothing_there()
            return self._read(descriptor, status)
        finally:
            os.close(descriptor)

    def _nothing_there(self) -> TailBatch:
        self._seen = ()
        self._last_lines = None  # whatever comes now is new
        return TailBatch(is_missing=True)

    def _read(self, descriptor: int, status: os.stat_result) -> TailBatch:
        restarted, skipped = self._find_place(descriptor, status)
        data = _read_at(descriptor, self._offset, self._bytes_per_look)
        lines, too_long = self._split(data)
        has_more = self._offset < status.st_size
        self._seen = () if has_more else _content_of(status)
        return TailBatch(
            lines=tuple(lines),
            restarted=restarted,
            skipped=skipped + too_long,
            has_more=has_more,
        )

    def _find_place(self, descriptor: int, status: os.stat_result) -> tuple[str, int]:
        """Go where to read on; return why that is the beginning, and how many lines that skips."""
        identity = (status.st_ino, status.st_dev)
        if self._identity is None:
            self._identity = identity
            if self._last_lines is None:
                return "", 0
            self._go_to_last_lines(descriptor, status.st_size, self._last_lines)
            return "", int(self._is_skipping)
        restarted = self._why_anew(descriptor, identity, status.st_size)
        if restarted:
            self._identity = identity
            self._go_to(0, b"")
        return restarted, 0

    def _why_anew(self, descriptor: int, identity: tuple[int, int], size: int) -> str:
        if identity != self._identity:
            return "replaced"
        if size < self._offset:
            return "truncated"
        before = _read_at(descriptor, self._offset - len(self._before), len(self._before))
        return "" if before == self._before else "rewritten"

    def _go_to_last_lines(self, descriptor: int, size: int, count: int) -> None:
        """Go where the last `count` complete lines begin, or the first of them within reach."""
        reach = max(0, size - self._bytes_per_look)
        data = _read_at(descriptor, reach, size - reach)
        end = len(data)
        for _ in range(count + 1):  # the newlines of the lines, and the one before them
            end = data.rfind(NEWLINE, 0, end)
            if end < 0:
                break
        if end >= 0:
            start = reach + end + 1
        elif reach == 0:
            start = 0
        else:
            start = reach + data.find(NEWLINE) + 1
        first = max(0, start - FINGERPRINT_BYTES)
        self._go_to(start, _read_at(descriptor, first, start - first))

    def _go_to(self, offset: int, before: bytes) -> None:
        self._offset = self._line_offset = offset
        self._before = self._before_line = before
        self._partial.clear()
        # It may be in the midst of a line of which nobody knows the beginning.
        self._is_skipping = before[-1:] not in (b"", NEWLINE)

    def _split(self, data: bytes) -> tuple[list[TailLine], int]:
        """Take what was read; return the lines it completes, and how many are too long."""
        lines: list[TailLine] = []
        skipped = start = 0
        while (end := data.find(NEWLINE, start)) >= 0:
            line = bytes(self._partial) + data[start:end]
            if self._is_skipping:
                self._is_skipping = False
            elif len(line) > self._line_limit:
                skipped += 1
            elif line and not line.isspace():
                lines.append(TailLine(self._line_offset, line))
            self._partial.clear()
            start = end + 1
            self._line_offset = self._offset + start
        if start:
            self._before_line = (self._before + data[:start])[-FINGERPRINT_BYTES:]
        if not self._is_skipping:
            self._partial += data[start:]
            if len(self._partial) > self._line_limit:
                self._partial.clear()
                self._is_skipping = True
                skipped += 1
        self._offset += len(data)
        self._before = (self._before + data)[-FINGERPRINT_BYTES:]
        return lines, skipped


def _content_of(status: os.stat_result) -> tuple[int, ...]:
    """Return what is another when a file's content is, as far as the system tells."""
    return status.st_ino, status.st_dev, status.st_size, status.st_mtime_ns


def _read_at(descriptor: int, offset: int, size: int) -> bytes:
    """Return so many bytes from there on, or fewer at the end of the file."""
    pieces: list[bytes] = []
    while size > 0 and (piece := os.pread(descriptor, min(size, CHUNK_BYTES), offset)):
        pieces.append(piece)
        offset += len(piece)
        size -= len(piece)
    return b"".join(pieces)
