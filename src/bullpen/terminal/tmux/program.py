"""The tmux program: where it is, which version, and one run of it."""

import asyncio
import os
import re
import shutil
from collections.abc import Mapping, Sequence

import msgspec

from bullpen.connection.errors import CommandNotFound
from bullpen.connection.transports.process import ChildProcess
from bullpen.terminal.tmux.errors import TmuxNotInstalled, TmuxTimeout

__all__ = ["Finished", "client_environment", "find_tmux", "parse_version", "run_tmux"]

# Where tmux is although a service manager or a desktop gave us no PATH worth the name.
USUAL_DIRECTORIES = ("/usr/local/bin", "/opt/homebrew/bin", "/opt/local/bin", "/usr/bin", "/bin")

_VERSION = re.compile(r"(\d+)\.(\d+)")


class Finished(msgspec.Struct, frozen=True):
    """What a run of the program left."""

    status: int
    output: bytes
    words: str  # what it said on stderr


def find_tmux(environment: Mapping[str, str]) -> str:
    """Return the program to run: `TMUX_BIN`, else tmux on the PATH or where it usually is.

    Raises:
        TmuxNotInstalled: there is none.
    """
    if named := environment.get("TMUX_BIN"):
        return named
    directories = [environment.get("PATH", ""), *USUAL_DIRECTORIES]
    found = shutil.which("tmux", path=os.pathsep.join(filter(None, directories)))
    if found is None:
        raise TmuxNotInstalled("tmux", "it is neither on the PATH nor where it usually is")
    return found


def client_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a client of ours, which is in no pane, wherever we run."""
    return {key: value for key, value in environment.items() if key not in ("TMUX", "TMUX_PANE")}


def parse_version(text: str) -> tuple[int, int] | None:
    """Return the numbers in `tmux 3.3a`; None for a build from somebody's own sources."""
    found = _VERSION.search(text)
    if found is None or "openbsd" in text:  # which counts by releases of the system
        return None
    return int(found[1]), int(found[2])


async def run_tmux(
    executable: str,
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_seconds: float,
    target: str = "",
) -> Finished:
    """Run the program to its end, which comes by force when the time is up.

    Raises:
        TmuxNotInstalled: it cannot be run.
        TmuxTimeout: it did not end in time.
    """
    loop = asyncio.get_running_loop()
    exited: asyncio.Future[None] = loop.create_future()
    ended: asyncio.Future[None] = loop.create_future()
    output: list[bytes] = []
    try:
        process = await ChildProcess.spawn(
            [executable, *arguments],
            env=client_environment(environment),
            cwd=None,
            on_exit=lambda: _settle(exited),
        )
    except CommandNotFound as error:
        raise TmuxNotInstalled(executable, error) from error
    try:
        process.close_stdin()
        process.drain_stdout(output.append, lambda: _settle(ended))
        async with asyncio.timeout(timeout_seconds):
            await exited
            await ended
    except TimeoutError as error:
        command = next((word for word in arguments if not word.startswith("-")), "tmux")
        raise TmuxTimeout(command, timeout_seconds, target=target) from error
    finally:
        words = process.stderr_tail.strip()
        status = process.status
        process.release()
        if status is None:
            await process.wait(timeout_seconds)
    return Finished(status or 0, b"".join(output), words)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
