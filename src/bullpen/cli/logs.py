"""`bullpen logs`: what a wrapped agent wrote, as plain text."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import click

from bullpen.api.runtime import Paths
from bullpen.api.talk import ReadOutput
from bullpen.cli.calls import ask, daemon_paths
from bullpen.cli.speaking import NOBODY, refusals

__all__ = ["command"]

LOOK_SECONDS = 0.2  # nothing tells when a file has grown that works everywhere
READ_BYTES = 2**16


def complete_logs(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """Return the agents whose names begin so and that have a log."""
    logs = Paths.resolve().agent_logs.glob("*.log")
    names = (path.stem for path in logs if path.stem not in _OURS)
    return sorted(name for name in names if name.startswith(incomplete))


_OURS = ("wrapper", "input_router")  # our own, beside those of agents


@click.command(name="logs")
@click.argument("agent", shell_complete=complete_logs)
@click.option("-f", "--follow", is_flag=True, help="Go on until the agent has ended.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0),
    default=50,
    show_default=True,
    metavar="LINES",
    help="How many of the newest lines to print.",
)
@click.pass_context
def command(context: click.Context, *, agent: str, follow: bool, lines: int) -> None:
    """Print what a wrapped agent wrote last, without how it was painted.

    Agents that bullpen start has started keep a log, which is there after their end. Of one that
    runs in somebody's terminal, the newest ten thousand bytes are known.

    \b
    Examples:
      bullpen logs reviewer
      bullpen logs reviewer -f
      bullpen logs reviewer -n 1000 | grep -i error

    \b
    Exit codes:
      0  printed
      1  the log cannot be read
      2  wrong usage
      4  there is no such agent, or nothing is known of what it wrote
    """  # noqa: D301 - click wants the character, not its name
    from bullpen.wrapper import reach

    paths = daemon_paths()
    known = reach.read(paths, agent)
    path = Path(known.log) if known and known.log else paths.agent_logs / f"{Path(agent).name}.log"
    if not path.exists():
        _print_newest(context, agent, lines, is_there=known is not None and known.is_running)
        return
    with path.open("rb") as file:
        for line in deque(_all_lines(path, file), maxlen=lines):
            click.echo(line, nl=False)
        if follow:
            _follow(path, file, lambda: known is not None and known.is_running)


def _print_newest(context: click.Context, agent: str, lines: int, *, is_there: bool) -> None:
    if not is_there:
        click.echo(f"bullpen: nothing is known of what {agent!r} wrote", err=True)
        context.exit(NOBODY)
    with refusals(context):
        text = ask(ReadOutput(agent)).text
    for line in text.splitlines()[-lines:] if lines else ():
        click.echo(line)


def _all_lines(path: Path, file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of the file that was put aside, and of this one."""
    before = path.with_name(f"{path.name}.1")
    if before.exists():
        with before.open("rb") as former:
            yield from former
    yield from file


def _follow(path: Path, file: IO[bytes], is_running: Callable[[], bool]) -> None:
    """Print what is added, also after the file was put aside, until nothing can be added."""
    is_last = False
    while True:
        while data := file.read(READ_BYTES):
            click.echo(data, nl=False)
        if _is_aside(path, file):
            with path.open("rb") as following:
                _follow(path, following, is_running)
            return
        if is_last:
            return
        is_last = not is_running()  # then it is read once more
        if not is_last:
            time.sleep(LOOK_SECONDS)


def _is_aside(path: Path, file: IO[bytes]) -> bool:
    try:
        return not os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:  # the next one is not begun yet
        return False
