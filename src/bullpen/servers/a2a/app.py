"""All agents as one app: whose port it is, or `/agents/<name>/`, tells which of them is meant.

What is mounted for each agent is in `agent_routes`. Whatever goes wrong is answered as JSON with a
`detail`; what is nobody's fault but ours is logged, and not told.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, cast
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import ASGIApp

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.settings import A2aSettings
from bullpen.api.talk import Contact
from bullpen.connection import RequestTimeout, RpcError
from bullpen.servers.a2a import external, seed
from bullpen.servers.a2a.addresses import CONTACT, base_url_of
from bullpen.servers.a2a.http import AGENT
from bullpen.servers.a2a.operations import DESCRIPTION, LISTING, Operation
from bullpen.servers.a2a.room import Room, Scope
from bullpen.servers.a2a.security import App, Door, Guard, Receive, Refused, Send, caller_of
from bullpen.servers.a2a.security import Scope as Requested
from bullpen.servers.a2a.v1 import routes as v1
from bullpen.servers.a2a.v1.handlers import Handlers

__all__ = ["agent_routes", "make_app"]

logger = logging.getLogger("bullpen.a2a")

AGENTS = LISTING.path
APPS_KEPT = 256


def make_app(
    room: Room,
    guard: Guard,
    settings: A2aSettings,
    handlers: Handlers,
    grpc: v1.Where = v1.nowhere,
) -> App:
    """Return the app, behind its door; `grpc` tells where an agent is served by that."""
    return Door(_Agents(room, handlers, grpc), guard, settings)


def agent_routes(
    room: Room, agent: str, handlers: Handlers, grpc: v1.Where = v1.nowhere
) -> list[BaseRoute]:
    """Return the paths of one agent, in every dialect."""
    newest = v1.routes(room, agent, handler=handlers.of(agent), grpc=grpc)
    return [*newest, *seed.routes(room), *external.routes(room)]  # most ask in the newest one


class _Agents:
    """Finds the agent that is meant, and lets its own app answer."""

    def __init__(self, room: Room, handlers: Handlers, grpc: v1.Where) -> None:
        self._room = room
        self._handlers = handlers
        self._grpc = grpc
        self._apps: OrderedDict[str, ASGIApp] = OrderedDict()

    async def __call__(self, scope: Requested, receive: Receive, send: Send) -> None:
        try:
            app = await self._find(scope)
        except Refused as refused:
            await refused.send(send)
        except (RpcError, DaemonUnavailable, RequestTimeout) as error:
            await seed.refusal_of(error).send(send)
        else:
            await app(scope, receive, send)

    async def _find(self, scope: Requested) -> ASGIApp:
        name: str | None = scope["state"][AGENT]
        if name is None:
            top, _, rest = scope["path"].removeprefix("/").partition("/")
            name = rest.partition("/")[0]
            if scope["path"] == DESCRIPTION.path:
                return await _described(scope, under=f"{AGENTS}/{{agent}}")
            if f"/{top}" != AGENTS:
                raise Refused(404, f"Not Found: agents are at {AGENTS}/<name>/")
            if not name:
                return await self._listing(scope)
            scope["root_path"] = f"{AGENTS}/{name}"
            missing = Refused(404, "Agent not found")
        else:
            missing = Refused(503, "Agent not running")
        contact = await self._room.contact(name)
        if contact is None:
            raise missing
        scope[CONTACT] = contact
        if scope["path"] == scope.get("root_path", "") + DESCRIPTION.path:
            return await _described(scope)
        return self._app_of(contact)

    def _app_of(self, contact: Contact) -> ASGIApp:
        found = self._apps.pop(contact.name, None)
        if found is None:
            found = Starlette(
                routes=agent_routes(self._room, contact.name, self._handlers, self._grpc),
                exception_handlers={
                    Refused: _refuse,
                    HTTPException: _explain,
                    Exception: _apologize,
                },
            )
        self._apps[contact.name] = found
        while len(self._apps) > APPS_KEPT:
            self._apps.popitem(last=False)
        return found

    async def _listing(self, scope: Requested) -> ASGIApp:
        _check(scope, LISTING)
        base = base_url_of(scope)
        return JSONResponse(
            [
                {
                    "name": each.name,
                    "type": each.provider,
                    "status": each.status,
                    "url": f"{base}{AGENTS}/{quote(each.name, safe='')}",
                }
                for each in await self._room.contacts()
                if each.is_present
            ]
        )


def _check(scope: Requested, operation: Operation) -> None:
    """See that what is asked of nobody in particular is asked by who may, and as it should be."""
    if scope["method"] not in (operation.method, "HEAD"):
        raise Refused(405, "Method Not Allowed", allow=f"{operation.method}, HEAD")
    caller_of(scope).require(Scope(operation.scope))


async def _described(scope: Requested, under: str = "") -> Response:
    from bullpen.servers.a2a.description import describe  # it is seldom asked for, and large

    _check(scope, DESCRIPTION)
    return JSONResponse(await asyncio.to_thread(describe, base_url_of(scope), under))


def _refuse(_: Request, error: Exception) -> Response:
    refused = cast("Refused", error)
    return JSONResponse({"detail": refused.detail}, refused.status, headers=refused.wire_headers)


def _explain(request: Request, error: Exception) -> Response:
    known = cast("HTTPException", error)
    headers: Any = known.headers
    if known.status_code == 405:
        _, methods = _methods(request.app.routes, _whole(request.scope))
        headers = {"Allow": ", ".join(sorted(methods))}
    return JSONResponse({"detail": known.detail}, known.status_code, headers=headers)


def _methods(
    routes: Iterable[BaseRoute], scope: Requested, before: str = ""
) -> tuple[str, set[str]]:
    """Return the path that is meant and how it may be asked, by all of its routes.

    Starlette names the methods of the first of them.
    """
    path, methods = "", set[str]()
    for route in routes:
        match, child = route.matches(scope)
        if match is Match.NONE:
            continue
        if isinstance(route, Mount):
            found = _methods(route.routes, {**scope, **child}, before + route.path)
        elif isinstance(route, Route):
            found = before + route.path, set(route.methods or ())
        else:
            continue
        path = path or found[0]
        if found[0] == path:
            methods |= found[1]
    return path, methods


def _whole(scope: Requested) -> Requested:
    """Return a request as it was before it was handed on to what is mounted somewhere."""
    return {**scope, "root_path": scope.get("app_root_path", scope.get("root_path", ""))}


def _apologize(request: Request, error: Exception) -> Response:
    logger.error("%s %s could not be answered", request.method, request.url.path, exc_info=error)
    return JSONResponse({"detail": "Internal Server Error"}, 500)
