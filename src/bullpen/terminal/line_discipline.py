"""What the kernel does on a terminal, for a program that is on one of its own.

It rubs out bytes unless it is told that text is UTF-8. And it stops nobody by Ctrl-Z whom no shell
in the session could let go on again, and a wrapped program is the first of its session: since its
wrapper has a shell, that one does what the key would do.
"""

import os
import re
import signal
import sys
import termios
from pathlib import Path

__all__ = ["SUSPEND_KEY", "edit_characters", "is_to_suspend"]

SUSPEND_KEY = b"\x1a"

IUTF8 = 0x4000  # of an input mode, on Linux and macOS; termios has no name for it

_IGNORED = re.compile(r"^SigIgn:\s*([0-9a-f]+)$", re.MULTILINE)


def edit_characters(terminal: int) -> None:
    """Have a terminal that edits lines rub out whole characters, not bytes of them."""
    modes = termios.tcgetattr(terminal)
    modes[0] |= IUTF8
    termios.tcsetattr(terminal, termios.TCSANOW, modes)


def is_to_suspend(terminal: int, pid: int) -> bool:
    """Whether the key, typed on the terminal of a program, would stop it if a shell had started it.

    It would not if the program reads keys itself, ignores the signal as shells do, or has another
    in front. Where it is not known what a program ignores, nobody is stopped. Reads a file.
    """
    if sys.platform != "linux":
        return False
    try:
        modes = termios.tcgetattr(terminal)
        is_a_key = modes[3] & termios.ISIG and modes[6][termios.VSUSP] == SUSPEND_KEY
        if not is_a_key or os.tcgetpgrp(terminal) != pid:
            return False
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except (OSError, termios.error):  # it has ended
        return False
    found = _IGNORED.search(status)
    return found is not None and not int(found[1], 16) >> (signal.SIGTSTP - 1) & 1
