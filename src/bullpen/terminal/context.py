"""What a program wrote, by absolute offsets: the newest of it, and cuts that lose and mix nothing.

Every byte has the offset it was written at, counted from the program's start and never again from
elsewhere. Of the stream only the newest part is kept; whoever needs more, such as the reply to one
message, opens a cut before it begins and has all of it when it ends, however long it is.
"""

import re

__all__ = ["Cut", "OutputContext", "plain_text"]

CONTEXT_BYTES = 10_000
MAX_CUT_BYTES = 16 * 2**20  # of one reply; a program that writes more is not answering
MAX_CUTS = 64  # replies awaited at once; one program gives them one after the other

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
    r"|\r(?=\n)"
    r"|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]"
)


class OutputContext:
    """The newest bytes of a stream, and the cuts that are open on it."""

    def __init__(self, *, limit: int = CONTEXT_BYTES) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._cuts: set[Cut] = set()
        self.end = 0
        """The offset behind the last byte written, which is how many there were."""

    @property
    def start(self) -> int:
        """The offset of the oldest byte that is kept."""
        return self.end - len(self._kept)

    def feed(self, data: bytes) -> None:
        """Take what the program wrote."""
        self.end += len(data)
        self._kept += data[-self._limit :]
        del self._kept[: -self._limit]
        for cut in self._cuts:
            cut._take(data)

    def tail(self, limit: int = CONTEXT_BYTES) -> bytes:
        """The newest bytes, as many as wanted and kept."""
        return bytes(self._kept[max(len(self._kept) - limit, 0) :])

    def text(self, limit: int = CONTEXT_BYTES) -> str:
        """The newest bytes as text that begins with a whole character."""
        tail = self.tail(limit)
        if self.end > len(tail):  # something lies before it, perhaps the half of a character
            tail = tail[_broken(tail) :]
        return tail.decode(errors="replace")

    def since(self, offset: int) -> tuple[int, bytes]:
        """What was written from an offset on, and the offset at which that really begins.

        It begins later than asked if the older part is not kept any more.
        """
        begin = min(max(offset, self.start), self.end)
        return begin, bytes(self._kept[begin - self.start :])

    def open_cut(self) -> "Cut":
        """Begin to keep all that is written from now on, until the cut is closed.

        Raises:
            ValueError: there are too many open already.
        """
        if len(self._cuts) >= MAX_CUTS:
            raise ValueError(f"{MAX_CUTS} cuts are open already")
        cut = Cut(self)
        self._cuts.add(cut)
        return cut


class Cut:
    """A piece of a stream, from the offset at which it was opened to that at which it was closed.

    Of one beyond the limit the beginning is kept, and `lost` says how many bytes are missing.
    """

    def __init__(self, context: OutputContext) -> None:
        self._context = context
        self._data = bytearray()
        self._end: int | None = None
        self.begin = context.end
        self.lost = 0

    @property
    def end(self) -> int:
        """The offset behind its last byte."""
        return self._context.end if self._end is None else self._end

    @property
    def data(self) -> bytes:
        """What was written between its two offsets."""
        return bytes(self._data)

    def close(self) -> bytes:
        """Keep nothing more; return what was kept."""
        if self._end is None:
            self._end = self._context.end
            self._context._cuts.discard(self)
        return self.data

    def _take(self, data: bytes) -> None:
        room = MAX_CUT_BYTES - len(self._data)
        self._data += data[:room]
        self.lost += max(len(data) - room, 0)


def plain_text(data: bytes) -> str:
    """What a program that prints lines said, without how it was painted."""
    return _SEQUENCES.sub("", data.decode(errors="replace"))


def _broken(data: bytes) -> int:
    """How many leading bytes continue a character that began before them."""
    return next((at for at, byte in enumerate(data[:4]) if byte & 0xC0 != 0x80), 0)
