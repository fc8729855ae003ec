"""What one agent sends another: the message, its metadata, and how both look on the wire.

The shapes are the seed's: ten types, `from` and `to` on the wire, metadata that is typed where we
know a key and kept where we do not. Reading is lenient about what is missing (who receives a
message fills in its id and its time) and strict about what is there. What was read is written again
without loss.
"""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Self

import msgspec

__all__ = [
    "MAX_MESSAGE_BYTES",
    "MAX_THINKING_BYTES",
    "Message",
    "MessageGroup",
    "MessageMetadata",
    "MessageType",
    "Priority",
    "decode_message",
    "encode_message",
    "message_size",
    "read_message",
    "wire_message",
]

MAX_MESSAGE_BYTES = 2**20
"""Of the whole message, as UTF-8 JSON."""
MAX_THINKING_BYTES = 100 * 2**10
"""Of the thinking alone, as UTF-8."""

MAX_NAME_CHARACTERS = 256


class MessageGroup(StrEnum):
    """What a type of message is about."""

    TASK = "task"
    INFORMATION = "information"
    CONTROL = "control"


class MessageType(StrEnum):
    """What a message wants, or tells."""

    TASK_REQUEST = "task_request"
    TASK_RESPONSE = "task_response"
    TASK_COMPLETE = "task_complete"
    TASK_FAILED = "task_failed"
    INFO = "info"
    PROGRESS = "progress"
    ERROR = "error"
    PING = "ping"
    PONG = "pong"
    SHUTDOWN = "shutdown"

    @property
    def group(self) -> MessageGroup:
        """Which of the three groups it belongs to."""
        if self.value.startswith("task_"):
            return MessageGroup.TASK
        if self in (MessageType.INFO, MessageType.PROGRESS, MessageType.ERROR):
            return MessageGroup.INFORMATION
        return MessageGroup.CONTROL


class Priority(StrEnum):
    """How much a message matters."""

    LOW = "low"
    NORMAL = "normal"
    HIGH = "high"
    URGENT = "urgent"

    @property
    def rank(self) -> int:
        """The number mailboxes are ordered by, on the scale from 1 to 5 that A2A peers use."""
        return _RANKS[self]

    @property
    def interrupts(self) -> bool:
        """Whether a busy agent is interrupted for it. All others wait in the mailbox."""
        return self.rank >= 5

    @classmethod
    def of_rank(cls, number: int) -> Self:
        """Return the priority of a number from 1 to 5: the highest whose own is not above it.

        Raises:
            ValueError: it is another number.
        """
        if not 1 <= number <= 5:
            raise ValueError(f"{number} is no priority from 1 to 5")
        return max((each for each in cls if each.rank <= number), key=lambda each: each.rank)


_RANKS = {Priority.LOW: 1, Priority.NORMAL: 3, Priority.HIGH: 4, Priority.URGENT: 5}

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
Seconds = Annotated[int, msgspec.Meta(ge=0)] | Annotated[float, msgspec.Meta(ge=0)]


class MessageMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What is said about a message beside its content."""

    timestamp: datetime | None = None
    """By the sender's clock, if he told."""
    priority: Priority = Priority.NORMAL
    task_id: str | None = None
    correlation_id: str | None = None
    retry_count: Count = 0
    """How often it was tried again."""
    ttl: Seconds | None = None
    """How many seconds it is worth delivering; None is for ever."""
    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """The keys we do not know. They stand beside the others on the wire."""

    def __post_init__(self) -> None:
        if shadowed := _KNOWN.intersection(self.extra):
            raise ValueError(f"{', '.join(sorted(shadowed))}: not an extra key")


