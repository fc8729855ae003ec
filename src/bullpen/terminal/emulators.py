"""Choosing an emulator: the best one that is installed."""

from bullpen.errors import BullpenError
from bullpen.terminal.emulator import Emulator

__all__ = ["EmulatorMissing", "open_emulator"]


class EmulatorMissing(BullpenError):
    """No library that emulates a terminal works here. Agents in tmux can be used without one."""

    def __init__(self) -> None:
        super().__init__("no terminal emulation is installed: pip install pyghostty, or pyte")


def open_emulator(columns: int, rows: int, *, history: int = 0) -> Emulator:
    """Return the best emulator that is installed; it keeps so many lines that left the screen.

    Its library is loaded here and not before: that takes half a second, which only those should
    pay who run programs on terminals of ours. A loop has a thread do it.

    Raises:
        EmulatorMissing: there is none.
    """
    try:
        from bullpen.terminal.ghostty import GhosttyEmulator
    except (ImportError, OSError):  # not installed, or without a library for this machine
        pass
    else:
        return GhosttyEmulator(columns, rows, history=history)
    try:
        from bullpen.terminal.pyte_screen import PyteEmulator
    except ImportError as error:
        raise EmulatorMissing from error
    return PyteEmulator(columns, rows, history=history)
