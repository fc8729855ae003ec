"""The objects that cross the boundary between protocol and transport.

They are values: frozen, equal by content, free of any encoding. A byte transport puts
`msgspec.Raw` into `params` and `result`, so that nothing is parsed before somebody wants it; a
channel hands over whatever object the sender gave. `decode_value` makes a typed value of either.
"""

import json
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

__all__ = [
    "Batch",
    "Error",
    "Id",
    "Malformed",
    "Message",
    "Notification",
    "Request",
    "Response",
    "decode_value",
]

Id = int | str | None

_decode_anything = msgspec.json.Decoder().decode


class Error(msgspec.Struct, frozen=True, gc=False):
    """The error object of a response."""

    code: int
    message: str
    data: Any = UNSET


# The tag is the one constant member of every object on the wire. `gc=False` spares the collector
# a million short-lived values: nothing inside a message ever refers back to it.
class Request(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A question that gets exactly one response with the same id."""

    id: Id
    method: str
    params: Any = UNSET


class Notification(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """A statement nobody answers."""

    method: str
    params: Any = UNSET


class Response(msgspec.Struct, frozen=True, gc=False, tag_field="jsonrpc", tag="2.0"):
    """The answer to the request with this id: a result or an error, never both."""

    id: Id
    result: Any = UNSET
    error: Error | UnsetType = UNSET

    def __post_init__(self) -> None:
        if (self.result is UNSET) is (self.error is UNSET):
            raise ValueError("a response carries either a result or an error")


class Malformed(msgspec.Struct, frozen=True, gc=False):
    """Something arrived that is no request, notification or response.

    `id` is what could be read of its id. A peer must not be told of a response it garbled, or two
    confused peers would answer each other's errors for ever: hence `is_response`.
    """

    error: Error
    id: Id = None
    is_response: bool = False


class Batch(tuple["Request | Notification | Response | Malformed", ...]):
    """Several messages in one frame. We accept them and send one only to answer one."""

    __slots__ = ()


Message = Request | Notification | Response | Batch | Malformed


def decode_value(value: Any, type_: Any = Any) -> Any:
    """Make `params` or `result` into a value of the given type.

    A value of that type already (as channels deliver it) is returned as it is, not copied.

    Raises:
        msgspec.ValidationError: the value does not fit the type; the text names the path.
    """
    if value is UNSET:
        value = {}
    elif value.__class__ is Raw:
        try:
            if type_ is Any:
                return _decode_anything(value)
            return msgspec.json.decode(value, type=type_)
        except msgspec.ValidationError:
            raise
        except (ValueError, RecursionError):
            # A lone surrogate (Node cuts strings between two halves) is refused by msgspec and
            # understood by the standard library.
            value = json.loads(bytes(value))
    if type_ is Any or value.__class__ is type_:
        return value
    return msgspec.convert(value, type_)
