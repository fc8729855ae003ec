"""What became of a message: deliveries, the steps of their receipts, and the communication log."""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from bullpen.model.messages import Message, MessageType

__all__ = ["CommunicationLog", "Delivery", "Evidence", "Receipt", "ReceiptState", "TaskQuery"]


class ReceiptState(StrEnum):
    """How far a message has come. Nothing less than `SEEN` is delivered."""

    ACCEPTED = "accepted"
    """It is kept, and will outlive us."""
    QUEUED = "queued"
    """It waits in the mailbox, or is about to be handed over."""
    INJECTED = "injected"
    """It was put where the agent takes its input; a vendor's `ok` says no more than that."""
    SUBMITTED = "submitted"
    """The input was sent off."""
    SEEN = "seen"
    """The agent has it: a hook, a line of its transcript, a turn or its screen says so."""
    ANSWERED = "answered"
    """There is a reply."""
    FAILED = "failed"
    """The agent had it, or may have had it, and there will be no answer."""
    EXPIRED = "expired"
    """It was not worth delivering any more."""
    DEAD = "dead"
    """It was given up before the agent had it."""

    @property
    def is_delivered(self) -> bool:
        """Whether the agent has certainly had it."""
        return self in (ReceiptState.SEEN, ReceiptState.ANSWERED)


class Evidence(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a step is known."""

    by: str
    """Who says so: an agent, a door, `mailbox`."""
    what: str = ""
    """What was observed, in words."""
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    """What can be looked up: the id of a turn, the line of a transcript, a reply."""


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """One step of one delivery."""

    message_id: str
    recipient: str
    state: ReceiptState
    at: datetime
    evidence: Evidence
    attempt: int = 0
    """Which attempt it belongs to; 0 before the first."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A message in the mailbox of one agent, and how far it has come there.

    Who leased it holds it by its `attempt`: once it is leased again, the older one counts no more.
    """

    number: int
    """The order in which mailboxes got them."""
    message: Message
    recipient: str
    state: ReceiptState
    accepted_at: datetime
    available_at: datetime
    """Not to be tried before."""
    expires_at: datetime | None = None
    attempt: int = 0
    """How often it was leased, which only grows."""
    attempts_before: int = 0
    """How many of these were before it was sent again as a dead letter."""
    leased_until: datetime | None = None
    leased_by: str = ""
    """Through which door it is being handed over; empty if nobody puts it anywhere."""
    size: int = 0
    """In bytes, as accepted."""

    def is_leased(self, now: datetime) -> bool:
        """Whether somebody is delivering it."""
        return self.leased_until is not None and self.leased_until > now


class TaskQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which deliveries of tasks somebody wants to see; what is None does not matter."""

    recipient: str | None = None
    sender: str | None = None
    thread_id: str | None = None
    states: tuple[ReceiptState, ...] | None = None
    before: datetime | None = None


class CommunicationLog(msgspec.Struct, frozen=True, kw_only=True):
    """One message that was delivered, or was not: the seed's record."""

    timestamp: datetime
    from_agent: str
    to_agent: str
    message_type: MessageType
    message_size: int
    """In bytes of UTF-8 JSON."""
    duration_ms: float | None
    """From when it was accepted until it was seen; None if it never was."""
    success: bool
    error: str | None = None
