"""Standing between two peers, and standing in a row: a proxy, and a conductor of proxies.

A proxy passes on everything both sides say, in the order they said it, and may rewrite, answer or
swallow any of it. It works inside the readers, so a response never overtakes the notifications
before it and nothing is parsed that nobody looks at. Ids and cancelling are hop by hop: each
connection has its own, and a cancelled request is cancelled again at the next hop.
"""

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Any

from bullpen.connection.builder import Builder
from bullpen.connection.connection import Connection
from bullpen.connection.context import Context, Responder
from bullpen.connection.errors import ConnectionClosed, SendBufferFull, TransportClosed
from bullpen.connection.handlers import error_for
from bullpen.connection.transport import Transport
from bullpen.connection.transports.channel import channel_pair
from bullpen.errors import BullpenError
from bullpen.jsonrpc.dialect import ACP
from bullpen.jsonrpc.errors import OVERLOADED, SHUTTING_DOWN, RpcError
from bullpen.jsonrpc.wire import Error, Message, Notification, Request, Response

__all__ = ["Direction", "Rewrite", "conduct", "proxy"]

logger = logging.getLogger("bullpen.connection")


class Direction(StrEnum):
    """Which way a message goes."""

    DOWN = "down"  # from the client's side to the agent's
    UP = "up"  # and back


Rewrite = Callable[[Message, Direction], Message | None]
"""Returns what to pass on instead of a request, notification or response, or the same object.

Returning a `Response` for a request answers it here, and so does raising `RpcError`; returning
None swallows a notification. It runs inside the reader: it must not wait. Should it raise anything
else, that one message fails and the others go on.
"""


async def proxy(
    client: Transport,
    agent: Transport,
    rewrite: Rewrite | None = None,
    *,
    builder: Builder | None = None,
) -> None:
    """Stand between a client and an agent until one of them ends, then end both.

    The builder says in which dialect both sides cancel; without one, it is ACP's.

    Raises:
        TransportError: one of them cannot be reached.
        ConnectionClosed: one of them failed.
    """
    builder = builder or _builder("proxy")
    down = _Side(Direction.DOWN, rewrite)
    up = _Side(Direction.UP, rewrite)
    async with AsyncExitStack() as stack:
        try:
            client_side = await stack.enter_async_context(builder.route(down.route).connect(client))
        except BaseException:
            await agent.close()  # it is ours, also when it is never opened
            raise
        client_side.pause_reading()  # until there is somebody to tell
        agent_side = await stack.enter_async_context(builder.route(up.route).connect(agent))
        client_side.resume_reading()
        down.join(client_side, agent_side, up)
        up.join(agent_side, client_side, down)
        await _wait_for_either(client_side, agent_side)
        for side in (client_side, agent_side):
            if side.is_closed and not side.is_clean:
                raise ConnectionClosed(side.cause) from side.cause
        for failure in (down.failure, up.failure):
            if failure is not None:
                raise ConnectionClosed(failure) from failure


async def conduct(
    client: Transport,
    rewrites: Sequence[Rewrite],
    agent: Transport,
    *,
    builder: Builder | None = None,
) -> None:
    """Put proxies in a row between a client and an agent, the first next to the client.

    Between them are channels: nothing is serialized inside the chain. It ends as a `proxy` does:
    when one of them ends, the others pass on what it had said and end after it.

    Raises:
        TransportError: one of the two cannot be reached.
        ConnectionClosed: one of them failed.
    """
    failures: list[BullpenError] = []
    near = client
    # None is cancelled for the failure of another: its neighbours hear it end, and end in turn.
    async with asyncio.TaskGroup() as group:
        for position, rewrite in enumerate(rewrites or [None], start=1):
            far, following = channel_pair() if position < len(rewrites) else (agent, agent)
            name = f"proxy-{position}"
            link = builder.name(name) if builder is not None else _builder(name)
            work = proxy(near, far, rewrite, builder=link)
            group.create_task(_keep_failure(work, failures), name=name)
            near = following
    if failures:
        raise failures[0]


def _builder(name: str) -> Builder:
    return Connection.builder().name(name).dialect(ACP)


async def _wait_for_either(*sides: Connection) -> None:
    ends = [asyncio.ensure_future(side.wait_closed()) for side in sides]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await asyncio.gather(*ends, return_exceptions=True)


async def _keep_failure(work: Coroutine[Any, Any, None], failures: list[BullpenError]) -> None:
    try:
        await work
    except BullpenError as error:
        failures.append(error)


