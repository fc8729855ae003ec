"""The ports of agents for gRPC: sockets of ours, in front of one server for all of them.

gRPC takes no socket from anybody, opens all its ports before it begins, and is heavy. So its server
has a Unix socket in our own directory and nothing else; an agent's port is a listening socket here,
and what comes in there is passed on as it is. The server is told with each connection whose port it
was and who called. It is made when somebody connects first.
"""

import asyncio
import contextlib
import functools
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, Protocol

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.talk import Contact
from bullpen.connection import RequestTimeout, RpcError
from bullpen.servers.a2a.ports import readable
from bullpen.servers.a2a.room import Room
from bullpen.servers.a2a.security import Connected, Tables
from bullpen.servers.a2a.uids import Address

__all__ = ["GrpcPorts", "Way", "Ways"]

logger = logging.getLogger("bullpen.a2a")

HOST = "127.0.0.1"  # never anywhere else
ABOVE = 10_000  # an agent's port for gRPC is so far above its other one, if that is free
HIGHEST = 65_535
BACKLOG = 128
MOST_AT_ONCE = 2**16
KNOWN_SECONDS = 20.0  # until somebody who connected must have been let in
SHORTAGE_SECONDS = 1.0  # until a file handle may be free again
LOOK_SECONDS = 5.0  # how long an agent's port may outlive an agent that nobody wrapped


class Way:
    """One connection to the server of gRPC: whose port it came in by, and who called."""

    def __init__(self, agent: str, connected: Connected) -> None:
        self.agent = agent
        self.connected = connected
        self.is_known = False
        """Whether anybody was let in on it."""


class Ways(Protocol):
    """The server, as a port needs it."""

    def connect(self, way: Way) -> AbstractAsyncContextManager[socket.socket]:
        """Have a connection to it for a block, which it takes for the caller's."""


class _Port(NamedTuple):
    number: int
    serving: "asyncio.Task[None]"


class GrpcPorts:
    """The ports that are open. `get_server` makes the server when there is none yet."""

    def __init__(
        self,
        room: Room,
        get_server: Callable[[], Awaitable[Ways]],
        *,
        connections: int,
        is_on: bool = True,
    ) -> None:
        self._room = room
        self._get_server = get_server
        self._most = connections
        self._is_on = is_on
        self._tables = Tables()
        self._ports: dict[str, _Port] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0

    def where(self, contact: Contact) -> str:
        """Return the address at which an agent is served by gRPC, from now on; empty if at none."""
        if not self._is_on or not contact.is_present:
            return ""
        port = self._ports.get(contact.name)
        if port is None:
            port = self._open(contact.name, contact.port)
            if port is not None:
                self._begin(self._close_without_agent(contact.name, port))
        return f"{HOST}:{port.number}" if port is not None else ""

    @contextmanager
    def hold(self, agent: str, beside: int) -> Iterator[None]:
        """Have a port for an agent for a block; `beside` is its other one."""
        if self._is_on and agent not in self._ports:
            self._open(agent, beside)
        try:
            yield
        finally:
            self._close(agent, self._ports.get(agent))

    async def aclose(self) -> None:
        """Close all ports, and hang up on who is connected."""
        self._is_on = False
        self._ports.clear()
        for each in self._tasks:
            each.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # ---------------------------------------------------------------------------------------- ports

    def _open(self, agent: str, beside: int | None) -> _Port | None:
        try:
            listening = _bind(beside)
        except OSError as error:
            what = (agent, error.strerror or error)
            logger.error("%s is not served by gRPC: no port can be had: %s", *what)
            return None
        serving = self._begin(self._serve(listening, agent))
        serving.add_done_callback(lambda _: listening.close())  # also if it never began
        port = self._ports[agent] = _Port(listening.getsockname()[1], serving)
        return port

    def _close(self, agent: str, port: _Port | None) -> None:
        if port is not None and self._ports.get(agent) is port:
            del self._ports[agent]
            port.serving.cancel()

    async def _close_without_agent(self, agent: str, port: _Port) -> None:
        while self._ports.get(agent) is port:
            await asyncio.sleep(LOOK_SECONDS)  # nothing tells: we have to look
            with contextlib.suppress(RpcError, RequestTimeout, DaemonUnavailable):
                found = await self._room.contact(agent)
                if found is None or not found.is_present:
                    self._close(agent, port)

    def _begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # ---------------------------------------------------------------------------------- connections

    async def _serve(self, listening: socket.socket, agent: str) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await readable(listening)
                try:
                    caller, _ = listening.accept()  # at once: who is waited for could be lost
                except BlockingIOError:
                    continue
                except OSError as error:
                    logger.error("a caller cannot be accepted: %s", error.strerror or error)
                    await asyncio.sleep(SHORTAGE_SECONDS)
                    continue
                if self._count >= self._most:
                    caller.close()
                    continue
                self._count += 1
                task = group.create_task(self._pass_on(caller, agent))
                task.add_done_callback(functools.partial(self._let_go, caller))

    def _let_go(self, caller: socket.socket, _: "asyncio.Task[None]") -> None:
        """Do so also if it was cancelled before it began."""
        caller.close()
        self._count -= 1

    async def _pass_on(self, caller: socket.socket, agent: str) -> None:
        try:
            caller.setblocking(False)
            caller.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ends = _end(caller.getpeername()), _end(caller.getsockname())
            way = Way(agent, Connected(*ends, self._tables))
            server = await self._get_server()
            async with server.connect(way) as inner, _relayed(caller, inner) as is_over:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(KNOWN_SECONDS):
                        await is_over.wait()
                if way.is_known:
                    await is_over.wait()
        except OSError:
            pass  # it hung up
        except Exception:  # the boundary: one caller's trouble is nobody else's
            logger.exception("a caller by gRPC cannot be served")


@asynccontextmanager
async def _relayed(one: socket.socket, other: socket.socket) -> AsyncIterator[asyncio.Event]:
    """Pass on what each of two sockets says to the other, until one has ended or the block has."""
    is_over = asyncio.Event()
    pumps = [asyncio.create_task(_pump(*pair)) for pair in ((one, other), (other, one))]
    for pump in pumps:
        pump.add_done_callback(lambda _: is_over.set())
    try:
        yield is_over
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.wait(pumps)


async def _pump(source: socket.socket, target: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError):
        while data := await loop.sock_recv(source, MOST_AT_ONCE):
            await loop.sock_sendall(target, data)


def _bind(beside: int | None) -> socket.socket:
    wanted = beside + ABOVE if beside else 0
    if 0 < wanted <= HIGHEST:
        with contextlib.suppress(OSError):
            return _listen(wanted)
    return _listen(0)


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _end(address: tuple[str, int]) -> Address:
    return address[0], address[1]
