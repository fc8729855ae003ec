"""One frame, one message: the only place where JSON is written and read.

Decoding never raises: what is no message comes out as `Malformed`, saying what to answer. The
common case is one pass of msgspec over the envelope, with `params` and `result` left unparsed;
everything unusual takes the patient path below it.
"""

import json
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from bullpen.jsonrpc.errors import INVALID_REQUEST, PARSE_ERROR, UnserializableError
from bullpen.jsonrpc.wire import (
    Batch,
    Error,
    Id,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decode_value,
)

__all__ = ["classify_message", "decode_frame", "encode_message"]


class _Envelope(msgspec.Struct, gc=False):
    # `jsonrpc` is not looked at: Codex leaves it out, and whoever says "1.0" means the same.
    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Error | UnsetType | None = UNSET


_encode = msgspec.json.Encoder().encode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def encode_message(message: Message) -> bytes:
    """Return the JSON text of a message, UTF-8, on one line unless it passes on raw parts.

    Raises:
        UnserializableError: it holds something JSON has no word for.
    """
    try:
        return _encode(message)
    except UnicodeEncodeError:
        return _encode_patiently(message)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise UnserializableError(error) from error


def decode_frame(frame: bytes) -> Message:
    """Return the message a frame carries."""
    try:
        envelope = _decode_envelope(frame)
    except (ValueError, RecursionError):  # bad JSON or UTF-8, a wrong shape, absurd nesting
        return _decode_patiently(frame)
    # msgspec skips over the raw parts without looking at their encoding.
    if not frame.isascii() and not _is_utf8(frame):
        return _not_json(frame)
    method, id_ = envelope.method, envelope.id
    if method is not UNSET:
        if id_ is UNSET:
            return Notification(method, envelope.params)
        return Request(id_, method, envelope.params)
    if id_ is not UNSET and envelope.result is not UNSET and not envelope.error:
        return Response(id_, envelope.result)
    return _decode_patiently(frame)


def _encode_patiently(message: Message) -> bytes:
    # A lone surrogate cannot be UTF-8, but JSON can spell it as it came.
    try:
        value = msgspec.to_builtins(message, enc_hook=_parse_raw)
        return json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise UnserializableError(error) from error


def _decode_patiently(frame: bytes) -> Message:
    try:
        # Lone surrogates, which msgspec refuses, pass here; NaN, which is not JSON, does not.
        value = json.loads(frame.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):  # also an integer of more than 4300 digits
        return _not_json(frame)
    if not isinstance(value, list):
        return classify_message(value)
    if not value:
        return Malformed(Error(INVALID_REQUEST, "Invalid Request: an empty batch"))
    return Batch(classify_message(item) for item in value)


def classify_message(value: Any) -> Request | Notification | Response | Malformed:
    """Return what a decoded JSON value is: the type of the result is its kind.

    With a method and an id it is a request, with a method alone a notification, with an id and a
    result or error a response; everything else is malformed.
    """
    if not isinstance(value, dict):
        return _invalid(f"expected an object, got {_json_type(value)}")
    has_id, has_method = "id" in value, "method" in value
    id_ = value.get("id")
    readable_id = id_ if _is_id(id_) else None
    params = value.get("params", UNSET)
    if has_method:
        method = value["method"]
        if not isinstance(method, str):
            return _invalid("method is not a string", readable_id)
        if not has_id:
            return Notification(method, params)
        if not _is_id(id_):
            return _invalid("id is not a string, an integer or null")
        return Request(id_, method, params)
    if "result" in value or "error" in value:
        return _classify_response(value, has_id and _is_id(id_))
    return _invalid("neither a method nor a result or error", readable_id)


def _classify_response(value: dict[str, Any], has_valid_id: bool) -> Response | Malformed:
    error = value.get("error")
    if has_valid_id and error is None and "result" in value:
        return Response(value["id"], value["result"])
    if has_valid_id and value.get("result") is None and error is not None:
        try:
            return Response(value["id"], error=msgspec.convert(error, Error))
        except msgspec.ValidationError:
            pass
    return _invalid("a response needs an id and either a result or an error", is_response=True)


def _invalid(reason: str, id_: Id = None, *, is_response: bool = False) -> Malformed:
    return Malformed(Error(INVALID_REQUEST, f"Invalid Request: {reason}"), id_, is_response)


def _not_json(frame: bytes) -> Malformed:
    head = frame[:4096]
    looks_like_response = (b'"result"' in head or b'"error"' in head) and b'"method"' not in head
    return Malformed(Error(PARSE_ERROR, "Parse error"), None, looks_like_response)


def _is_id(value: object) -> bool:
    # By exact type: to Python True is 1 and 1.0 is 1.
    return value is None or type(value) is int or type(value) is str


def _is_utf8(frame: bytes) -> bool:
    try:
        frame.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _parse_raw(value: object) -> Any:
    if isinstance(value, Raw):
        return decode_value(value)
    raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _json_type(value: object) -> str:
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a string",
        list: "an array",
    }
    return names.get(type(value), "null")
