"""Describing a connection before, and apart from, the transport it will run on.

A builder is a value: every call returns a new one, so the same description can be served over a
socket today and a channel tomorrow, or over many of both.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from bullpen.connection.connection import Connection, Route
from bullpen.connection.context import Context
from bullpen.connection.errors import ConnectionClosed
from bullpen.connection.handlers import Handler, Link
from bullpen.connection.options import Limits, Observer, Options
from bullpen.connection.transport import Clock, Decode, Transport
from bullpen.connection.typed import TypedNotification, TypedRequest
from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.dialect import Dialect
from bullpen.jsonrpc.wire import Notification, Request

if TYPE_CHECKING:
    from bullpen.connection.transports.stream import Reader, Writer

__all__ = ["Builder"]

R = TypeVar("R")
Q = TypeVar("Q", bound="TypedRequest[Any]")
N = TypeVar("N", bound=TypedNotification)


class Builder:
    """A connection in the making."""

    def __init__(
        self,
        options: Options | None = None,
        *,
        route: Route | None = None,
        transport: Transport | None = None,
    ) -> None:
        self._options = options or Options()
        self._route = route
        self._transport = transport

    def name(self, name: str) -> "Builder":
        """Name the connection, for logs and task names."""
        return self._with(name=name)

    def dialect(self, dialect: Dialect) -> "Builder":
        """Say how this family of programs cancels requests."""
        return self._with(dialect=dialect)

    def timeout(self, seconds: float | None) -> "Builder":
        """Set how long a request waits for its response unless it says otherwise itself."""
        return self._with(timeout_seconds=seconds)

    def limits(self, limits: Limits) -> "Builder":
        """Set the bounds of the connection's queues."""
        return self._with(limits=limits)

    def debug(self, debug: bool = True) -> "Builder":
        """Let peers read what a failing handler raised."""
        return self._with(debug=debug)

    def clock(self, clock: Clock) -> "Builder":
        """Take the time from elsewhere than the event loop."""
        return self._with(clock=clock)

    def observe(self, observer: Observer) -> "Builder":
        """Have every step of every message told to a function, which must not wait."""
        return self._with(observers=(*self._options.observers, observer))

    def route(self, route: Route, *, decode: Decode = decode_frame) -> "Builder":
        """Have a function see inbound messages first, inside the reader. See `Route`.

        A route that wants some frames decoded in its own way says how; see `Receiver.decode`.
        """
        options = msgspec.structs.replace(self._options, decode=decode)
        return Builder(options, route=route, transport=self._transport)

    def on_request(
        self,
        request: type[Q] | str,
        handler: "Callable[[Q, Context], Awaitable[Any] | Any] | Handler",
        *,
        params: Any = Any,
    ) -> "Builder":
        """Handle the requests of one type, or of one method with params of a given type."""
        if not isinstance(request, str):
            request, params = request.METHOD, request
        return self._link(Link(handler, Request, request, params))

    def on_notification(
        self,
        notification: type[N] | str,
        handler: "Callable[[N, Context], Awaitable[Any] | Any] | Handler",
        *,
        params: Any = Any,
    ) -> "Builder":
        """Handle the notifications of one type, or of one method."""
        if not isinstance(notification, str):
            notification, params = notification.METHOD, notification
        return self._link(Link(handler, Notification, notification, params))

    def on_message(
        self, handler: "Callable[[Request | Notification, Context], Awaitable[Any] | Any]"
    ) -> "Builder":
        """Handle every request and notification nobody before it claimed."""
        return self._link(Link(handler, None))

    @asynccontextmanager
    async def connect(
        self, transport: "Transport | tuple[Writer, Reader]"
    ) -> AsyncIterator[Connection]:
        """Open a connection for the length of a block, and close it with all that belongs to it."""
        connection = await self.open(transport)
        try:
            yield connection
        finally:
            await connection.aclose()

    async def open(self, transport: "Transport | tuple[Writer, Reader]") -> Connection:
        """Open a connection; whoever called this must `aclose` it.

        A stream writer and reader do for a transport.

        Raises:
            TransportError: the other end cannot be reached.
        """
        if isinstance(transport, tuple):
            from bullpen.connection.transports.stream import StreamTransport

            transport = StreamTransport(*transport)
        connection = Connection(self._options, self._route)
        await connection.start(transport)
        return connection

    async def serve_with(self, transport: "Transport | tuple[Writer, Reader]") -> None:
        """Serve a connection until it ends.

        Raises:
            ConnectionClosed: it ended otherwise than by the peer's clean close.
        """
        async with self.connect(transport) as connection:
            await connection.wait_closed()
            if not connection.is_clean:
                raise ConnectionClosed(connection.cause) from connection.cause

    async def serve(self) -> None:
        """Serve over the streams the builder was begun with."""
        if self._transport is None:
            raise TypeError(
                "serve() needs Connection.from_streams(); else use serve_with(transport)"
            )
        await self.serve_with(self._transport)

    def _link(self, link: Link) -> "Builder":
        return self._with(links=(*self._options.links, link))

    def _with(self, **changes: Any) -> "Builder":
        options = msgspec.structs.replace(self._options, **changes)
        return Builder(options, route=self._route, transport=self._transport)
