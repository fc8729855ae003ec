"""Waiting for the next time that something happens."""

import asyncio
import contextlib

__all__ = ["Pulse"]


class Pulse:
    """Wakes everybody who waits, each time it beats."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()

    def beat(self) -> None:
        """Wake whoever waits now."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, seconds: float | None = None) -> bool:
        """Wait for the next beat; return whether it came in time."""
        if seconds is not None and seconds <= 0:
            await asyncio.sleep(0)
            return False
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await waiter
                return True
            return False
        finally:
            self._waiters.discard(waiter)
