"""The one process behind all Copilot sessions: started once, by whoever needs it first."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from bullpen.agents.providers.copilot.session import CopilotSession
from bullpen.connection.channel import Permit, SessionLimits
from bullpen.connection.closable import Closable
from bullpen.connection.errors import RouterStopped
from bullpen.connection.router import MessageRouter, RouterStats

__all__ = ["CopilotGateway"]

Start = Callable[[], Awaitable[MessageRouter]]


class CopilotGateway(Closable):
    """Opens sessions with one Copilot CLI server. Use it with `async with`.

    `start` makes the router, for example
    `lambda: MessageRouter.spawn(["copilot", "--headless", "--stdio"], over="stdio")`. It is called
    when the first session is wanted, and again when the server has died since.
    """

    def __init__(self, start: Start) -> None:
        self._start = start
        self._starting: asyncio.Task[MessageRouter] | None = None
        self._is_closed = False

    async def create_session(
        self,
        params: dict[str, Any] | None = None,
        *,
        permit: Permit | None = None,
        limits: SessionLimits | None = None,
    ) -> CopilotSession:
        """Open a session; `params` are those of `session.create`.

        Raises:
            StartError: the server did not come up.
            RouterError: it did, but the session did not; `RouterStopped` after `aclose`.
        """
        router = await self._router()
        options: dict[str, Any] = {"permit": permit, "limits": limits or SessionLimits()}
        _, channel = await router.create_session(params, **options)
        return CopilotSession(router, channel, dict(params or {}), options)

    async def stats(self) -> RouterStats:
        """Return the figures of the router under all sessions."""
        return (await self._router()).stats()

    async def aclose(self) -> None:
        """End every session and the server. Nothing can be opened afterwards."""
        self._is_closed = True
        starting, self._starting = self._starting, None
        if starting is None:
            return
        starting.cancel()
        outcome = (await asyncio.gather(starting, return_exceptions=True))[0]
        if isinstance(outcome, MessageRouter):
            await outcome.aclose()

    async def _router(self) -> MessageRouter:
        if self._is_closed:
            raise RouterStopped
        if self._starting is None or self._is_over(self._starting):
            self._starting = asyncio.ensure_future(self._start())
        starting = self._starting
        # One caller that stops waiting must not end the start the others wait for.
        await asyncio.wait([starting])
        if starting.cancelled():
            raise RouterStopped
        return starting.result()

    @staticmethod
    def _is_over(starting: "asyncio.Task[MessageRouter]") -> bool:
        if not starting.done():
            return False
        return starting.cancelled() or bool(starting.exception()) or starting.result().is_stopped
