"""What is sent and answered in the seed's dialect, as types.

What is sent is read by these types. What is answered is only described by them, and a field that
none of them has is never answered.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from bullpen.model.deliveries import ReceiptState
from bullpen.model.states import Provider
from bullpen.model.tasks import TaskState

__all__ = [
    "HIGHEST",
    "LONGEST_WAIT_SECONDS",
    "LOWEST",
    "WAIT_SECONDS",
    "Added",
    "Address",
    "Card",
    "DataPart",
    "Discover",
    "Event",
    "FilePart",
    "Message",
    "Plain",
    "Removed",
    "Send",
    "SendElsewhere",
    "Sent",
    "SentElsewhere",
    "Status",
    "Stopped",
    "Taken",
    "Task",
    "TextPart",
]

LOWEST, HIGHEST = 1, 5
WAIT_SECONDS = 60.0
LONGEST_WAIT_SECONDS = 3600.0

_SOME_TEXT = {"pattern": r"[^\s\x1c-\x1f]"}
"""It is refused otherwise, but as a message without text and not as one of a wrong shape."""

Time = Annotated[datetime, Meta(tz=True)]
Rank = Annotated[
    float,  # in JSON, 5 and 5.0 are the same
    Meta(
        ge=LOWEST,
        le=HIGHEST,
        multiple_of=1,
        description="5 interrupts what the agent does",
        extra_json_schema={"type": "integer"},
    ),
]

# ------------------------------------------------------------------------------------ what is sent


class TextPart(msgspec.Struct, tag_field="type", tag="text"):
    """A text."""

    text: str


class FilePart(msgspec.Struct, tag_field="type", tag="file"):
    """A file. It is kept with the message; the agent is given the text beside it."""

    file: dict[str, Any]


class DataPart(msgspec.Struct, tag_field="type", tag="data"):
    """Data. It is kept with the message; the agent is given the text beside it."""

    data: dict[str, Any]


_WITH_TEXT = {
    "contains": {
        "type": "object",
        "properties": {"type": {"const": "text"}, "text": {"type": "string", **_SOME_TEXT}},
        "required": ["type", "text"],
    }
}


class Message(msgspec.Struct):
    """What is sent to an agent."""

    parts: Annotated[
        list[TextPart | FilePart | DataPart],
        Meta(description="with some text among them", extra_json_schema=_WITH_TEXT),
    ]
    role: Literal["user", "agent"] = "user"


class Send(msgspec.Struct):
    """Asks an agent for something."""

    message: Message
    context_id: str | None = None
    metadata: dict[str, Any] | None = None


class Plain(msgspec.Struct):
    """Asks an agent for something, in plain text."""

    content: Annotated[str, Meta(extra_json_schema=_SOME_TEXT)]
    priority: Rank


class Discover(msgspec.Struct):
    """Adds an agent elsewhere by its card."""

    url: Annotated[str, Meta(description="where its card is, or below which it is")]
    alias: str | None = None


class SendElsewhere(msgspec.Struct):
    """Asks an agent elsewhere for something."""

    message: Annotated[str, Meta(min_length=1, extra_json_schema=_SOME_TEXT)]
    wait_for_completion: bool = False
    timeout: Annotated[float, Meta(ge=0, le=LONGEST_WAIT_SECONDS, description="in seconds")] = (
        WAIT_SECONDS
    )


# -------------------------------------------------------------------------------- what is answered


class Answered(msgspec.Struct, forbid_unknown_fields=True):
    """An answer: it has no other fields."""


class Taken(Answered):
    """A plain message was taken."""

    status: Literal["sent"]
    priority: Rank
    task_id: str


class Status(Answered):
    """What an agent is doing."""

    status: Literal["STARTING", "BUSY", "IDLE", "NOT_STARTED"]
    context: Annotated[str, Meta(max_length=2000, description="the end of what it wrote")]


class _Said(Answered):
    role: Literal["user"]
    parts: list[TextPart | FilePart | DataPart]


class _Artifact(Answered):
    type: Literal["text"]
    data: str


class _Failure(Answered):
    code: Literal["FAILED"]
    message: str


class _Own(Answered):
    sender: str
    priority: Rank
    receipt: ReceiptState
    position: Annotated[int, Meta(ge=1)] | msgspec.UnsetType = msgspec.UNSET
    reason: str | msgspec.UnsetType = msgspec.UNSET


class _Metadata(msgspec.Struct):
    bullpen: _Own


class Task(Answered):
    """A task."""

    id: str
    status: TaskState
    message: _Said
    artifacts: list[_Artifact]
    created_at: Time
    updated_at: Time
    context_id: str
    metadata: Annotated[_Metadata, Meta(description="what the sender said, and what we know")]
    error: _Failure | msgspec.UnsetType = msgspec.UNSET


class Sent(Answered):
    """A message was taken."""

    task: Task


class Stopped(Answered):
    """A task was cancelled."""

    status: Literal["canceled"]
    task_id: str


class Event(Answered):
    """What became of a task: what its agent wrote, its status, and its end."""

    type: Literal["output", "status", "done", "error"]
    data: str | msgspec.UnsetType = msgspec.UNSET
    status: TaskState | msgspec.UnsetType = msgspec.UNSET
    artifacts: list[_Artifact] | msgspec.UnsetType = msgspec.UNSET
    error: _Failure | msgspec.UnsetType = msgspec.UNSET
    message: str | msgspec.UnsetType = msgspec.UNSET


class _Capabilities(Answered):
    streaming: bool
    pushNotifications: bool  # noqa: N815 - its name on the wire
    multiTurn: bool  # noqa: N815


class _Skill(Answered):
    id: str
    name: str
    description: str
    parameters: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET


class Card(Answered):
    """An agent's card."""

    name: str
    description: str
    url: Annotated[str, Meta(extra_json_schema={"format": "uri"})]
    version: str
    capabilities: _Capabilities
    skills: list[_Skill]
    securitySchemes: dict[str, Any]  # noqa: N815
    extensions: dict[str, Any]


class Address(Answered):
    """An agent, and where it is."""

    name: str
    type: Provider
    status: str
    url: Annotated[str, Meta(extra_json_schema={"format": "uri"})]


class Added(Answered):
    """An agent elsewhere."""

    name: str
    url: str
    description: str
    capabilities: dict[str, Any]
    skills: list[dict[str, Any]]
    alias: str
    added_at: str
    last_seen: Annotated[str, Meta(description="empty if it never took anything")]


class Removed(Answered):
    """An agent elsewhere was forgotten."""

    status: Literal["removed"]
    alias: str


class SentElsewhere(Answered):
    """A message to an agent elsewhere was taken."""

    id: str
    status: TaskState
    artifacts: list[_Artifact]
    error: _Failure | msgspec.UnsetType = msgspec.UNSET
