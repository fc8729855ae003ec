"""What can be asked in A2A 0.3 by REST, as a table. It decides, does nothing."""

from collections.abc import Iterable
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter

from bullpen.servers.a2a.operations import Operation, Query
from bullpen.servers.a2a.v1.card import REST
from bullpen.servers.a2a.v1.push import LONGEST_ID
from bullpen.servers.a2a.v1.shapes import COMPONENTS, Json, Shapes

__all__ = ["IN_A_HEADER", "LONG_ID", "TIGHTER", "URL", "WITH_TEXT", "methods_of_0_3", "rest_of_0_3"]

OLD = "/v1"

_SOME_TEXT = {"type": "string", "pattern": r"[^\s\x1c-\x1f]"}
WITH_TEXT: Json = {
    "minItems": 1,
    "contains": {
        "anyOf": [
            {"required": ["data"]},
            {"required": ["text"], "properties": {"text": _SOME_TEXT}},
            {"required": ["url"], "properties": {"url": _SOME_TEXT}},
        ]
    },
}
URL = {"format": "uri", "pattern": r"^https?://[A-Za-z0-9.-]+(:[0-9]{1,4})?(/[A-Za-z0-9._~/-]*)?$"}
IN_A_HEADER = {"type": "string", "pattern": "^[ -~]*$", "maxLength": 4096}
LONG_ID = {"type": "string", "maxLength": LONGEST_ID}
"""What is asked of the parts of a message, and of where to post to, in every edition."""

TIGHTER: dict[str, Json] = {
    "SendMessageRequest": {"required": ["message"]},
    "Message": {"required": ["messageId", "role", "content"]},
    "Message.messageId": {"type": "string", "minLength": 1},
    "Message.role": {"enum": ["ROLE_USER"]},
    "Message.content": {"type": "array", **WITH_TEXT},
    "CreateTaskPushNotificationConfigRequest.parent": {"pattern": "^tasks/[^/]+$"},
    "TaskPushNotificationConfig": {"required": ["pushNotificationConfig"]},
    "PushNotificationConfig": {"required": ["url"]},
    "PushNotificationConfig.id": LONG_ID,
    "AuthenticationInfo": {"required": ["schemes"]},
    "AuthenticationInfo.schemes": {"minItems": 1, "items": {**IN_A_HEADER, "minLength": 1}},
    "AuthenticationInfo.credentials": IN_A_HEADER,
    "PushNotificationConfig.token": IN_A_HEADER,
    "PushNotificationConfig.url": {"type": "string", **URL},
}
"""What we ask of what is sent in 0.3, beyond its type."""

_VERSION = Query(
    "A2A-Version", {"type": "string", "pattern": r"^(0(\.3(\.[0-9]{1,4})?)?)?$"}, "", "header"
)


def methods_of_0_3(schemas: dict[str, Json]) -> dict[str, Json | None]:
    """Return the methods by JSON-RPC with their params; what these refer to is put into a dict."""
    found: dict[str, Json | None] = {}
    models: dict[str, Any] = dict(JSONRPC03Adapter.METHOD_TO_MODEL)
    for method, model in models.items():
        schema = model.model_json_schema(ref_template=f"{COMPONENTS}v0.3.{{model}}.said")
        schemas |= {f"v0.3.{name}.said": each for name, each in schema.pop("$defs", {}).items()}
        found[method] = schema["properties"].get("params")
    return found


def rest_of_0_3(shapes: Shapes) -> Iterable[Operation]:
    """Return what can be asked of 0.3 by REST."""

    def rest(name: str, method: Any, path: str, tells: str, answer: Any, **more: Any) -> Operation:
        return Operation(
            f"{name}Old",
            method,
            f"/{REST}{OLD}{path}",
            tells,
            answer,
            more.pop("scope", "read"),
            query=(_VERSION, *more.pop("query", ())),
            refusals=(400, *more.pop("refusals", ())),
            tag="a2a-0.3",
            **more,
        )

    message, task = shapes.sent(old.SendMessageRequest), shapes.answered(old.Task)
    config = shapes.answered(old.TaskPushNotificationConfig)
    event = shapes.answered(old.StreamResponse)
    configs = "/tasks/{id}/pushNotificationConfigs"
    yield rest(
        "sendMessage",
        "POST",
        "/message:send",
        "Send a message",
        shapes.answered(old.SendMessageResponse),
        scope="send",
        body=message,
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
        query=(Query("historyLength", {"type": "integer", "minimum": 0, "maximum": 2**31 - 1}),),
    )
    yield rest(
        "createPushConfig",
        "POST",
        configs,
        "Have an address told what becomes of a task",
        config,
        scope="send",
        body=shapes.sent(old.CreateTaskPushNotificationConfigRequest),
    )
    yield rest(
        "listPushConfigs",
        "GET",
        configs,
        "List who is told of a task",
        shapes.answered(old.ListTaskPushNotificationConfigResponse),
    )
    yield rest("getPushConfig", "GET", f"{configs}/{{push_id}}", "Look at one of them", config)
    yield rest("getExtendedCard", "GET", "/card", "Read its card with what it is doing", _CARD)


_CARD: Json = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "url": {"type": "string", "format": "uri"}},
    "required": ["name", "url", "protocolVersion", "skills"],
}
