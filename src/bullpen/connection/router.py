"""Many sessions on one connection: each message goes to the session it belongs to.

`MessageRouter` is a client of `Connection`, not a second JSON-RPC stack: it looks at what comes in
before the handlers do and puts it into the session's own queue. A session's id is minted here, so
its route exists before the request that creates it leaves; should the server choose another, the
route moves in the very moment the answer is read, and what came for it earlier is waiting there.
"""

import asyncio
import contextlib
import uuid
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from bullpen.connection.builder import Builder
from bullpen.connection.channel import Permit, SessionChannel, SessionLimits, SessionQueue
from bullpen.connection.closable import Closable
from bullpen.connection.connection import DEFAULT, Connection
from bullpen.connection.context import Responder
from bullpen.connection.errors import (
    ConnectionClosed,
    RouterStopped,
    SendBufferFull,
    SessionCreateTimeout,
    SessionEnded,
    SessionExists,
    TransportClosed,
)
from bullpen.connection.routed import (
    PermissionRequest,
    ToolCall,
    decode_session_frame,
)
from bullpen.connection.routes import Routes
from bullpen.connection.transport import Transport
from bullpen.errors import BullpenError
from bullpen.jsonrpc.errors import RemoteError
from bullpen.jsonrpc.framing import ContentLengthFramer
from bullpen.jsonrpc.wire import Response, decode_value

if TYPE_CHECKING:
    from bullpen.connection.transports.process import ProcessTransport

__all__ = ["MessageRouter", "RouterStats"]

CREATE_SECONDS = 30.0  # a cold start of the real server takes five
DESTROY_SECONDS = 2.0  # a courtesy: the session is gone here in any case
MAX_ORPHANS = 256  # sessions whose creation we gave up and must destroy should they come to be


class RouterStats(msgspec.Struct, frozen=True, kw_only=True):
    """A router's figures at one moment."""

    routes: int
    pending: int
    orphans: int
    held_messages: int
    events: int
    unknown_events: int
    refused_requests: int
    queued_events: int
    queued_bytes: int


