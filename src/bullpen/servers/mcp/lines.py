"""A line as an MCP peer writes it. What is no JSON-RPC 2.0 comes out as what to answer."""

import json
from typing import Any

import msgspec

from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.errors import INVALID_REQUEST
from bullpen.jsonrpc.wire import Batch, Error, Malformed, Message, Notification, Request

__all__ = ["MAX_LINE_BYTES", "decode_line"]

MAX_LINE_BYTES = 8 * 2**20
"""A message of 1 MB in which every character is escaped, and what stands around it."""


class _Version(msgspec.Struct):
    jsonrpc: Any = None


_decode_version = msgspec.json.Decoder(_Version).decode


def decode_line(line: bytes) -> Message:
    """Return the message on a line, which has to name its version."""
    message = decode_frame(line)
    if isinstance(message, Request | Notification):
        return message if _says_version(line) else _unversioned(message)
    if isinstance(message, Batch):
        pairs = zip(message, json.loads(line), strict=True)
        return Batch(
            _unversioned(each)
            if isinstance(each, Request | Notification) and value.get("jsonrpc") != "2.0"
            else each
            for each, value in pairs
        )
    return message


def _says_version(line: bytes) -> bool:
    try:
        return bool(_decode_version(line).jsonrpc == "2.0")
    except (ValueError, RecursionError):  # lone surrogates, which the standard library takes
        return bool(json.loads(line).get("jsonrpc") == "2.0")


def _unversioned(message: Request | Notification) -> Malformed:
    id_ = message.id if isinstance(message, Request) else None
    return Malformed(Error(INVALID_REQUEST, 'Invalid Request: "jsonrpc" is not "2.0"'), id_)
