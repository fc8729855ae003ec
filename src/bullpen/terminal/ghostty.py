"""A terminal emulated by libghostty, which is fast and what a real terminal is made of."""

from typing import Any

from pyghostty import Terminal
from pyghostty._ffi import ffi, lib
from pyghostty.core import init_sized, read_buf

from bullpen.terminal.emulator import Modes, bounded
from bullpen.terminal.rules.screen import Cursor, Screen, read_screen

__all__ = ["GhosttyEmulator"]

_MOUSE_MODES = (9, 1000, 1002, 1003)
_ALTERNATE = 1  # of ghostty's two screens
_PALETTE_END = "\x1b]4;255;"  # what is painted comes after the palette it is painted with
_WHITE, _BLACK = (255, 255, 255), (0, 0, 0)


class GhosttyEmulator:
    """An emulator on libghostty."""

    def __init__(self, columns: int, rows: int, *, history: int = 0) -> None:
        self._size = bounded(columns, rows)
        self._kept = history
        self._answers = bytearray()
        self._terminal: Any = Terminal(*self._size, scrollback=history, fg=_WHITE, bg=_BLACK)
        self._terminal.on_reply(self._answers.extend)
        self._scheme = ffi.callback("GhosttyTerminalColorSchemeFn", _say_dark)  # kept alive here
        lib.ghostty_terminal_set(
            self._terminal._t[0], lib.GHOSTTY_TERMINAL_OPT_COLOR_SCHEME, self._scheme
        )

    @property
    def modes(self) -> Modes:
        is_set = self._terminal.mode
        return Modes(
            bracketed_paste=is_set(2004),
            alternate_screen=self._is_alternate,
            mouse=any(map(is_set, _MOUSE_MODES)),
            focus_events=is_set(1004),
            application_cursor=is_set(1),
        )

    @property
    def _is_alternate(self) -> bool:
        return bool(self._terminal.get("active_screen", "int") == _ALTERNATE)

    def feed(self, data: bytes) -> None:
        self._terminal.feed(data)

    def resize(self, columns: int, rows: int) -> None:
        self._size = bounded(columns, rows)
        self._terminal.resize(*self._size)

    def screen(self) -> Screen:
        terminal = self._terminal
        title = terminal.get("title", "GhosttyString")
        columns, rows = self._size
        column, row = terminal.cursor
        return read_screen(
            self._painted(0, rows - 1),
            width=columns,
            height=rows,
            cursor=Cursor(column, row, bool(terminal.get("cursor_visible", "bool"))),
            title=ffi.buffer(title.ptr, title.len)[:].decode(errors="replace") if title.len else "",
            is_alternate=self._is_alternate,
        )

    def history(self) -> tuple[str, ...]:
        columns, _ = self._size
        rows = self._terminal.get("scrollback_rows", "size_t")
        kept = min(rows, self._kept)  # ghostty forgets by the page, not by the line
        # On the other screen nothing is kept, and what the main one has is not to be seen.
        if self._is_alternate or not kept:
            return ()
        selection = init_sized("GhosttySelection")
        selection.start = self._terminal.ref(0, rows - kept, "screen")[0]
        selection.end = self._terminal.ref(columns - 1, rows - 1, "screen")[0]
        lines = read_screen(self._formatted(selection, lib.GHOSTTY_FORMATTER_FORMAT_PLAIN)).lines
        return (*lines, *("" for _ in range(kept - len(lines))))

    def painted(self, row: int) -> str:
        text = self._painted(row, row)
        return text.partition("\x1b\\")[2] if text.startswith(_PALETTE_END) else text

    def take_answers(self) -> bytes:
        answers = self._answers.replace(b">|libghostty", b">|bullpen")  # its name, but our manners
        self._answers.clear()
        return bytes(answers)

    def close(self) -> None:
        self._terminal.close()

    def _painted(self, first: int, last: int) -> str:
        """The text of some rows with the attributes it is painted in."""
        columns, _ = self._size
        selection = init_sized("GhosttySelection")
        selection.start = self._terminal.ref(0, first)[0]
        selection.end = self._terminal.ref(columns - 1, last)[0]
        text = self._formatted(selection, lib.GHOSTTY_FORMATTER_FORMAT_VT)
        return text[max(text.find(_PALETTE_END), 0) :]

    def _formatted(self, selection: Any, emit: int) -> str:
        options = init_sized("GhosttyTerminalSelectionFormatOptions")
        options.emit = emit
        options.trim = True
        options.selection = selection

        def write(buffer: Any, size: int, written: Any) -> Any:
            return lib.ghostty_terminal_selection_format_buf(
                self._terminal._t[0], options[0], buffer, size, written
            )

        text: str = read_buf(write)
        return text


def _say_dark(terminal: Any, userdata: Any, scheme: Any) -> bool:  # noqa: ARG001 - ghostty's shape
    scheme[0] = lib.GHOSTTY_COLOR_SCHEME_DARK
    return True
