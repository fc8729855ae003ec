"""Telling those who watch tasks what becomes of them.

Changes of one task that come quickly are told as one: the last. Who does not read is let go of.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from bullpen.api.talk import TaskChanged, TaskOutput, WatchTasks
from bullpen.connection import Connection, ConnectionClosed, Context, TypedNotification
from bullpen.model.tasks import Task

__all__ = ["TaskWatch"]

SEND_SECONDS = 5.0  # for a peer that does not read
MOST_WAITING = 10_000  # of changes to be told

View = Callable[[str], Awaitable[Task | None]]
"""Returns a task by its id; None if there is none."""


class TaskWatch:
    """Everybody who watches tasks."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._by_task: dict[str, set[Connection]] = {}
        self._by_agent: dict[str, set[Connection]] = {}
        self._changed: dict[str, None] = {}
        self._said: list[tuple[str, str]] = []
        self._is_new = asyncio.Event()

    def watch(self, request: WatchTasks, context: Context) -> bool:
        """Begin to tell somebody, or end that."""
        connection = context.connection
        wanted = [(self._by_task, key) for key in request.task_ids]
        if request.recipient:
            wanted.append((self._by_agent, request.recipient))
        for watchers, key in wanted:
            if request.watch:
                watchers.setdefault(key, set()).add(connection)
            else:
                watchers.get(key, set()).discard(connection)
        if request.watch:
            connection.on_close(lambda _: self._forget(connection))
            for key in request.task_ids:
                self.changed(key)  # how it is now, first
        return True

    def changed(self, task_id: str) -> None:
        """Learn that something became different, perhaps about a task."""
        if self._by_task or self._by_agent:
            self._changed[task_id] = None
            while len(self._changed) > MOST_WAITING:
                del self._changed[next(iter(self._changed))]
            self._is_new.set()

    def said(self, task_id: str, text: str) -> None:
        """Learn what an agent says while it works on a task."""
        if (self._by_task or self._by_agent) and len(self._said) < MOST_WAITING:
            self._said.append((task_id, text))
            self._is_new.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            said, self._said = self._said, []
            for task_id, text in said:
                await self._tell(self._watchers(task_id, ""), TaskOutput(task_id, text))
            while self._changed:
                task_id = next(iter(self._changed))
                del self._changed[task_id]
                if task_id not in self._by_task and not self._by_agent:
                    continue
                if (task := await self._view(task_id)) is not None:
                    await self._tell(self._watchers(task_id, task.recipient), TaskChanged(task))

    def _watchers(self, task_id: str, agent: str) -> set[Connection]:
        return self._by_task.get(task_id, set()) | self._by_agent.get(agent, set())

    async def _tell(self, watchers: set[Connection], told: TypedNotification) -> None:
        for connection in watchers:
            try:
                async with asyncio.timeout(SEND_SECONDS):
                    await connection.notify(told)
            except (TimeoutError, ConnectionClosed):
                self._forget(connection)
                with contextlib.suppress(ConnectionClosed):
                    connection.close_soon()

    def _forget(self, connection: Connection) -> None:
        for watchers in (self._by_task, self._by_agent):
            for key, each in list(watchers.items()):
                each.discard(connection)
                if not each:
                    del watchers[key]
