"""A program at a terminal of its own, and somebody who sits there."""

import os
import pty
import select
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PROGRAM", "Seat", "profile", "seat"]

PROGRAM = str(Path(sys.executable).with_name("bullpen"))
SECONDS = 60.0


class Seat:
    """A terminal in which a program was started."""

    def __init__(self, pid: int, descriptor: int, began: float) -> None:
        self.pid = pid
        self.began = began
        self._descriptor = descriptor

    def type(self, data: bytes) -> None:
        """Press keys."""
        os.write(self._descriptor, data)

    def read(self, most: int = 65536) -> bytes:
        """Return what is shown next; nothing at the end."""
        if not select.select([self._descriptor], [], [], SECONDS)[0]:
            raise AssertionError("nothing is shown any more")
        try:
            return os.read(self._descriptor, most)
        except OSError:  # the other end is closed
            return b""

    def until(self, wanted: bytes) -> float:
        """Read until something is shown; return when that was."""
        shown = b""
        while wanted not in shown:
            data = self.read()
            if not data:
                raise AssertionError(f"the program has ended: {shown!r}")
            shown = (shown + data)[-65536:]
        return time.perf_counter()

    def drain(self) -> tuple[int, float]:
        """Read to the end; return how many bytes that were, and when the last came."""
        total, last = 0, time.perf_counter()
        while data := self.read():
            total += len(data)
            last = time.perf_counter()
        return total, last


@contextmanager
def seat(command: Sequence[str], env: Mapping[str, str]) -> Iterator[Seat]:
    """Run a program in a terminal of its own for a block."""
    began = time.perf_counter()
    pid, descriptor = pty.fork()
    if pid == 0:
        try:
            os.execvpe(command[0], list(command), {**env, "TERM": "xterm-256color"})
        finally:
            os._exit(127)
    try:
        yield Seat(pid, descriptor, began)
    finally:
        os.close(descriptor)  # which hangs up
        end(pid)


def end(pid: int) -> None:
    """See to it that a child of ours has ended."""
    until = time.monotonic() + 5.0
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def profile(directory: Path, name: str, command: Sequence[str], *more: str) -> None:
    """Write the profile of a program that has no prompt; `more` are lines of it."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    words = ", ".join(f"'{each}'" for each in command)
    lines = (f"command = [{words}]", "idle_regex = 'no such thing$'", *more)
    (directory / f"{name}.toml").write_text("\n".join(lines) + "\n")
