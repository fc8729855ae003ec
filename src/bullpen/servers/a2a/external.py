"""Agents elsewhere, in the seed's dialect: `/external/discover` and `/external/agents`.

They belong to the daemon, so they are the same at the port of every agent. Who adds one has the
daemon ask an address of his choice: so those of other machines take the scope `control`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bullpen.api.errors import reason_of
from bullpen.connection import RpcError
from bullpen.model.deliveries import ReceiptState
from bullpen.model.external import ExternalAgent
from bullpen.model.reasons import Reason
from bullpen.model.tasks import Task
from bullpen.servers.a2a import shapes
from bullpen.servers.a2a.operations import EXTERNAL
from bullpen.servers.a2a.room import ANONYMOUS, Caller, Room, Scope
from bullpen.servers.a2a.security import Refused
from bullpen.servers.a2a.seed import Answer, challenge, read_body, route, task_view

__all__ = ["routes"]

_UNDISCOVERED = {each.word for each in (Reason.AGENT_UNREACHABLE, Reason.INVALID_MESSAGE)}


def routes(room: Room) -> list[Route]:
    """Return the paths, which every agent has."""
    answers: dict[str, Answer] = {
        "discover": _discover,
        "listAdded": _list,
        "getAdded": _get,
        "removeAdded": _remove,
        "sendElsewhere": _send,
    }
    return [route(room, each, answers[each.name]) for each in EXTERNAL]


async def _discover(room: Room, caller: Caller, request: Request) -> Response:
    wanted = await read_body(request, shapes.Discover)
    try:
        with _challenging(caller):
            return _agent(await room.discover(caller, wanted.url, wanted.alias))
    except RpcError as error:
        if reason_of(error) in _UNDISCOVERED:
            raise Refused(400, error.message) from error
        raise


async def _list(room: Room, _: Caller, __: Request) -> Response:
    return JSONResponse([msgspec.to_builtins(each) for each in await room.external()])


async def _get(room: Room, _: Caller, request: Request) -> Response:
    return _agent(await _find(room, request))


async def _remove(room: Room, caller: Caller, request: Request) -> Response:
    alias = request.path_params["alias"]
    with _challenging(caller):
        if not await room.remove_external(caller, alias):
            raise _unknown(alias)
    return JSONResponse({"status": "removed", "alias": alias})


async def _send(room: Room, caller: Caller, request: Request) -> Response:
    agent = await _find(room, request)
    wanted = await read_body(request, shapes.SendElsewhere)
    task = await room.send(caller, agent.alias, wanted.message)
    if wanted.wait_for_completion:
        task = await room.wait(task.id, seconds=wanted.timeout)
    if task.receipt is ReceiptState.DEAD:
        raise Refused(500, f"Failed to send message to {agent.alias}: {task.reason}")
    return JSONResponse(_sent(task))


@contextmanager
def _challenging(caller: Caller) -> Iterator[None]:
    """Tell who has shown nothing, and would have to control, what he can show."""
    try:
        yield
    except RpcError as error:
        if caller == ANONYMOUS and reason_of(error) == Reason.NOT_PERMITTED.word:
            raise challenge(Scope.CONTROL) from error
        raise


def _sent(task: Task) -> dict[str, Any]:
    view = task_view(task)
    return {key: view[key] for key in ("id", "status", "artifacts", "error") if key in view}


async def _find(room: Room, request: Request) -> ExternalAgent:
    alias = request.path_params["alias"]
    for agent in await room.external():
        if agent.alias == alias:
            return agent
    raise _unknown(alias)


def _agent(agent: ExternalAgent) -> Response:
    return JSONResponse(msgspec.to_builtins(agent))


def _unknown(alias: str) -> Refused:
    return Refused(404, f"Agent '{alias}' not found")
