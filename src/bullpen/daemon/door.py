"""The daemon's socket, which is there as long as the daemon is.

Somebody may remove it: whoever cleans up in /tmp, or the system when a user logs out. The daemon
would live on, unreachable, and its lock would keep every other one from being started. So it looks
at its own door, and where there is none it makes one. Whoever came in by the old one stays.
"""

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from bullpen.api.peers import authorize_owner
from bullpen.api.runtime import Paths, prepare
from bullpen.connection import Builder, Listener, listen_unix
from bullpen.errors import BullpenError

__all__ = ["open_door"]

logger = logging.getLogger("bullpen.daemon")

LOOK_SECONDS = 5.0
MAX_UNSENT_BYTES = 16 * 2**20  # for a peer that does not read; a frame has at most as many

Told = Callable[[BullpenError | None], None]
"""Told why nobody can come in, and None when somebody can."""


@asynccontextmanager
async def open_door(
    paths: Paths, builder: Builder, told: Told, *, look_seconds: float = LOOK_SECONDS
) -> AsyncIterator[None]:
    """Serve the socket for the length of a block, and make it anew when it is gone.

    Raises:
        AddressError: it cannot be made now.
    """
    async with AsyncExitStack() as stack:
        door = _Door(paths, builder, stack)
        await door.open()
        watching = asyncio.create_task(door.watch(told, look_seconds), name="door")
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.wait([watching])


class _Door:
    def __init__(self, paths: Paths, builder: Builder, stack: AsyncExitStack) -> None:
        self._paths = paths
        self._builder = builder
        self._stack = stack
        self._identity: tuple[int, int] | None = None
        self._former: list[tuple[Listener, AsyncExitStack]] = []
        self._current: tuple[Listener, AsyncExitStack] | None = None

    async def open(self) -> None:
        path = self._paths.socket
        own = AsyncExitStack()
        listener = await own.enter_async_context(
            listen_unix(
                str(path),
                self._builder,
                authorize=authorize_owner,
                max_unsent_bytes=MAX_UNSENT_BYTES,
            )
        )
        self._stack.push_async_callback(own.aclose)  # which may be done twice
        if self._current is not None:
            self._former.append(self._current)
        self._current = listener, own
        self._identity = await asyncio.to_thread(_identity, path)

    async def watch(self, told: Told, look_seconds: float) -> None:
        while True:
            await asyncio.sleep(look_seconds)
            await self._close_former()
            found = await asyncio.to_thread(_identity, self._paths.socket)
            if found is not None and found == self._identity:
                continue
            try:
                await asyncio.to_thread(prepare, self._paths)
                await self.open()
            except BullpenError as error:
                told(error)
            else:
                logger.warning("%s was removed; it is there again", self._paths.socket)
                told(None)

    async def _close_former(self) -> None:
        """Let go of what nobody uses any more."""
        for former in tuple(self._former):
            listener, own = former
            if not listener.peers:
                self._former.remove(former)
                await own.aclose()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which socket is there, if there is any."""
    with contextlib.suppress(OSError):
        found = os.lstat(path)
        if stat.S_ISSOCK(found.st_mode):
            return found.st_dev, found.st_ino
    return None
