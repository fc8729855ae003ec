"""One MCP peer on our socket: whom it speaks for, which dialect it speaks, and when it is idle.

It is a `Connection` like any other, so whatever a peer may send has its one answer: a bad line
costs that line. The pump says first whose secret it holds. Who says `initialize`, or wraps its
requests in the envelope of newer protocols, is served by the SDK from then on; all others plainly.
"""

import asyncio
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import msgspec

from bullpen.connection import (
    MCP,
    Builder,
    Connection,
    Context,
    Limits,
    LineFramer,
    Message,
    Notification,
    Request,
    RpcError,
)
from bullpen.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST
from bullpen.jsonrpc.wire import decode_value
from bullpen.servers.mcp.lines import MAX_LINE_BYTES, decode_line
from bullpen.servers.mcp.raw import answer_plainly
from bullpen.servers.mcp.session import Session
from bullpen.servers.mcp.tools import Caller, Tools

__all__ = ["HELLO", "Peer", "framer"]

HELLO = "bullpen/hello"
"""The pump's first word: the secret, and where the agent runs."""

ENVELOPE = "io.modelcontextprotocol/protocolVersion"
NEVER = 2**62
LIMITS = Limits(malformed_in_a_row=NEVER, waiting_notifications=10_000)


def framer() -> LineFramer:
    """Return what cuts a peer's bytes into lines."""
    return LineFramer(limit=MAX_LINE_BYTES)


class Peer:
    """One peer, as long as it is there."""

    def __init__(
        self, tools: Tools, *, idle_seconds: float, now: Callable[[], float] | None = None
    ) -> None:
        self._tools = tools
        self._idle_seconds = idle_seconds
        self._now = now or asyncio.get_running_loop().time
        self._session: Session | None = None
        self._has_spoken = False
        self._outstanding = 0
        self._last_traffic = self._now()

    @property
    def builder(self) -> Builder:
        """The connection to it."""
        return (
            Connection.builder()
            .name("mcp")
            .dialect(MCP)
            .limits(LIMITS)
            .route(self._see, decode=decode_line)
            .on_message(self._handle)
        )

    @property
    def seconds_left(self) -> float:
        """How long it may say nothing; it has all its time as long as it waits for an answer."""
        if self._outstanding:
            return self._idle_seconds
        return self._last_traffic + self._idle_seconds - self._now()

    async def watch(self, connection: Connection) -> None:
        """Hang up when nothing was said for long, and nothing is to be answered."""
        while (left := self.seconds_left) > 0:  # noqa: ASYNC110 - time is what is waited for
            await asyncio.sleep(left)
        connection.close_soon()

    def _see(self, message: Message, _context: Context | None, _size: int) -> bool:
        """Look at whatever comes, in its order; the hello is for nobody else."""
        self._last_traffic = self._now()
        is_first, self._has_spoken = not self._has_spoken, True
        if not isinstance(message, Notification) or message.method != HELLO:
            return False
        if is_first:  # later ones could only be an agent's that would like to be another
            try:
                caller = decode_value(message.params, Caller)
            except (msgspec.ValidationError, ValueError, RecursionError):
                caller = Caller()
            self._tools = self._tools.called_by(caller)
        return True

    async def _handle(self, message: Request | Notification, context: Context) -> Any:
        # Until the first `await` this runs in the order of the lines.
        try:
            params = decode_value(message.params)
        except (ValueError, RecursionError):
            raise RpcError(INVALID_PARAMS, "Invalid params: not readable") from None
        if isinstance(message, Notification):
            if self._session is not None:
                await self._session.tell(message.method, _object(params))
            return None
        if self._session is None and _is_of_the_protocol(message.method, params):
            self._session = Session(self._tools, context.connection.notify)
            context.connection.spawn(_drive(self._session), name="sdk", fatal=True)
        self._outstanding += 1
        try:
            if self._session is None:
                return await answer_plainly(self._tools, message.method, params)
            if context.batch is not None:
                raise RpcError(INVALID_REQUEST, "Invalid Request: the protocol has no batches")
            return await self._session.request(message.method, _object(params))
        except asyncio.CancelledError:
            if not (context.cancel_requested or context.is_answered):
                context.fail(RpcError(INTERNAL_ERROR, "the daemon is ending; try again"))
            raise
        finally:
            self._outstanding -= 1
            self._last_traffic = self._now()


async def _drive(session: Session) -> None:
    """Let the SDK serve a session. The first one has it imported, in a thread."""
    sdk = await asyncio.to_thread(_load)
    await sdk.drive(session)


def _load() -> ModuleType:
    from bullpen.servers.mcp import sdk

    return sdk


def _is_of_the_protocol(method: str, params: Any) -> bool:
    """Whether somebody speaks MCP, and not only looks like it."""
    if method == "initialize":
        return True
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return isinstance(meta, Mapping) and ENVELOPE in meta


def _object(params: Any) -> dict[str, Any]:
    if not isinstance(params, dict):
        raise RpcError(INVALID_PARAMS, "Invalid params: not an object")
    return params
