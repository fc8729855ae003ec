"""Serving whoever connects: each peer gets a connection of its own, made by one builder.

    async with listen_unix(path, builder) as listener:
        await listener.wait_closed()

Leaving the block ends the serving and every connection with it.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
import stat
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bullpen.connection.builder import Builder
from bullpen.connection.context import Context
from bullpen.connection.errors import AddressError, ConnectionClosed
from bullpen.connection.transport import Transport
from bullpen.connection.transports.inproc import offer_inproc
from bullpen.connection.transports.socket import SocketTransport, check_unix_path
from bullpen.jsonrpc.errors import RpcError
from bullpen.jsonrpc.framing import Framer, LineFramer
from bullpen.jsonrpc.wire import Notification, Request

__all__ = [
    "Authorize",
    "Listener",
    "listen_inproc",
    "listen_stdio",
    "listen_tcp",
    "listen_unix",
    "listen_websocket",
    "listen_websocket_unix",
]

logger = logging.getLogger("bullpen.connection")

MAX_PEERS = 1000  # at the same time
BACKLOG = 1024  # how many may wait to be accepted; the system may allow fewer
ACCEPTED_AT_ONCE = 128  # in one round of the loop
SHORTAGE_SECONDS = 1.0  # until we try again when there are no descriptors left
SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
REFUSAL_SECONDS = 5.0  # for a peer that may not be served to ask something and hear so

Authorize = Callable[[socket.socket], RpcError | None]
"""Looks at a connected socket and returns why its peer may not be served, or None if it may.

It runs in the event loop: it must not wait, and it must not raise.
"""


class Listener:
    """Serves peers until it is closed. Its `address` is one to connect to."""

    def __init__(self, address: str, builder: Builder, max_peers: int = MAX_PEERS) -> None:
        self.address = address
        self.refused = 0  # peers sent away: there were too many, or they were not allowed
        self._builder = builder
        self._max_peers = max_peers
        self._peers: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Listener {self.address}, {self.peers} peers>"

    @property
    def peers(self) -> int:
        """How many are being served."""
        return len(self._peers)

    async def wait_closed(self) -> None:
        """Wait until nobody will be served any more."""
        await self._closed.wait()

    def has_room(self) -> bool:
        """Whether one more may be served. One who may not is counted."""
        if len(self._peers) < self._max_peers and not self._closed.is_set():
            return True
        self.refused += 1
        logger.warning("%s: refused a peer, there are %d", self.address, self.peers)
        return False

    def accept(self, transport: Transport) -> "asyncio.Task[None]":
        """Serve one more."""
        return self._run(self._serve(transport))

    def refuse(self, transport: Transport, error: RpcError) -> "asyncio.Task[None]":
        """Answer a peer's first request with an error, then hang up."""
        self.refused += 1
        logger.warning("%s: refused a peer: %s", self.address, error)
        return self._run(self._refuse(transport, error))

    async def aclose(self) -> None:
        """End every connection."""
        self._closed.set()
        peers = list(self._peers)
        for peer in peers:
            peer.cancel()
        if peers:
            await asyncio.wait(peers)  # each of them is bounded

    def _run(self, serving: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(serving, name=f"{self.address}:peer")
        self._peers.add(task)
        task.add_done_callback(self._peers.discard)
        return task

    async def _refuse(self, transport: Transport, error: RpcError) -> None:
        def refuse(message: Request | Notification, context: Context) -> None:
            if isinstance(message, Request):
                context.fail(error)
            context.connection.close_soon()

        refusing = Builder().name(f"{self.address}:refused").on_message(refuse)
        with contextlib.suppress(TimeoutError, ConnectionClosed):
            async with asyncio.timeout(REFUSAL_SECONDS):
                await refusing.serve_with(transport)

    async def _serve(self, transport: Transport) -> None:
        try:
            await self._builder.serve_with(transport)
        except ConnectionClosed as closed:
            logger.info("%s: a peer is gone: %s", self.address, closed.cause)
        except Exception:  # the boundary: what befalls one peer is not another's business
            logger.exception("%s: a peer cannot be served", self.address)


@asynccontextmanager
async def listen_tcp(
    host: str,
    port: int,
    builder: Builder,
    *,
    max_peers: int = MAX_PEERS,
    framer: Callable[[], Framer] = LineFramer,
    **options: Any,
) -> AsyncIterator[Listener]:
    """Serve a TCP port; with 0, a free one, which `address` then names.

    Whoever can reach the port can connect: give a loopback host unless that is meant.

    Raises:
        AddressError: the port cannot be had.
    """
    async with _bind_tcp("tcp", host, port) as (address, listening):
        listener = Listener(address, builder, max_peers)
        async with _serving(listener, listening, framer, options):
            yield listener


@asynccontextmanager
async def listen_unix(
    path: str,
    builder: Builder,
    *,
    max_peers: int = MAX_PEERS,
    framer: Callable[[], Framer] = LineFramer,
    authorize: Authorize | None = None,
    **options: Any,
) -> AsyncIterator[Listener]:
    """Serve a Unix socket that only its owner may connect to.

    What a dead server left at the path is replaced; a living one is not. The socket is removed in
    the end, unless somebody else's has taken its place. A peer that `authorize` objects to hears
    the error it returned in answer to its first request, and nothing else.

    Raises:
        AddressError: the socket cannot be made there.
    """
    async with _bind_unix("unix", path) as (address, listening):
        listener = Listener(address, builder, max_peers)
        async with _serving(listener, listening, framer, options, authorize):
            yield listener


@asynccontextmanager
async def listen_websocket(
    host: str, port: int, builder: Builder, *, max_peers: int = MAX_PEERS, **options: Any
) -> AsyncIterator[Listener]:
    """Serve WebSockets at a TCP port. Pages in a browser are refused.

    Raises:
        AddressError: the port cannot be had.
    """
    async with _bind_tcp("ws", host, port) as (address, listening):
        listener = Listener(address, builder, max_peers)
        async with _serving_websockets(listener, listening, options):
            yield listener


@asynccontextmanager
async def listen_websocket_unix(
    path: str, builder: Builder, *, max_peers: int = MAX_PEERS, **options: Any
) -> AsyncIterator[Listener]:
    """Serve WebSockets at a Unix socket, which is otherwise as with `listen_unix`."""
    async with _bind_unix("ws+unix", path) as (address, listening):
        listener = Listener(address, builder, max_peers)
        async with _serving_websockets(listener, listening, options):
            yield listener


@asynccontextmanager
async def listen_inproc(
    name: str, builder: Builder, *, max_peers: int = MAX_PEERS
) -> AsyncIterator[Listener]:
    """Serve those in this process and event loop who connect to a name.

    Raises:
        AddressError: the name is taken.
    """
    listener = Listener(f"inproc:{name}", builder, max_peers)
    with offer_inproc(name, listener.accept, listener.has_room):
        try:
            yield listener
        finally:
            await listener.aclose()


@asynccontextmanager
async def listen_stdio(builder: Builder, **options: Any) -> AsyncIterator[Listener]:
    """Serve the one peer at this program's stdin and stdout; closed when it is gone."""
    from bullpen.connection.transports.stdio import StdioTransport

    listener = Listener("stdio:", builder)
    serving = listener.accept(StdioTransport(**options))
    serving.add_done_callback(lambda _: listener._closed.set())
    try:
        yield listener
    finally:
        await listener.aclose()


# Accepting


@asynccontextmanager
async def _serving(
    listener: Listener,
    listening: socket.socket,
    framer: Callable[[], Framer],
    options: dict[str, Any],
    authorize: Authorize | None = None,
) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    retry: asyncio.TimerHandle | None = None

    def start() -> None:
        loop.add_reader(listening, accept_all)

    def accept_all() -> None:
        nonlocal retry
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                connected, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                logger.error("%s: cannot accept: %s", listener.address, error.strerror)
                loop.remove_reader(listening)
                retry = loop.call_later(SHORTAGE_SECONDS, start)
                return
            serve(connected)

    def serve(connected: socket.socket) -> None:
        if not listener.has_room():
            connected.close()
            return
        transport = SocketTransport.over(connected, framer=framer(), **options)
        refusal = authorize(connected) if authorize is not None else None
        if refusal is None:
            serving = listener.accept(transport)
        else:
            serving = listener.refuse(transport, refusal)
        # Also if it was cancelled before it began.
        serving.add_done_callback(lambda _: connected.close())

    listening.listen(BACKLOG)
    start()
    try:
        yield
    finally:
        loop.remove_reader(listening)
        if retry is not None:
            retry.cancel()
        await listener.aclose()


@asynccontextmanager
async def _serving_websockets(
    listener: Listener, listening: socket.socket, options: dict[str, Any]
) -> AsyncIterator[None]:
    from bullpen.connection.transports.websocket import serve_websocket

    async def serve(transport: Transport) -> None:
        await asyncio.wait([listener.accept(transport)])

    async with serve_websocket(listening, serve, has_room=listener.has_room, **options):
        try:
            yield
        finally:
            await listener.aclose()


# Binding


@asynccontextmanager
async def _bind_tcp(scheme: str, host: str, port: int) -> AsyncIterator[tuple[str, socket.socket]]:
    shown = f"[{host}]" if ":" in host else host
    loop = asyncio.get_running_loop()
    listening: socket.socket | None = None
    try:
        found = await loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )
        family, _, _, _, target = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(target)
    except (OSError, OverflowError, UnicodeError) as error:
        if listening is not None:
            listening.close()
        reason = getattr(error, "strerror", None) or error
        raise AddressError(f"{scheme}://{shown}:{port}", reason) from error
    with listening:
        yield f"{scheme}://{shown}:{listening.getsockname()[1]}", listening


