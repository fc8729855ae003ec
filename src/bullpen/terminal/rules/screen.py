"""A screen as the rules see it: lines of text and how they are painted, the cursor, the title.

What is painted is kept as one *tone* per character, because themes change colours but not what
they mean: a placeholder is faint, an error is red or otherwise coloured, what somebody typed is
plain. A screen captured without attributes has no tones, and rules that ask for one do without.
"""

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

import msgspec

__all__ = ["COLOURED", "FAINT", "PLAIN", "RED", "Cursor", "Screen", "read_screen", "width_of"]

PLAIN = "p"
FAINT = "f"
RED = "r"
COLOURED = "c"

_ESCAPES = re.compile(
    r"\x1b\[([0-9;:]*)m"  # SGR, the only one that paints
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # any other control sequence
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # an operating system command, such as a title or link
    r"|\x1b[ -/]*[0-~]"  # a short escape, such as a choice of character set
    r"|[\x00-\x08\x0b-\x1f\x7f]"
)
_FAINT_GREYS = range(70, 200)  # of 255: a hint, not a text; what is darker is on a bright ground


class Cursor(msgspec.Struct, frozen=True):
    """Where the cursor stands, counted in cells from the top left corner."""

    x: int
    y: int
    is_visible: bool = True


class Screen(msgspec.Struct, frozen=True):
    """One screen at one moment, from top to bottom, and what the terminal knows beside it.

    `tones` holds a string per line, as long as the line, or is empty if the screen came without
    attributes. `arguments` are those of the program in front, if they are known.
    """

    lines: tuple[str, ...]
    tones: tuple[str, ...] = ()
    width: int = 0
    height: int = 0
    cursor: Cursor | None = None
    title: str = ""
    arguments: tuple[str, ...] = ()
    is_alternate: bool | None = None

    @property
    def has_tones(self) -> bool:
        """The screen came with its attributes."""
        return bool(self.tones)

    @property
    def has_colours(self) -> bool:
        """Something on it is coloured; on a terminal without colours nothing is."""
        return any(RED in tones or COLOURED in tones for tones in self.tones)

    @property
    def end(self) -> int:
        """The row after the last one that shows anything."""
        return next((row + 1 for row in reversed(range(len(self.lines))) if self.lines[row]), 0)

    def right_of(self, cell: int) -> "Screen":
        """The screen without the cells up to and with this one."""
        starts = [_length_of(line, cell + 1) for line in self.lines]
        cursor = self.cursor
        if cursor:
            cursor = Cursor(max(cursor.x - cell - 1, 0), cursor.y, cursor.is_visible)
        return msgspec.structs.replace(
            self,
            lines=tuple(line[start:] for line, start in zip(self.lines, starts, strict=True)),
            tones=tuple(tone[start:] for tone, start in zip(self.tones, starts, strict=False)),
            width=max(self.width - cell - 1, 0),
            cursor=cursor,
        )

    def tone(self, row: int, column: int) -> str | None:
        """The tone of a character; None if it is not known."""
        if row >= len(self.tones):
            return None
        tones = self.tones[row]
        return tones[column] if column < len(tones) else PLAIN


def read_screen(
    content: str,
    *,
    width: int = 0,
    height: int = 0,
    cursor: Cursor | None = None,
    title: str = "",
    arguments: tuple[str, ...] = (),
    is_alternate: bool | None = None,
) -> Screen:
    """Make a screen of captured text, with or without escape sequences.

    Attributes run on from one line into the next, as `tmux capture-pane -e` writes them.
    """
    lines: list[str] = []
    tones: list[str] = []
    pen = _Pen()
    for raw in content.split("\n"):
        text, tone, pen = _paint(raw, pen)
        text = text.replace("\xa0", " ").rstrip()
        lines.append(text)
        tones.append(tone[: len(text)])
    while lines and not lines[-1]:
        lines.pop()
    return Screen(
        lines=tuple(lines),
        tones=tuple(tones[: len(lines)]) if "\x1b[" in content else (),
        width=width or max(map(width_of, lines), default=0),
        height=height or len(lines),
        cursor=cursor,
        title=" ".join(title.split()),
        arguments=arguments,
        is_alternate=is_alternate,
    )


def width_of(text: str) -> int:
    """How many cells a text fills."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 1 + (unicodedata.east_asian_width(char) in "WF")
        for char in text
    )


def _length_of(text: str, cells: int) -> int:
    """How many characters fill that many cells."""
    length = min(len(text), cells)
    while width_of(text[:length]) > cells:
        length -= 1
    return length


class _Pen(NamedTuple):
    is_dim: bool = False
    colour: str = ""

    @property
    def tone(self) -> str:
        return FAINT if self.is_dim else _tone_of(self.colour) if self.colour else PLAIN


def _paint(raw: str, pen: _Pen) -> tuple[str, str, _Pen]:
    if "\x1b" not in raw:
        text = _ESCAPES.sub("", raw)
        return text, pen.tone * len(text), pen
    texts: list[str] = []
    tones: list[str] = []
    start = 0
    for escape in _ESCAPES.finditer(raw):
        texts.append(raw[start : escape.start()])
        tones.append(pen.tone * len(texts[-1]))
        start = escape.end()
        if escape[1] is not None:
            pen = _dip(pen, escape[1])
    texts.append(raw[start:])
    tones.append(pen.tone * len(texts[-1]))
    return "".join(texts), "".join(tones), pen


def _dip(pen: _Pen, parameters: str) -> _Pen:
    codes = parameters.replace(":", ";").split(";")
    is_dim, colour = pen
    while codes:
        code = int(codes.pop(0) or 0)
        if code == 0:
            is_dim, colour = False, ""
        elif code in (2, 22):
            is_dim = code == 2
        elif code in (38, 48):
            length = {"5": 2, "2": 4}.get(codes[0] if codes else "", 1)
            if code == 38:
                colour = ";".join(codes[:length])
            del codes[:length]
        elif code == 39:
            colour = ""
        elif 30 <= code <= 37 or 90 <= code <= 97:
            colour = f"5;{code - 30 if code < 40 else code - 82}"
    return _Pen(is_dim, colour)


@lru_cache(maxsize=1024)
def _tone_of(colour: str) -> str:
    try:
        kind, *numbers = map(int, colour.split(";"))
    except ValueError:
        return PLAIN
    red, green, blue = numbers[:3] if kind == 2 and len(numbers) >= 3 else _palette(numbers)
    brightest, darkest = max(red, green, blue), min(red, green, blue)
    if brightest - darkest < 40:
        return FAINT if brightest in _FAINT_GREYS else PLAIN
    is_red = red == brightest and max(green, blue) < 0.7 * red and abs(green - blue) < 0.3 * red
    return RED if is_red else COLOURED


def _palette(numbers: list[int]) -> tuple[int, int, int]:
    """Red, green and blue of one of the 256 colours of a terminal."""
    index = numbers[0] if numbers else 7
    if index < 16:
        low, high = (0, 205) if index < 8 else (85 if index == 8 else 0, 255)
        if index == 8:
            return (127, 127, 127)
        bright = [high if index >> bit & 1 else low for bit in range(3)]
        return (bright[0], bright[1], bright[2])
    if index >= 232:
        grey = 8 + 10 * (index - 232)
        return (grey, grey, grey)
    index -= 16
    steps = (0, 95, 135, 175, 215, 255)
    return (steps[index // 36 % 6], steps[index // 6 % 6], steps[index % 6])
