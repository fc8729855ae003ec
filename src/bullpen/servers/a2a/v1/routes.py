"""The routes of one agent in A2A 1.0 and 0.3: its card, and the bindings JSON-RPC and REST.

    routes(room, "codex")    # to be mounted where the agent's own paths begin

The bindings are the SDK's. Around them stands what they leave open: the type of what is sent, words
and numbers that would silently become others, addresses with a slash behind them, tenants where the
specification has them, the errors of the edition that holds, and three answers of 0.3.

Who asks is told by who mounts them, in the scope of a request; nobody in particular without that.
Nothing here asks whether a connection is to be trusted.
"""

import ipaddress
import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from a2a.compat.v0_3 import a2a_v0_3_pb2 as old
from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.response_helpers import build_error_response
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.routes.rest_routes import create_rest_routes
from a2a.types import a2a_pb2 as pb
from a2a.utils.error_handlers import build_rest_error_payload
from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    InternalError,
    InvalidRequestError,
)
from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from bullpen.api.settings import A2aSettings
from bullpen.api.talk import Contact
from bullpen.servers.a2a.room import ANONYMOUS, Room
from bullpen.servers.a2a.security import needs_token
from bullpen.servers.a2a.v1 import earlier
from bullpen.servers.a2a.v1.card import (
    JSONRPC,
    REST,
    card_of,
    entity_tag,
    merged,
    strict,
    with_old_interfaces,
)
from bullpen.servers.a2a.v1.handler import CALLER, CONTACT, IS_LOCAL, MAKE_CARD, STREAMS, Handler
from bullpen.servers.a2a.v1.input import NotJson, check_json, check_query, check_shape, read_json
from bullpen.servers.a2a.v1.plain import answer_plain, read_plain
from bullpen.servers.a2a.v1.rules import OURS, Refusal, Rules
from bullpen.servers.a2a.v1.sse import begun, events_of

__all__ = ["Where", "nowhere", "routes"]

STREAMS_KEY = "bullpen.a2a.streams"
OLD_KEY = "bullpen.a2a.old"
CALLER_KEY = "bullpen.caller"  # of `Door`
CONTACT_KEY = "bullpen.contact"  # of the app
CARD = "/.well-known/agent-card.json"
CARD_SECONDS = 60
VERSION = "a2a-version"
OUR_FAULT = -32603
OLD = "/v1"  # the path of 0.3's REST
CONFIGS = "/tasks/{id}/pushNotificationConfigs"

BODIES: Mapping[str, type[Message]] = {
    "/message:send": pb.SendMessageRequest,
    "/message:stream": pb.SendMessageRequest,
    CONFIGS: pb.TaskPushNotificationConfig,
    f"{OLD}/message:send": old.SendMessageRequest,
    f"{OLD}/message:stream": old.SendMessageRequest,
    f"{OLD}{CONFIGS}": old.CreateTaskPushNotificationConfigRequest,
}
"""What is posted where."""
QUERIES: Mapping[str, type[Message]] = {
    "/tasks": pb.ListTasksRequest,
    "/tasks/{id}": pb.GetTaskRequest,
    f"{OLD}/tasks/{{id}}": pb.GetTaskRequest,
}
"""What is said in an address where."""
JSON_TYPES = ("application/json", "application/a2a+json")

Endpoint = Callable[[Request], Awaitable[Response]]
Where = Callable[[Contact], str]
"""Returns where an agent is served by gRPC; empty if it is not."""

logger = logging.getLogger("bullpen.a2a")
logging.getLogger("a2a").setLevel(logging.CRITICAL)  # it logs what peers get wrong, with its stack


def nowhere(_: Contact) -> str:
    """Return that an agent is not served by gRPC."""
    return ""


def routes(
    room: Room, agent: str, *, handler: Handler | None = None, grpc: Where = nowhere
) -> list[BaseRoute]:
    """Return the routes of an agent; `grpc` tells where that is served, by the same handler."""
    handler = handler or Handler(room, agent)
    binding = _Binding(handler, grpc, room.settings)
    rpc = create_jsonrpc_routes(handler, f"/{JSONRPC}", binding, enable_v0_3_compat=True)
    rest = create_rest_routes(handler, binding, enable_v0_3_compat=True)
    [rpc_route] = rpc
    assert isinstance(rpc_route, Route)
    endpoint = binding.jsonrpc(rpc_route.endpoint)
    return [
        Route(CARD, binding.card, methods=["GET"]),
        Route(f"/v0.3{CARD}", binding.old_card, methods=["GET"]),
        Route(f"/{JSONRPC}", endpoint, methods=["POST"]),
        Route(f"/{JSONRPC}/", endpoint, methods=["POST"]),
        Mount(f"/{REST}", routes=_apart([binding.rest(each) for each in rest])),
    ]


