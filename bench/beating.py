"""A daemon whose event loop is listened to: `python -m bench.beating SOCKET`.

It is the daemon with nothing but defaults, and beside it a task that wants to run every
millisecond. Who connects to the socket and sends a line is told how long it was kept from that at
worst since the last time, on the wall and by the loop's own work, in seconds.
"""

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from bullpen.api.options import DaemonOptions
from bullpen.daemon.main import run
from bullpen.servers.a2a.serve import serve as serve_a2a
from bullpen.servers.mcp import serve

__all__ = ["Heart", "longest_block"]

BEAT_SECONDS = 0.001


class Heart:
    """Wants to run every millisecond, and notes by how much it is late."""

    def __init__(self) -> None:
        self._late: list[tuple[float, float]] = []

    async def beat(self) -> None:
        """Beat until cancelled."""
        while True:
            began, used = time.perf_counter(), time.thread_time()
            await asyncio.sleep(BEAT_SECONDS)
            late = time.perf_counter() - began - BEAT_SECONDS
            self._late.append((late, time.thread_time() - used))

    async def tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Tell who asks, once."""
        await reader.readline()
        late, self._late = self._late, []
        worst = {
            "late": max((each for each, _ in late), default=0.0),
            "work": max((each for _, each in late), default=0.0),
        }
        writer.write(json.dumps(worst).encode() + b"\n")
        await writer.drain()
        writer.close()


async def accompany(*_: Any) -> None:
    """Beat beside a daemon, until it ends."""
    heart = Heart()
    async with await asyncio.start_unix_server(heart.tell, sys.argv[1]):
        await heart.beat()


async def longest_block(socket: Path) -> dict[str, float]:
    """Ask a daemon of this kind how long its loop was blocked since we last asked."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    writer.write(b"\n")
    worst: dict[str, float] = json.loads(await reader.readline())
    writer.close()
    return worst


if __name__ == "__main__":
    sys.exit(run(DaemonOptions(foreground=False), [serve, serve_a2a, accompany]))
