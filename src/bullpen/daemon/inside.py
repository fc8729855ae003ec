"""Ways to the daemon from within its own process, for servers that run beside it."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from bullpen.api.client import Client
from bullpen.api.runtime import Paths
from bullpen.api.settings import Settings
from bullpen.connection import Builder
from bullpen.connection.transports.channel import ChannelTransport

__all__ = ["Companion", "InsideTransport", "OpenClient", "open_inside"]

OpenClient = Callable[[int], AbstractAsyncContextManager[Client]]
"""Opens a way to the daemon in the name of a process, by its number; 0 if it is not known."""

Companion = Callable[[OpenClient, Paths, Settings], Coroutine[Any, Any, None]]
"""Serves beside the daemon, which it knows through a client, until it is cancelled."""


class InsideTransport(ChannelTransport):
    """The daemon's end of such a way; at the other is who speaks for the process."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self.pid = pid


@asynccontextmanager
async def open_inside(builder: Builder, pid: int) -> AsyncIterator[Client]:
    """Speak to what a builder describes, for a block, in the name of a process."""
    here, there = ChannelTransport(), InsideTransport(pid)
    here.join(there)
    async with builder.connect(there), Client.over(here) as client:
        yield client
