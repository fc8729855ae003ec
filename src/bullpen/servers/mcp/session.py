"""A peer that the SDK serves: what it says goes there in order, and what comes back is told apart.

Nothing here needs the SDK: until it is there, what is said waits.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from bullpen.connection import RpcError
from bullpen.servers.mcp.tools import Tools

__all__ = ["Said", "Session"]

MOST_UNREAD = 1024


class Said(NamedTuple):
    """Something for the SDK; with a number, it is to be answered."""

    number: int | None
    method: str
    params: dict[str, Any] | None


class Session:
    """One peer's conversation with the SDK's server."""

    def __init__(self, tools: Tools, notify: Callable[[str, Any], Awaitable[None]]) -> None:
        self.tools = tools
        self.notify = notify
        """Tells the peer something."""
        self.unread: asyncio.Queue[Said] = asyncio.Queue(MOST_UNREAD)
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    async def request(self, method: str, params: dict[str, Any] | None) -> Any:
        """Return what the SDK answers. It hears of requests in the order of these calls.

        Raises:
            RpcError: it answered with an error.
        """
        # Under a number of ours: a peer may write its id as it likes, even twice the same.
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            await self._say(Said(number, method, params))
            return await answer
        except asyncio.CancelledError:
            cancelled = Said(None, "notifications/cancelled", {"requestId": number})
            if not self.unread.full():  # else it will be closed, or answered into the void
                self.unread.put_nowait(cancelled)
            raise
        finally:
            del self._waiting[number]

    async def tell(self, method: str, params: dict[str, Any] | None) -> None:
        """Have the SDK hear a notification."""
        await self._say(Said(None, method, params))

    def settle(self, number: object, result: Any = None, error: RpcError | None = None) -> None:
        """Take the SDK's answer to a request."""
        answer = self._waiting.get(number) if isinstance(number, int) else None
        if answer is None or answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    async def _say(self, said: Said) -> None:
        if self.unread.full():
            await self.unread.put(said)
        else:
            self.unread.put_nowait(said)  # without giving others a chance to go before
