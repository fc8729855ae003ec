"""The messages that answered what an agent asked its user: each does so once.

They are turns of no task, so no mailbox knows them again. One that is sent twice, since its sender
heard nothing, must not answer what is asked next.
"""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Answered"]

MOST_KNOWN = 1000


class Answered:
    """Which messages have answered something, of one agent's tasks."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], None] = OrderedDict()

    def knows(self, task_id: str, message_id: str) -> bool:
        """Whether a message has answered, or is about to."""
        return (task_id, message_id) in self._known

    @contextmanager
    def once(self, task_id: str, message_id: str) -> Iterator[None]:
        """Have a message answer by a block; if that fails, it has not."""
        key = (task_id, message_id)
        self._known[key] = None
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        try:
            yield
        except BaseException:
            self._known.pop(key, None)
            raise
