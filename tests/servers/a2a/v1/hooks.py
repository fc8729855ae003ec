"""Those who are posted to, for tests: good ones and bad ones."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.servers.a2a.v1.guests import served

__all__ = ["HANGS", "Hook", "hooked"]

SECONDS = 30.0
HANGS = 0


class Hook:
    """Takes what is posted, or does not: it answers with each of the statuses, and then takes."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.got: list[tuple[dict[str, str], Any]] = []
        self.tries = 0
        self.url = self.location = ""
        self._news = asyncio.Condition()

    async def take(self, request: Request) -> Response:
        status = self.statuses.pop(0) if self.statuses else 200
        async with self._news:
            self.tries += 1
            self._news.notify_all()
        if status == HANGS:
            await asyncio.Event().wait()
        if status < 300:
            posted = dict(request.headers), await request.json()
            async with self._news:
                self.got.append(posted)
                self._news.notify_all()
        return Response(status_code=status, headers={"location": self.location})

    async def until(self, is_it: Callable[["Hook"], bool]) -> None:
        async with asyncio.timeout(SECONDS), self._news:
            await self._news.wait_for(lambda: is_it(self))

    async def told(self, state: str) -> None:
        """Wait until it was told last that its task is in a state."""
        await self.until(lambda hook: hook.states[-1:] == [state])

    @property
    def states(self) -> list[str]:
        """The states of the task that it was told, as they came."""
        said = [each.get("statusUpdate") or each.get("task") for _, each in self.got]
        return [each["status"]["state"].removeprefix("TASK_STATE_") for each in said if each]


@asynccontextmanager
async def hooked(*statuses: int) -> AsyncIterator[Hook]:
    """Have a hook for a block."""
    hook = Hook(*statuses)
    app = Starlette(routes=[Route("/hook", hook.take, methods=["POST"])])
    async with served(app) as url:
        hook.url = f"{url}hook"
        yield hook
