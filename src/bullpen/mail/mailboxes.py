"""The port: one mailbox per agent, and what became of every message.

What a call changed is kept before it returns, wholly or not at all. A delivery is leased by one at
a time; who holds it records each step with its evidence, and ends with `acknowledge`, `release` or
`reject`. What was put into an agent and not confirmed is never handed out again by itself: it may
have arrived.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import NamedTuple, Protocol

from bullpen.mail.retries import LEASE_SECONDS
from bullpen.model.deliveries import (
    CommunicationLog,
    Delivery,
    Evidence,
    Receipt,
    ReceiptState,
    TaskQuery,
)
from bullpen.model.messages import Message

__all__ = [
    "MAILBOX",
    "Appended",
    "Mailboxes",
    "Recovered",
    "Settling",
    "Story",
    "Tell",
    "nobody",
]

MAILBOX = "mailbox"
"""Who says what the mailboxes know by themselves."""


class Appended(NamedTuple):
    """A message that is kept, in the mailboxes of all who get it."""

    message: Message
    deliveries: tuple[Delivery, ...]
    is_new: bool = True
    """False if it had been appended before; then this is what became of it."""


class Settling(NamedTuple):
    """What an answer makes of what it answers, and how that is known."""

    state: ReceiptState
    evidence: Evidence


class Recovered(NamedTuple):
    """What a restart finds."""

    freed: int
    """Deliveries that somebody held, and that can be leased again at once."""
    in_flight: tuple[Delivery, ...]
    """Deliveries that may have arrived. Look before they are released."""
    in_doubt: tuple[Delivery, ...] = ()
    """Deliveries that were being handed over through a door, and are still held: whether anything
    was put in is not known."""


class Story(NamedTuple):
    """All there is to tell of a message in one mailbox, as of one moment."""

    delivery: Delivery
    receipts: tuple[Receipt, ...]
    """Every step of the message, in all mailboxes."""
    thread: tuple[Message, ...]
    """What it belongs together with."""
    position: int | None
    """Its place in the queue, the next being 1; None if it does not wait."""


Tell = Callable[[Delivery], Message | None]
"""Makes the word to the sender of what has ended, which is kept together with the end."""


def nobody(_: Delivery) -> None:
    """Tell nobody."""


class Mailboxes(Protocol):
    """The mailboxes of all agents. Times are passed in, and are UTC."""

    async def append(
        self,
        message: Message,
        *,
        now: datetime,
        recipients: Iterable[str] | None = None,
        settling: Settling | None = None,
        seen: Evidence | None = None,
    ) -> Appended:
        """Keep a message for its recipient, or for all that listen to its topic.

        With `recipients` it is for those: a broadcast. The same message again, by its id or by its
        sender's key, changes nothing. A reply settles the receipt of what it answers: as its type
        says, or as `settling` does, and then it is kept only if it does. What settles a receipt is
        kept also in a mailbox that is full: somebody waits for it. What is `seen` waits for nobody.

        Raises:
            IdempotencyConflict: another message had the id or the key.
            MailboxFull: too many wait for a recipient; nobody gets it.
            NobodyListens: the topic has no subscriber beside the sender.
            ImpossibleReceipt: what is to be settled has another outcome already.
            MessageNotFound: there is nothing to be settled.
        """

    async def lease(
        self,
        recipient: str,
        *,
        now: datetime,
        seconds: float = LEASE_SECONDS,
        limit: int = 1,
        by: str = "",
    ) -> tuple[Delivery, ...]:
        """Return the next deliveries, by priority and then by order, held for so many seconds.

        What is too old is not returned: see `expire`. With `by` it is about to be put somewhere,
        so that a restart knows that it may have been.
        """

    async def record(
        self, delivery: Delivery, state: ReceiptState, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        """Add a step to the receipt of a delivery one holds.

        Raises:
            LeaseLost: somebody else holds it by now.
            ImpossibleReceipt: the step cannot follow.
        """

    async def acknowledge(
        self, delivery: Delivery, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        """Mark a delivery as seen, and let go of it. Raises as `record` does.

        Where a reply was faster it has been seen already, and nothing changes.
        """

    async def take(
        self, recipient: str, *, now: datetime, evidence: Evidence, limit: int = 1
    ) -> tuple[Delivery, ...]:
        """Return the next deliveries, as `lease` does, and mark them as seen in the same step.

        For who has them in his hands with that: nobody can take them, or be lost, in between.
        """

    async def release(
        self, delivery: Delivery, *, now: datetime, evidence: Evidence, tell: Tell = nobody
    ) -> Delivery:
        """Let go of a delivery that did not arrive; it is tried again later, or is dead by now.

        If it is dead, `tell` makes the word to its sender. Raises as `record` does.
        """

    async def put_back(self, delivery: Delivery, *, now: datetime) -> Delivery:
        """Let go of a delivery that nobody tried to hand over: the attempt does not count.

        Raises:
            LeaseLost: somebody else holds it by now.
            ImpossibleReceipt: it was put into the agent already.
        """

    async def reject(self, delivery: Delivery, *, now: datetime, evidence: Evidence) -> Delivery:
        """Give a delivery up at once. Raises as `record` does."""

    async def settle(
        self,
        message_id: str,
        recipient: str,
        state: ReceiptState,
        *,
        now: datetime,
        evidence: Evidence,
    ) -> Delivery:
        """Add a step to a receipt without holding the delivery: what was observed from outside.

        Raises:
            MessageNotFound: it is not in that mailbox.
            ImpossibleReceipt: the step cannot follow.
        """

    async def expire(
        self, *, now: datetime, limit: int = 500, tell: Tell = nobody
    ) -> tuple[Delivery, ...]:
        """End what waits and is older than its ttl; return it, and `tell` its senders.

        What was accepted later than now, since the clock was set back, lives from now on as long
        as it may.
        """

    async def recover(self) -> Recovered:
        """Let go of what is held and is in nobody's hands. For the start, before anybody leases."""

    async def requeue(
        self, message_id: str, recipient: str, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        """Send a dead letter again: attempts and time to live begin anew.

        Raises:
            MessageNotFound: it is not in that mailbox.
            ImpossibleReceipt: it is no dead letter.
            MailboxFull: too many wait there.
        """

    async def dead_letters(
        self, recipient: str | None = None, *, limit: int = 500
    ) -> tuple[Delivery, ...]:
        """Return what ended before it was delivered, the oldest first."""

    async def in_flight(self, *, limit: int = 500) -> tuple[Delivery, ...]:
        """Return what was put into agents and is not confirmed yet, the oldest first."""

    async def waiting(self, recipient: str, *, limit: int = 500) -> tuple[Delivery, ...]:
        """Return what waits in a mailbox, in the order in which it will be delivered."""

    async def position(self, message_id: str, recipient: str) -> int | None:
        """Return the place in the queue, the next being 1; None if it does not wait.

        Raises:
            MessageNotFound: it is not in that mailbox.
        """

    async def deliveries(self, message_id: str) -> tuple[Delivery, ...]:
        """Return how far a message has come in each mailbox.

        Raises:
            MessageNotFound: there is no such message.
        """

    async def receipts(self, message_id: str) -> tuple[Receipt, ...]:
        """Return every step of a message, in order. Raises as `deliveries` does."""

    async def thread(self, message_id: str, *, limit: int = 500) -> tuple[Message, ...]:
        """Return the messages that belong together by `reply_to`, in order.

        Raises as `deliveries` does.
        """

    async def story(self, message_id: str, recipient: str | None = None) -> Story:
        """Return all of that at once, of one mailbox or of the first that got the message.

        Raises as `deliveries` does.
        """

    async def subscribe(self, topic: str, agent: str) -> None:
        """Let an agent get what is sent to a topic from now on."""

    async def unsubscribe(self, topic: str, agent: str) -> None:
        """End that. What it has got already stays."""

    async def subscribers(self, topic: str) -> tuple[str, ...]:
        """Return who listens to a topic."""

    async def topics(self) -> dict[str, tuple[str, ...]]:
        """Return every topic with a subscriber, and who they are."""

    async def find(self, message_id: str) -> Message:
        """Return a message by its id, or by the beginning of it if no other begins so.

        Raises:
            MessageNotFound: there is none, or there are several.
        """

    async def tasks(self, wanted: TaskQuery, *, limit: int = 500) -> tuple[Delivery, ...]:
        """Return the deliveries of messages that ask for an answer, the newest first."""

    async def backlog(self, recipient: str | None = None) -> dict[str, int]:
        """Return how many messages wait for whom, of everybody or of one."""

    async def log_refusal(self, message: Message, error: str, *, now: datetime) -> None:
        """Note a message that was not let through."""

    async def communication(
        self, *, after: int = 0, limit: int = 500
    ) -> tuple[tuple[int, CommunicationLog], ...]:
        """Return the communication log after a number: a record per delivery that ended."""

    async def forget(self, *, before: datetime, limit: int = 500) -> int:
        """Remove messages that were accepted before and of which nothing is still to become.

        All that belongs to them goes with them, and records of the log that are as old. A message
        stays as long as anything in its thread is open. Returns how many went: call it again as
        long as there are some.
        """
