"""What each tool takes. Fields that nobody knows are let through; a wrong type is not."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from bullpen.model.messages import MessageType, Priority
from bullpen.model.states import Activity

__all__ = [
    "AskUser",
    "Inbox",
    "Reply",
    "Report",
    "SendMessage",
    "Task",
]

LONGEST_SECONDS = 86_400.0

Name = Annotated[str, Meta(min_length=1)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST_SECONDS)]

REPLY_TYPES = {
    "done": MessageType.TASK_RESPONSE,
    "progress": MessageType.PROGRESS,
    "failed": MessageType.TASK_FAILED,
}


class SendMessage(msgspec.Struct, frozen=True):
    """A message to somebody. `from` is not among its fields: who sends is known."""

    to: Name
    content: str
    thinking: str | None = None
    type: MessageType = MessageType.TASK_REQUEST
    metadata: dict[str, Any] | None = None
    reply_to: str | None = None
    idempotency_key: str | None = None
    wait: bool = True
    timeout_seconds: Seconds | None = None
    priority: Priority | None = None

    @property
    def all_metadata(self) -> dict[str, Any]:
        """The metadata, with the priority where that stands beside them."""
        given = dict(self.metadata or {})
        if self.priority is not None:
            given["priority"] = self.priority.value
        return given

    @property
    def is_for_many(self) -> bool:
        """Whether there may be many answers, so that none of them is waited for."""
        return self.to == "*" or self.to.startswith("#")


class Reply(msgspec.Struct, frozen=True):
    """An answer to a message."""

    content: str
    message_id: str = ""
    status: str = "done"
    thinking: str | None = None
    metadata: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.status not in REPLY_TYPES:
            raise ValueError(f"status is to be one of {', '.join(REPLY_TYPES)}")

    @property
    def type(self) -> MessageType:
        """What the answer is to the one who gets it."""
        return REPLY_TYPES[self.status]


class Inbox(msgspec.Struct, frozen=True):
    """One's own messages."""

    peek: bool = False
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    timeout_seconds: Seconds = 0.0


class Task(msgspec.Struct, frozen=True):
    """One task, or the last ones."""

    id: str = ""
    timeout_seconds: Seconds = 0.0
    cancel: bool = False


class Report(msgspec.Struct, frozen=True):
    """What one is doing."""

    activity: Activity
    title: str = ""
    message: str = ""


class AskUser(msgspec.Struct, frozen=True):
    """A question to the user."""

    question: Annotated[str, Meta(min_length=1)]
    timeout_seconds: Seconds | None = None
