"""What can go wrong with mail.

BullpenError
└── MailError               a message or a receipt is not as it was wanted; `reason` is its number
    ├── RecipientUnknown    there is nobody of that name
    ├── AddressAmbiguous    it could be several
    ├── MessageRefused      the rules do not let it through
    ├── IdempotencyConflict another message had the same id or key
    ├── MailboxFull         too many messages wait there
    ├── NobodyListens       nobody is subscribed to the topic
    ├── MessageNotFound     there is no such message, or not in that mailbox
    ├── LeaseLost           somebody else delivers it by now
    ├── ImpossibleReceipt   a step that cannot follow the one before
    └── TaskOver            it has ended already
"""

from collections.abc import Sequence
from typing import Any

from bullpen.errors import BullpenError
from bullpen.model.deliveries import ReceiptState
from bullpen.model.reasons import Reason

__all__ = [
    "AddressAmbiguous",
    "IdempotencyConflict",
    "ImpossibleReceipt",
    "LeaseLost",
    "MailError",
    "MailboxFull",
    "MessageNotFound",
    "MessageRefused",
    "NobodyListens",
    "RecipientUnknown",
    "TaskOver",
]


class MailError(BullpenError):
    """Something with a message. Nothing was changed by what failed."""

    def __init__(self, reason: Reason, message: str, **data: Any) -> None:
        super().__init__(message)
        self.reason = reason
        self.data = data


class RecipientUnknown(MailError):
    """There is nobody of that name. Nothing was kept; `bullpen ls` tells who is there."""

    def __init__(self, name: str, others: Sequence[str] = ()) -> None:
        hint = f"; there are {', '.join(others)}" if others else ""
        super().__init__(Reason.AGENT_NOT_FOUND, f"there is no agent {name!r}{hint}", agent_id=name)
        self.name = name


class AddressAmbiguous(MailError):
    """An address could be that of several agents. Nothing was kept; the names are told apart."""

    def __init__(self, address: str, names: Sequence[str]) -> None:
        super().__init__(
            Reason.AGENT_AMBIGUOUS,
            f"{address!r} could be any of {', '.join(names)}",
            names=list(names),
        )
        self.names = tuple(names)


class MessageRefused(MailError):
    """The rules do not let a message through. The reason says what would have to change."""


class IdempotencyConflict(MailError):
    """A different message had the same id, or the same key of this sender. Use another one."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            Reason.IDEMPOTENCY_CONFLICT,
            f"message {message_id} had the same id or key and said something else",
            message_id=message_id,
        )
        self.message_id = message_id


class MailboxFull(MailError):
    """Too many messages wait in a mailbox. Try again when its agent has taken some."""

    def __init__(self, recipient: str, limit: int) -> None:
        super().__init__(
            Reason.MAILBOX_FULL,
            f"{limit} messages wait for {recipient} already",
            agent_id=recipient,
            limit=limit,
        )
        self.recipient = recipient
        self.limit = limit


class NobodyListens(MailError):
    """Nobody but the sender is subscribed to a topic, so the message would reach nobody."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            Reason.NOBODY_LISTENS, f"nobody else is subscribed to #{topic}", topic=topic
        )
        self.topic = topic


class MessageNotFound(MailError):
    """There is no such message, or it is not in that mailbox."""

    def __init__(self, message_id: str, recipient: str | None = None) -> None:
        where = "" if recipient is None else f" for {recipient}"
        super().__init__(
            Reason.MESSAGE_NOT_FOUND,
            f"there is no message {message_id}{where}",
            message_id=message_id,
        )
        self.message_id = message_id
        self.recipient = recipient


class LeaseLost(MailError):
    """Who holds a delivery took too long, and it went on without him. Let go of it."""

    def __init__(self, message_id: str, recipient: str, held: int, attempt: int) -> None:
        super().__init__(
            Reason.LEASE_LOST,
            f"attempt {held} to deliver {message_id} to {recipient} is over; it is at {attempt}",
            message_id=message_id,
            attempt=attempt,
        )
        self.held = held
        self.attempt = attempt


class ImpossibleReceipt(MailError):
    """A step that cannot follow the one before. The receipt stays as it is."""

    def __init__(self, state: ReceiptState, target: ReceiptState) -> None:
        super().__init__(
            Reason.IMPOSSIBLE_RECEIPT,
            f"a message that is {state} cannot become {target}",
            state=state,
            target=target,
        )
        self.state = state
        self.target = target


class TaskOver(MailError):
    """A task has ended already, so nothing can be changed about it."""

    def __init__(self, task_id: str, state: str) -> None:
        super().__init__(Reason.TASK_OVER, f"the task {task_id} is {state} already", state=state)
