"""The memory of one side of a connection: who waits for which response, and what is still owed.

It decides and remembers; it sends nothing and waits for nothing. A *waiter* is whatever the caller
wants back when the response comes (a future, a callback): it is never looked into.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from bullpen.jsonrpc.wire import Response

__all__ = ["BatchReply", "Peer"]

W = TypeVar("W")


class Peer(Generic[W]):
    """Mints ids and finds the waiter of a response.

    Ids are integers, never reused on a connection, so a response that comes late can never be
    taken for another's. `"7"` and `7` are different ids, and so are `True` and `1`.
    """

    def __init__(self) -> None:
        self._last_id = 0
        self._waiters: dict[int, W] = {}
        self.unknown_responses = 0  # late, duplicate or invented: counted, and otherwise ignored

    def __len__(self) -> int:
        return len(self._waiters)

    @property
    def issued(self) -> int:
        """How many requests have been made."""
        return self._last_id

    def issue(self, waiter: W) -> int:
        """Remember who waits, before anything is sent; return the id to send."""
        self._last_id = request_id = self._last_id + 1
        self._waiters[request_id] = waiter
        return request_id

    def settle(self, response: Response) -> W | None:
        """Return the waiter of a response, who is from now on forgotten."""
        request_id = response.id
        # By exact type: to Python True is 1, and over a channel no codec has refused it.
        waiter = self._waiters.pop(request_id, None) if request_id.__class__ is int else None
        if waiter is None:
            self.unknown_responses += 1
        return waiter

    def abandon(self, request_id: int) -> W | None:
        """Forget a request; its response, should it come, is ignored."""
        return self._waiters.pop(request_id, None)

    def oldest(self) -> Iterator[tuple[int, W]]:
        """Yield the waiting requests in the order they were made."""
        return iter(self._waiters.items())

    def abandon_all(self) -> list[W]:
        """Forget every request and return their waiters in the order they were made."""
        waiters = list(self._waiters.values())
        self._waiters.clear()
        return waiters


class BatchReply:
    """Collects the responses to one batch, to be sent as one array.

    Slots go by position, not by id: a batch may use one id twice, and two batches in flight may
    use the same ids.
    """

    def __init__(self, slots: int) -> None:
        self._responses: list[Response | None] = [None] * slots
        self._missing = slots

    def fill(self, slot: int, response: Response | None) -> tuple[Response, ...]:
        """Put a response in its place, or None where there will be none.

        Returns all of them when this was the last, else nothing. Each slot is filled once.
        """
        self._missing -= 1
        self._responses[slot] = response
        if self._missing:
            return ()
        return tuple(response for response in self._responses if response is not None)
