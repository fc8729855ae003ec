"""A terminal emulated in Python, for machines without a native one.

The grid is pyte's. What reads the stream is our own, since pyte 0.8's stops at sequences that agent
programs send (`CSI ? 996 n`, private SGR), prints what it does not know, and drops text after a
character without width. Where pyte's grid differs from what terminals do, it is put right here.
"""

import codecs
import copy
import re
from collections import deque
from collections.abc import Callable, Iterator
from typing import ClassVar

import pyte
from pyte import charsets
from pyte import modes as pyte_modes
from wcwidth import wcwidth

from bullpen.terminal.emulator import Modes, bounded
from bullpen.terminal.rules.screen import Cursor, Screen, read_screen

__all__ = ["PyteEmulator"]

_MAX_SEQUENCE = 4096  # characters of one sequence; what is longer is skipped, not kept
_MAX_NUMBER = 9999
_MAX_KEYBOARDS = 16

_TEXT = re.compile(r"[^\x00-\x1f\x7f-\x9f]+")
_STRING_END = re.compile(r"[\x07\x18\x1a\x1b]")
_MOUSE_MODES = {9, 1000, 1002, 1003}
_ALTERNATE_MODES = {47, 1047, 1049}
_KNOWN_MODES = _MOUSE_MODES | _ALTERNATE_MODES | {1, 5, 6, 7, 12, 25, 1004, 1005, 1006, 2004, 2026}
_DEFAULT_COLOURS = {"10": "ffff/ffff/ffff", "11": "0000/0000/0000"}


class PyteEmulator:
    """An emulator on pyte."""

    def __init__(self, columns: int, rows: int, *, history: int = 0) -> None:
        self._grid = _Grid(*bounded(columns, rows), history)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state: Callable[[str, int], int] = self._ground
        self._collected: list[str] = []
        self._room = _MAX_SEQUENCE

    @property
    def modes(self) -> Modes:
        modes = self._grid.private_modes
        return Modes(
            bracketed_paste=2004 in modes,
            alternate_screen=self._grid.is_alternate,
            mouse=bool(modes & _MOUSE_MODES),
            focus_events=1004 in modes,
            application_cursor=1 in modes,
        )

    def feed(self, data: bytes) -> None:
        text = self._decoder.decode(data)
        position = 0
        while position < len(text):
            position = self._state(text, position)

    def resize(self, columns: int, rows: int) -> None:
        columns, rows = bounded(columns, rows)
        self._grid.resize(lines=rows, columns=columns)

    def screen(self) -> Screen:
        grid = self._grid
        return read_screen(
            "\n".join(map(grid.painted, range(grid.lines))) + "\x1b[m",
            width=grid.columns,
            height=grid.lines,
            cursor=Cursor(
                min(grid.cursor.x, grid.columns - 1), grid.cursor.y, not grid.cursor.hidden
            ),
            title=grid.title,
            is_alternate=grid.is_alternate,
        )

    def history(self) -> tuple[str, ...]:
        return () if self._grid.is_alternate else tuple(self._grid.left)

    def painted(self, row: int) -> str:
        return self._grid.painted(row).rstrip() + "\x1b[m"

    def take_answers(self) -> bytes:
        answers = "".join(self._grid.answers)
        self._grid.answers.clear()
        return answers.encode()

    def close(self) -> None:
        self._grid.reset()

    # The states of the stream. Each takes what it can at a position and returns the next one.

    def _ground(self, text: str, position: int) -> int:
        if match := _TEXT.match(text, position):
            self._grid.draw(match[0])
            return match.end()
        self._control(text[position])
        return position + 1

    def _control(self, char: str) -> None:
        if char == "\x1b":
            self._collected.clear()
            self._room = _MAX_SEQUENCE
            self._state = self._escape
        elif char in "\x18\x1a":
            self._state = self._ground
        else:
            self._grid.control(char)

    def _escape(self, text: str, position: int) -> int:
        char = text[position]
        if char < " ":
            self._control(char)
        elif char <= "/":
            self._collect(char)
        elif char in "[]PX^_" and not self._collected:
            self._state = self._csi if char == "[" else self._osc if char == "]" else self._string
        else:
            self._state = self._ground
            self._grid.escape("".join(self._collected), char)
        return position + 1

    def _csi(self, text: str, position: int) -> int:
        char = text[position]
        if char < " ":
            self._control(char)
        elif char <= "?":
            self._collect(char)
        elif char <= "~":
            self._state = self._ground
            self._grid.control_sequence("".join(self._collected), char)
        elif char > "\x7f":
            self._state = self._ground
        return position + 1

    def _osc(self, text: str, position: int) -> int:
        match = _STRING_END.search(text, position)
        end = match.start() if match else len(text)
        self._collect(text[position:end])
        if match is None:
            return end
        if match[0] in "\x07\x1b":
            self._grid.command("".join(self._collected), "\x07" if match[0] == "\x07" else "\x1b\\")
        self._end_string(match[0])
        return end + 1

    def _string(self, text: str, position: int) -> int:
        """Skip what terminals pass on to printers, images and the like."""
        match = _STRING_END.search(text, position)
        if match is None:
            return len(text)
        if match[0] != "\x07":
            self._end_string(match[0])
        return match.end()

    def _end_string(self, char: str) -> None:
        self._state = self._ground
        if char == "\x1b":
            self._control(char)

    def _collect(self, text: str) -> None:
        if self._room > 0:
            self._collected.append(text[: self._room])
            self._room -= len(text)


