"""The port: a way to put a message into an agent, and the word for each such way.

The ladder has five rungs, and a message takes the best one its agent has. What a door is told by
the other side is written down as it is: that something was put in is `injected`, that it was sent
off is `submitted`, and only a sign of the agent itself is `seen`. A door never decides what that
means for the message.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from bullpen.model.deliveries import Delivery, Evidence, ReceiptState

__all__ = ["Door", "Handed", "Handover", "Note", "Rung"]


class Rung(StrEnum):
    """How a message gets into an agent, best first."""

    OWN = "own"
    """The program's own door: an app server, a wake-up, its HTTP."""
    HOOK = "hook"
    """What a hook of the program is answered at the end of a turn."""
    PTY = "pty"
    """Typed into a terminal of ours."""
    TMUX = "tmux"
    """Pasted into a pane nobody launched through us."""
    INBOX = "inbox"
    """The agent fetches its messages by itself."""


class Handed(StrEnum):
    """How handing a message over ended."""

    TAKEN = "taken"
    """It is in, as far as the steps say."""
    NOT_READY = "not_ready"
    """Nothing was put in. It can be tried again as soon as the agent is ready."""
    UNSURE = "unsure"
    """It may be in, or not. It is never put in again by itself."""
    REFUSED = "refused"
    """Nothing was put in, and this message never can be."""
    GONE = "gone"
    """There is nobody behind the door. Nothing was put in; it is tried again, some times."""


class Handover(msgspec.Struct, frozen=True):
    """How handing a message over ended, and why."""

    outcome: Handed
    reason: str = ""


Note = Callable[[ReceiptState, Evidence], Awaitable[None]]
"""Writes a step down. It is kept when this returns."""


class Door(Protocol):
    """One way into one kind of agent."""

    @property
    def rung(self) -> Rung:
        """Which rung of the ladder it is."""

    def reaches(self, agent: str) -> bool:
        """Whether it leads to an agent now."""

    def is_open(self, agent: str) -> str:
        """Return why nothing can be put in just now, in words; empty if it can."""

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        """Put a message in, noting each step as it is known. Bounded in time."""

    async def interrupt(self, agent: str) -> bool:
        """Interrupt what the agent is doing; False if this is no way to."""
