"""What is wrong with a request before anybody reads it as one of A2A.

The SDK reads leniently: a word it does not know becomes none at all, a number that has more digits
than a float becomes another, an empty list is an object, what is required may be missing, and what
is neither true nor false is false. Who sent it would never learn. So it is refused here.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, InvalidRequestError
from google.api.field_behavior_pb2 import REQUIRED, field_behavior
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from starlette.requests import Request

from bullpen.servers.a2a.v1.mapping import SAFE_INTEGER

__all__ = ["NotJson", "check_json", "check_query", "check_shape", "read_json"]

DEEPEST = 100  # protobuf reads no deeper
INT32 = 2**31
_INTEGER = re.compile(r"-?[0-9]{1,10}")
_OPEN = {"google.protobuf.Struct": dict, "google.protobuf.Timestamp": str}
"""What these are written as; of what is in them, nothing is asked."""


class NotJson(InvalidRequestError):
    """What was sent is not JSON: a number of its own in JSON-RPC, a wrong request elsewhere."""


async def read_json(request: Request) -> Any:
    """Return what was sent.

    Raises:
        NotJson: it is none.
    """
    try:
        body = json.loads((await request.body()).decode(), parse_constant=_refuse)
        json.dumps(body, ensure_ascii=False).encode()  # lone surrogates are no characters
    except (ValueError, RecursionError) as error:
        raise NotJson("this is not JSON") from error
    request._json = body
    return body


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def check_json(body: Any, *, status: Any = None) -> None:
    """See that nothing in it would be lost or changed by reading it.

    Raises:
        InvalidParamsError: something would.
    """
    if status is not None and status not in pb.TaskState.keys():  # noqa: SIM118 - not a mapping
        raise InvalidParamsError(f"status: {str(status)[:40]!r} is no state of a task")
    _check(body, 0)


def _check(value: Any, depth: int) -> None:
    if depth > DEEPEST:
        raise InvalidParamsError("it is nested too deeply")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > SAFE_INTEGER:
        raise InvalidParamsError("a number above 2**53 would lose digits; send it as a string")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidParamsError("a number is larger than any that can be read")
    if isinstance(value, dict):
        for each in value.values():
            _check(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            _check(each, depth + 1)


def check_shape(value: Any, kind: type[Message], where: str = "") -> None:
    """See that what is sent as a message is written as one, and has what it must have.

    Raises:
        InvalidParamsError: it is not, or has not; it is told where.
    """
    _check_message(value, kind.DESCRIPTOR, where)


def _check_message(value: Any, message: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise InvalidParamsError(f"{where or 'params'}: it is no object")
    for field in message.fields:
        path = f"{where}.{field.camelcase_name}".removeprefix(".")
        said = value.get(field.camelcase_name, value.get(field.name))
        if said is not None:
            _check_field(said, field, path)
        elif REQUIRED in field.GetOptions().Extensions[field_behavior]:
            raise InvalidParamsError(f"{path}: it is missing")


def _check_field(value: Any, field: Any, where: str) -> None:
    if field.message_type is None:
        return  # protobuf asks for what it should be
    if field.message_type.GetOptions().map_entry:
        return
    if not field.is_repeated:
        _check_value(value, field.message_type, where)
        return
    if not isinstance(value, list):
        raise InvalidParamsError(f"{where}: it is no list")
    for index, each in enumerate(value):
        _check_value(each, field.message_type, f"{where}[{index}]")


def _check_value(value: Any, message: Any, where: str) -> None:
    expected = _OPEN.get(message.full_name)
    if expected is not None:
        if not isinstance(value, expected):
            kind = "object" if expected is dict else "time"
            raise InvalidParamsError(f"{where}: it is no {kind}")
    elif message.full_name != "google.protobuf.Value":
        _check_message(value, message, where)


def check_query(query: Mapping[str, str], kind: type[Message]) -> None:
    """See that what is said in an address is read as what it is.

    Raises:
        InvalidParamsError: it would not be.
    """
    for field in kind.DESCRIPTOR.fields:
        said = query.get(field.camelcase_name)
        if said is None:
            continue
        if field.type == FieldDescriptor.TYPE_BOOL and said.lower() not in ("true", "false"):
            raise InvalidParamsError(f"{field.camelcase_name}: it is neither true nor false")
        if field.type == FieldDescriptor.TYPE_INT32 and not _is_int32(said):
            raise InvalidParamsError(f"{field.camelcase_name}: it is no integer of 32 bits")
        if field.message_type is not None and not _is_time(said):
            raise InvalidParamsError(f"{field.camelcase_name}: it is no time as RFC 3339 has it")


def _is_int32(said: str) -> bool:
    return _INTEGER.fullmatch(said) is not None and -INT32 <= int(said) < INT32


def _is_time(said: str) -> bool:
    try:
        Timestamp().FromJsonString(said)
    except (ValueError, OverflowError):
        return False
    return True
