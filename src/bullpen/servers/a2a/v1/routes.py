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
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

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
    InvalidParamsError,
    InvalidRequestError,
)
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from bullpen.api.talk import Contact
from bullpen.servers.a2a.room import ANONYMOUS, Room
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
from bullpen.servers.a2a.v1.input import NotJson, check_json, check_objects, read_json
from bullpen.servers.a2a.v1.rules import OURS, Refusal, Rules
from bullpen.servers.a2a.v1.sse import events_of

__all__ = ["Where", "nowhere", "routes"]

STREAMS_KEY = "bullpen.a2a.streams"
CALLER_KEY = "bullpen.caller"  # of `Door`
CONTACT_KEY = "bullpen.contact"  # of the app
CARD = "/.well-known/agent-card.json"
CARD_SECONDS = 60
OLD = "/v1"  # the path of 0.3's REST
JSON_TYPES = ("application/json", "application/a2a+json")

Endpoint = Callable[[Request], Awaitable[Response]]
Where = Callable[[Contact], str]
"""Returns where an agent is served by gRPC; empty if it is not."""

logging.getLogger("a2a").setLevel(logging.CRITICAL)  # it logs what peers get wrong, with its stack


def nowhere(_: Contact) -> str:
    """Return that an agent is not served by gRPC."""
    return ""


def routes(
    room: Room, agent: str, *, handler: Handler | None = None, grpc: Where = nowhere
) -> list[BaseRoute]:
    """Return the routes of an agent; `grpc` tells where that is served, by the same handler."""
    handler = handler or Handler(room, agent)
    binding = _Binding(handler, grpc)
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

    def __init__(self, handler: Handler, grpc: Where) -> None:
        self._handler = handler
        self._where = grpc
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
        grpc = self._where(contact) if _is_local(request) else ""  # which is on loopback
        return card_of(contact, _base_url(request), rules, grpc=grpc)

    def _own_card(self, request: Request, contact: Contact, rules: Rules) -> pb.AgentCard:
        """Return the card for who asks by a binding: without a version that is one of 0.3."""
        card = self._make_card(request, contact, rules)
        version = request.headers.get("a2a-version", "")
        return card if version and not version.startswith("0.") else with_old_interfaces(card)

    async def card(self, request: Request) -> Response:
        """Answer with the card: the strict one, unless who asks speaks 0.3."""
        is_old = request.headers.get("a2a-version", "").startswith("0.")
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
            try:
                _check_type(request)
                body = await read_json(request)
                method = body.get("method") if isinstance(body, dict) else None
                check_json(body, status=_status_of(body) if method == "ListTasks" else None)
                if isinstance(method, str) and _is_structured(body.get("params", {})):
                    check_objects(body.get("params", {}), _KINDS.get(method))
            except NotJson as error:
                told = {"code": -32700, "message": error.message}
                return JSONResponse({"jsonrpc": "2.0", "id": None, "error": told})
            except A2AError as error:
                return JSONResponse(build_error_response(_id_of(body), error))
            if _is_old_get(body):
                body["params"]["pushNotificationConfigId"] = ""
            response = await endpoint(request)
            return _mend_old(body, events_of(response, request.scope.get(STREAMS_KEY, ())))

        return handle

    # --------------------------------------------------------------------------------------- REST

    def rest(self, route: BaseRoute) -> BaseRoute:
        """Return a route of the binding with what stands around it."""
        if isinstance(route, Mount):
            return Mount(route.path, routes=[self.rest(each) for each in route.routes])
        assert isinstance(route, Route)
        endpoint: Endpoint = route.endpoint

        async def handle(request: Request) -> Response:
            rules = OURS
            try:
                rules = await self._handler.rules()
                if request.method == "POST" and await request.body():
                    _check_type(request)
                    check_json(body := await read_json(request))
                    check_objects(body, _kind_of(route.path))
                check_json(None, status=request.query_params.get("status"))
            except A2AError as error:
                return _rest_error(error, rules)
            response = await endpoint(request)
            return _in_edition(events_of(response, request.scope.get(STREAMS_KEY, ())), rules)

        return Route(route.path, handle, methods=list(route.methods or ()))


_MODELS: dict[str, Any] = dict(JsonRpcDispatcher.METHOD_TO_MODEL)
_KINDS = {method: model.DESCRIPTOR for method, model in _MODELS.items()}


def _kind_of(path: str) -> Any:
    """Return what is sent to a path of REST; None if nothing is known of it."""
    is_message = path in ("/message:send", "/message:stream")
    return pb.SendMessageRequest.DESCRIPTOR if is_message else None


def _is_structured(params: Any) -> bool:
    """Whether JSON-RPC would have these params; others are no request at all."""
    return params is None or isinstance(params, dict | list)


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


# ----------------------------------------------------------------------------------- 0.3's answers


def _is_old_get(body: Any) -> bool:
    """Whether 0.3 asks for the one push configuration there is, which it need not name."""
    params = body.get("params") if isinstance(body, dict) else None
    return (
        isinstance(params, dict)
        and body.get("method") == "tasks/pushNotificationConfig/get"
        and not params.get("pushNotificationConfigId")
    )


def _mend_old(body: Any, response: Response) -> Response:
    """Return an answer of 0.3 as its specification has it.

    Wrong parameters are -32602, which the SDK calls a wrong request; and where there is nothing to
    answer, the answer is null, which the SDK leaves out.
    """
    method = body.get("method") if isinstance(body, dict) else None
    if not isinstance(method, str) or "/" not in method or not isinstance(response, JSONResponse):
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
