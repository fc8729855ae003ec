"""Serving A2A for as long as the daemon lives: at one port for all agents, and at each one's own.

Nothing that is heavy is loaded before somebody connects to one of them. Until then a port costs a
listening socket. Beside its own port an agent has one for gRPC, if that is installed.
"""

import asyncio
import contextlib
import gc
import importlib.util
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from bullpen.api.files import write_private
from bullpen.api.runtime import Paths
from bullpen.api.settings import A2aSettings, Settings
from bullpen.api.talk import Contact
from bullpen.connection.transports.socket import MAX_UNIX_PATH_BYTES
from bullpen.servers.a2a.grpc_ports import GrpcPorts
from bullpen.servers.a2a.ports import readable, take_ports
from bullpen.servers.a2a.resuming import resume_push
from bullpen.servers.a2a.room import OpenClient, Room
from bullpen.servers.a2a.security import Guard, is_loopback
from bullpen.servers.a2a.tokens import Tokens

if TYPE_CHECKING:
    from bullpen.servers.a2a.http import HttpServer
    from bullpen.servers.a2a.v1.grpc_server import GrpcServer
    from bullpen.servers.a2a.v1.handlers import Handlers

__all__ = ["serve"]

logger = logging.getLogger("bullpen.a2a")

BACKLOG = 128
GRPC = ("grpc", "grpc_status", "google.rpc")  # what the extra installs
NAME_BYTES = 12  # of one connection, behind the name of the socket of gRPC


async def serve(open_client: OpenClient, paths: Paths, settings: Settings) -> None:
    """Serve A2A until this is cancelled. What cannot be served is logged."""
    async with (
        Room.open(open_client, settings.a2a) as room,
        _Serving.open(room, paths, settings) as serving,
        asyncio.TaskGroup() as group,
    ):
        group.create_task(resume_push(room))
        group.create_task(_serve_all(serving, paths, settings.a2a))
        group.create_task(take_ports(paths.a2a_socket, room.whose, serving.serve_port))


class _Loaded(NamedTuple):
    """What is heavy."""

    http: "HttpServer"
    handlers: "Handlers"


