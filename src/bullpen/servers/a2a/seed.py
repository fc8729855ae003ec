"""The seed's dialect: `/message`, `/status`, `/tasks/*` and the card, as Synapse agents speak it.

A task is the daemon's own, so one that was begun here is found at every other door. In this dialect
a task that was taken is `working` until it is over; where it waits is told in its metadata.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from bullpen.api.errors import DaemonUnavailable, reason_of
from bullpen.api.talk import Contact
from bullpen.connection import RequestTimeout, RpcError
from bullpen.model.messages import Priority
from bullpen.model.reasons import Reason
from bullpen.model.tasks import Task, TaskState
from bullpen.model.version import VERSION
from bullpen.servers.a2a import shapes
from bullpen.servers.a2a.addresses import base_url_of, contact_of
from bullpen.servers.a2a.callbacks import owe_answer
from bullpen.servers.a2a.nesting import is_too_deep
from bullpen.servers.a2a.operations import SEED, Operation
from bullpen.servers.a2a.parts import as_seed
from bullpen.servers.a2a.room import ANONYMOUS, Caller, Room, Scope
from bullpen.servers.a2a.security import Refused, caller_of
from bullpen.servers.a2a.shapes import HIGHEST, LOWEST
from bullpen.servers.a2a.streams import events

__all__ = [
    "Answer",
    "card_of",
    "challenge",
    "read_body",
    "refusal_of",
    "route",
    "routes",
    "task_view",
]

CONTEXT_CHARACTERS = 2000
TASKS_LISTED = 500
NOT_YET = ("STARTING", "NOT_STARTED")

CONTEXT_KEY = "context_id"
PARTS_KEY = "parts"


def routes(room: Room) -> list[Route]:
    """Return the paths of every agent, each relative to its own base."""
    answers: dict[str, Answer] = {
        "takeMessage": _take_message,
        "getStatus": _status,
        "getOldCard": _card,
        "sendTask": _send,
        "sendPriorityTask": _send_priority,
        "listOwnTasks": _list,
        "getOwnTask": _get,
        "cancelOwnTask": _cancel,
        "subscribeOwnTask": _subscribe,
    }
    return [route(room, each, answers[each.name]) for each in SEED]


Answer = Callable[[Room, Caller, Request], Awaitable[Response]]
"""Answers a request of somebody who may."""


def route(room: Room, operation: Operation, answer: Answer) -> Route:
    """Return the path of an operation, answered if the caller has its scope."""

    async def handle(request: Request) -> Response:
        try:
            caller = caller_of(request.scope)
            _require(caller, Scope(operation.scope))
            return await answer(room, caller, request)
        except (RpcError, DaemonUnavailable, RequestTimeout) as error:
            raise refusal_of(error) from error

    return Route(operation.path, handle, methods=[operation.method])


def _require(caller: Caller, scope: Scope) -> None:
    """See that the caller may; who showed nothing is told that something is to be shown."""
    if caller == ANONYMOUS and scope not in caller.scopes:
        raise challenge(scope)
    caller.require(scope)


def challenge(scope: Scope) -> Refused:
    """Return how somebody is refused who has shown nothing."""
    how = f"bullpen a2a token add NAME --scope {scope}"
    words = f"a token with the scope {scope} is needed: {how}"
    return Refused(401, words, www_authenticate="Bearer")


# ----------------------------------------------------------------------------------------- sending


async def _take_message(room: Room, caller: Caller, request: Request) -> Response:
    wanted = await read_body(request, shapes.Plain)
    parts: list[dict[str, Any]] = [{"type": "text", "text": wanted.content}]
    priority = int(wanted.priority)
    task = await _ask(room, caller, request, parts, priority)
    return JSONResponse({"status": "sent", "priority": priority, "task_id": task.id})


async def _send(room: Room, caller: Caller, request: Request) -> Response:
    return await _send_with(room, caller, request, LOWEST)


async def _send_priority(room: Room, caller: Caller, request: Request) -> Response:
    text = request.query_params.get("priority", str(LOWEST))
    try:
        priority = int(text)
    except ValueError:
        raise _invalid(("query", "priority"), "it is no integer", "int_parsing") from None
    if not LOWEST <= priority <= HIGHEST:
        raise _invalid(
            ("query", "priority"), f"it is not from {LOWEST} to {HIGHEST}", "out_of_range"
        )
    return await _send_with(room, caller, request, priority)


async def _send_with(room: Room, caller: Caller, request: Request, priority: int) -> Response:
    wanted = await read_body(request, shapes.Send)
    parts = msgspec.to_builtins(wanted.message.parts)
    metadata = dict(wanted.metadata or {})
    task = await _ask(room, caller, request, parts, priority, metadata, wanted.context_id)
    await owe_answer(room, task, metadata)
    return JSONResponse({"task": task_view(task) | {"status": TaskState.WORKING}})


async def _ask(
    room: Room,
    caller: Caller,
    request: Request,
    parts: list[dict[str, Any]],
    priority: int,
    metadata: dict[str, Any] | None = None,
    context_id: str | None = None,
) -> Task:
    contact = contact_of(request.scope)
    if not contact.is_present:
        raise Refused(503, "Agent not running")
    text = "\n".join(each["text"] for each in parts if each["type"] == "text").strip()
    if not text:
        raise Refused(400, "No text content in message")
    # What callers say of their message is theirs: none of it is taken for what we know of one.
    extra: dict[str, Any] = {"a2a": {"metadata": metadata} if metadata else {}}
    if context_id:
        extra["a2a"][CONTEXT_KEY] = context_id
    if [each["type"] for each in parts] != ["text"]:
        extra["a2a"][PARTS_KEY] = parts
    if is_too_deep(extra["a2a"]):
        raise _invalid(("body",), "it is nested too deeply", "value_error")
    return await room.send(
        caller, contact.name, text, priority=Priority.of_rank(priority), metadata=extra
    )


# ----------------------------------------------------------------------------------------- looking


async def _status(room: Room, _: Caller, request: Request) -> Response:
    contact = contact_of(request.scope)
    context = ""
    if contact.is_wrapped:
        with contextlib.suppress(RpcError, RequestTimeout):
            context = (await room.output(contact.name)).text[-CONTEXT_CHARACTERS:]
    return JSONResponse({"status": contact.status, "context": context})


async def _card(_: Room, __: Caller, request: Request) -> Response:
    return JSONResponse(card_of(contact_of(request.scope), base_url_of(request.scope)))


async def _list(room: Room, _: Caller, request: Request) -> Response:
    contact = contact_of(request.scope)
    wanted = request.query_params.get(CONTEXT_KEY)
    found = await room.tasks(agent=contact.name, limit=TASKS_LISTED)
    views = [task_view(each, contact) for each in reversed(found)]
    return JSONResponse([each for each in views if wanted in (None, each[CONTEXT_KEY])])


async def _get(room: Room, _: Caller, request: Request) -> Response:
    return JSONResponse(task_view(await _find(room, request), contact_of(request.scope)))


async def _find(room: Room, request: Request) -> Task:
    task = await room.find_task(request.path_params["task_id"])
    if task is None or task.recipient != contact_of(request.scope).name:
        raise Refused(404, "Task not found")
    return task


async def _cancel(room: Room, caller: Caller, request: Request) -> Response:
    task = await _find(room, request)
    if task.state.is_over:
        raise Refused(400, f"Cannot cancel task in {task.state} state")
    await room.cancel(caller, task.id)
    return JSONResponse({"status": "canceled", "task_id": task.id})


# --------------------------------------------------------------------------------------- following


async def _subscribe(room: Room, _: Caller, request: Request) -> Response:
    task, contact = await _find(room, request), contact_of(request.scope)
    return StreamingResponse(
        events(room, task.id, lambda each: task_view(each, contact)),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


# ------------------------------------------------------------------------------------------- shapes


def task_view(task: Task, contact: Contact | None = None) -> dict[str, Any]:
    """Return a task as this dialect shows it."""
    said = task.message.metadata.extra.get("a2a")
    said = said if isinstance(said, dict) else {}
    status = task.state
    if status is TaskState.SUBMITTED and not (contact and contact.status in NOT_YET):
        status = TaskState.WORKING
    own: dict[str, Any] = {
        "sender": task.sender,
        "priority": task.message.priority.rank,
        "receipt": task.receipt,
    }
    if task.position is not None:
        own["position"] = task.position
    if task.reason:
        own["reason"] = task.reason
    view: dict[str, Any] = {
        "id": task.id,
        "status": status,
        "message": {
            "role": "user",
            "parts": as_seed(said.get(PARTS_KEY) or [{"text": task.message.content}]),
        },
        "artifacts": [],
        "created_at": task.created_at.isoformat().replace("+00:00", "Z"),
        "updated_at": task.updated_at.isoformat().replace("+00:00", "Z"),
        CONTEXT_KEY: said.get(CONTEXT_KEY) or task.context_id,
        "metadata": {**(said.get("metadata") or {}), "bullpen": own},
    }
    if task.state is TaskState.COMPLETED:
        view["artifacts"] = [{"type": "text", "data": task.text}]
    elif task.state is TaskState.FAILED:
        view["error"] = {"code": "FAILED", "message": task.reason}
    return view


def card_of(contact: Contact, url: str) -> dict[str, Any]:
    """Return an agent's card as this dialect has it."""
    return {
        "name": contact.name,
        "description": f"{contact.provider} agent, reached through bullpen",
        "url": url,
        "version": VERSION,
        "capabilities": {"streaming": True, "pushNotifications": False, "multiTurn": True},
        "skills": [
            {"id": "chat", "name": "Chat", "description": "Ask the agent for something"},
            {
                "id": "interrupt",
                "name": "Interrupt",
                "description": "Interrupt what it is doing, and ask for something else",
                "parameters": {
                    "priority": {
                        "type": "integer",
                        "description": "From 1 to 5; 5 interrupts",
                        "default": LOWEST,
                    }
                },
            },
        ],
        "securitySchemes": {},
        "extensions": {
            "synapse": {
                "pty_wrapped": contact.is_wrapped,
                "priority_interrupt": True,
                "at_agent_syntax": contact.is_wrapped,
                "submit_sequence": repr(contact.submit_sequence),
            }
        },
    }


