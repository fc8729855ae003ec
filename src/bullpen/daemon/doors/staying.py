"""Staying connected to a server that may be lost, and may be gone for good."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from bullpen.terminal.tmux.backoff import Backoff

__all__ = ["stay_connected"]

STEADY_SECONDS: Final = 10.0  # a server that was there for so long is not one that fails at once


async def stay_connected(
    connect: Callable[[], Awaitable[None]],
    *,
    was_connected: Callable[[], bool],
    most_failures: int,
) -> None:
    """Connect again and again, with growing pauses, until that has failed too often in a row.

    `connect` returns when the connection is lost, or there was none to be had.
    """
    pauses, failures = Backoff(), 0
    loop = asyncio.get_running_loop()
    while failures < most_failures:
        began = loop.time()
        await connect()
        if was_connected() and loop.time() - began >= STEADY_SECONDS:
            pauses.succeeded()
            failures = 0
        failures += 1
        pauses.failed(loop.time())
        await asyncio.sleep(pauses.pause_seconds)
