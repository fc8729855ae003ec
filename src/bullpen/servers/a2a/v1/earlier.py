"""What the SDK leaves open of 0.3, which it speaks by turning everything into 1.0 and back.

What cannot be turned is refused before it comes to that; some answers are mended afterwards.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3 import conversions, types
from a2a.compat.v0_3.proto_utils import FromProto
from a2a.utils.errors import InvalidParamsError, VersionNotSupportedError
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from starlette.responses import JSONResponse, Response

__all__ = [
    "card",
    "check_body",
    "check_request",
    "check_version",
    "is_method",
    "mended",
    "name_config",
]

MESSAGE_METHODS = ("message/send", "message/stream")
CONFIG_METHOD = "tasks/pushNotificationConfig/get"
_VERSIONS = ("0.3", "1.0")
"""What is spoken, by its major number."""
_VERSION = re.compile(r"(?P<major>[01])(\.(?P<minor>[0-9]{1,4})(\.[0-9]{1,4})?)?")


def is_method(method: Any) -> bool:
    """Whether it is a method of 0.3 that is asked by JSON-RPC."""
    return isinstance(method, str) and "/" in method


def check_version(version: str, major: int = 0) -> None:
    """See that who says which version it speaks says the one that is spoken there.

    A version is a major and a minor number; the number of an edition behind them means nothing.

    Raises:
        VersionNotSupportedError: it is another. The SDK calls that an error of ours in 0.3,
            compares major numbers only, and takes what only begins with a version for one.
    """
    if not version:
        return
    spoken, said = _VERSIONS[major], _VERSION.fullmatch(version)
    minor = spoken.partition(".")[2]
    if said is None or int(said["major"]) != major or said["minor"] not in (None, minor):
        raise VersionNotSupportedError(f"this is asked in A2A {spoken}, not in {version[:20]}")


def check_body(body: Any, kind: type[Message]) -> None:
    """See that what is sent by REST can be turned into 1.0, if it is 0.3.

    Raises:
        InvalidParamsError: it cannot.
    """
    with _refused():
        if kind is old.SendMessageRequest:
            sent = ParseDict(body, old.SendMessageRequest(), ignore_unknown_fields=True)
            _check_message(FromProto.message_send_params(sent))
        elif kind is old.CreateTaskPushNotificationConfigRequest:
            config = old.CreateTaskPushNotificationConfigRequest()
            ParseDict(body, config, ignore_unknown_fields=True)
            FromProto.task_push_notification_config_request(config)


def check_request(body: Any) -> None:
    """See that what is sent by JSON-RPC can be turned into 1.0, if it is a message of 0.3.

    Raises:
        InvalidParamsError: it cannot.
    """
    if (
        isinstance(body, dict)
        and body.get("jsonrpc") == "2.0"
        and body.get("method") in MESSAGE_METHODS
    ):
        with _refused():
            _check_message(types.MessageSendParams.model_validate(body.get("params")))


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except (ParseError, ValueError, TypeError) as error:
        raise InvalidParamsError("this is no message of A2A 0.3") from error


def _check_message(params: types.MessageSendParams) -> None:
    conversions.to_core_send_message_request(types.SendMessageRequest(id="", params=params))


def card(response: Response) -> Response:
    """Return the card by REST with the names it has in JSON, and not with those of Python."""
    if response.status_code != 200 or not isinstance(response, JSONResponse):
        return response
    told = types.AgentCard.model_validate(json.loads(bytes(response.body)))
    return JSONResponse(told.model_dump(mode="json", by_alias=True, exclude_none=True))


def name_config(body: Any) -> None:
    """Have a request name the one push configuration there is, which it need not."""
    params = body.get("params") if isinstance(body, dict) else None
    if (
        isinstance(params, dict)
        and body.get("method") == CONFIG_METHOD
        and not params.get("pushNotificationConfigId")
    ):
        params["pushNotificationConfigId"] = ""


def mended(body: Any, response: Response) -> Response:
    """Return an answer of 0.3 as its specification has it.

    Wrong parameters are -32602, which the SDK calls a wrong request; and where there is nothing to
    answer, the answer is null, which the SDK leaves out.
    """
    method = body.get("method") if isinstance(body, dict) else None
    if not is_method(method) or not isinstance(response, JSONResponse):
        return response
    told = json.loads(bytes(response.body))
    error = told.get("error")
    if error is not None and error.get("code") == -32600 and body.get("jsonrpc") == "2.0":
        error.update(code=-32602, message=InvalidParamsError.message)
    elif error is None and "result" not in told:
        told["result"] = None
    else:
        return response
    return JSONResponse(told)