class _Serving:
    """The servers for HTTP and gRPC, which are made when somebody needs them."""

    def __init__(self, room: Room, paths: Paths, settings: A2aSettings, *, has_grpc: bool) -> None:
        self._room = room
        self._guard = Guard(room, Tokens(paths.a2a_tokens), settings)
        self._settings = settings
        self._grpc_socket = paths.a2a_grpc
        self._loading: asyncio.Task[_Loaded] | None = None
        self._starting: asyncio.Task[GrpcServer] | None = None
        self._grpc = GrpcPorts(
            room, self._grpc_server, connections=settings.connections, is_on=has_grpc
        )
        self.all_agents = ""
        """Where all of them are, without a slash at its end."""

    @classmethod
    @asynccontextmanager
    async def open(cls, room: Room, paths: Paths, settings: Settings) -> AsyncIterator["_Serving"]:
        has_grpc = settings.a2a.grpc and await asyncio.to_thread(_can_serve_grpc, paths.a2a_grpc)
        serving = cls(room, paths, settings.a2a, has_grpc=has_grpc)
        try:
            yield serving
        finally:
            await serving._aclose()

    async def serve_port(
        self, listening: socket.socket, agent: str | None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Serve a port until this is cancelled."""
        with contextlib.ExitStack() as stack:
            if agent is not None:
                stack.enter_context(self._grpc.hold(agent, listening.getsockname()[1]))
            await readable(listening)
            loaded = await self._loaded()
            async with loaded.http.listen(listening, agent, tls):
                await asyncio.Event().wait()

    async def _loaded(self) -> _Loaded:
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        return await asyncio.shield(self._loading)

    def _load(self) -> _Loaded:
        from bullpen.servers.a2a.app import make_app
        from bullpen.servers.a2a.http import HttpServer
        from bullpen.servers.a2a.v1.handlers import Handlers

        handlers = Handlers(self._room)
        app = make_app(self._room, self._guard, self._settings, handlers, self._grpc.where)
        if not gc.get_freeze_count():  # once for a process
            gc.collect()
            gc.freeze()  # or to look for garbage would take 20 ms, for all that was loaded
        return _Loaded(HttpServer(app, connections=self._settings.connections), handlers)

    async def _grpc_server(self) -> "GrpcServer":
        if self._starting is None or _has_failed(self._starting):
            self._starting = asyncio.create_task(self._start_grpc())
        return await asyncio.shield(self._starting)

    async def _start_grpc(self) -> "GrpcServer":
        loaded = await self._loaded()
        kind = await asyncio.to_thread(_load_grpc)
        return await kind.open(self._grpc_socket, loaded.handlers, self._guard, self._places)

    def _places(self, contact: Contact) -> tuple[str, str]:
        """Return where an agent is served by HTTP, and by gRPC."""
        own = f"http://127.0.0.1:{contact.port}" if contact.port else ""
        base = own or f"{self.all_agents}/{quote(contact.name, safe='')}"
        return f"{base}/", self._grpc.where(contact)

    async def _aclose(self) -> None:
        self._room.end_watching()  # so that who follows a task is told, and not just cut off
        await self._grpc.aclose()
        for ending in (self._starting, self._loading):
            if ending is None:
                continue
            try:
                found = await ending
                await (found.http if isinstance(found, _Loaded) else found).aclose()
            except Exception:  # the boundary: what fails at the end keeps nobody from ending
                logger.exception("the A2A server did not end well")


async def _serve_all(serving: _Serving, paths: Paths, settings: A2aSettings) -> None:
    """Serve the port of all agents; which one it is stands in a file meanwhile."""
    try:
        tls = await asyncio.to_thread(_permit, settings, Tokens(paths.a2a_tokens))
        listening = _bind(settings)
    except (OSError, ValueError) as error:
        logger.error("A2A is not served at %s: %s", settings.bind, error)
        return
    with listening:
        port = listening.getsockname()[1]
        try:
            await asyncio.to_thread(write_private, paths.a2a_port, f"{port}\n")
            serving.all_agents = f"{'https' if tls else 'http'}://{settings.bind}:{port}/agents"
            logger.info("serving A2A at %s, port %d", settings.bind, port)
            await serving.serve_port(listening, None, tls)
        except OSError as error:
            logger.error("A2A is not served at %s: %s", settings.bind, error)
        finally:
            await asyncio.to_thread(paths.a2a_port.unlink, missing_ok=True)


def _permit(settings: A2aSettings, tokens: Tokens) -> ssl.SSLContext | None:
    """Return how to serve the address that is set, if it may be served at all.

    Raises:
        ValueError: it may not, and what is missing.
        OSError: the certificate cannot be read.
    """
    if not is_loopback(settings.bind):
        if not settings.tls_certificate:
            raise ValueError("others could read along: a2a.tls_certificate is needed")
        if tokens.is_empty:
            raise ValueError("nobody could be told from anybody: a token is needed first")
    if not settings.tls_certificate:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.tls_certificate, settings.tls_key or None)
    return context


def _can_serve_grpc(path: Path) -> bool:
    """Whether what that needs is installed, and its socket can be made."""
    try:
        is_installed = all(importlib.util.find_spec(each) for each in GRPC)
    except ModuleNotFoundError:
        return False
    if is_installed and len(os.fsencode(path)) + NAME_BYTES > MAX_UNIX_PATH_BYTES:
        logger.warning("A2A is not served by gRPC: the path of its socket is too long")
        return False
    return is_installed


def _has_failed(starting: "asyncio.Task[GrpcServer]") -> bool:
    return starting.done() and (starting.cancelled() or starting.exception() is not None)


def _load_grpc() -> "type[GrpcServer]":
    from bullpen.servers.a2a.v1.grpc_server import GrpcServer

    return GrpcServer


def _bind(settings: A2aSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    listening = socket.socket(family)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((settings.bind, settings.http_port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening
