"""Calling what blocks, from a look that may be given up."""

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BlockingLook"]

Found = TypeVar("Found")


class BlockingLook(Generic[Found]):
    """A function that reads the world in a thread, never twice at the same time.

    A thread cannot be cancelled. Whoever gives up waiting for one (a file system that hangs) gets
    what it found at the next try, so that nothing is read and then forgotten.
    """

    def __init__(self, function: Callable[[], Found]) -> None:
        self._function = function
        self._running: asyncio.Future[Found] | None = None

    async def result(self) -> Found:
        """Return what the function returns, or raise what it raises."""
        if self._running is None:
            loop = asyncio.get_running_loop()
            self._running = loop.run_in_executor(None, self._function)
        running = self._running
        try:
            found = await asyncio.shield(running)
        finally:
            if running.done():
                self._running = None
        return found
