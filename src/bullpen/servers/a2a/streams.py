"""Following a task as a stream of events: what is written and said, each status, and the end.

What a program writes line by line is told as it is written, by its absolute place in all that the
program wrote: so nothing is told twice, and how much there was before does not matter. Programs
that paint a screen tell what they say themselves.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.talk import Contact, ReadOutputReply
from bullpen.connection import RequestTimeout, RpcError
from bullpen.model.states import Provider
from bullpen.model.tasks import Task
from bullpen.servers.a2a.room import Output, Room

__all__ = ["Tails", "events"]

KEEP_ALIVE_SECONDS = 15.0
LOOK_SECONDS = 0.2

View = Callable[[Task], dict[str, Any]]
"""Shows a task."""


class Tails:
    """The newest of what agents wrote: many who follow share one look."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self._looks: dict[str, asyncio.Task[ReadOutputReply | None]] = {}

    async def read(self, agent: str) -> ReadOutputReply | None:
        """Return it as it is at some time after this was asked; None if nobody can tell."""
        look = self._looks.get(agent)
        if look is None:
            look = self._looks[agent] = asyncio.create_task(self._look(agent))
        return await asyncio.shield(look)

    async def _look(self, agent: str) -> ReadOutputReply | None:
        await asyncio.sleep(0)  # who asks in the same moment is served by this look
        del self._looks[agent]
        try:
            return await self._room.output(agent)
        except (RpcError, RequestTimeout, DaemonUnavailable):
            return None


async def events(
    room: Room, tails: Tails, task_id: str, contact: Contact, view: View
) -> AsyncIterator[bytes]:
    """Yield what becomes of a task: `output`, `status`, and `done` at its end."""
    is_plain = contact.is_wrapped and contact.provider is Provider.OTHER
    written = _Written(tails, contact.name) if is_plain else None
    status, quiet = "", 0.0
    async with contextlib.aclosing(room.watch(task_id)) as watched:
        following: asyncio.Future[Task | Output] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(watched))
                pause = KEEP_ALIVE_SECONDS if written is None else LOOK_SECONDS
                await asyncio.wait([following], timeout=pause)
                if written is not None and (text := await written.more()):
                    quiet = 0.0
                    yield _event(type="output", data=text)
                if not following.done():
                    quiet += pause
                    if quiet >= KEEP_ALIVE_SECONDS:
                        quiet = 0.0
                        yield b": still here\n\n"  # so that who is gone is found out
                    continue
                told, following = following.result(), None
                if isinstance(told, Output):
                    yield _event(type="output", data=told.text)
                    continue
                shown = view(told)
                if told.state.is_over:
                    failed = {"error": shown["error"]} if "error" in shown else {}
                    artifacts = shown["artifacts"]
                    yield _event(type="done", status=told.state, artifacts=artifacts, **failed)
                    return
                if shown["status"] != status:
                    status = shown["status"]
                    yield _event(type="status", status=status)
        except DaemonUnavailable:
            yield _event(type="error", message="the daemon is ending; follow the task again later")
        finally:
            if following is not None:
                following.cancel()
                await asyncio.wait([following])


class _Written:
    """What one agent has written since the last look."""

    def __init__(self, tails: Tails, agent: str) -> None:
        self._tails = tails
        self._agent = agent
        self._end: int | None = None

    async def more(self) -> str:
        found = await self._tails.read(self._agent)
        if found is None:
            return ""
        before, self._end = self._end, found.end
        new = found.end - before if before is not None else 0
        return found.text.encode()[-new:].decode(errors="ignore") if new > 0 else ""


def _event(**said: Any) -> bytes:
    return b"data: " + msgspec.json.encode(said) + b"\n\n"
