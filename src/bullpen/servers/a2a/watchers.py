"""What one who watches a task has not read yet: changes of it, and what its agent says."""

import asyncio
from collections import deque

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.outputs import Hearing, Output
from bullpen.api.talk import TaskOutput
from bullpen.model.tasks import Task

__all__ = ["Watcher"]

MOST_UNREAD = 1000  # of what one watcher is told; then it is told how things stand instead


class Watcher:
    """What one has not read yet. What is said is told once, in order, and nothing behind a gap."""

    def __init__(self) -> None:
        self._unread: deque[Task | Output] = deque()
        self._is_new = asyncio.Event()
        self._is_over = False
        self._has_begun = False
        self._hearing = Hearing()

    def put(self, task: Task) -> None:
        """Tell how a task is now."""
        if len(self._unread) >= MOST_UNREAD:
            self._unread = deque(each for each in self._unread if isinstance(each, Output))
            self._join()
        self._unread.append(task)
        self._is_new.set()

    def hear(self, told: TaskOutput) -> None:
        """Tell what was said, as far as it is new."""
        output = self._hearing.hear(told)
        if output is None:
            return
        if output.is_new:  # what nobody has read of the last one, nobody needs to
            self._unread = deque(each for each in self._unread if isinstance(each, Task))
        self._unread.append(output)
        if len(self._unread) > 1 and isinstance(self._unread[-2], Output):
            self._join()
        self._is_new.set()

    def end(self) -> None:
        """Tell that nothing more will come."""
        self._is_over = True
        self._is_new.set()

    async def take(self) -> Task | Output:
        """Return what comes next, first of all how the task is; wait for it.

        Raises:
            DaemonUnavailable: nothing more will come.
        """
        while (first := self._first()) is None:
            if self._is_over:
                raise DaemonUnavailable("the daemon is gone")
            self._is_new.clear()
            await self._is_new.wait()
        self._unread.remove(first)
        return first

    def _first(self) -> Task | Output | None:
        if self._has_begun:
            return self._unread[0] if self._unread else None
        first = next((each for each in self._unread if isinstance(each, Task)), None)
        self._has_begun = first is not None
        return first

    def _join(self) -> None:
        """Make one of the outputs that stand at the end."""
        outputs: list[Output] = []
        while self._unread and isinstance(last := self._unread[-1], Output):
            outputs.insert(0, last)
            self._unread.pop()
        if outputs:
            text = "".join(each.text for each in outputs)
            self._unread.append(Output(text, outputs[0].is_new))
