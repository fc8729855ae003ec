"""What can go wrong in the protocol, and who is at fault.

BullpenError
├── RpcError                 an error object, raised by a handler to be sent as it is
│   └── RemoteError          the peer answered our request with an error
├── LocalProtocolError       we broke the rules
│   ├── UnserializableError  a value JSON cannot carry was to be sent
│   └── AlreadyAnsweredError a request was to be answered twice
└── RemoteProtocolError      the peer broke the rules
    ├── FrameTooLongError    one frame was over the limit and has been skipped
    └── FramingLostError     the stream can no longer be cut into frames
"""

from typing import Any

from msgspec import UNSET

from bullpen.errors import BullpenError

__all__ = [
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "OVERLOADED",
    "PARSE_ERROR",
    "REQUEST_CANCELLED",
    "SHUTTING_DOWN",
    "AlreadyAnsweredError",
    "FrameTooLongError",
    "FramingLostError",
    "LocalProtocolError",
    "RemoteError",
    "RemoteProtocolError",
    "RpcError",
    "UnserializableError",
]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
OVERLOADED = -32001
SHUTTING_DOWN = -32002
REQUEST_CANCELLED = -32800


class RpcError(BullpenError):
    """An error for the peer: raise it in a handler and it is sent with these very fields."""

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


class RemoteError(RpcError):
    """The peer answered a request with an error. The connection is fine.

    Left uncaught in a handler it is passed on unchanged, as a proxy wants it.
    """


class LocalProtocolError(BullpenError):
    """This side was about to break the protocol; nothing was sent."""


class UnserializableError(LocalProtocolError):
    """A value cannot be written as JSON. Nothing was sent; the connection can still be used."""

    def __init__(self, reason: object) -> None:
        super().__init__(f"not serializable as JSON: {reason}")
        self.reason = reason


class AlreadyAnsweredError(LocalProtocolError):
    """The request already has its one response, which stands."""

    def __init__(self, request_id: object) -> None:
        super().__init__(f"request {request_id!r} has already been answered")
        self.request_id = request_id


class RemoteProtocolError(BullpenError):
    """The peer broke the protocol."""


class FrameTooLongError(RemoteProtocolError):
    """A frame was longer than the limit. It has been skipped; the next one can still be read."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"a frame is longer than {limit} bytes")
        self.limit = limit


class FramingLostError(RemoteProtocolError):
    """Nobody can tell where the next frame begins. The stream has to be closed."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"framing lost: {reason}")
        self.reason = reason
