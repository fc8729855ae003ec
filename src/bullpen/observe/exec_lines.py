"""The lines of JSON that a program prints on a screen, each taken once, without I/O.

`codex exec --json` prints one object per line. A screen shows the last ones, cut into rows of its
width, and shows them again at the next look with others below. Which of them are new is told by
the order: what stood below what, last time. That an identical line is printed later is legitimate;
that of two looks at the same screen neither loses nor repeats a line is the point.
"""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from bullpen.terminal.rules.screen import width_of

__all__ = ["LineTracker", "NewLine", "json_lines"]

MOST_ROWS = 400  # of one line; more than a screen and its captured history have
MOST_SPACES = 8  # in a row at the end of a full one; with more, some lines are not found
MOST_COUNTED = 512  # fingerprints of which it is known how often they were seen


def json_lines(rows: Sequence[str], width: int) -> list[str]:
    """Return the lines that are JSON objects with a `type`, put together from rows of a screen.

    A line longer than the screen is wide goes on in the next row. Spaces at the end of a row are
    not captured: they are put back.
    """
    lines: list[str] = []
    at = 0
    while at < len(rows):
        line, used = _line_at(rows, at, width)
        if line:
            lines.append(line)
        at += used
    return lines


def _line_at(rows: Sequence[str], at: int, width: int) -> tuple[str, int]:
    """The line that begins at a row, and how many rows it fills; no line fills one."""
    if not rows[at].startswith("{"):
        return "", 1
    line = ""
    for used, row in enumerate(rows[at : at + MOST_ROWS], start=1):
        line += row
        if row.endswith("}") and _has_type(line):
            return line, used
        missing = width - width_of(row)
        if not 0 <= missing <= MOST_SPACES:
            break  # it does not reach the edge: nothing goes on below
        line += " " * missing
    return "", 1


def _has_type(line: str) -> bool:
    try:
        value: Any = msgspec.json.decode(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and isinstance(value.get("type"), str)


class NewLine(msgspec.Struct, frozen=True):
    """A line that was not there before."""

    text: str
    id: str
    """What it says and how many times it was said before: the same if the screen is read anew."""


class LineTracker:
    """Follows the lines of one screen."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._counts: OrderedDict[str, int] = OrderedDict()

    def new(self, lines: Sequence[str]) -> list[NewLine]:
        """Return the lines that have come below those of the last look."""
        before, self._shown = self._shown, [_fingerprint(line) for line in lines]
        first = _first_new(before, self._shown)
        return [
            NewLine(line, f"{fingerprint}.{self._count(fingerprint)}")
            for line, fingerprint in zip(lines[first:], self._shown[first:], strict=True)
        ]

    def _count(self, fingerprint: str) -> int:
        count = self._counts.pop(fingerprint, 0) + 1
        self._counts[fingerprint] = count
        if len(self._counts) > MOST_COUNTED:
            self._counts.popitem(last=False)
        return count


def _fingerprint(line: str) -> str:
    return blake2b(line.encode(errors="surrogatepass"), digest_size=12).hexdigest()


def _first_new(before: Sequence[str], now: Sequence[str]) -> int:
    """Return from where on lines are new: behind the longest end of those before that is there.

    If the last of those before is not there, because a row of it was lost, the one before it may.
    """
    for end in range(len(before), 0, -1):
        lengths = [_common_end(before[:end], now[:at]) for at in range(1, len(now) + 1)]
        longest = max(lengths, default=0)
        if longest:
            return lengths.index(longest) + 1
    return 0


def _common_end(one: Sequence[str], other: Sequence[str]) -> int:
    length = 0
    while length < min(len(one), len(other)) and one[-1 - length] == other[-1 - length]:
        length += 1
    return length
