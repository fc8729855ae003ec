"""Following the daemon, also over its end: what it tells, and when it cannot be heard.

The first daemon is started if there is none, as by any command. Later a daemon that has crashed is
started again; one that somebody has ended is not, until somebody asks for it. They are told apart
by the socket, which only a crash leaves behind.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import msgspec

from bullpen.api.client import Client, Told
from bullpen.api.errors import DaemonStartError
from bullpen.api.runtime import Paths
from bullpen.errors import BullpenError

__all__ = ["Connected", "Heard", "Lost", "follow"]

FIRST_PAUSE_SECONDS = 0.3  # enough for a daemon that ends in order to remove its socket
LONGEST_PAUSE_SECONDS = 2.0


class Connected(msgspec.Struct, frozen=True):
    """There is a daemon, and what it tells comes next."""

    client: Client


class Lost(msgspec.Struct, frozen=True):
    """There is no daemon now. It is looked for again until there is."""

    reason: str


Heard = Connected | Lost | Told


async def follow(paths: Paths, asked: asyncio.Event) -> AsyncGenerator[Heard, None]:
    """Yield what is heard, without an end. `asked` is set by whoever wants a daemon started."""
    may_start, pause = True, FIRST_PAUSE_SECONDS
    while True:
        has_failed = False
        try:
            async with Client.connect(paths, start=may_start) as client:
                pause = FIRST_PAUSE_SECONDS
                yield Connected(client)
                telling = client.subscribe()
                assert isinstance(telling, AsyncGenerator)
                async with aclosing(telling):
                    async for told in telling:
                        yield told
            reason = "the daemon is gone"
        except DaemonStartError as error:
            reason, has_failed = str(error), True
        except BullpenError as error:
            reason = str(error)
        yield Lost(reason)
        is_asked = await _is_set_within(asked, pause)
        asked.clear()
        has_crashed = await asyncio.to_thread(os.path.lexists, paths.socket)
        may_start = is_asked or (has_crashed and not has_failed)
        pause = min(pause * 2, LONGEST_PAUSE_SECONDS)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