def _apart(rest: Sequence[BaseRoute]) -> list[BaseRoute]:
    """Return the SDK's routes so that each path is of one kind.

    What it mounts for tenants takes all that is not asked as it should be, and 0.3's as well.
    """
    old: list[Route] = []
    new: list[Route] = []
    for each in rest:
        if isinstance(each, Mount):
            new += [_moved(inner, f"{each.path}{inner.path}") for inner in _plain(each.routes)]
        elif isinstance(each, Route) and each.path.startswith(OLD):
            old.append(_moved(each, each.path.removeprefix(OLD)))
        else:
            new += _plain([each])
    return [Mount(OLD, routes=old), *new]


def _plain(routes: Sequence[BaseRoute]) -> list[Route]:
    assert all(isinstance(each, Route) for each in routes)
    return [each for each in routes if isinstance(each, Route)]


def _moved(route: Route, path: str) -> Route:
    return Route(path, route.endpoint, methods=list(route.methods or ()))


class _Binding(DefaultServerCallContextBuilder):
    """Stands around the bindings of one agent."""

    def __init__(self, handler: Handler, grpc: Where, settings: A2aSettings) -> None:
        self._handler = handler
        self._where = grpc
        self._settings = settings
        self._since = datetime.now(UTC)
        self._tag = ""

    def build(self, request: Request) -> ServerCallContext:
        """Return what a request is asked with."""
        context = super().build(request)
        context.state[CALLER] = request.scope.get(CALLER_KEY, ANONYMOUS)
        context.state[STREAMS] = request.scope.setdefault(STREAMS_KEY, [])
        context.state[CONTACT] = request.scope.get(CONTACT_KEY)
        context.state[IS_LOCAL] = _is_local(request)
        context.state[MAKE_CARD] = lambda contact, rules: self._own_card(request, contact, rules)
        return context

    # --------------------------------------------------------------------------------------- card

    def _make_card(self, request: Request, contact: Contact, rules: Rules) -> pb.AgentCard:
        is_local = _is_local(request)
        grpc = self._where(contact) if is_local else ""  # which is on loopback
        is_closed = needs_token(self._settings, is_local=is_local)
        return card_of(contact, _base_url(request), rules, grpc=grpc, needs_token=is_closed)

    def _own_card(self, request: Request, contact: Contact, rules: Rules) -> pb.AgentCard:
        """Return the card for who asks by a binding, of 1.0 or 0.3."""
        card = self._make_card(request, contact, rules)
        return with_old_interfaces(card) if request.scope.get(OLD_KEY) else card

    async def card(self, request: Request) -> Response:
        """Answer with the card: the strict one, unless who asks speaks 0.3."""
        is_old = _take_version(request).startswith("0.")
        return await self._card(request, merged if is_old else strict)

    async def old_card(self, request: Request) -> Response:
        """Answer with the card that clients of 0.3 can read."""
        return await self._card(request, merged)

    async def _card(
        self, request: Request, told: Callable[[pb.AgentCard], dict[str, Any]]
    ) -> Response:
        try:
            contact, rules = await self._handler.contact(), await self._handler.rules()
        except A2AError as error:
            return _rest_error(error, OURS)
        card = told(self._make_card(request, contact, rules))
        tag = entity_tag(card)
        if tag != self._tag:
            self._tag, self._since = tag, datetime.now(UTC)
        headers = {
            "cache-control": f"private, max-age={CARD_SECONDS}",
            "etag": tag,
            "last-modified": format_datetime(self._since, usegmt=True),
            "vary": "A2A-Version",
        }
        if tag in [each.strip() for each in request.headers.get("if-none-match", "").split(",")]:
            return Response(status_code=304, headers=headers)
        return JSONResponse(card, headers=headers)

    # ---------------------------------------------------------------------------------- JSON-RPC

    def jsonrpc(self, endpoint: Endpoint) -> Endpoint:
        """Return the binding's endpoint with what stands around it."""

        async def handle(request: Request) -> Response:
            body: Any = None
            version = _take_version(request)
            try:
                _check_type(request)
                body = await read_json(request)
                plain = read_plain(body, version)
                if plain is not None:
                    context = self.build(request)
                    return JSONResponse(await answer_plain(plain, self._handler, context))
                method = body.get("method") if isinstance(body, dict) else None
                request.scope[OLD_KEY] = earlier.is_method(method)
                earlier.check_version(version, 0 if request.scope[OLD_KEY] else 1)
                check_json(body, status=_status_of(body) if method == "ListTasks" else None)
                _check_params(body)
                earlier.check_request(body)
            except NotJson as error:
                told = {"code": -32700, "message": error.message}
                return JSONResponse({"jsonrpc": "2.0", "id": None, "error": told})
            except A2AError as error:
                return JSONResponse(build_error_response(_id_of(body), error))
            earlier.name_config(body)
            response = await endpoint(request)
            return _silent(
                earlier.mended(body, events_of(response, request.scope.get(STREAMS_KEY, ())))
            )

        return handle

    # --------------------------------------------------------------------------------------- REST

    def rest(self, route: BaseRoute) -> BaseRoute:
        """Return a route of the binding with what stands around it."""
        if isinstance(route, Mount):
            return Mount(route.path, routes=[self.rest(each) for each in route.routes])
        assert isinstance(route, Route)
        endpoint: Endpoint = route.endpoint
        sent, asked = BODIES.get(route.path), QUERIES.get(route.path)

        async def handle(request: Request) -> Response:
            rules, version = OURS, _take_version(request)
            try:
                rules = await self._handler.rules()
                request.scope[OLD_KEY] = route.path.startswith(OLD)
                earlier.check_version(version, 0 if request.scope[OLD_KEY] else 1)
                if request.method == "POST" and (sent or await request.body()):
                    _check_type(request)
                    check_json(body := await read_json(request))
                    if sent is not None:
                        check_shape(body, sent)
                        earlier.check_body(body, sent)
                if asked is not None:
                    check_query(request.query_params, asked)
                check_json(None, status=request.query_params.get("status"))
                response = await endpoint(request)
                told = await begun(events_of(response, request.scope.get(STREAMS_KEY, ())))
            except A2AError as error:
                return _rest_error(error, rules)
            if route.path == f"{OLD}/card":
                told = earlier.card(told)
            return _in_edition(told, rules)

        return Route(route.path, handle, methods=list(route.methods or ()))


