"""The five timeouts, and what each of them covers. Time is passed in.

One call has at most two of them, one after the other: `send` until the message is accepted, then
`task` for a task or `receive` for anything else, until the answer. `idle` counts only while nothing
is outstanding, so that a long silent task is never cut by it; a ping is traffic.
"""

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from bullpen.model.messages import MessageType

__all__ = ["Timeout", "Timeouts", "answer_timeout"]


class Timeout(StrEnum):
    """Which time ran out."""

    START = "start"
    """From the start of an agent's process until it is ready."""
    SEND = "send"
    """From sending a message until it is accepted."""
    RECEIVE = "receive"
    """From then until the answer, for all that is no task."""
    TASK = "task"
    """From then until the answer to a task."""
    IDLE = "idle"
    """Since the last traffic of a connection on which nothing is outstanding."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How many seconds each has; the defaults are the seed's."""

    start: float = 30
    send: float = 10
    receive: float = 60
    task: float = 300
    idle: float = 120

    def seconds(self, timeout: Timeout) -> float:
        """Return how long one lasts."""
        seconds: float = getattr(self, timeout.value)
        return seconds

    def is_idle(self, last_traffic: datetime, now: datetime, *, outstanding: int) -> bool:
        """Return whether a connection has been without traffic, and without need of any."""
        return outstanding == 0 and (now - last_traffic).total_seconds() >= self.idle

    def data(self, timeout: Timeout, agent_id: str) -> dict[str, Any]:
        """Return what the error on the wire says of the time that ran out."""
        seconds = self.seconds(timeout)
        whole = int(seconds) if seconds == int(seconds) else seconds
        return {"timeout_seconds": whole, "agent_id": agent_id}


def answer_timeout(kind: MessageType) -> Timeout:
    """Return which time the answer to a message of a type has."""
    return Timeout.TASK if kind is MessageType.TASK_REQUEST else Timeout.RECEIVE
