"""The plainest request of all, some text for an agent, read and answered without a detour.

Most of what is done for a request is to look for what this one does not have. So it is read here,
in one look, into the very message that the binding would make of it. Whatever is not as plain, or
is wrong, is left to the binding: there is nothing here that refuses anything.
"""

import logging
from typing import Annotated, Any, Literal

import msgspec
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import A2AError, InternalError
from google.protobuf.json_format import MessageToDict

from bullpen.servers.a2a.v1.handler import Handler
from bullpen.servers.a2a.v1.mapping import SAFE_INTEGER

__all__ = ["Plain", "answer_plain", "read_plain"]

logger = logging.getLogger("bullpen.a2a")

VERSION = "1.0"


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str


class _Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    message_id: str
    role: Literal["ROLE_USER"]
    parts: Annotated[tuple[_Part, ...], msgspec.Meta(min_length=1)]
    context_id: str = ""
    task_id: str = ""


class _Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    return_immediately: bool = False


class _Params(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    message: _Message
    configuration: _Configuration = _Configuration()


class Plain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Such a request, by JSON-RPC."""

    jsonrpc: Literal["2.0"]
    id: str | Annotated[int, msgspec.Meta(ge=-SAFE_INTEGER, le=SAFE_INTEGER)]
    method: Literal["SendMessage"]
    params: _Params

    @property
    def request(self) -> pb.SendMessageRequest:
        """What it asks for, as A2A has it."""
        said = self.params.message
        message = pb.Message(
            message_id=said.message_id,
            role=pb.Role.ROLE_USER,
            parts=[pb.Part(text=each.text) for each in said.parts],
            context_id=said.context_id,
            task_id=said.task_id,
        )
        request = pb.SendMessageRequest(message=message)
        request.configuration.return_immediately = self.params.configuration.return_immediately
        return request


def read_plain(body: Any, version: str) -> Plain | None:
    """Return a request that is as plain as that; None if it is not."""
    if version != VERSION:
        return None
    try:
        return msgspec.convert(body, Plain)
    except msgspec.ValidationError:
        return None


async def answer_plain(plain: Plain, handler: Handler, context: ServerCallContext) -> Any:
    """Return what the binding would answer to it."""
    try:
        told = await handler.on_message_send(plain.request, context)
    except A2AError as error:
        return build_error_response(plain.id, error)
    except Exception:  # the boundary: it is ours, and not told
        logger.exception("a message could not be sent")
        return build_error_response(plain.id, InternalError())
    answer = pb.SendMessageResponse()
    if isinstance(told, pb.Task):
        answer.task.CopyFrom(told)
    else:
        answer.message.CopyFrom(told)
    return {"result": MessageToDict(answer), "id": plain.id, "jsonrpc": "2.0"}
