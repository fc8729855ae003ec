"""Standing between two peers, and standing in a row: a proxy, and a conductor of proxies.

A proxy passes on everything both sides say, in the order they said it, and may rewrite, answer or
swallow any of it. It works inside the readers, so a response never overtakes the notifications
before it and nothing is parsed that nobody looks at. Ids and cancelling are hop by hop: each
connection has its own, and a cancelled request is cancelled again at the next hop.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum

from bullpen.connection.builder import Builder
from bullpen.connection.connection import Connection
from bullpen.connection.context import Context, Responder
from bullpen.connection.errors import ConnectionClosed
from bullpen.connection.transport import Transport
from bullpen.connection.transports.channel import channel_pair
from bullpen.errors import BullpenError
from bullpen.jsonrpc.errors import SHUTTING_DOWN
from bullpen.jsonrpc.wire import Error, Message, Notification, Request, Response

__all__ = ["Direction", "Rewrite", "conduct", "proxy"]


class Direction(StrEnum):
    """Which way a message goes."""

    DOWN = "down"  # from the client's side to the agent's
    UP = "up"  # and back


Rewrite = Callable[[Message, Direction], Message | None]
"""Returns what to pass on instead of a request, notification or response, or the same object.

Returning a `Response` for a request answers it here; returning None swallows a notification. It
runs inside the reader: it must not wait.
"""


async def proxy(
    client: Transport,
    agent: Transport,
    rewrite: Rewrite | None = None,
    *,
    builder: Builder | None = None,
) -> None:
    """Stand between a client and an agent until one of them ends, then end both.

    Raises:
        TransportError: one of them cannot be reached.
        ConnectionClosed: one of them failed.
    """
    builder = builder or Connection.builder().name("proxy")
    down = _Side(Direction.DOWN, rewrite)
    up = _Side(Direction.UP, rewrite)
    async with (
        builder.route(down.route).connect(client) as client_side,
        builder.route(up.route).connect(agent) as agent_side,
    ):
        down.join(client_side, agent_side)
        up.join(agent_side, client_side)
        ends = [asyncio.ensure_future(side.wait_closed()) for side in (client_side, agent_side)]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
        for side in (client_side, agent_side):
            if side.is_closed and not side.is_clean:
                raise ConnectionClosed(side.cause) from side.cause


async def conduct(client: Transport, rewrites: Sequence[Rewrite], agent: Transport) -> None:
    """Put proxies in a row between a client and an agent, the first next to the client.

    Between them are channels: nothing is serialized inside the chain.
    """
    near = client
    async with asyncio.TaskGroup() as group:
        for position, rewrite in enumerate(rewrites):
            if position == len(rewrites) - 1:
                far, following = agent, agent
            else:
                far, following = channel_pair()
            name = f"proxy-{position + 1}"
            builder = Connection.builder().name(name)
            group.create_task(proxy(near, far, rewrite, builder=builder), name=name)
            near = following
        if not rewrites:
            group.create_task(proxy(client, agent), name="proxy")


class _Side:
    """What is heard on one connection, on its way to the other."""

    def __init__(self, direction: Direction, rewrite: Rewrite | None) -> None:
        self._direction = direction
        self._back = Direction.UP if direction is Direction.DOWN else Direction.DOWN
        self._rewrite = rewrite
        self._here: Connection | None = None
        self._there: Connection | None = None
        self._early: list[tuple[Message, Context | None]] = []
        self._is_waiting = False

    def join(self, here: Connection, there: Connection) -> None:
        """Begin to pass on, with what was said before the other side was there."""
        self._here, self._there = here, there
        early, self._early = self._early, []
        for message, context in early:
            self._pass_on(message, context)

    def route(self, message: Message, context: Context | None, _size: int) -> bool:
        """Take everything; see `Route`. Only a cancel stays: it is meant for this hop."""
        if context is not None:
            context.is_detached = True
        if self._there is None:
            self._early.append((message, context))
        elif context is None and self._there.is_cancel(message):
            return False
        else:
            self._pass_on(message, context)
        return True

    def _pass_on(self, message: Message, context: Context | None) -> None:
        assert self._there is not None
        rewritten = message if self._rewrite is None else self._rewrite(message, self._direction)
        try:
            if context is not None:
                self._pass_request_on(rewritten, context)
            elif isinstance(rewritten, Notification):
                self._there.send_notification(rewritten.method, rewritten.params)
        except ConnectionClosed:
            if context is not None:
                context.answer(Response(context.id, error=_GONE))
        self._hold_back()

    def _pass_request_on(self, rewritten: Message | None, context: Context) -> None:
        there = self._there
        assert there is not None
        if isinstance(rewritten, Response):
            context.answer(Response(context.id, rewritten.result, rewritten.error))
            return
        assert isinstance(rewritten, Request)
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
        response = Response(responder.id, answer.result, answer.error)
        if self._rewrite is not None:
            rewritten = self._rewrite(response, self._back)
            if isinstance(rewritten, Response):
                response = Response(responder.id, rewritten.result, rewritten.error)
        responder.answer(response)

    def _hold_back(self) -> None:
        """Stop listening here while nobody reads there."""
        if self._there is None or self._here is None or self._is_waiting:
            return
        if self._there.is_congested and not self._here.is_closed:
            self._is_waiting = True
            self._here.pause_reading()
            self._here.spawn(self._go_on(), name="hold-back")

    async def _go_on(self) -> None:
        assert self._there is not None
        assert self._here is not None
        await self._there.drain()
        self._is_waiting = False
        self._here.resume_reading()


_GONE = Error(SHUTTING_DOWN, "the next hop is gone")
