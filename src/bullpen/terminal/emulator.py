"""The port of a terminal without glass: bytes of a program in, the screen it painted out.

However the bytes are cut, the screen is the same, and no bytes are an error: a terminal shows what
it understands and skips the rest. Beside the screen an emulator knows the modes the program asked
for, and what a terminal would have answered to its questions. Whoever stands between a program and
a real terminal drops these answers: there the terminal gives its own.
"""

from typing import Protocol

import msgspec

from bullpen.terminal.rules.screen import Screen

__all__ = ["Emulator", "Modes", "bounded"]

MAX_CELLS = 1000  # a side of a screen; what asks for more is not a terminal but an attack


class Modes(msgspec.Struct, frozen=True):
    """What the program asked of its terminal, as far as it matters to those who type."""

    bracketed_paste: bool = False
    alternate_screen: bool = False
    mouse: bool = False
    focus_events: bool = False
    application_cursor: bool = False


class Emulator(Protocol):
    """A screen that a program paints."""

    @property
    def modes(self) -> Modes:
        """What the program has asked for and not taken back."""

    def feed(self, data: bytes) -> None:
        """Take what the program wrote. Never raises, whatever it is."""

    def resize(self, columns: int, rows: int) -> None:
        """Give the screen another size."""

    def screen(self) -> Screen:
        """What it shows now, with tones."""

    def history(self) -> tuple[str, ...]:
        """The lines that have left the screen at its top, oldest first, as many as are kept."""

    def painted(self, row: int) -> str:
        """A row of the screen as it can be shown on a terminal, with its attributes."""

    def take_answers(self) -> bytes:
        """What a terminal would have written back since the last time."""

    def close(self) -> None:
        """Let go of all it holds. It is not used afterwards."""


def bounded(columns: int, rows: int) -> tuple[int, int]:
    """A size that a terminal can have."""
    return min(max(columns, 2), MAX_CELLS), min(max(rows, 1), MAX_CELLS)
