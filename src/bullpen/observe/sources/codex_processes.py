"""Codex's processes: which of them has a session file open, and which is a server.

Codex keeps the file of a thread open as long as it runs it, so who has it open runs it. That can be
seen on Linux; elsewhere nobody is found, and nothing is concluded from it. All of it blocks.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

import msgspec

from bullpen.agents.providers.codex.paths import is_rollout

__all__ = ["PROC", "CodexProcess", "CodexProcesses"]

PROC: Final = Path("/proc")
_NAME: Final = b"codex"
_SERVER: Final = b"app-server"
_DEAD: Final = (b"Z", b"X", b"x")


class CodexProcess(msgspec.Struct, frozen=True):
    """A process of Codex. Its number and its start together are never another's."""

    pid: int
    start: str
    """As the system counts it."""
    is_server: bool = False
    """It runs threads for others, and has no terminal that is theirs."""


class CodexProcesses:
    """Looks for them, where that is possible."""

    def __init__(self, proc: Path = PROC) -> None:
        self._proc = proc

    @property
    def can_tell(self) -> bool:
        """Whether it can be known at all who has a file open."""
        return (self._proc / "self" / "fd").exists()

    def holders(self) -> dict[str, CodexProcess]:
        """Return who has which session files open."""
        found: dict[str, CodexProcess] = {}
        for pid in _numbers(self._proc):
            with contextlib.suppress(
                OSError, ValueError, IndexError
            ):  # it has ended, or is another's
                if _NAME in (self._proc / pid / "comm").read_bytes():
                    process = self._read(pid)
                    found |= dict.fromkeys(self._rollouts(pid), process)
        return found

    def find(self, pid: int) -> CodexProcess | None:
        """Return a process, whatever it runs, if it can be seen."""
        try:
            return self._read(str(pid))
        except (OSError, ValueError, IndexError):
            return None

    def is_alive(self, process: CodexProcess) -> bool:
        """Whether a process goes on."""
        try:
            return self._start(str(process.pid)) == process.start
        except (OSError, ValueError, IndexError):
            return False

    def _read(self, pid: str) -> CodexProcess:
        words = (self._proc / pid / "cmdline").read_bytes().split(b"\0")
        return CodexProcess(int(pid), self._start(pid), _SERVER in words)

    def _start(self, pid: str) -> str:
        """Return when a process started; nothing of one that has ended and is still listed."""
        stat = (self._proc / pid / "stat").read_bytes()
        state, *values = stat[stat.rindex(b")") + 2 :].split()
        return "" if state in _DEAD else values[18].decode()

    def _rollouts(self, pid: str) -> list[str]:
        directory = self._proc / pid / "fd"
        links: list[str] = []
        for number in _numbers(directory):
            with contextlib.suppress(OSError):  # it was closed
                links.append(os.readlink(directory / number))  # noqa: PTH115  (hundreds of them)
        return [link for link in links if is_rollout(link.rpartition("/")[2])]


def _numbers(directory: Path) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.isdecimal()]  # noqa: PTH208
    except OSError:
        return []
