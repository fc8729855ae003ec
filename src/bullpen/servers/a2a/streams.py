"""Following a task as a stream of events: what is said, each status, and the end."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from bullpen.api.errors import DaemonUnavailable
from bullpen.model.tasks import Task
from bullpen.servers.a2a.room import Output, Room

__all__ = ["events"]

KEEP_ALIVE_SECONDS = 15.0

View = Callable[[Task], dict[str, Any]]
"""Shows a task."""


async def events(room: Room, task_id: str, view: View) -> AsyncIterator[bytes]:
    """Yield what becomes of a task: `output`, `status`, and `done` at its end."""
    status = ""
    async with contextlib.aclosing(room.watch(task_id)) as watched:
        following: asyncio.Future[Task | Output] | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(watched))
                await asyncio.wait([following], timeout=KEEP_ALIVE_SECONDS)
                if not following.done():
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


def _event(**said: Any) -> bytes:
    return b"data: " + msgspec.json.encode(said) + b"\n\n"
