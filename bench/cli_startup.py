"""What it costs to run a command, beside a Python that does nothing.

Each command runs as the installed program, in a process of its own, against a fake daemon in
another: from the first instruction to the last, by the processor time the system counted for it.
The daemon's own share is not in it. Bytecode is compiled beforehand, as after any first run.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure

__all__ = ["run"]

AGENTS = 10
PROGRAM = str(Path(sys.executable).with_name("bullpen"))
BARE = (sys.executable, "-c", "pass")
QUICK_COMMAND = 3.0
COMMAND = 12.0


async def run(quick: bool) -> list[Figure]:
    runs = 2 if quick else 40
    with tempfile.TemporaryDirectory(prefix="bench-") as directory, daemon(directory) as socket:
        commands = {
            "bullpen --version": ((PROGRAM, "--version"), QUICK_COMMAND),
            "bullpen tmux-status": ((PROGRAM, "tmux-status", "-s", socket), QUICK_COMMAND),
            f"bullpen ls, {AGENTS} agents": ((PROGRAM, "ls", "-s", socket), COMMAND),
        }
        words = {what: command for what, (command, _) in commands.items()} | {"": BARE}
        best = dict.fromkeys(words, float("inf"))
        for _ in range(runs + 1):  # the first warms up
            for what, command in words.items():
                best[what] = min(best[what], seconds_of(command))
    return [
        Figure(
            row="cli-startup",
            what=what,
            ours=best[what] * 1000,
            theirs=best[""] * 1000,
            unit="ms",
            against="python -c pass",
            at_most=target,
        )
        for what, (_, target) in commands.items()
    ]


def seconds_of(command: tuple[str, ...]) -> float:
    """Return the processor time of a command from its start to its end."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        pid = os.posix_spawn(
            command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, nothing, 1)]
        )
    finally:
        os.close(nothing)
    _, status, used = os.wait4(pid, 0)
    if status != 0:
        raise AssertionError(f"{' '.join(command)} ended with {status}")
    return used.ru_utime + used.ru_stime


@contextmanager
def daemon(directory: str) -> Iterator[str]:
    """Serve some agents at a socket, from a process of its own."""
    socket = f"{directory}/d.sock"
    command = [sys.executable, "-m", "bullpen.testing.daemon", socket, "--agents", str(AGENTS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield socket
        finally:
            process.terminate()
