"""A child of a supervisor: `child.py WITNESS MANNER --socket-path SOCKET`.

It notes its pid in WITNESS, and serves `source.pull_events` in one of these manners:
well, stubborn (minding neither signals nor the end of its stdin), family (with a child of its own),
crash (at once), silent (it never serves), chatty (saying something on stderr first).
"""

import asyncio
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from bullpen.api.methods import PullEvents, PullReply
from bullpen.connection import Connection, listen_unix
from bullpen.daemon.signals import stop_on_signals
from bullpen.model.sources import SourceHealth
from bullpen.model.states import HealthStatus


def pull(*_: object) -> PullReply:
    now = datetime.now(UTC)
    health = SourceHealth(status=HealthStatus.HEALTHY, checked_at=now)
    return PullReply(events=(), next_cursor="0", heartbeat_ts=now, source_health=health)


async def serve(path: str, manner: str) -> None:
    builder = Connection.builder().on_request(PullEvents, pull)
    with stop_on_signals(with_parent=True) as stop:
        if manner == "stubborn":
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_IGN)
        async with listen_unix(path, builder):
            if manner == "stubborn":
                await asyncio.Event().wait()
            await stop.wait()


def main() -> None:
    witness, manner, _, path = sys.argv[1:]
    family = ""
    if manner == "family":
        family = str(subprocess.Popen([sys.executable, "-Ic", "import time; time.sleep(60)"]).pid)
    with Path(witness).open("a") as file:
        file.write(f"{os.getpid()} {os.getpgrp()} {Path.cwd()} {family}\n")
    if manner == "crash":
        raise SystemExit("there is no such thing")
    if manner == "chatty":
        sys.stderr.write(
            'a plain line\n{"level": "error", "event": "seen", "logger": "bullpen.observe",'
            ' "pane": "%1", "message": "x", "timestamp": "never"}\n{"level": 3}\n'
        )
        sys.stderr.flush()
    if manner == "silent":
        asyncio.run(asyncio.sleep(60))
    asyncio.run(serve(path, manner))


main()
