"""What the rows about observing share: a daemon of its own, and somebody who follows it."""

import asyncio
import json
import math
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bullpen.testing.tmux import PrivateTmux

__all__ = ["AGENT", "IDLE", "RUNNING", "WAITING", "Follower", "daemon", "environment", "percentile"]

SECONDS = 30.0
LINE_LIMIT = 16 * 2**20

# What the screens of an agent look like: the least that is read as such.
BOX = "─" * 60
IDLE = f"{BOX}\r\n❯ \r\n{BOX}\r\n  ? for shortcuts\r\n"
RUNNING = f"✻ Pondering… (5s · ↓ 12 tokens · esc to interrupt)\r\n\r\n{IDLE}"
WAITING = (
    f"{BOX}\r\n Bash command\r\n\r\n   touch made.txt\r\n\r\n Do you want to proceed?\r\n"
    " ❯ 1. Yes\r\n   2. No\r\n\r\n Esc to cancel · Tab to amend\r\n"
)
AGENT = "stty raw -echo; exec -a claude cat >/dev/null"
"""A program by an agent's name, which shows what is written to its terminal."""


class Follower:
    """Follows a daemon as anybody can: by lines of JSON at its socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def ask(self, method: str, **params: Any) -> Any:
        """Return what the daemon answers; what it tells meanwhile is not kept."""
        request = {"id": 1, "method": method, "params": params}
        self._writer.write(json.dumps(request).encode() + b"\n")
        async with asyncio.timeout(SECONDS):
            while True:
                told = json.loads(await self._reader.readline())
                if "id" in told:
                    return told["result"]

    async def until(self, activity: str) -> None:
        """Wait until an agent is told to have begun something."""
        async with asyncio.timeout(SECONDS):
            while True:
                told = json.loads(await self._reader.readline())
                change = told.get("params", {}).get("change") or {}
                agent = change.get("agent") or {}
                if change.get("previous_activity") and agent.get("activity") == activity:
                    return


@asynccontextmanager
async def daemon(tmux: PrivateTmux | None = None) -> AsyncIterator[tuple[int, Path, Follower]]:
    """Run the daemon as a process, with nothing but defaults, in a home of its own.

    Yields its pid, its home and somebody who speaks with it.
    """
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as directory:
        home = Path(directory)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "bullpen", "daemon", "--background"),  # as commands start it
            env=environment(home, tmux),
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            reader, writer = await connect(home / "bullpen/run/bullpend.sock", process)
            yield process.pid, home, Follower(reader, writer)
            writer.close()
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def environment(home: Path, tmux: PrivateTmux | None = None) -> dict[str, str]:
    """Return the variables of whoever lives in that home."""
    variables = {"HOME": str(home), "BULLPEN_HOME": str(home / "bullpen")}
    variables["BULLPEN_OBSERVE_TMUX_SOCKET"] = (
        tmux.target.socket_path if tmux else str(home / "no-tmux")
    )
    return {"PATH": os.environ.get("PATH", os.defpath), "LANG": "C.UTF-8", **variables}


async def connect(
    socket: Path, process: asyncio.subprocess.Process
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    async with asyncio.timeout(SECONDS):
        while process.returncode is None:
            try:
                return await asyncio.open_unix_connection(str(socket), limit=LINE_LIMIT)
            except OSError:
                await asyncio.sleep(0.05)
    raise AssertionError(f"the daemon ended with {process.returncode}")


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value that so many percent of them do not exceed."""
    ranked = sorted(values)
    return ranked[max(math.ceil(len(ranked) * percent / 100) - 1, 0)]
