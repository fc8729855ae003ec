"""Takes a lock, says so, and holds it until its stdin ends: `holder.py LOCK`."""

import sys
from pathlib import Path

from bullpen.daemon.lock import AlreadyRunning, InstanceLock


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


try:
    with InstanceLock(Path(sys.argv[1])):
        say("locked")
        sys.stdin.read()
except AlreadyRunning as error:
    say(f"refused {error.pid}")