class MessageRouter(Closable):
    """Shares one connection between sessions. Use it with `async with`.

    Made with `open` over any transport, or with `spawn`, which starts the server first. Every
    channel holds its router; when the last owner lets go, the connection and its server end.
    """

    def __init__(self, connection: Connection, routes: Routes) -> None:
        self._connection = connection
        self._routes = routes
        self._process: ProcessTransport | None = None
        self._finalizer = weakref.finalize(self, _let_go, connection)
        self._finalizer.atexit = False

    @classmethod
    async def open(cls, transport: Transport, *, builder: Builder | None = None) -> "MessageRouter":
        """Open a connection over a transport and route it.

        The builder brings handlers for what belongs to no session, a name, limits, observers.
        """
        routes = Routes()
        builder = (builder or Connection.builder().name("router")).route(
            routes.route, decode=decode_session_frame
        )
        connection = await builder.open(transport)
        routes.connection = connection
        connection.on_close(routes.stop)
        return cls(connection, routes)

    @classmethod
    async def spawn(
        cls,
        command: Sequence[str],
        *,
        over: str = "tcp",
        env: dict[str, str] | None = None,
        cwd: str | None = None,
        timeout: float = CREATE_SECONDS,
        builder: Builder | None = None,
    ) -> "MessageRouter":
        """Start a server and route the connection to it: "tcp" (it prints its port) or "stdio".

        Raises:
            StartError: the server did not come up; nothing of it is left running.
        """
        from bullpen.connection.transports.subprocess import (
            ServerProcessTransport,
            SubprocessTransport,
        )

        framer = ContentLengthFramer()
        if over == "tcp":
            transport: ProcessTransport = ServerProcessTransport(
                command, env=env, cwd=cwd, start_seconds=timeout, framer=framer
            )
        else:
            transport = SubprocessTransport(command, env=env, cwd=cwd, framer=framer)
        router = await cls.open(transport, builder=builder)
        router._process = transport
        return router

    def __repr__(self) -> str:
        return f"<MessageRouter {len(self._routes.queues)} sessions on {self._connection!r}>"

    async def aclose(self) -> None:
        """End every session and the connection, and the server if it was started here."""
        self._finalizer.detach()
        self._routes.stop(None)
        await self._connection.aclose()

    @property
    def pid(self) -> int | None:
        """The process id of the server, if it was started here."""
        return self._process.pid if self._process is not None else None

    @property
    def is_stopped(self) -> bool:
        """Whether the connection has ended."""
        return self._routes.end is not None

    def stats(self) -> RouterStats:
        """Return the router's figures."""
        routes = self._routes
        return RouterStats(
            routes=len(routes.queues),
            pending=self._connection.stats().requests_pending - len(routes.orphans),
            orphans=len(routes.orphans),
            held_messages=sum(len(held.messages) for held in routes.held.values()),
            events=routes.ended_events + sum(q.stats().delivered for q in routes.queues.values()),
            unknown_events=routes.unknown_events,
            refused_requests=routes.refused_requests,
            queued_events=sum(len(queue.items) for queue in routes.queues.values()),
            queued_bytes=sum(queue.bytes for queue in routes.queues.values()),
        )

    async def request(
        self, method: str, params: Any = UNSET, *, timeout: float | None = DEFAULT
    ) -> Any:
        """Send a request and return its result.

        Raises:
            RemoteError: the server answered with an error.
            RequestTimeout: it did not answer in time.
            RouterStopped: it will not answer any more.
        """
        try:
            return await self._connection.request(method, params, timeout=timeout)
        except (ConnectionClosed, TransportClosed) as closed:
            raise (stopped := _stopped(closed)) from stopped.cause

    def send_request(self, method: str, params: Any = UNSET) -> None:
        """Send a request whose answer nobody wants."""
        try:
            self._connection.send_request(method, params)
        except (ConnectionClosed, TransportClosed) as closed:
            raise (stopped := _stopped(closed)) from stopped.cause

    def post(self, method: str, params: Any = UNSET) -> None:
        """Send a request whose answer nobody wants, if anybody is there to receive it."""
        with contextlib.suppress(RouterStopped, SendBufferFull):
            self.send_request(method, params)

    def send_response(self, response: Response) -> None:
        """Answer a request of the server's.

        Raises:
            KeyError: there is no open request with this id.
        """
        self._connection.respond(response)

    async def create_session(
        self,
        params: dict[str, Any] | None = None,
        *,
        limits: SessionLimits = SessionLimits(),  # noqa: B008 - a frozen value
        permit: Permit | None = None,
        timeout: float = CREATE_SECONDS,
        method: str = "session.create",
    ) -> tuple[str, SessionChannel]:
        """Create a session; return its id and the channel that receives all of it.

        Whatever goes wrong, nothing is left behind here, and a session the server makes after we
        gave up on it is destroyed.

        Raises:
            RemoteError: the server refused.
            SessionCreateTimeout: it did not answer in time.
            SessionExists: a session of the given id is open here.
            RouterStopped: it will not answer any more.
        """
        params = dict(params or {})
        session_id = params.setdefault("sessionId", str(uuid.uuid4()))
        routes = self._routes
        if session_id in routes.queues:
            raise SessionExists(session_id)
        queue = SessionQueue(
            session_id,
            limits,
            routes.wake,
            routes.set_paused,
            asyncio.get_running_loop().call_later,
        )
        creation = _Creation(self._connection, routes, queue)
        routes.creating(+1)
        routes.adopt(queue)
        try:
            await creation.run(method, params, timeout)
        except BaseException:
            routes.forget(queue)
            queue.finish(SessionEnded(queue.session_id))
            queue.discard()
            raise
        finally:
            routes.creating(-1)
        return queue.session_id, SessionChannel(self, queue, permit)

    def deregister_session(self, session_id: str) -> None:
        """Take a session's route away; what comes for it later is unknown. Idempotent."""
        queue = self._routes.queues.get(session_id)
        if queue is not None and self._routes.forget(queue):
            # A finalizer may have called, in whatever thread.
            self._connection.call_soon(queue.finish, SessionEnded(session_id))

    async def end_session(self, queue: SessionQueue) -> None:
        """Take a session's route away and destroy it at the server, within a bounded time."""
        self._routes.forget(queue)
        queue.finish(SessionEnded(queue.session_id))
        queue.discard()
        if queue.session_id in self._routes.queues:
            return  # it is another's by now
        params = {"sessionId": queue.session_id}
        with contextlib.suppress(RemoteError, RouterStopped, SendBufferFull, TimeoutError):
            async with asyncio.timeout(DESTROY_SECONDS):
                await self.request("session.destroy", params, timeout=None)

    def drop(self, queue: SessionQueue) -> None:
        """Let go of a session whose channel nobody holds any more. Called in any thread."""
        self._routes.forget(queue)
        if queue.session_id not in self._routes.queues:
            self._connection.call_soon(_drop, self._connection, queue)

    async def answer_tool_call(
        self, call: ToolCall, result: Any = None, *, error: str | None = None
    ) -> None:
        """Answer a tool call the way its server expects."""
        outcome = _tool_result(result, error)
        if isinstance(call.responder, Responder):
            call.responder.respond({"result": outcome})
            return
        await self.request(
            "session.tools.handlePendingToolCall",
            {
                "sessionId": call.params.session_id,
                "requestId": call.request_id,
                "result": outcome,
            },
        )

    async def answer_permission(
        self, session_id: str, asked: PermissionRequest, *, allow: bool, feedback: str = ""
    ) -> None:
        """Grant or refuse what a session asked leave for, the way its server expects."""
        if isinstance(asked.responder, Responder):
            kind = "approved" if allow else "denied-interactively-by-user"
            asked.responder.respond({"result": {"kind": kind}})
            return
        decision = {"kind": "approve-once"} if allow else {"kind": "reject", "feedback": feedback}
        await self.request(
            "session.permissions.handlePendingPermissionRequest",
            {"sessionId": session_id, "requestId": asked.request_id, "result": decision},
        )


