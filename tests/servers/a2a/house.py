"""A real daemon with guests in it, for tests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bullpen.api.runtime import Paths, prepare
from bullpen.api.settings import Settings
from bullpen.daemon.main import Daemon
from bullpen.servers.a2a.room import OpenClient, Room
from tests.daemon.harness import Peer, settings

__all__ = ["SECONDS", "room_of_a_daemon"]

SECONDS = 20.0


@asynccontextmanager
async def room_of_a_daemon(**sections: Any) -> AsyncIterator[tuple[Room, Peer]]:
    """Run a daemon for a block, and be in its room as a server beside it is."""
    opened: asyncio.Future[Room] = asyncio.get_running_loop().create_future()

    async def companion(open_client: OpenClient, _: Paths, __: Settings) -> None:
        async with Room.open(open_client) as room:
            opened.set_result(room)
            await asyncio.Event().wait()

    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    async with Daemon(settings(**sections), paths, companions=[companion]):
        async with asyncio.timeout(SECONDS):
            room = await opened
        yield room, Peer(paths.socket)
