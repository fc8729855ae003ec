"""A daemon that a test starts: `daemon.py SOCKET WITNESS [die|kill|late|mute]`.

It notes its pid in WITNESS, takes the locks of a daemon, and serves until it is told to end.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from bullpen.api.runtime import Paths
from bullpen.api.start import ALREADY_RUNNING
from bullpen.daemon.lock import AlreadyRunning, InstanceLock
from bullpen.daemon.signals import stop_on_signals
from bullpen.testing.daemon import FakeDaemon


async def serve(socket: Path) -> None:
    with stop_on_signals() as stop:
        async with FakeDaemon(socket) as daemon:
            ends = [asyncio.ensure_future(each.wait()) for each in (stop, daemon.is_stopped)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for end in ends:
                end.cancel()


def main() -> int:
    socket, witness, *manner = sys.argv[1:]
    with Path(witness).open("a") as file:
        file.write(f"{os.getpid()} {os.getsid(0)} {Path.cwd()}\n")
    if manner == ["die"]:
        sys.stderr.write('{"level": "error", "event": "the disk is full"}\n')
        raise SystemExit("I cannot go on")
    if manner == ["kill"]:
        os.abort()
    paths = Paths.resolve(socket=socket)
    try:
        with InstanceLock(paths.lock), InstanceLock(paths.state_lock):
            if manner:
                sys.stdout.write("working on it\n")
                sys.stdout.flush()
                time.sleep({"late": 1, "mute": 30}[manner[0]])
            asyncio.run(serve(Path(socket)))
    except AlreadyRunning:
        return ALREADY_RUNNING
    return 0


sys.exit(main())
