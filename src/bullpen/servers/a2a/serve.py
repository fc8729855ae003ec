"""Serving A2A for as long as the daemon lives: at one port for all agents, and at each one's own.

Nothing that is heavy is loaded before somebody connects to one of them. Until then a port costs a
listening socket.
"""

import asyncio
import logging
import os
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.api.runtime import Paths
from bullpen.api.settings import A2aSettings, Settings
from bullpen.servers.a2a.ports import take_ports
from bullpen.servers.a2a.resuming import resume_push
from bullpen.servers.a2a.room import OpenClient, Room
from bullpen.servers.a2a.security import Guard, is_loopback
from bullpen.servers.a2a.tokens import Tokens

if TYPE_CHECKING:
    from bullpen.servers.a2a.http import HttpServer

__all__ = ["serve"]

logger = logging.getLogger("bullpen.a2a")

BACKLOG = 128


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


class _Serving:
    """The HTTP server, which is made when somebody needs it."""

    def __init__(self, room: Room, guard: Guard, settings: A2aSettings) -> None:
        self._room = room
        self._guard = guard
        self._settings = settings
        self._loading: asyncio.Task[HttpServer] | None = None

    @classmethod
    @asynccontextmanager
    async def open(cls, room: Room, paths: Paths, settings: Settings) -> AsyncIterator["_Serving"]:
        guard = Guard(room, Tokens(paths.a2a_tokens), settings.a2a)
        serving = cls(room, guard, settings.a2a)
        try:
            yield serving
        finally:
            await serving._aclose()

    async def serve_port(
        self, listening: socket.socket, agent: str | None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Serve a port until this is cancelled."""
        await _somebody(listening)
        server = await self._server()
        async with server.listen(listening, agent, tls):
            await asyncio.Event().wait()

    async def _server(self) -> "HttpServer":
        if self._loading is None:
            self._loading = asyncio.create_task(asyncio.to_thread(self._load))
        return await asyncio.shield(self._loading)

    def _load(self) -> "HttpServer":
        from bullpen.servers.a2a.app import make_app
        from bullpen.servers.a2a.http import HttpServer

        app = make_app(self._room, self._guard, self._settings)
        return HttpServer(app, connections=self._settings.connections)

    async def _aclose(self) -> None:
        if self._loading is not None:
            try:
                await (await self._loading).aclose()
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
            await asyncio.to_thread(_write_private, paths.a2a_port, f"{port}\n")
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


async def _somebody(listening: socket.socket) -> None:
    """Wait until somebody wants to connect."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listening, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(listening)


def _write_private(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="ascii") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
