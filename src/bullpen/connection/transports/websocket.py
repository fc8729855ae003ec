"""WebSockets, through the `websockets` library: one JSON text per message.

Both sides of it, over TCP, TLS or a Unix socket (as `codex app-server --listen unix://` wants it).
The library is imported when it is first used; `pip install websockets` brings it.
"""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bullpen.connection.errors import AddressError, TransportClosed, TransportError
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.socket import check_unix_path
from bullpen.connection.transports.stream import StreamTransport
from bullpen.jsonrpc.framing import MAX_FRAME_BYTES

if TYPE_CHECKING:
    from websockets.asyncio.connection import Connection as WebSocket
    from websockets.asyncio.server import ServerConnection
    from websockets.http11 import Request, Response

__all__ = ["WebSocketTransport", "serve_websocket"]

PING_SECONDS = 20.0  # so often, whatever is between us is shown that we are there
CLOSE_SECONDS = 1.0  # for the peer to return our good-bye

_Dial = Callable[[], Awaitable["WebSocket"]]


class WebSocketTransport(StreamTransport):
    """Messages on a WebSocket: `WebSocketTransport("ws://127.0.0.1:4500")`.

    A text is one message, and so is a binary that holds UTF-8. One longer than `max_frame_bytes`
    ends the connection, which is all that the protocol knows to do about it. What
    `websockets.connect` can be told beyond that goes into `connect_options`.

    Raises on opening:
        AddressError: nobody there speaks WebSocket with us.
        TransportError: the library is not installed.
    """

    def __init__(
        self,
        url: str | _Dial,
        *,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        connect_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self._messages = _MessageStream()
        super().__init__(self._messages, self._messages, **options)
        connect_options = _settings(max_frame_bytes) | {"proxy": None} | (connect_options or {})
        self._dial = _dialer(url, connect_options) if isinstance(url, str) else url

    @classmethod
    def unix(
        cls, path: str, *, url: str = "ws://localhost/", **options: Any
    ) -> "WebSocketTransport":
        """Connect to a WebSocket server on a Unix socket when started."""
        connect_options = options.pop("connect_options", None) or {}
        return cls(url, connect_options={"unix": True, "path": path} | connect_options, **options)

    @classmethod
    def accepted(cls, websocket: "WebSocket", **options: Any) -> "WebSocketTransport":
        """Take over a connection that a server of the `websockets` library has accepted."""

        async def dial() -> "WebSocket":
            return websocket

        return cls(dial, **options)

    async def open(self, receiver: Receiver) -> None:
        self._messages.websocket = await self._dial()
        await super().open(receiver)


class _MessageStream:
    """A WebSocket as a stream of lines, each of them a message."""

    def __init__(self) -> None:
        self.websocket: WebSocket | None = None
        self._unsent: list[bytes] = []

    @property
    def transport(self) -> Any:
        return self.websocket.transport if self.websocket is not None else None

    async def read(self, _size: int, /) -> bytes:
        from websockets.exceptions import ConnectionClosed, ConnectionClosedOK

        assert self.websocket is not None
        try:
            message = await self.websocket.recv(decode=False)
        except ConnectionClosedOK:
            return b""
        except ConnectionClosed as error:
            raise TransportClosed(str(error)) from error
        # In JSON a newline can only stand between tokens, where a space means the same.
        return message.replace(b"\n", b" ") + b"\n"

    def write(self, data: bytes, /) -> None:
        self._unsent += data.split(b"\n")[:-1]

    async def drain(self) -> None:
        from websockets.exceptions import ConnectionClosed

        assert self.websocket is not None
        unsent, self._unsent = self._unsent, []
        try:
            for message in unsent:
                await self.websocket.send(message, text=True)
        except ConnectionClosed as error:
            raise ConnectionResetError(str(error)) from error

    async def close(self) -> None:
        if self.websocket is not None:
            await self.websocket.close()


@asynccontextmanager
async def serve_websocket(
    listening: socket.socket,
    serve: Callable[[WebSocketTransport], Awaitable[None]],
    *,
    has_room: Callable[[], bool] = lambda: True,
    max_frame_bytes: int = MAX_FRAME_BYTES,
) -> AsyncIterator[None]:
    """Serve whoever connects to a bound socket, for the length of a block.

    Pages in a browser are refused, whose requests name their origin: any site a user visits could
    otherwise speak to a server on the user's machine. So is everybody while there is no room.
    """
    _check_library()
    from websockets.asyncio.server import serve as serve_websockets

    async def handle(websocket: "ServerConnection") -> None:
        await serve(WebSocketTransport.accepted(websocket, max_frame_bytes=max_frame_bytes))

    def admit(websocket: "ServerConnection", _request: "Request") -> "Response | None":
        return None if has_room() else websocket.respond(503, "too many peers\n")

    async with serve_websockets(
        handle,
        sock=listening,
        unix=listening.family == socket.AF_UNIX,
        origins=[None],
        process_request=admit,
        **_settings(max_frame_bytes),
    ):
        yield


def _dialer(url: str, connect_options: dict[str, Any]) -> _Dial:
    async def dial() -> "WebSocket":
        if "path" in connect_options:
            check_unix_path(connect_options["path"])
        _check_library()
        from websockets.asyncio.client import connect
        from websockets.exceptions import WebSocketException

        try:
            return await connect(url, **connect_options)
        except (OSError, ValueError, WebSocketException) as error:  # a timeout is the first
            raise AddressError(url, getattr(error, "strerror", None) or error) from error

    return dial


def _settings(max_frame_bytes: int) -> dict[str, Any]:
    return {
        "max_size": max_frame_bytes,
        "compression": None,  # most peers are on this machine
        "ping_interval": PING_SECONDS,
        "ping_timeout": None,  # a peer that is busy is not gone
        "close_timeout": CLOSE_SECONDS,
    }


def _check_library() -> None:
    try:
        import websockets  # noqa: F401
    except ModuleNotFoundError as error:
        raise TransportError("WebSockets need: pip install websockets") from error