# ---------------------------------------------------------------------------------------- refusals

_STATUSES = {
    Reason.AGENT_NOT_FOUND: 404,
    Reason.AGENT_AMBIGUOUS: 404,
    Reason.MESSAGE_NOT_FOUND: 404,
    Reason.INVALID_MESSAGE: 400,
    Reason.TASK_OVER: 400,
    Reason.NOT_PERMITTED: 403,
    Reason.RECIPIENT_NOT_ALLOWED: 403,
    Reason.BOSS_ONLY: 403,
    Reason.APPROVAL_FORBIDDEN: 403,
    Reason.MESSAGE_LOOP: 403,
    Reason.TOO_MANY_HOPS: 403,
    Reason.IDEMPOTENCY_CONFLICT: 409,
    Reason.NOT_ASKED: 409,
    Reason.MESSAGE_TOO_LARGE: 413,
    Reason.RATE_LIMITED: 429,
    Reason.MAILBOX_FULL: 429,
    Reason.AGENT_UNREACHABLE: 503,
}
_BY_WORD = {reason.word: status for reason, status in _STATUSES.items()}


def refusal_of(error: Exception) -> Refused:
    """Return what the daemon refused as this dialect says it.

    What it could not do for reasons of its own is not told: that may name files.
    """
    if isinstance(error, DaemonUnavailable | RequestTimeout):
        return Refused(503, "the daemon does not answer; try again")
    if isinstance(error, RpcError):
        status = _BY_WORD.get(reason_of(error))
        if status == 429:
            data = error.data if isinstance(error.data, dict) else {}
            wait = data.get("retry_after_seconds")
            seconds = int(wait) + 1 if isinstance(wait, int | float) and wait < 3600 else 1
            return Refused(429, error.message, retry_after=str(seconds))
        if status is not None:
            return Refused(status, error.message)
    return Refused(500, "Failed to send: the daemon could not keep the message")


async def read_body(request: Request, kind: type[Any]) -> Any:
    """Return what stands in a request.

    Raises:
        Refused: it is something else.
    """
    try:
        return msgspec.json.decode(await request.body(), type=kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        path = where.rstrip("`").removeprefix("$").strip(".").split(".") if where else []
        raise _invalid(("body", *filter(None, path)), what, "value_error") from None
    except (msgspec.DecodeError, ValueError, RecursionError):
        raise _invalid(("body",), "it is not JSON", "json_invalid") from None


def _invalid(where: tuple[str, ...], what: str, kind: str) -> Refused:
    return Refused(422, [{"loc": list(where), "msg": what, "type": kind}])
