"""HTTP for all ports at once: uvicorn's protocol, with what it lacks against slow callers.

uvicorn is asked for its protocol alone; listening, signals and the end are the daemon's business.
Who takes long over the head of a request is hung up on, and so is who does not read, and everybody
where too many are; who has said all and closed its own side still gets the answer, or the stream.
"""

import asyncio
import contextlib
import functools
import json
import logging
import socket
import ssl
import sys
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

import uvicorn
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from bullpen.servers.a2a.security import (
    CONNECTED,
    App,
    Connected,
    Receive,
    Refused,
    Scope,
    Send,
    Tables,
)

if TYPE_CHECKING:
    from uvicorn._types import ASGIApplication

__all__ = ["AGENT", "HttpServer"]

logger = logging.getLogger("bullpen.a2a")

AGENT = "bullpen.agent"
"""Whose port a request came in by; None if it is everybody's."""

HALF_CLOSED = "bullpen.half_closed"
"""Set when who asks has closed its own side of the connection; in the state of a request."""

HEAD_SECONDS = 10.0
STALL_SECONDS = 60.0  # in which nothing that was written is read
LINGER_SECONDS = 2.0  # for who is refused in the middle of what it says, so that it hears why
PROBE_SECONDS = 1.0
PROBE = b": are you there?\n\n"
IDLE_SECONDS = 30
STOP_SECONDS = 1.0
BACKLOG = 128
JOINED_BYTES = 16 * 1024  # what is more is written at once


class HttpServer:
    """Serves an app at any number of listening sockets."""

    def __init__(self, app: App, *, connections: int) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # others' mistakes are not ours
        self._config = uvicorn.Config(
            cast("ASGIApplication", _Probing(app)),
            lifespan="off",
            log_config=None,
            access_log=False,
            ws="none",
            interface="asgi3",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            limit_concurrency=connections,
            timeout_keep_alive=IDLE_SECONDS,
        )
        self._config.load()
        self._state = ServerState()
        self._tables = Tables()

    @asynccontextmanager
    async def listen(
        self, listening: socket.socket, agent: str | None, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[None]:
        """Serve a listening socket for a block. The socket itself stays open."""
        mine: set[_Protocol] = set()
        make = functools.partial(
            _Protocol, self._config, self._state, {AGENT: agent}, mine, self._tables
        )
        loop = asyncio.get_running_loop()
        server = await loop.create_server(make, sock=listening.dup(), ssl=tls, backlog=BACKLOG)
        try:
            yield
        finally:
            server.close()
            for each in tuple(mine):
                each.shutdown()

    async def aclose(self) -> None:
        """Hang up on everybody who is left, after a moment for what is just being answered."""
        for each in tuple(self._state.connections):
            each.shutdown()
        if tasks := set(self._state.tasks):
            _, late = await asyncio.wait(tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for each in tuple(self._state.connections):
            each.transport.abort()


class _Probing:
    """An app whose streams find out whether who has closed its own side is still there.

    One who only has nothing more to say reads on, and a comment does no harm. One who is gone, at
    the second thing that is written to it, is found to be.
    """

    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        probing: asyncio.Task[None] | None = None
        has_begun = False

        async def told(message: MutableMapping[str, Any]) -> None:
            nonlocal probing, has_begun
            has_begun = True
            if message["type"] == "http.response.start" and _is_stream(message):
                probing = asyncio.create_task(_probe(scope["state"][HALF_CLOSED], send))
            elif probing is not None and not message.get("more_body", False):
                probing.cancel()  # nothing may come after the end
            await send(message)

        try:
            await self._app(scope, receive, told)
        except asyncio.CancelledError:  # by us, who end
            if has_begun:
                raise
            await Refused(503, "the daemon is ending; try again later").send(send)
        finally:
            if probing is not None:
                probing.cancel()
                await asyncio.wait([probing])


def _is_stream(message: MutableMapping[str, Any]) -> bool:
    kind = dict(message.get("headers", ())).get(b"content-type", b"")
    return bool(kind.startswith(b"text/event-stream"))


async def _probe(half_closed: asyncio.Event, send: Send) -> None:
    await half_closed.wait()
    while True:
        await send({"type": "http.response.body", "body": PROBE, "more_body": True})
        await asyncio.sleep(PROBE_SECONDS)


class _Protocol(H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        mine: "set[_Protocol]",
        tables: Tables,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self._tables = tables
        self._mine = mine
        self._hurry: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._half_closed = asyncio.Event()
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _Joining(transport, self.loop)))
        # Asyncio does so only where the protocol is named, which a socket handed over does not.
        with contextlib.suppress(OSError):  # so macOS says that it has hung up
            transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._mine.add(self)
        self.app_state = {
            **self.app_state,
            CONNECTED: _connected(transport, self._tables),
            HALF_CLOSED: self._half_closed,
        }
        most = self.limit_concurrency
        if most is not None and len(self.connections) > 2 * most:
            transport.abort()  # they would be refused, if they ever said what they want
            return
        self._await_head()

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        super().data_received(data)
        self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Say that this is not HTTP, or too much of it, and read nothing more."""
        status = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._is_refused = True
        self._stop_hurrying()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            if cycle.response_started:
                self.transport.abort()  # it has a part of its answer
                return
            cycle.disconnected = True
            cycle.message_event.set()
        body = json.dumps({"detail": msg}).encode()
        head = (
            f"HTTP/1.1 {status} {STATUS_PHRASES[status].decode()}\r\n"
            f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        if self.transport.can_write_eof():
            self.transport.write_eof()  # were it closed with something unread, nobody would hear
            self.loop.call_later(LINGER_SECONDS, self.transport.abort)
        else:
            self.transport.close()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_stalling()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Keep our side open until a request that is whole has been answered."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete or cycle.more_body or self._is_refused:
            return False
        cycle.keep_alive = False
        self._half_closed.set()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._mine.discard(self)
        self._stop_hurrying()
        self._stop_stalling()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._await_head()

    def _await_head(self) -> None:
        """Have a time limit as long as the head of a request is awaited or under way."""
        if not self._awaits_head:
            self._stop_hurrying()
        elif self._hurry is None and self.timeout_keep_alive_task is None:
            self._hurry = self.loop.call_later(HEAD_SECONDS, self._give_up)

    @property
    def _awaits_head(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _give_up(self) -> None:
        self._hurry = None
        if self._awaits_head:
            self.transport.abort()

    def _stop_stalling(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _stop_hurrying(self) -> None:
        if self._hurry is not None:
            self._hurry.cancel()
            self._hurry = None


class _Joining:
    """A transport that writes together what is written one after the other: a head and its body.

    So an answer is one packet, and wakes who waits for it once.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._unwritten = bytearray()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._unwritten and data:
            self._loop.call_soon(self._flush)
        self._unwritten += data
        if len(self._unwritten) >= JOINED_BYTES:
            self._flush()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        data, self._unwritten = bytes(self._unwritten), bytearray()
        if data and not self._transport.is_closing():
            self._transport.write(data)


def _connected(transport: asyncio.Transport, tables: Tables) -> Connected:
    def end(which: str) -> tuple[str, int] | None:
        found = transport.get_extra_info(which)
        with contextlib.suppress(TypeError, IndexError, ValueError):
            return str(found[0]), int(found[1])
        return None

    return Connected(end("peername"), end("sockname"), tables)