class _Side:
    """What is heard on one connection, on its way to the other."""

    def __init__(self, direction: Direction, rewrite: Rewrite | None) -> None:
        self._direction = direction
        self._back = Direction.UP if direction is Direction.DOWN else Direction.DOWN
        self._rewrite = rewrite
        self._here: Connection | None = None
        self._there: Connection | None = None
        self._opposite: _Side | None = None
        self._early: list[tuple[Message, Context | None]] = []
        self._is_waiting = False
        self.failure: Exception | None = None

    def join(self, here: Connection, there: Connection, opposite: "_Side") -> None:
        """Begin to pass on, with what was said before the other side was there."""
        self._here, self._there, self._opposite = here, there, opposite
        early, self._early = self._early, []
        for message, context in early:
            if context is None and here.is_cancel(message):
                here.receive(message, 0)  # again: now the request it gives up is at the next hop
            else:
                self._pass_on(message, context)

    def route(self, message: Message, context: Context | None, _size: int) -> bool:
        """Take everything; see `Route`. Only a cancel stays: it is meant for this hop."""
        if self._there is None:
            self._early.append((message, context))
        elif context is None and self._there.is_cancel(message):
            return False
        else:
            self._pass_on(message, context)
        return True

    def _pass_on(self, message: Message, context: Context | None) -> None:
        there = self._there
        assert there is not None
        try:
            rewritten = self._rewritten(message, self._direction)
            if context is not None:
                self._pass_request_on(rewritten, context, there)
            elif isinstance(rewritten, Notification):
                there.send_notification(rewritten.method, rewritten.params)
            elif rewritten is not None:
                raise TypeError(f"a rewrite made a {type(rewritten).__name__} of a notification")
        except (ConnectionClosed, TransportClosed):
            if context is not None:
                context.answer(Response(context.id, error=_GONE))
        except SendBufferFull as error:
            self._too_much(context, error, there)
        except Exception as error:  # noqa: BLE001 - what comes behind it is other people's
            self._failed(context, error)
        self.hold_back()

    def _pass_request_on(
        self, rewritten: Message | None, context: Context, there: Connection
    ) -> None:
        if isinstance(rewritten, Response):
            context.answer(Response(context.id, rewritten.result, rewritten.error))
            return
        if not isinstance(rewritten, Request):
            raise TypeError(f"a rewrite made a {type(rewritten).__name__} of a request")
        request_id = 0
        responder = context.detach(lambda: there.cancel(request_id))
        request_id = there.send_request(
            rewritten.method, rewritten.params, lambda answer: self._answer(responder, answer)
        )

    def _answer(self, responder: Responder, answer: Response | BullpenError) -> None:
        if responder.is_answered:
            return
        if isinstance(answer, BullpenError):
            responder.answer(Response(responder.id, error=_GONE))
            return
        try:
            rewritten = self._rewritten(
                Response(responder.id, answer.result, answer.error), self._back
            )
            if not isinstance(rewritten, Response):
                raise TypeError(f"a rewrite made a {type(rewritten).__name__} of a response")
            response = Response(responder.id, rewritten.result, rewritten.error)
        except Exception as error:  # noqa: BLE001 - what comes behind it is other people's
            response = Response(responder.id, error=self._error_for(error))
        responder.answer(response)
        if self._opposite is not None:
            self._opposite.hold_back()

    def _rewritten(self, message: Message, direction: Direction) -> Message | None:
        return message if self._rewrite is None else self._rewrite(message, direction)

    def _failed(self, context: Context | None, error: Exception) -> None:
        answer = self._error_for(error)
        if context is not None and not context.is_answered:
            context.answer(Response(context.id, error=answer))

    def _error_for(self, error: Exception) -> Error:
        correlation = secrets.token_hex(4)
        if not isinstance(error, RpcError):
            name = self._here.name if self._here is not None else "proxy"
            logger.error("%s: a message was not passed on (%s)", name, correlation, exc_info=error)
        return error_for(error, correlation, debug=False)

    def _too_much(self, context: Context | None, error: SendBufferFull, there: Connection) -> None:
        """Answer what can be answered; without an answer to say so, nothing may be lost."""
        if context is not None:
            context.answer(
                Response(context.id, error=Error(OVERLOADED, "overloaded, try again", _RETRY))
            )
        else:
            self.failure = error
            there.close_soon()

    def hold_back(self) -> None:
        """Stop listening here while nobody reads there."""
        here, there = self._here, self._there
        if here is None or there is None or self._is_waiting:
            return
        if there.is_congested and not here.is_closed:
            self._is_waiting = True
            here.pause_reading()
            here.spawn(self._go_on(here, there), name="hold-back")

    async def _go_on(self, here: Connection, there: Connection) -> None:
        await there.drain()
        self._is_waiting = False
        here.resume_reading()


_GONE = Error(SHUTTING_DOWN, "the next hop is gone")
_RETRY = {"retry": True}