_KNOWN = frozenset(MessageMetadata.__struct_fields__) - {"extra"}


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message from one agent to another, or to a topic. It is never changed once accepted."""

    id: Name
    from_agent: Name = msgspec.field(name="from")
    to_agent: Name = msgspec.field(name="to")
    """The name of an agent, or `#` and the name of a topic."""
    type: MessageType = MessageType.INFO
    content: str
    thinking: str | None = None
    metadata: MessageMetadata = MessageMetadata()
    timestamp: datetime
    reply_to: str | None = None
    """The id of the message that this one answers."""
    idempotency_key: Name | None = None
    """Of several messages of one sender with the same key only the first counts."""
    origin: str | None = None
    """Who sent the first message of the chain of causes; None if that is this one."""
    hops: Count = 0
    """How many messages came before it in that chain."""

    @property
    def priority(self) -> Priority:
        """How much it matters."""
        return self.metadata.priority

    @property
    def first_sender(self) -> str:
        """Who sent the first message of the chain."""
        return self.origin or self.from_agent

    @property
    def topic(self) -> str | None:
        """The topic it is sent to, without its mark; None if it is for one agent."""
        return self.to_agent[1:] if self.to_agent.startswith("#") else None

    @property
    def expires_at(self) -> datetime | None:
        """When it is no longer worth delivering; None is never."""
        if self.metadata.ttl is None:
            return None
        try:
            return self.timestamp + timedelta(seconds=self.metadata.ttl)
        except OverflowError:  # in more years than there are
            return None

    def retried(self, retry_count: int) -> Self:
        """Return it as it is sent when it was tried so often before."""
        if retry_count == self.metadata.retry_count:
            return self
        metadata = msgspec.structs.replace(self.metadata, retry_count=retry_count)
        return msgspec.structs.replace(self, metadata=metadata)


class _Wire(msgspec.Struct):
    """A message as it arrives."""

    to: Name
    content: str
    from_: Name | None = msgspec.field(name="from", default=None)
    id: Name | None = None
    type: MessageType = MessageType.INFO
    thinking: str | None = None
    metadata: dict[str, Any] | None = None
    timestamp: datetime | None = None
    reply_to: str | None = None
    idempotency_key: Name | None = None
    origin: str | None = None
    hops: Count = 0


_decoder = msgspec.json.Decoder(_Wire)
_encoder = msgspec.json.Encoder()


def read_message(value: object, *, sender: str, message_id: str, now: datetime) -> Message:
    """Return the message that was parsed from JSON, with what is missing filled in.

    A time without a zone is taken as UTC. Keys beside the metadata that we do not know are ignored.

    Raises:
        msgspec.ValidationError: it is no message; the error says where.
    """
    return _complete(msgspec.convert(value, _Wire), sender, message_id, now)


def decode_message(data: bytes | str) -> Message:
    """Return the message that was encoded by `encode_message`.

    Raises:
        msgspec.DecodeError: it is not JSON, or no whole message.
    """
    wire = _decoder.decode(data)
    if wire.id is None or wire.from_ is None or wire.timestamp is None:
        raise msgspec.ValidationError("a message has an id, a sender and a time")
    return _complete(wire, wire.from_, wire.id, wire.timestamp)


def wire_message(message: Message) -> dict[str, Any]:
    """Return a message as it goes over the wire, ready to be JSON.

    The seed's nine fields are always there; ours are, where they say something.
    """
    wire: dict[str, Any] = {
        "id": message.id,
        "from": message.from_agent,
        "to": message.to_agent,
        "type": message.type,
        "content": message.content,
        "thinking": message.thinking,
        "metadata": _wire_metadata(message),
        "timestamp": message.timestamp,
        "reply_to": message.reply_to,
    }
    if message.idempotency_key is not None:
        wire["idempotency_key"] = message.idempotency_key
    if message.origin is not None:
        wire["origin"] = message.origin
    if message.hops:
        wire["hops"] = message.hops
    return wire


def encode_message(message: Message) -> bytes:
    """Return a message as UTF-8 JSON.

    Raises:
        UnicodeEncodeError: a text has lone surrogates, which are no characters.
    """
    return _encoder.encode(wire_message(message))


def message_size(message: Message) -> int:
    """Return how many bytes it has on the wire. Raises as `encode_message` does."""
    return len(encode_message(message))


def _wire_metadata(message: Message) -> dict[str, Any]:
    metadata = message.metadata
    wire: dict[str, Any] = {**metadata.extra}
    if metadata.timestamp is not None:
        wire["timestamp"] = metadata.timestamp
    wire["priority"] = metadata.priority
    if metadata.task_id is not None:
        wire["task_id"] = metadata.task_id
    if metadata.correlation_id is not None:
        wire["correlation_id"] = metadata.correlation_id
    if metadata.retry_count:
        wire["retry_count"] = metadata.retry_count
    if metadata.ttl is not None:
        wire["ttl"] = metadata.ttl
    return wire


def _complete(wire: _Wire, sender: str, message_id: str, now: datetime) -> Message:
    metadata = _read_metadata(wire.metadata or {})
    return Message(
        id=wire.id or message_id,
        from_agent=sender,
        to_agent=wire.to,
        type=wire.type,
        content=wire.content,
        thinking=wire.thinking,
        metadata=metadata,
        timestamp=_aware(wire.timestamp) or metadata.timestamp or now,
        reply_to=wire.reply_to,
        idempotency_key=wire.idempotency_key,
        origin=wire.origin,
        hops=wire.hops,
    )


def _read_metadata(given: dict[str, Any]) -> MessageMetadata:
    extra = {key: value for key, value in given.items() if key not in _KNOWN}
    known = {key: given[key] for key in given if key in _KNOWN} if extra else given
    metadata = msgspec.convert(known, MessageMetadata)
    if not extra and metadata.timestamp is None:
        return metadata
    return msgspec.structs.replace(metadata, timestamp=_aware(metadata.timestamp), extra=extra)


def _aware(time: datetime | None) -> datetime | None:
    return time.replace(tzinfo=UTC) if time is not None and time.tzinfo is None else time
