"""Runs until it is asked to stop, and says why: `stopper.py [with_parent] [stubborn]`."""

import asyncio
import sys

from bullpen.daemon.signals import stop_on_signals


def say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


async def main() -> None:
    with stop_on_signals(with_parent="with_parent" in sys.argv) as stop:
        say("ready")
        say(await stop.wait())
        if "stubborn" in sys.argv:
            await asyncio.Event().wait()


asyncio.run(main())
