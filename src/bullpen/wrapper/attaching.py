"""Between a wrapper and whoever attaches to it: one connection, over the wrapper's own socket.

It is for people and works without a daemon. A viewer opens, gets the screen as it is, then what is
written from there on, and says what is typed. The others only ask.
"""

import msgspec

from bullpen.connection import TypedNotification, TypedRequest

__all__ = [
    "AskInfo",
    "AskInterrupt",
    "AskStop",
    "AskWait",
    "Ended",
    "Input",
    "OpenReply",
    "OpenView",
    "Resize",
    "Shown",
    "WrapperInfo",
]


class OpenReply(msgspec.Struct, frozen=True, kw_only=True):
    """What is there to be seen."""

    name: str
    paint: bytes
    """What makes a terminal of that size show what the agent's shows."""
    columns: int
    rows: int


class OpenView(TypedRequest[OpenReply]):
    """Look on, and type."""

    METHOD = "attach.open"
    columns: int
    rows: int
    is_read_only: bool = False
    """Only look: neither keys nor the size of this terminal matter to the agent."""


class Input(TypedNotification):
    """From a viewer: what was typed."""

    METHOD = "attach.input"
    data: bytes


class Resize(TypedNotification):
    """From a viewer: its terminal has another size."""

    METHOD = "attach.resize"
    columns: int
    rows: int


class Shown(TypedNotification):
    """To a viewer: what the program wrote, exactly."""

    METHOD = "attach.shown"
    data: bytes


class Ended(TypedNotification):
    """To a viewer, last of all: there is nothing more to be seen."""

    METHOD = "attach.ended"
    reason: str
    status: int | None = None
    """The program's exit status, if it has ended."""


class WrapperInfo(msgspec.Struct, frozen=True, kw_only=True):
    """How a wrapped agent stands."""

    name: str
    profile: str
    pid: int
    """Of the wrapper."""
    status: str
    is_ready: bool
    columns: int
    rows: int
    viewers: int = 0


class AskInfo(TypedRequest[WrapperInfo]):
    """How it stands."""

    METHOD = "attach.info"


class AskWait(TypedRequest[WrapperInfo]):
    """Wait until the agent can be typed to, or the time is over; how it stands then."""

    METHOD = "attach.wait"
    timeout_seconds: float


class AskInterrupt(TypedRequest[bool]):
    """Interrupt what the agent is doing, in its program's own way."""

    METHOD = "attach.interrupt"


class AskStop(TypedRequest[bool]):
    """End the program and the wrapper. Answered before that."""

    METHOD = "attach.stop"