def _take_version(request: Request) -> str:
    """Return which version a request is made in; one said in the address counts as a header.

    To be asked before anybody looks at the headers.
    """
    if request.scope.get("query_string"):
        query = {key.lower(): value for key, value in request.query_params.items()}
        headers, name = request.scope["headers"], VERSION.encode()
        if (said := query.get(VERSION)) and not dict(headers).get(name, b"").strip():
            others = [each for each in headers if each[0] != name]
            request.scope["headers"] = [*others, (name, said.encode())]
    return request.headers.get(VERSION, "").strip()


def _check_type(request: Request) -> None:
    said = request.headers.get("content-type", JSON_TYPES[0]).partition(";")[0].strip().lower()
    if said not in JSON_TYPES:
        raise ContentTypeNotSupportedError(f"what is sent is to be application/json, not {said}")


def _base_url(request: Request) -> str:
    return f"{str(request.base_url).rstrip('/')}/"


def _is_local(request: Request) -> bool:
    try:
        return request.client is not None and ipaddress.ip_address(request.client.host).is_loopback
    except ValueError:
        return False


def _id_of(body: Any) -> str | int | None:
    found = body.get("id") if isinstance(body, dict) else None
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None


def _check_params(body: Any) -> None:
    """See that a request of 1.0 has the params of its method; what else it lacks the SDK tells."""
    if not isinstance(body, dict) or body.get("jsonrpc") != "2.0":
        return
    kind = JsonRpcDispatcher.METHOD_TO_MODEL.get(str(body.get("method")))
    params = body.get("params", {})
    if kind is not None and (params is None or isinstance(params, dict | list)):
        check_shape(params, kind)


def _silent(response: Response) -> Response:
    """Return an answer that does not tell what we got wrong, and have it logged."""
    if not isinstance(response, JSONResponse) or str(OUR_FAULT).encode() not in response.body:
        return response  # most are, and need not be read again
    told = json.loads(bytes(response.body))
    error = told.get("error")
    if not error or error.get("code") != OUR_FAULT or error.get("data"):
        return response
    logger.error("a request could not be answered: %s", error.get("message"))
    error["message"] = InternalError.message
    return JSONResponse(told)


def _status_of(body: dict[str, Any]) -> Any:
    params = body.get("params")
    return params.get("status") if isinstance(params, dict) else None


# ----------------------------------------------------------------------------------- 1.0's errors


def _rest_error(error: A2AError, rules: Rules) -> Response:
    if isinstance(error, NotJson):
        error = InvalidRequestError(error.message)  # the SDK asks for the very class
    payload = build_rest_error_payload(error)
    status = payload["error"]["code"]
    return _in_edition(JSONResponse(payload, status_code=status), rules)


def _in_edition(response: Response, rules: Rules) -> Response:
    """Return an answer as the edition has it that holds."""
    if response.media_type == "application/a2a+json":
        response.headers["content-type"] = rules.media_type
    if response.status_code < 400 or not isinstance(response, JSONResponse):
        return response
    payload = json.loads(bytes(response.body))
    error = payload.get("error") if isinstance(payload, dict) else None
    if response.status_code == 500 and isinstance(error, dict) and "details" not in error:
        logger.error("a request could not be answered: %s", error.get("message"))
    if not isinstance(error, dict) or (refusal := _refusal(error, rules)) is None:
        return response
    error["code"], error["status"] = refusal
    return JSONResponse(payload, status_code=refusal.http)


def _refusal(error: dict[str, Any], rules: Rules) -> Refusal | None:
    for detail in error.get("details", ()):
        said = detail.get("metadata", {}).get("refusal") or detail.get("reason")
        if said in rules.refusals:
            return rules.refusals[said]
    return None
