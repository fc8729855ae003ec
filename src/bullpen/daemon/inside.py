"""Ways to the daemon from within its own process, for servers that run beside it."""

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from bullpen.api.client import Client
from bullpen.api.runtime import Paths
from bullpen.api.settings import Settings
from bullpen.connection import Builder
from bullpen.connection.transports.channel import ChannelTransport

__all__ = ["Companion", "InsideTransport", "OpenClient", "open_inside"]


class OpenClient(Protocol):
    """Opens a way to the daemon in the name of a process, or of a peer from outside.

    The process is told by its number, 0 if it is not known. A peer is never the user; one that is
    trusted with it may do what a boss may.
    """

    def __call__(
        self, pid: int, *, peer: str = "", is_boss: bool = False
    ) -> AbstractAsyncContextManager[Client]: ...


Companion = Callable[[OpenClient, Paths, Settings], Coroutine[Any, Any, None]]
"""Serves beside the daemon, which it knows through a client, until it is cancelled."""


class InsideTransport(ChannelTransport):
    """The daemon's end of such a way; at the other is who speaks for the process, or the peer."""

    def __init__(self, pid: int, *, peer: str = "", is_boss: bool = False) -> None:
        super().__init__()
        self.pid = pid
        self.peer = peer
        self.is_boss = is_boss


@asynccontextmanager
async def open_inside(
    builder: Builder, pid: int, *, peer: str = "", is_boss: bool = False
) -> AsyncIterator[Client]:
    """Speak to what a builder describes, for a block, in the name of a process or of a peer."""
    here, there = ChannelTransport(), InsideTransport(pid, peer=peer, is_boss=is_boss)
    here.join(there)
    async with builder.connect(there), Client.over(here) as client:
        yield client