@asynccontextmanager
async def _bind_unix(scheme: str, path: str) -> AsyncIterator[tuple[str, socket.socket]]:
    address = f"{scheme}://{path}"
    check_unix_path(path)
    # In a thread: these are file operations, and the directory may be on a slow disk.
    listening, identity = await asyncio.to_thread(_make_socket_file, address, path)
    with listening:
        try:
            yield address, listening
        finally:
            await asyncio.to_thread(_remove_socket_file, path, identity)


def _make_socket_file(address: str, path: str) -> tuple[socket.socket, tuple[int, int]]:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead_socket(address, path)
        listening.bind(path)
        # In this order nobody can slip in: before it listens, nobody can connect at all.
        Path(path).chmod(0o600)
        listening.setblocking(False)
        return listening, _identity(path)
    except OSError as error:
        listening.close()
        raise AddressError(address, error.strerror or error) from error
    except BaseException:
        listening.close()
        raise


def _remove_dead_socket(address: str, path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressError(address, "there is something that is not a socket")
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            Path(path).unlink(missing_ok=True)
        except BlockingIOError:  # alive, and very busy
            raise AddressError(address, "somebody else is serving there") from None
        else:
            raise AddressError(address, "somebody else is serving there")


def _remove_socket_file(path: str, identity: tuple[int, int]) -> None:
    with contextlib.suppress(OSError):
        if _identity(path) == identity:
            Path(path).unlink()


def _identity(path: str) -> tuple[int, int]:
    found = os.lstat(path)
    return found.st_dev, found.st_ino
