"""What can be asked in A2A's bindings: what the SDK mounts, as a table. It decides, does nothing.

JSON-RPC is one operation, in which the method is said in the body; REST has one for each. Those of
1.0 are there once more for each tenant, of which we know none and take any.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import a2a_pb2 as pb

from bullpen.servers.a2a.operations import Operation, Query
from bullpen.servers.a2a.v1.card import JSONRPC, REST
from bullpen.servers.a2a.v1.earlier_operations import (
    IN_A_HEADER,
    LONG_ID,
    TIGHTER,
    URL,
    WITH_TEXT,
    methods_of_0_3,
    rest_of_0_3,
)
from bullpen.servers.a2a.v1.listing import DEFAULT_PAGE, LARGEST_PAGE
from bullpen.servers.a2a.v1.shapes import COMPONENTS, Json, Shapes

__all__ = ["Table", "table"]

CARD = "/.well-known/agent-card.json"
MEDIA_TYPES = ("application/a2a+json", "application/json")

_NOT_NEGATIVE = {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 2**31 - 1}]}
_TIGHTER: dict[str, Json] = {
    "Message.messageId": {"minLength": 1},
    "Message.role": {"enum": ["ROLE_USER"]},
    "Message.parts": WITH_TEXT,
    "SendMessageConfiguration.historyLength": _NOT_NEGATIVE,
    "TaskPushNotificationConfig.id": LONG_ID,
    "TaskPushNotificationConfig.url": URL,
    "TaskPushNotificationConfig.token": IN_A_HEADER,
    "AuthenticationInfo.scheme": {**IN_A_HEADER, "minLength": 1},
    "AuthenticationInfo.credentials": IN_A_HEADER,
    "GetTaskRequest.historyLength": {"minimum": 0},
    "ListTasksRequest.historyLength": {"minimum": 0},
    "ListTasksRequest.pageSize": {"minimum": 1, "maximum": LARGEST_PAGE, "default": DEFAULT_PAGE},
    "ListTasksRequest.status": {
        "enum": [each for each in pb.TaskState.keys() if each != "TASK_STATE_UNSPECIFIED"]  # noqa: SIM118 - not a mapping
    },
}
_VERSION = Query(
    "A2A-Version",
    {"type": "string", "pattern": r"^1(\.0(\.[0-9]{1,4})?)?$"},
    "what is spoken; without it, 0.3. It may stand in the address instead",
    "header",
    is_required=True,
)
_ANY_VERSION = Query(
    "A2A-Version",
    {"type": "string"},
    "what is spoken; the card of 0.3 is told for 0.x",
    "header",
)
_EXTENSIONS = Query(
    "A2A-Extensions",
    {"type": "string", "pattern": "^[!-~]*$"},
    "addresses of extensions, with commas between them",
    "header",
)


class Table(NamedTuple):
    """The operations, and what their schemas refer to."""

    operations: tuple[Operation, ...]
    schemas: dict[str, Json]


def table() -> Table:
    """Return what can be asked."""
    new, earlier = Shapes("v1", _TIGHTER), Shapes("v0.3", TIGHTER)
    rest = tuple(_rest(new))
    operations = (
        *_cards(new),
        *_jsonrpc(new),
        *rest,
        *map(_of_tenant, rest),
        *rest_of_0_3(earlier),
    )
    schemas = {**new.schemas, **earlier.schemas, "v1.Error": _ERROR, "v1.OldCard": _OLD_CARD}
    return Table(operations, schemas)


# ------------------------------------------------------------------------------------------- cards

_OLD_CARD: Json = {
    "description": "A card that clients of 0.3 can read as well",
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "protocolVersion": {"const": "0.3.0"},
        "url": {"type": "string", "format": "uri"},
        "preferredTransport": {"const": "JSONRPC"},
        "supportedInterfaces": {"type": "array", "minItems": 1},
    },
    "required": [
        "name",
        "description",
        "version",
        "protocolVersion",
        "url",
        "preferredTransport",
        "additionalInterfaces",
        "supportedInterfaces",
        "capabilities",
        "defaultInputModes",
        "defaultOutputModes",
        "skills",
    ],
}


def _cards(shapes: Shapes) -> Iterable[Operation]:
    old_card = {"$ref": f"{COMPONENTS}v1.OldCard"}
    either = {"anyOf": [shapes.answered(pb.AgentCard), old_card]}
    yield Operation(
        "getCard", "GET", CARD, "Read its card", either, query=(_ANY_VERSION,), tag="a2a"
    )
    yield Operation(
        "getMergedCard", "GET", f"/v0.3{CARD}", "Read its card as 0.3 has it", old_card, tag="a2a"
    )


# ---------------------------------------------------------------------------------------- JSON-RPC

_ID = {"type": ["string", "integer", "null"]}


def _jsonrpc(shapes: Shapes) -> Iterable[Operation]:
    asked = [
        _request({"const": method}, shapes.sent(kind))
        for method, kind in JsonRpcDispatcher.METHOD_TO_MODEL.items()
    ]
    asked += [
        _request({"const": method}, params)
        for method, params in methods_of_0_3(shapes.schemas).items()
    ]
    for name, path in (("askJsonRpc", f"/{JSONRPC}"), ("askJsonRpcSlash", f"/{JSONRPC}/")):
        yield Operation(
            name,
            "POST",
            path,
            "Ask by JSON-RPC: the method is in the body, and so is an error",
            _ANSWER,
            "read",
            {"oneOf": asked},
            query=(_ANY_VERSION, _EXTENSIONS),
            tag="a2a",
            events=_ANSWER,
        )


def _request(method: Json, params: Json | None) -> Json:
    properties = {"jsonrpc": {"const": "2.0"}, "id": _ID, "method": method}
    if params is not None:
        properties["params"] = params
    return {"type": "object", "properties": properties, "required": list(properties)}


_ANSWER: Json = {
    "type": "object",
    "properties": {
        "jsonrpc": {"const": "2.0"},
        "id": _ID,
        "result": {},
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer", "minimum": -32768, "maximum": -32000},
                "message": {"type": "string"},
                "data": {},
            },
            "required": ["code", "message"],
            "additionalProperties": False,
        },
    },
    "required": ["jsonrpc", "id"],
    "oneOf": [{"required": ["result"]}, {"required": ["error"]}],
    "additionalProperties": False,
}

# -------------------------------------------------------------------------------------------- REST

_ERROR: Json = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "integer", "minimum": 400, "maximum": 599},
                "status": {"type": "string", "pattern": "^[A-Z_]+$"},
                "message": {"type": "string"},
                "details": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"@type": {"type": "string"}},
                        "required": ["@type"],
                    },
                },
            },
            "required": ["code", "status", "message"],
            "additionalProperties": False,
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}


def _rest(shapes: Shapes) -> Iterable[Operation]:
    def rest(name: str, method: Any, path: str, tells: str, answer: Any, **more: Any) -> Operation:
        query = (_VERSION, *more.pop("query", ()))
        return Operation(
            name,
            method,
            f"/{REST}{path}",
            tells,
            answer,
            more.pop("scope", "read"),
            query=query,
            refusals=(400, *more.pop("refusals", ())),
            tag="a2a",
            media_types=MEDIA_TYPES,
            **more,
        )

    message, task = shapes.sent(pb.SendMessageRequest), shapes.answered(pb.Task)
    config, event = (
        shapes.answered(pb.TaskPushNotificationConfig),
        shapes.answered(pb.StreamResponse),
    )
    yield rest(
        "sendMessage",
        "POST",
        "/message:send",
        "Send a message, and wait for what comes of it",
        shapes.answered(pb.SendMessageResponse),
        scope="send",
        body=message,
        query=(_EXTENSIONS,),
        leads_to={"id": "/task/id"},
    )
    yield rest(
        "streamMessage",
        "POST",
        "/message:stream",
        "Send a message, and follow what comes of it",
        None,
        events=event,
        scope="send",
        body=message,
        query=(_EXTENSIONS,),
    )
    yield rest(
        "cancelTask",
        "POST",
        "/tasks/{id}:cancel",
        "Cancel a task",
        task,
        scope="send",
        refusals=(409,),
    )
    yield rest(
        "subscribeToTask", "GET", "/tasks/{id}:subscribe", "Follow a task", None, events=event
    )
    yield rest(
        "subscribeToTaskByPost",
        "POST",
        "/tasks/{id}:subscribe",
        "Follow a task",
        None,
        events=event,
    )
    yield rest(
        "getTask",
        "GET",
        "/tasks/{id}",
        "Look at a task",
        task,
        query=_fields(shapes, pb.GetTaskRequest, "historyLength"),
    )
    yield rest(
        "listTasks",
        "GET",
        "/tasks",
        "List tasks, the one that changed last first",
        shapes.answered(pb.ListTasksResponse),
        query=_fields(
            shapes,
            pb.ListTasksRequest,
            "contextId",
            "status",
            "pageSize",
            "pageToken",
            "historyLength",
            "statusTimestampAfter",
            "includeArtifacts",
        ),
    )
    yield rest(
        "createPushConfig",
        "POST",
        "/tasks/{id}/pushNotificationConfigs",
        "Have an address told what becomes of a task",
        config,
        scope="send",
        body=shapes.sent(pb.TaskPushNotificationConfig),
        leads_to={"id": "/taskId", "push_id": "/id"},
    )
    yield rest(
        "listPushConfigs",
        "GET",
        "/tasks/{id}/pushNotificationConfigs",
        "List who is told of a task",
        shapes.answered(pb.ListTaskPushNotificationConfigsResponse),
    )
    one = "/tasks/{id}/pushNotificationConfigs/{push_id}"
    yield rest("getPushConfig", "GET", one, "Look at one of them", config)
    yield rest(
        "deletePushConfig",
        "DELETE",
        one,
        "Have it told no more",
        {"type": "object", "maxProperties": 0},
        scope="send",
    )
    yield rest(
        "getExtendedCard",
        "GET",
        "/extendedAgentCard",
        "Read its card with what it is doing",
        shapes.answered(pb.AgentCard),
    )


def _fields(shapes: Shapes, kind: Any, *names: str) -> tuple[Query, ...]:
    return tuple(Query(name, shapes.field(kind, name)) for name in names)


def _of_tenant(operation: Operation) -> Operation:
    path = operation.path.replace(f"/{REST}", f"/{REST}/{{tenant}}")
    return operation._replace(name=f"{operation.name}OfTenant", path=path, leads_to={})
