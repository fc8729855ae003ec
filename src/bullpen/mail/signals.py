"""Telling those who wait that something about a message or a mailbox became different."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["Signals"]

T = TypeVar("T")


class Signals:
    """Wakes who waits for a key: the id of a message, or the name of a mailbox."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}
        self.on_told: Callable[[str], None] = lambda _: None
        """Told every key, too."""

    def tell(self, *keys: str) -> None:
        """Wake everybody who waits for one of these."""
        for key in keys:
            self.on_told(key)
            for event in self._waiting.get(key, ()):
                event.set()

    async def wait(
        self, key: str, look: Callable[[], Awaitable[T | None]], seconds: float
    ) -> T | None:
        """Look until there is something to be seen, or the time is over; look once in any case.

        What is told while somebody looks is looked at again: nothing is missed. A look is never
        cut short: what it takes would be lost.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        event = asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        try:
            while True:
                event.clear()
                found = await look()
                if found is not None or loop.time() >= deadline:
                    return found
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await event.wait()
        finally:
            waiting = self._waiting[key]
            waiting.discard(event)
            if not waiting:
                del self._waiting[key]