class _Grid(pyte.Screen):
    """Pyte's grid with the manners of a terminal.

    The foreground of a cell is the list of SGR parameters that make its tone.
    """

    def __init__(self, columns: int, lines: int, history: int = 0) -> None:
        self.left: deque[str] = deque(maxlen=history)  # what has left the screen at its top
        self.answers: list[str] = []
        self.private_modes: set[int] = {7, 25}
        self.keyboards = [0]
        self._other: tuple[object, ...] | None = None  # the main screen, while the other is shown
        self._last = ""
        super().__init__(columns, lines)

    @property
    def is_alternate(self) -> bool:
        """The alternate screen is shown."""
        return self._other is not None

    def reset(self) -> None:
        self.private_modes = {7, 25}
        self.keyboards = [0]
        self._other = None
        self._last = ""
        self.left.clear()
        super().reset()
        self.savepoints.clear()

    def resize(self, lines: int | None = None, columns: int | None = None) -> None:
        super().resize(lines, columns)
        self.tabstops = set(range(8, self.columns, 8))
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        self.cursor.y = min(self.cursor.y, self.lines - 1)

    def painted(self, row: int) -> str:
        """A row as text with the attributes it is painted in."""
        line, parts, pen = self.buffer[row], ["\x1b[m"], ""
        column = 0
        while column < self.columns:
            cell = line[column]
            text = cell.data or " "  # the second half of a character whose first is gone
            column += 1
            if wcwidth(text[0]) == 2:
                if column < self.columns and line[column].data == "":
                    column += 1
                else:
                    text = " "
            if (tone := "" if cell.fg == "default" else cell.fg) != pen:
                parts.append(f"\x1b[0;{tone}m")
                pen = tone
            parts.append(text)
        return "".join(parts)

    # What the stream says.

    def control(self, char: str) -> None:
        """Do what a control character says."""
        if char in "\n\v\f":
            self._settle()
            self.linefeed()
        elif char == "\r":
            self.carriage_return()
        elif char == "\b":
            self._settle()
            self.cursor_back()
        elif char == "\t":
            self._settle()
            self.tab()
        elif char == "\x0e":
            self.shift_out()
        elif char == "\x0f":
            self.shift_in()

    def escape(self, between: str, char: str) -> None:
        """Do what a short escape says."""
        if between in ("(", ")"):
            self.define_charset(char, between)
        elif between == "#" and char == "8":
            self.alignment_display()
        elif not between and (work := self._ESCAPES.get(char)):
            self._settle()
            work(self)

    def command(self, text: str, end: str) -> None:
        """Do what an operating system command says."""
        number, _, rest = text.partition(";")
        if number in ("0", "2"):
            self.set_title(rest)
        elif number in _DEFAULT_COLOURS and rest == "?":
            self.answers.append(f"\x1b]{number};rgb:{_DEFAULT_COLOURS[number]}{end}")

    def control_sequence(self, collected: str, char: str) -> None:
        """Do what a control sequence says, or nothing if it is not known."""
        parameters = collected.rstrip(" !\"#$%&'()*+,-./")
        between = collected[len(parameters) :]
        marker = parameters[:1] if parameters[:1] in ("<", "=", ">", "?") else ""
        parameters = parameters[len(marker) :]
        if char == "m" and not marker and not between:
            self._paint(parameters)
            return
        if parameters.strip("0123456789;"):
            return  # no other sequence has subparameters
        numbers = [min(int(each or 0), _MAX_NUMBER) for each in parameters[:512].split(";")]
        key = marker + between + char
        if work := self._QUESTIONS.get(key):
            work(self, numbers)
        elif work := self._SEQUENCES.get(key):
            self._settle()
            work(self, numbers)

    # Text.

    def draw(self, data: str) -> None:
        charset = self.g1_charset if self.charset else self.g0_charset
        if charset is not charsets.LAT1_MAP:
            data = data.translate(charset)
        for char in data:
            width = wcwidth(char)
            if width > 0:
                self._put(char, width)
            elif width == 0:
                self._join(char)

    def _put(self, char: str, width: int) -> None:
        cursor = self.cursor
        if cursor.x + width > self.columns:
            if pyte_modes.DECAWM in self.mode:
                self.carriage_return()
                self.linefeed()
            else:
                cursor.x = self.columns - width
        if pyte_modes.IRM in self.mode:
            self.insert_characters(width)
        line = self.buffer[cursor.y]
        line[cursor.x] = cursor.attrs._replace(data=char)
        if width == 2:
            line[cursor.x + 1] = cursor.attrs._replace(data="")
        cursor.x += width
        self._last = char

    def _join(self, char: str) -> None:
        """Add a character without width to the one before it."""
        line = self.buffer[self.cursor.y]
        for column in range(self.cursor.x - 1, max(self.cursor.x - 3, -1), -1):
            if line[column].data:
                if len(line[column].data) < 32:
                    line[column] = line[column]._replace(data=line[column].data + char)
                return

    def _settle(self) -> None:
        """Take back a cursor that stands behind the last column, waiting to wrap."""
        self.cursor.x = min(self.cursor.x, self.columns - 1)

    def _paint(self, parameters: str) -> None:
        pen = self.cursor.attrs.fg
        tones = {} if pen == "default" else dict(_tones(pen))
        groups = [group.split(":") for group in parameters.split(";")]
        while groups:
            code, *rest = groups.pop(0)
            number = int(code or 0) if len(code) < 5 else -1
            if number == 0:
                tones.clear()
            elif number == 2:
                tones["faint"] = "2"
            elif number == 22:
                tones.pop("faint", None)
            elif number in (38, 48, 58):
                if not rest:
                    count = {"5": 2, "2": 4}.get(groups[0][0] if groups else "", 1)
                    rest = [group[0] for group in groups[:count]]
                    del groups[:count]
                elif rest[0] == "2" and len(rest) > 4:
                    rest = ["2", *rest[-3:]]  # without the name of a colour space
                if number == 38 and len(rest) == {"5": 2, "2": 4}.get(rest[0] if rest else ""):
                    tones["colour"] = ";".join(("38", *(each or "0" for each in rest)))
            elif number == 39:
                tones.pop("colour", None)
            elif 30 <= number <= 37 or 90 <= number <= 97:
                tones["colour"] = str(number)
        painted = ";".join(tones[each] for each in ("faint", "colour") if each in tones)
        self.cursor.attrs = self.default_char._replace(fg=painted or "default")

    # Where pyte's grid does otherwise than terminals.

    def cursor_up(self, count: int | None = None) -> None:
        y = self.cursor.y
        top = self.margins.top if self.margins and y >= self.margins.top else 0
        self.cursor.y = max(y - (count or 1), top)

    def cursor_down(self, count: int | None = None) -> None:
        y = self.cursor.y
        bottom = self.lines - 1
        if self.margins and y <= self.margins.bottom:
            bottom = self.margins.bottom
        self.cursor.y = min(y + (count or 1), bottom)

    def save_cursor(self) -> None:
        self.savepoints.clear()
        super().save_cursor()

    def restore_cursor(self) -> None:
        if not self.savepoints:
            self.cursor.x = self.cursor.y = 0
            return
        saved = self.savepoints[-1]
        hidden = self.cursor.hidden
        self.cursor = copy.copy(saved.cursor)
        self.cursor.hidden = hidden
        self.g0_charset, self.g1_charset = saved.g0_charset, saved.g1_charset
        self.charset = saved.charset
        self.cursor.x = min(self.cursor.x, self.columns - 1)
        self.cursor.y = min(self.cursor.y, self.lines - 1)

    def delete_lines(self, count: int | None = None) -> None:
        for row in range(self.lines):
            self.buffer[row]  # makes it: pyte leaves alone what lies over a row that is not there
        super().delete_lines(count)

    def insert_characters(self, count: int | None = None) -> None:
        super().insert_characters(count)
        self.buffer[self.cursor.y].pop(self.columns, None)  # pyte keeps one too many

    def _set_margins(self, numbers: list[int]) -> None:
        top, bottom = (*numbers, 0)[:2]
        top, bottom = max(top, 1), min(bottom or self.lines, self.lines)
        if top < bottom:
            self.margins = None
            if (top, bottom) != (1, self.lines):
                self.set_margins(top, bottom)
            self.cursor_position()

    def _erase_in_display(self, numbers: list[int]) -> None:
        if numbers[0] == 3:
            self.left.clear()
        elif numbers[0] <= 2:
            self.erase_in_display(numbers[0])

    def _erase_in_line(self, numbers: list[int]) -> None:
        if numbers[0] <= 2:
            self.erase_in_line(numbers[0])

    def _scroll(self, count: int, *, up: bool) -> None:
        x, y = self.cursor.x, self.cursor.y
        self.cursor.y = self.margins.top if self.margins else 0
        (self.delete_lines if up else self.insert_lines)(count)
        self.cursor.x, self.cursor.y = x, y

    def index(self) -> None:
        """Go a line down, or let the first one leave at the bottom."""
        top, bottom = self.margins or (0, self.lines - 1)
        if self.left.maxlen and not top and self.cursor.y == bottom and not self.is_alternate:
            self.left.append(read_screen(self.painted(0)).lines[0] if self.buffer[0] else "")
        super().index()

    def _next_line(self) -> None:
        self.carriage_return()
        self.index()

    def _repeat(self, numbers: list[int]) -> None:
        if self._last:
            self.draw(self._last * min(numbers[0] or 1, self.columns * self.lines))

    def _tabs(self, numbers: list[int]) -> None:
        for _ in range(min(numbers[0] or 1, self.columns)):
            self.tab()

    def _backtabs(self, numbers: list[int]) -> None:
        for _ in range(min(numbers[0] or 1, self.columns)):
            self.cursor.x = max((each for each in self.tabstops if each < self.cursor.x), default=0)

    # Modes.

    def _ansi_modes(self, numbers: list[int], *, on: bool) -> None:
        for number in {4, 20} & set(numbers):
            (self.mode.add if on else self.mode.discard)(number)

    def _private_modes(self, numbers: list[int], *, on: bool) -> None:
        for number in numbers:
            if number in _ALTERNATE_MODES:
                self._alternate(number, on=on)
            elif number == 1048:
                (self.save_cursor if on else self.restore_cursor)()
            elif number == 25:
                self.cursor.hidden = not on
            elif number in (6, 7):
                (self.set_mode if on else self.reset_mode)(number, private=True)
            (self.private_modes.add if on else self.private_modes.discard)(number)

    def _alternate(self, number: int, *, on: bool) -> None:
        if on == self.is_alternate:
            return
        if self._other is None:
            if number == 1049:
                self.save_cursor()
            self._other = (self.buffer.copy(), list(self.savepoints))
            self.buffer.clear()
        else:
            buffer, savepoints = self._other
            self._other = None
            self.buffer.clear()
            self.buffer.update(buffer)  # type: ignore[call-overload]
            self.savepoints[:] = savepoints  # type: ignore[call-overload]
            if number == 1049:
                self.restore_cursor()

    def _soft_reset(self, numbers: list[int]) -> None:  # noqa: ARG002 - the shape of the table
        self.margins = None
        self.cursor.hidden = False
        self.mode.discard(pyte_modes.IRM)
        self.reset_mode(6, private=True)
        self.private_modes -= {1, 6}
        self.private_modes.add(25)
        self.cursor.attrs = self.default_char

    def _keyboard(self, flags: int, how: int) -> None:
        now = self.keyboards[-1]
        self.keyboards[-1] = {2: now | flags, 3: now & ~flags}.get(how, flags) & 31

    def _push_keyboard(self, numbers: list[int]) -> None:
        self.keyboards = [*self.keyboards[-_MAX_KEYBOARDS:], numbers[0] & 31]

    def _pop_keyboard(self, numbers: list[int]) -> None:
        self.keyboards = self.keyboards[: -(numbers[0] or 1)] or [0]

    # Questions.

    def _say(self, answer: str) -> None:
        self.answers.append(f"\x1b{answer}")

    def _say_if(self, is_asked: bool, answer: str) -> None:
        if is_asked:
            self._say(answer)

    def _say_status(self, numbers: list[int]) -> None:
        if numbers[0] == 5:
            self._say("[0n")
        elif numbers[0] == 6:
            column = min(self.cursor.x, self.columns - 1)
            top = self.margins.top if self.margins and 6 in self.private_modes else 0
            self._say(f"[{self.cursor.y - top + 1};{column + 1}R")

    def _say_mode(self, numbers: list[int]) -> None:
        number = numbers[0]
        state = 0 if number not in _KNOWN_MODES else 1 if number in self.private_modes else 2
        self._say(f"[?{number};{state}$y")

    _ESCAPES: ClassVar[dict[str, Callable[["_Grid"], None]]] = {
        "7": save_cursor,
        "8": restore_cursor,
        "D": index,
        "E": _next_line,
        "H": pyte.Screen.set_tab_stop,
        "M": pyte.Screen.reverse_index,
        "c": reset,
    }
    _QUESTIONS: ClassVar[dict[str, Callable[["_Grid", list[int]], None]]] = {
        "c": lambda grid, numbers: grid._say_if(numbers[0] == 0, "[?62;22c"),
        ">c": lambda grid, numbers: grid._say_if(numbers[0] == 0, "[>1;0;0c"),
        ">q": lambda grid, numbers: grid._say_if(numbers[0] == 0, "P>|bullpen\x1b\\"),
        "n": _say_status,
        "?n": lambda grid, numbers: grid._say_if(numbers[0] == 996, "[?997;1n"),
        "?$p": _say_mode,
        "?u": lambda grid, _: grid._say(f"[?{grid.keyboards[-1]}u"),
        ">u": _push_keyboard,
        "<u": _pop_keyboard,
        "=u": lambda grid, numbers: grid._keyboard(*(*numbers, 1)[:2]),
        "h": lambda grid, numbers: grid._ansi_modes(numbers, on=True),
        "l": lambda grid, numbers: grid._ansi_modes(numbers, on=False),
        "?h": lambda grid, numbers: grid._private_modes(numbers, on=True),
        "?l": lambda grid, numbers: grid._private_modes(numbers, on=False),
    }
    _SEQUENCES: ClassVar[dict[str, Callable[["_Grid", list[int]], None]]] = {
        "@": lambda grid, numbers: grid.insert_characters(numbers[0]),
        "A": lambda grid, numbers: grid.cursor_up(numbers[0]),
        "B": lambda grid, numbers: grid.cursor_down(numbers[0]),
        "C": lambda grid, numbers: grid.cursor_forward(numbers[0]),
        "D": lambda grid, numbers: grid.cursor_back(numbers[0]),
        "E": lambda grid, numbers: grid.cursor_down1(numbers[0]),
        "F": lambda grid, numbers: grid.cursor_up1(numbers[0]),
        "G": lambda grid, numbers: grid.cursor_to_column(numbers[0]),
        "H": lambda grid, numbers: grid.cursor_position(*(*numbers, 0)[:2]),
        "I": _tabs,
        "J": _erase_in_display,
        "K": _erase_in_line,
        "L": lambda grid, numbers: grid.insert_lines(numbers[0]),
        "M": lambda grid, numbers: grid.delete_lines(numbers[0]),
        "P": lambda grid, numbers: grid.delete_characters(numbers[0]),
        "S": lambda grid, numbers: grid._scroll(numbers[0], up=True),
        "T": lambda grid, numbers: grid._scroll(numbers[0], up=False),
        "X": lambda grid, numbers: grid.erase_characters(numbers[0]),
        "Z": _backtabs,
        "`": lambda grid, numbers: grid.cursor_to_column(numbers[0]),
        "a": lambda grid, numbers: grid.cursor_forward(numbers[0]),
        "b": _repeat,
        "d": lambda grid, numbers: grid.cursor_to_line(numbers[0]),
        "e": lambda grid, numbers: grid.cursor_down(numbers[0]),
        "f": lambda grid, numbers: grid.cursor_position(*(*numbers, 0)[:2]),
        "g": lambda grid, numbers: grid.clear_tab_stop(numbers[0]),
        "r": _set_margins,
        "s": lambda grid, _: grid.save_cursor(),
        "u": lambda grid, _: grid.restore_cursor(),
        "!p": _soft_reset,
        "?J": _erase_in_display,
        "?K": _erase_in_line,
    }


def _tones(pen: str) -> Iterator[tuple[str, str]]:
    """Take apart what `_paint` put together."""
    if pen == "2" or pen.startswith("2;"):
        yield "faint", "2"
        pen = pen[2:]
    if pen:
        yield "colour", pen
