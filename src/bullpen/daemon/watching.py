"""Telling those who watch tasks what becomes of them.

Changes of one task that come quickly are told as one: the last; and so is what an agent says in
small pieces. Who does not read is let go of.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from bullpen.api.talk import TaskChanged, TaskOutput, WatchTasks
from bullpen.connection import Connection, ConnectionClosed, Context, TypedNotification
from bullpen.mail.sayings import Piece, joined
from bullpen.model.tasks import Task

__all__ = ["TaskWatch"]

SEND_SECONDS = 5.0  # for a peer that does not read
MOST_WAITING = 10_000  # of changes to be told
SAY_SECONDS = 0.05  # between two pieces of what is said

View = Callable[[str], Awaitable[Task | None]]
"""Returns a task by its id; None if there is none."""
SoFar = Callable[[str], Piece | None]
"""Returns what was said of a task by its id; None if that is nothing."""


class TaskWatch:
    """Everybody who watches tasks."""

    def __init__(self, view: View, so_far: SoFar = lambda _: None) -> None:
        self._view = view
        self._so_far = so_far
        self._by_task: dict[str, set[Connection]] = {}
        self._by_agent: dict[str, set[Connection]] = {}
        self._watching: set[Connection] = set()  # all who do, or did
        self._changed: dict[str, None] = {}
        self._said: dict[str, Piece] = {}
        self._say_at = 0.0  # not before
        self._is_awaited = False  # that time
        self._is_due = False
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
                _remove(watchers, key, connection)
        if request.watch and connection not in self._watching:
            self._watching.add(connection)
            connection.on_close(lambda _: self._forget(connection))
        if request.watch:
            for key in request.task_ids:
                self.changed(key)  # how it is now, first
                if (piece := self._so_far(key)) is not None:
                    self.said(key, piece)
        return True

    def is_watched(self, task_id: str) -> bool:
        """Whether somebody watches this very task."""
        return task_id in self._by_task

    def changed(self, task_id: str) -> None:
        """Learn that something became different, perhaps about a task."""
        if self._by_task or self._by_agent:
            self._changed[task_id] = None
            while len(self._changed) > MOST_WAITING:
                del self._changed[next(iter(self._changed))]
            self._is_new.set()

    def said(self, task_id: str, piece: Piece) -> None:
        """Learn what an agent says while it works on a task."""
        if task_id not in self._by_task:
            return  # who comes later is told all of it
        self._said[task_id] = joined(self._said.get(task_id), piece)
        if not self._is_awaited:
            self._is_awaited = True
            loop = asyncio.get_running_loop()
            loop.call_at(max(self._say_at, loop.time()), self._say)

    def _say(self) -> None:
        self._is_due, self._is_awaited = True, False
        self._is_new.set()

    async def run(self) -> None:
        """Tell until cancelled."""
        while True:
            await self._is_new.wait()
            self._is_new.clear()
            if self._is_due:
                self._is_due = False
                self._say_at = asyncio.get_running_loop().time() + SAY_SECONDS
                for task_id in list(self._said):
                    await self._tell_said(task_id)
            while self._changed:
                task_id = next(iter(self._changed))
                del self._changed[task_id]
                if not self.is_watched(task_id) and not self._by_agent:
                    continue
                if (task := await self._view(task_id)) is not None:
                    await self._tell_said(task_id)
                    await self._tell(self._watchers(task_id, task.recipient), TaskChanged(task))

    async def _tell_said(self, task_id: str) -> None:
        if (piece := self._said.pop(task_id, None)) is not None:
            output = TaskOutput(task_id, piece.text, piece.at, piece.number)
            await self._tell(self._by_task.get(task_id, set()), output)

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
        self._watching.discard(connection)
        for watchers in (self._by_task, self._by_agent):
            for key in tuple(watchers):
                _remove(watchers, key, connection)


def _remove(watchers: dict[str, set[Connection]], key: str, connection: Connection) -> None:
    """Let one go who watches something, and what nobody watches any more."""
    if (found := watchers.get(key)) is not None:
        found.discard(connection)
        if not found:
            del watchers[key]
