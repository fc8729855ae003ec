"""What a session receives, and how to read it off the wire. Pure.

Two generations of Copilot CLI speak of the same things differently: the older one *asks* (requests
`tool.call` and `permission.request`), the newer one *tells* (events `external_tool.requested` and
`permission.requested`, answered by requests of ours). Both become the same `RoutedMessage`s here.
"""

import json
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.wire import Id, Message, Notification, Request, decode_value

__all__ = [
    "Cancelled",
    "EventHead",
    "Idle",
    "PendingToolCall",
    "PermissionRequest",
    "RoutedMessage",
    "SessionEvent",
    "SessionRequest",
    "StreamingOutcome",
    "ToolCall",
    "ToolCallParams",
    "Turn",
    "decode_session_frame",
    "is_turn_end",
    "read_event",
    "read_head",
    "read_request",
    "read_session_id",
]

SESSION_EVENT = "session.event"
DELTA = "assistant.message_delta"
IDLE = "session.idle"
ERROR = "session.error"

# Events that bring the whole text of a message, in the order they come; servers differ in which.
COMPLETIONS = frozenset(
    {
        "assistant.message",
        "assistant.message.completed",
        "assistant.message_completed",
        "assistant.turn_end",
    }
)


class ToolCallParams(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """What the model wants a tool of ours to do."""

    session_id: str
    tool_call_id: str
    tool_name: str
    arguments: Any = UNSET


class SessionEvent(msgspec.Struct, frozen=True, gc=False):
    """Something happened in a session. `event` is what the wire said, untouched.

    `text` is there where the event is a piece of the answer, so that nobody has to parse the rest.
    """

    event_type: str
    raw: Any = UNSET
    text: str | UnsetType = UNSET
    message_id: str | UnsetType = UNSET
    size: int = 0

    @property
    def event(self) -> Any:
        """The event as the wire had it. Parsed on each call: keep what you need."""
        params = _decode_params(self.raw)
        if isinstance(params, dict) and isinstance(params.get("event"), dict):
            event = params["event"]
            if self.text is not UNSET and event.get("data", {}).get("deltaContent") != self.text:
                event["data"]["deltaContent"] = self.text  # several deltas made into one
            return event
        return params

    @property
    def data(self) -> dict[str, Any]:
        """The event's own members."""
        event = self.event
        data = event.get("data") if isinstance(event, dict) else None
        return data if isinstance(data, dict) else {}


class ToolCall(msgspec.Struct, frozen=True, eq=False):
    """The model wants a tool called, and waits for the result.

    `responder` is there where the server asked with a request; else the answer is a request.
    """

    request_id: Id
    params: ToolCallParams
    responder: Any = None
    size: int = 0


class PermissionRequest(msgspec.Struct, frozen=True, eq=False):
    """The server wants leave for something, and waits for it."""

    request_id: Id
    kind: str
    details: dict[str, Any]
    responder: Any = None
    size: int = 0


class SessionRequest(msgspec.Struct, frozen=True, eq=False):
    """The server asks something else of this session. Answer it with `responder`."""

    request_id: Id
    method: str
    params: Any
    responder: Any = None
    size: int = 0


RoutedMessage = SessionEvent | ToolCall | PermissionRequest | SessionRequest


class Idle(msgspec.Struct, frozen=True):
    """The turn has ended; `text` is all of its answer."""

    text: str


class Cancelled(msgspec.Struct, frozen=True):
    """The turn was given up; `text` is what had come of its answer."""

    text: str


class PendingToolCall(msgspec.Struct, frozen=True):
    """The turn waits for a tool. Answer the call, then go on reading."""

    text: str
    call: ToolCall

    @property
    def request_id(self) -> Id:
        return self.call.request_id

    @property
    def params(self) -> ToolCallParams:
        return self.call.params


StreamingOutcome = Idle | PendingToolCall


class _HeadData(msgspec.Struct, gc=False):
    deltaContent: str | UnsetType = UNSET  # noqa: N815 - the wire's name
    messageId: str | UnsetType = UNSET  # noqa: N815


class _HeadEvent(msgspec.Struct, gc=False):
    type: str
    data: _HeadData | UnsetType | None = UNSET


class EventHead(msgspec.Struct, gc=False):
    """What routing needs to know of a `session.event`."""

    sessionId: str  # noqa: N815 - the wire's name
    event: _HeadEvent


class _EventFrame(msgspec.Struct, gc=False, tag_field="method", tag=SESSION_EVENT):
    params: EventHead
    id: UnsetType = UNSET  # nothing can be decoded as this: a frame with an id is no event


class _Key(msgspec.Struct, gc=False):
    sessionId: Any = UNSET  # noqa: N815


_HEAD_MEMBERS = ("deltaContent", "messageId")

_decode_head = msgspec.json.Decoder(EventHead).decode
_decode_event = msgspec.json.Decoder(_EventFrame).decode
_decode_key = msgspec.json.Decoder(_Key).decode


def decode_session_frame(frame: bytes) -> Message:
    """Return the message a frame carries; of a `session.event`, head and frame as its params.

    Most frames of a session server are events. Going over them once instead of twice (envelope,
    then params) is a third of what routing them costs.
    """
    try:
        event = _decode_event(frame)
    except (ValueError, RecursionError):
        return decode_frame(frame)
    if not frame.isascii() and decode_frame(frame).__class__ is not Notification:
        return decode_frame(frame)  # a part that was skipped is not UTF-8
    return Notification(SESSION_EVENT, (event.params, frame))


def read_head(params: Any) -> EventHead | None:
    """Return the head of a `session.event` decoded otherwise, or None if it is not one."""
    try:
        if params.__class__ is Raw:
            return _decode_head(params)
        return msgspec.convert(params, EventHead)
    except (ValueError, RecursionError):
        pass
    try:  # members of another type, or a lone surrogate
        value = decode_value(params)
        session_id, event_type = value["sessionId"], value["event"]["type"]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    if not isinstance(session_id, str) or not isinstance(event_type, str):
        return None
    data = value["event"].get("data")
    if not isinstance(data, dict):
        return EventHead(session_id, _HeadEvent(event_type))
    members = {key: data[key] for key in _HEAD_MEMBERS if isinstance(data.get(key), str)}
    return EventHead(session_id, _HeadEvent(event_type, _HeadData(**members)))


def read_session_id(message: Request | Notification) -> str | None:
    """Return the session a message belongs to, if it says so."""
    params = message.params
    try:
        if params.__class__ is Raw:
            value = _decode_key(params).sessionId
        else:
            value = params.get("sessionId") if isinstance(params, dict) else None
    except (ValueError, RecursionError):
        try:
            decoded = json.loads(bytes(params))
        except (ValueError, RecursionError):
            return None
        value = decoded.get("sessionId") if isinstance(decoded, dict) else None
    return value if isinstance(value, str) else None


def read_request(message: Request, responder: Any, size: int) -> RoutedMessage:
    """Return what a request to a session asks for.

    Raises:
        msgspec.ValidationError: its params do not fit; the text names the path.
    """
    if message.method == "tool.call":
        params = decode_value(message.params, ToolCallParams)
        return ToolCall(message.id, params, responder, size)
    params = decode_value(message.params)
    if message.method == "permission.request":
        details = params.get("permissionRequest")
        if not isinstance(details, dict):
            raise msgspec.ValidationError("Expected `object` - at `$.permissionRequest`")
        return PermissionRequest(message.id, str(details.get("kind", "")), details, responder, size)
    return SessionRequest(message.id, message.method, params, responder, size)


def read_event(head: EventHead, params: Any, size: int) -> RoutedMessage:
    """Return what a `session.event` means."""
    event, data = head.event, head.event.data
    if event.type == DELTA and data:
        return SessionEvent(DELTA, params, data.deltaContent, data.messageId, size)
    if event.type == "external_tool.requested":
        return _read_asking(event.type, params, size, _read_external_tool)
    if event.type == "permission.requested":
        return _read_asking(event.type, params, size, _read_permission)
    return SessionEvent(event.type, params, size=size)


def is_turn_end(event: SessionEvent) -> bool:
    """Whether nothing more of this turn will come."""
    return event.event_type == IDLE


class Turn:
    """The answer of one turn as it comes in, whichever way the server sends it.

    Deltas are the answer; a completed message counts only where there were no deltas of it, and
    the content of a turn's end only where nothing came since the one before. Nothing is ever said
    twice. Where a server leaves out the ids of messages, a completed one is that of the deltas
    before it, or the one that was completed in the same words just before.
    """

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.streaming: object = None  # the message whose pieces are coming
        self._known: set[object] = set()  # the messages whose text we have
        self._completed: tuple[object, str] | None = None  # the message completed last
        self._told = 0  # how many pieces there were when a turn of the assistant's ended

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def begin_message(self, message_id: object) -> None:
        """Learn that the pieces are now those of this message."""
        self.streaming = message_id
        self._completed = None
        if message_id is not UNSET:
            self._known.add(message_id)

    def complete(self, event: SessionEvent) -> str:
        """Take an event that may bring a whole message; return its text where that is new."""
        if event.event_type not in COMPLETIONS:
            return ""
        message_id, content = _read_message(event)
        if event.event_type == "assistant.turn_end":
            is_known = len(self.pieces) > self._told
        elif content:
            is_known = self._has(message_id, content)
            self.streaming = None  # what comes now is another message, or has no id
            self._completed = message_id, content
            if message_id is not UNSET:
                self._known.add(message_id)
        else:
            is_known = True
        if content and not is_known:
            self.pieces.append(content)
        if event.event_type == "assistant.turn_end":
            self._told = len(self.pieces)
        return "" if is_known else content

    def _has(self, message_id: object, content: str) -> bool:
        if message_id is not UNSET and message_id in self._known:
            return True
        if self.streaming is not None:  # its deltas came just before, unless both say otherwise
            return UNSET in (message_id, self.streaming)
        if self._completed is None or self._completed[1] != content:
            return False
        return UNSET in (message_id, self._completed[0])


def _read_message(event: SessionEvent) -> tuple[object, str]:
    """Return id and text of a message, as far as they can be read."""
    try:
        data = event.data
    except ValueError:  # a number no computer can hold; the rest of the turn is fine
        return UNSET, ""
    message_id, content = data.get("messageId"), data.get("content")
    return (
        message_id if isinstance(message_id, str) else UNSET,
        content if isinstance(content, str) else "",
    )


def _decode_params(raw: Any) -> Any:
    if raw.__class__ is bytes:  # a whole frame
        return decode_value(decode_frame(raw).params)  # type: ignore[union-attr]
    return decode_value(raw)


def _read_asking(event_type: str, params: Any, size: int, read: Any) -> RoutedMessage:
    try:
        value = _decode_params(params)
        data, session_id = value["event"]["data"], value["sessionId"]
        request_id = data["requestId"]
        if isinstance(request_id, str):  # else nobody could answer it
            return read(request_id, data, session_id, size)  # type: ignore[no-any-return]
    except (KeyError, TypeError, ValueError, RecursionError):
        pass
    return SessionEvent(event_type, params, size=size)


def _read_external_tool(
    request_id: str, data: dict[str, Any], session_id: str, size: int
) -> ToolCall:
    # However little it says: there is somebody who waits for an answer.
    call_id, name = data.get("toolCallId"), data.get("toolName")
    params = ToolCallParams(
        session_id=session_id,
        tool_call_id=call_id if isinstance(call_id, str) else "",
        tool_name=name if isinstance(name, str) else "",
        arguments=data.get("arguments", UNSET),
    )
    return ToolCall(request_id, params, None, size)


def _read_permission(
    request_id: str, data: dict[str, Any], _session_id: str, size: int
) -> PermissionRequest:
    details = data.get("permissionRequest")
    details = details if isinstance(details, dict) else {}
    return PermissionRequest(request_id, str(details.get("kind", "")), details, None, size)
