"""What is wrong with a request before anybody reads it as one of A2A.

The SDK reads leniently: a word it does not know becomes none at all, and a number that has more
digits than a float becomes another. Who sent it would never learn. So it is refused here.
"""

import json
import math
from typing import Any

from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError, InvalidRequestError
from google.protobuf.descriptor import Descriptor
from starlette.requests import Request

from bullpen.servers.a2a.v1.mapping import SAFE_INTEGER

__all__ = ["NotJson", "check_json", "check_objects", "read_json"]

DEEPEST = 100  # protobuf reads no deeper


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


def check_objects(value: Any, kind: Descriptor | None, name: str = "") -> None:
    """See that there are objects and lists where a kind of message has some.

    Raises:
        InvalidParamsError: there is something else, of which the SDK would read nothing.
    """
    if kind is not None and kind.full_name.startswith("google."):
        return  # which is read strictly
    if not isinstance(value, dict):
        raise InvalidParamsError(f"{name or 'what is sent'}: it is to be a JSON object")
    for field in kind.fields if kind is not None else ():
        found = value.get(field.json_name, value.get(field.name))
        if field.message_type is None or found is None:
            continue
        inner = f"{name}.{field.json_name}".removeprefix(".")
        if not field.is_repeated:
            check_objects(found, field.message_type, inner)
            continue
        if not isinstance(found, list):
            raise InvalidParamsError(f"{inner}: it is to be a list")
        for index, each in enumerate(found):
            check_objects(each, field.message_type, f"{inner}[{index}]")


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
