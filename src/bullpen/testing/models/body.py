"""The body of an HTTP request: read however it was sent, unpacked, decoded, never too long."""

import json
import zlib
from collections.abc import Mapping
from io import BufferedIOBase

from bullpen.testing.models.conversation import Json
from bullpen.testing.models.errors import RequestRefused

__all__ = ["decode_json", "read_body", "unpack"]

MAX_BODY_BYTES = 64 * 2**20
MAX_LINE_BYTES = 4096  # of a chunk's size, or a trailer

_WINDOW_BITS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


def read_body(stream: BufferedIOBase, headers: Mapping[str, str]) -> bytes:
    """Return the body that follows the headers, whose names are in lower case.

    Raises:
        RequestRefused: it is malformed or too long. What follows on the connection is lost.
    """
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return _read_chunks(stream)
    length = _number(headers.get("content-length", "0"), 10)
    return _read_exactly(stream, length)


def _read_chunks(stream: BufferedIOBase) -> bytes:
    body = bytearray()
    while size := _number(stream.readline(MAX_LINE_BYTES).decode("latin-1").split(";")[0], 16):
        if len(body) + size > MAX_BODY_BYTES:
            raise RequestRefused(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
        body += _read_exactly(stream, size)
        stream.readline(MAX_LINE_BYTES)
    while stream.readline(MAX_LINE_BYTES).strip():
        pass  # trailers
    return bytes(body)


def _read_exactly(stream: BufferedIOBase, length: int) -> bytes:
    if length > MAX_BODY_BYTES:
        raise RequestRefused(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
    data = stream.read(length)
    if len(data) < length:
        raise ConnectionResetError("the client left in the middle of its request")
    return data


def _number(text: str, base: int) -> int:
    try:
        number = int(text, base)
    except ValueError:
        number = -1
    if number < 0:
        raise RequestRefused(400, f"the length of the body is malformed: {text.strip()!r}")
    return number


def unpack(body: bytes, encoding: str) -> bytes:
    """Undo a content encoding.

    Raises:
        RequestRefused: the encoding is unknown, the body is not encoded so, or is too long.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in _WINDOW_BITS:
        known = ", ".join(_WINDOW_BITS)
        raise RequestRefused(
            415, f"this server does not read content-encoding {encoding}, only {known}"
        )
    unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        unpacked = unpacker.decompress(body, MAX_BODY_BYTES)
    except zlib.error as error:
        raise RequestRefused(400, f"the body is not {encoding}: {error}") from error
    if unpacker.unconsumed_tail:
        raise RequestRefused(413, f"the body is longer than {MAX_BODY_BYTES} bytes")
    return unpacked


def decode_json(body: bytes) -> Json:
    """Return the JSON object a body holds.

    Raises:
        RequestRefused: it holds none.
    """
    try:
        decoded = json.loads(body or b"{}")
    except (ValueError, RecursionError) as error:  # bad JSON, bad UTF-8, absurd nesting
        raise RequestRefused(400, f"the body is not JSON: {error}") from error
    if not isinstance(decoded, dict):
        raise RequestRefused(400, "the body is not a JSON object")
    return decoded
