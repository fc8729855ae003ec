"""Telling the user something on a terminal that belongs to a program, without harm to it. Pure.

Under a program that prints lines a notice is lines of its own, with the prompt shown again below
it. Over a painted screen it stands on the last row until a key is pressed or some time has passed;
then the row is shown again as the program had painted it. The program does not notice: nothing is
typed to it and its size stays, and in no sequence or character of its own is anything put.
"""

import re

from bullpen.terminal.context import plain_text
from bullpen.terminal.keyboard import reply_notice
from bullpen.terminal.rules.screen import width_of
from bullpen.wrapper.status import last_line

__all__ = [
    "failed_notice",
    "is_between",
    "line_notice",
    "reply_lines",
    "row_notice",
    "row_restored",
]

_UNFINISHED = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*|[PX^_][^\x1b]*(?:\x1b)?|[ -/]*)?\Z", re.DOTALL
)
_SEQUENCE_BYTES = 4096  # the longest a sequence may be and still be waited for
_NEXT_LINE = "\r\n"


def is_between(tail: bytes) -> bool:
    """Whether output that ends so is not inside a sequence or a character."""
    tail = tail[-_SEQUENCE_BYTES:]
    if _UNFINISHED.search(tail):
        return False
    for back in range(1, min(len(tail), 3) + 1):
        byte = tail[-back]
        if byte & 0xC0 != 0x80:  # where the last character begins
            length = 1 if byte < 0xC0 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back >= length
    return True


def failed_notice(name: str, reason: str) -> str:
    """What the user is shown when a message was not taken, or not answered."""
    return f"\x1b[31m[✗ {name}: {reason}]\x1b[0m"


def reply_lines(name: str, text: str) -> str:
    """A reply, below the line that says whose it is."""
    shown = plain_text(text.encode(errors="replace")).strip("\n").replace("\r", "")
    return f"{reply_notice(name)}\n{shown}"


def line_notice(text: str, tail: bytes) -> bytes:
    """A notice for a terminal on which output ends so."""
    shown = text.replace("\n", _NEXT_LINE)
    begun = tail[tail.rfind(b"\n") + 1 :]
    if b"\b" in begun or b"\r" in begun:
        begun = last_line(tail).encode()  # without what was rubbed out
    return b"\r\x1b[K" + shown.encode() + _NEXT_LINE.encode() + begun


def row_notice(text: str, columns: int, rows: int) -> bytes:
    """A notice on the last row of a screen."""
    line = _fitting(" ".join(text.split()), max(columns - 1, 1))
    return f"\x1b7\x1b[{rows};1H\x1b[0m\x1b[2K{line}\x1b[0m\x1b8".encode()


def row_restored(painted: str, rows: int) -> bytes:
    """The last row as the program had painted it."""
    return f"\x1b7\x1b[{rows};1H\x1b[0m\x1b[2K{painted}\x1b[0m\x1b8".encode()


def _fitting(text: str, cells: int) -> str:
    """As much of a text as fits, where what paints it takes no room."""
    parts: list[str] = []
    room = cells
    for part in re.split(r"(\x1b\[[\d;]*m)", text):
        if part.startswith("\x1b["):
            parts.append(part)
            continue
        for char in part:
            width = width_of(char)
            if width > room:
                room = 0
                break
            parts.append(char)
            room -= width
    return "".join(parts)
