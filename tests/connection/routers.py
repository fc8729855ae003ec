"""Routers and who they are connected to: fake servers, bare sockets, streams cut anywhere."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from bullpen.connection import ContentLengthFramer, SocketTransport, Transport, channel_pair
from bullpen.connection.channel import SessionChannel
from bullpen.connection.routed import SessionEvent
from bullpen.connection.router import MessageRouter
from bullpen.testing.cli_server import FakeCliServer, FakeSession
from bullpen.testing.transports import MemoryTransport

__all__ = [
    "BareServer",
    "in_pieces",
    "next_event",
    "numbers",
    "opened",
    "routed",
    "settle",
    "sockets",
]

READ_BYTES = 2**16

Pair = Callable[[], tuple[Transport, Transport]]


def sockets() -> tuple[Transport, Transport]:
    """Return the two ends of a socket, framed as Copilot CLI frames."""
    left, right = socket.socketpair()
    return (
        SocketTransport.over(left, framer=ContentLengthFramer()),
        SocketTransport.over(right, framer=ContentLengthFramer()),
    )


def in_pieces(length: int) -> Pair:
    """Have a stream in memory arrive in pieces of this length."""

    def pair() -> tuple[Transport, Transport]:
        left = MemoryTransport(length, framer=ContentLengthFramer())
        right = MemoryTransport(length, framer=ContentLengthFramer())
        left.other, right.other = right, left
        return left, right

    return pair


@contextlib.asynccontextmanager
async def routed(
    server: FakeCliServer, pair: Pair = channel_pair, **options: Any
) -> AsyncIterator[MessageRouter]:
    """Connect a router to a server for the length of a block."""
    async with (
        server.connected(pair) as transport,
        await MessageRouter.open(transport, **options) as router,
    ):
        yield router


async def opened(
    router: MessageRouter, server: FakeCliServer, **options: Any
) -> tuple[SessionChannel, FakeSession]:
    """Open a session; return our end of it, with nothing in it, and the server's."""
    session_id, channel = await router.create_session(**options)
    session = await server.session(session_id)
    session.emit("opened")
    await next_event(channel, "opened")
    return channel, session


async def next_event(channel: SessionChannel, event_type: str) -> SessionEvent:
    """Receive until an event of this type, and return it."""
    while True:
        message = await channel.recv()
        if isinstance(message, SessionEvent) and message.event_type == event_type:
            return message


async def numbers(channel: SessionChannel, count: int) -> list[Any]:
    """Return the numbers of the next so many events of type "number"."""
    return [(await next_event(channel, "number")).data["number"] for _ in range(count)]


async def settle(rounds: int = 30) -> None:
    """Let everything that can run without something new from outside run to its end."""
    for _ in range(rounds):
        await asyncio.sleep(0)


class BareServer:
    """The other end of a socket: nothing is read or written but by the test.

    Everything said in one call arrives in one read.
    """

    def __init__(self) -> None:
        self.socket, client = socket.socketpair()
        self.socket.setblocking(False)
        self.transport = SocketTransport.over(client, framer=ContentLengthFramer())
        self._framer = ContentLengthFramer()
        self._heard: list[Any] = []

    def say(self, *messages: dict[str, Any]) -> None:
        """Send messages in one piece."""
        self.socket.sendall(self._framer.frame([msgspec.json.encode(m) for m in messages]))

    def say_raw(self, *payloads: bytes) -> None:
        """Send what is not, or not quite, JSON."""
        self.socket.sendall(self._framer.frame(list(payloads)))

    def event(self, session_id: str, event_type: str, **data: Any) -> dict[str, Any]:
        """Return the message of an event."""
        event = {"type": event_type, "data": data}
        params = {"sessionId": session_id, "event": event}
        return {"jsonrpc": "2.0", "method": "session.event", "params": params}

    async def hear(self) -> Any:
        """Wait for the next message of the client's and return it."""
        while not self._heard:
            data = await asyncio.get_running_loop().sock_recv(self.socket, READ_BYTES)
            if not data:
                raise EOFError
            self._heard += [msgspec.json.decode(f) for f in self._framer.feed(data)]  # type: ignore[arg-type]
        return self._heard.pop(0)

    async def hear_of(self, method: str) -> Any:
        """Wait for the next request of this method, and return it."""
        while (message := await self.hear()).get("method") != method:
            pass
        return message

    @contextlib.asynccontextmanager
    async def routed(self, **options: Any) -> AsyncIterator[MessageRouter]:
        """Connect a router for the length of a block."""
        try:
            async with await MessageRouter.open(self.transport, **options) as router:
                yield router
        finally:
            self.socket.close()

    async def open(self, router: MessageRouter, **params: Any) -> SessionChannel:
        """Have the router create a session, and answer it."""
        creating = asyncio.ensure_future(router.create_session(params))
        asked = await self.hear_of("session.create")
        result = {"sessionId": asked["params"]["sessionId"]}
        self.say({"jsonrpc": "2.0", "id": asked["id"], "result": result})
        return (await creating)[1]
