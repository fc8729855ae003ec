"""The port that mailboxes keep their rows through, without any decision.

Lists are in the order of their numbers, if not said.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from bullpen.model.deliveries import (
    CommunicationLog,
    Delivery,
    Receipt,
    ReceiptState,
    TaskQuery,
)
from bullpen.model.messages import Message

__all__ = ["Rows"]


class Rows(Protocol):
    """What is kept."""

    def find_message(self, message_id: str) -> Message | None: ...
    def find_key(self, sender: str, key: str) -> Message | None: ...
    def find_thread(self, message_id: str) -> str | None: ...

    def add_message(
        self, message: Message, encoded: bytes, thread_id: str, accepted_at: datetime
    ) -> bool:
        """Keep it, if there is none with its id or its sender's key; return whether it was kept."""
        ...

    def thread(self, thread_id: str, limit: int) -> Sequence[Message]: ...

    def find_beginning(self, beginning: str, limit: int) -> Sequence[str]:
        """Return the ids of messages that begin so."""
        ...

    def add_delivery(self, delivery: Delivery) -> Delivery:
        """Keep it, and return it with its number."""
        ...

    def save_delivery(self, delivery: Delivery) -> None:
        """Keep what changed of it, which its message is never."""
        ...

    def refresh(self, delivery: Delivery) -> Delivery | None:
        """Return a delivery as it is by now, with the message that is given."""
        ...

    def find_delivery(self, message_id: str, recipient: str) -> Delivery | None: ...
    def deliveries(self, message_id: str) -> Sequence[Delivery]: ...

    def next_deliveries(
        self, recipient: str, now: datetime, latest: datetime, longest: datetime, limit: int
    ) -> Sequence[Delivery]:
        """Return what is queued, due, not leased and not too old, by priority, then by number.

        Due is what was never tried, what is available, and what would be available only after the
        latest time that can be: then the clock was set back. So it was if a lease ends after the
        longest there can be.
        """
        ...

    def waiting(self, recipient: str, limit: int) -> Sequence[Delivery]:
        """Return what is queued, by priority and then by number."""
        ...

    def count_before(self, delivery: Delivery) -> int:
        """Return how many are queued before it."""
        ...

    def has_waiting(self, recipient: str, count: int) -> bool:
        """Return whether so many are queued."""
        ...

    def expired(self, now: datetime, longest: datetime, limit: int) -> Sequence[Delivery]:
        """Return what is queued, not leased (as for `next_deliveries`), and past its time."""
        ...

    def early(self, now: datetime, limit: int) -> Sequence[Delivery]:
        """Return what is queued, can become too old, and was accepted later than now.

        What lives longest comes first.
        """
        ...

    def leased(self) -> Sequence[Delivery]:
        """Return what is queued and was leased, whether still or not."""
        ...

    def in_states(
        self, states: Sequence[ReceiptState], recipient: str | None, limit: int
    ) -> Sequence[Delivery]: ...

    def tasks(self, wanted: TaskQuery, limit: int) -> Sequence[Delivery]:
        """Return the deliveries of task requests, the newest first."""
        ...

    def backlog(self, recipient: str | None) -> dict[str, int]:
        """Return how many are queued, by recipient: of all, or of one."""
        ...

    def add_receipts(self, number: int, receipts: Sequence[Receipt]) -> None:
        """Keep some steps of the delivery with a number."""
        ...

    def receipts(self, message_id: str) -> Sequence[Receipt]: ...
    def subscribe(self, topic: str, agent: str) -> None: ...
    def unsubscribe(self, topic: str, agent: str) -> None: ...
    def subscribers(self, topic: str) -> Sequence[str]: ...
    def topics(self) -> dict[str, tuple[str, ...]]: ...

    def add_log(self, entry: CommunicationLog, number: int | None) -> None:
        """Keep a record; of a delivery only the last."""
        ...

    def logs(self, after: int, limit: int) -> Sequence[tuple[int, CommunicationLog]]: ...

    def forget(self, before: datetime, limit: int) -> int:
        """Remove messages that were accepted before, with all that belongs to them; say how many.

        A message stays as long as anything in its thread is open. Of the log the first records go
        that are as old, as many at most.
        """
        ...