class _Creation:
    """One `session.create` from the moment it is sent until its answer, wanted or not, is in."""

    def __init__(self, connection: Connection, routes: Routes, queue: SessionQueue) -> None:
        self._connection = connection
        self._routes = routes
        self._queue = queue
        self._answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._request_id = 0
        self._is_given_up = False
        self._is_answered = False
        self._made: str | None = None  # the session that came to be

    async def run(self, method: str, params: dict[str, Any], timeout: float) -> None:
        try:
            self._request_id = self._connection.send_request(method, params, self._deliver)
            async with asyncio.timeout(timeout):
                response = await self._answer
        except (ConnectionClosed, TransportClosed) as closed:
            raise (stopped := _stopped(closed)) from stopped.cause
        except TimeoutError:
            self._give_up()
            raise SessionCreateTimeout(timeout) from None
        except asyncio.CancelledError:
            self._give_up()
            raise
        if response.error is not UNSET:
            error = response.error
            raise RemoteError(error.code, error.message, error.data)

    def _deliver(self, response: Response | BullpenError) -> None:
        """Take the answer, in the reader: the route is right before the next message is read."""
        self._is_answered = True
        self._made = session_id = self._session_id(response)
        if self._is_given_up:
            self._routes.orphans.pop(self._request_id, None)
            self._destroy()
        elif session_id is None or session_id == self._queue.session_id:
            self._settle(response)
        elif session_id in self._routes.queues:
            self._made = None  # it is another's
            self._settle(SessionExists(session_id))
        else:
            self._routes.forget(self._queue)
            self._queue.session_id = session_id
            self._routes.adopt(self._queue)
            self._settle(response)

    def _settle(self, outcome: Response | BullpenError) -> None:
        if self._answer.done():
            return  # cancelled, and soon to be given up
        if isinstance(outcome, BullpenError):
            self._answer.set_exception(outcome)
        else:
            self._answer.set_result(outcome)

    def _session_id(self, response: Response | BullpenError) -> str | None:
        if isinstance(response, BullpenError) or response.error is not UNSET:
            return None
        result = decode_value(response.result)
        told = result.get("sessionId") if isinstance(result, dict) else None
        return told if isinstance(told, str) else self._queue.session_id

    def _give_up(self) -> None:
        self._is_given_up = True
        if self._is_answered:  # in the very moment we stopped to wait for it
            self._routes.forget(self._queue)
            self._destroy()
            return
        orphans = self._routes.orphans
        if len(orphans) >= MAX_ORPHANS:
            self._connection.abandon(next(iter(orphans)))
            del orphans[next(iter(orphans))]
        orphans[self._request_id] = None

    def _destroy(self) -> None:
        """End a session nobody wants, unless it was tried again and is wanted now."""
        if self._made is not None and self._made not in self._routes.queues:
            _destroy(self._connection, self._made)


def _stopped(closed: ConnectionClosed | TransportClosed) -> RouterStopped:
    """Return what a caller is told of a connection that has ended, or is about to."""
    return RouterStopped(closed.cause if isinstance(closed, ConnectionClosed) else closed)


def _destroy(connection: Connection, session_id: str) -> None:
    with contextlib.suppress(ConnectionClosed, TransportClosed, SendBufferFull):
        connection.send_request("session.destroy", {"sessionId": session_id})


def _drop(connection: Connection, queue: SessionQueue) -> None:
    queue.finish(SessionEnded(queue.session_id))
    queue.discard()
    _destroy(connection, queue.session_id)


def _let_go(connection: Connection) -> None:
    connection.call_soon(connection.close_soon)


def _tool_result(result: Any, error: str | None) -> dict[str, Any]:
    if error is not None:
        return {"textResultForLlm": error, "resultType": "failure", "error": error}
    if isinstance(result, dict) and "textResultForLlm" in result:
        return {"resultType": "success", **result}
    try:
        text = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    except (TypeError, ValueError, RecursionError) as failure:
        return _tool_result(None, f"the tool's result cannot be sent: {failure}")
    return {"textResultForLlm": text, "resultType": "success"}
