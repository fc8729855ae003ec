"""Whether a process is still the one it was: its id may be another's by now, its start cannot.

On Linux it is read from /proc, elsewhere `ps` is run. What only `ps` is needed for is here, too.
With the standard library alone, as a wrapper asks it on its way to start a program.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["is_running", "is_stopped", "parents", "start_of"]

PS_SECONDS = 5.0
DEAD = b"ZXx"  # it has ended, and is listed only until somebody takes notice

_PROC = Path("/proc")


def is_running(pid: int, start: str = "") -> bool:
    """Whether a process is there; with its start, whether it is that one.

    One of somebody else, whom we may not signal, is there.
    """
    if pid <= 0:  # these are groups, or everybody
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    found = start_of(pid)
    if found is None:
        return True
    return bool(found) and start in ("", found)


def start_of(pid: int) -> str | None:
    """When a process started, as the system counts it; empty if it ended, None if nobody tells."""
    return _by_proc(pid) if sys.platform.startswith("linux") else _by_ps(pid)


def _by_proc(pid: int) -> str | None:
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
        # The name in parentheses may contain both spaces and parentheses.
        state, *values = stat[stat.rindex(b")") + 2 :].split()
    except (FileNotFoundError, ProcessLookupError):
        return None if _is_hidden(pid) else ""
    except (OSError, ValueError):
        return None
    return "" if state in DEAD else values[18].decode()


def _is_hidden(pid: int) -> bool:
    """Whether it is there all the same: the system may hide the processes of others."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


def _by_ps(pid: int) -> str | None:
    said = _ps("-o", "state=", "-o", "lstart=", "-p", str(pid))
    if said is None:
        return None
    state, _, start = said.strip().partition(" ")
    return "" if state[:1] in ("", "Z") else " ".join(start.split())


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, and waits to be let go on, as `ps` tells it."""
    return (_ps("-o", "state=", "-p", str(pid)) or "").strip().startswith("T")


def parents() -> dict[int, int]:
    """Return the parent of every process, as `ps` tells it; nothing if it does not."""
    rows = [line.split() for line in (_ps("-ax", "-o", "pid=", "-o", "ppid=") or "").splitlines()]
    numbers = [row for row in rows if len(row) == 2 and all(map(str.isdecimal, row))]
    return {int(pid): int(parent) for pid, parent in numbers}


def _ps(*arguments: str) -> str | None:
    ps = shutil.which("ps", path="/bin:/usr/bin") or "ps"
    try:
        done = subprocess.run(
            [ps, *arguments],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=PS_SECONDS,
            check=False,
            env={"LC_ALL": "C", "TZ": "UTC"},  # dates are compared as texts
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")
