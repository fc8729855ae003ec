"""Serving MCP for as long as the daemon lives: the socket, and HTTP if that is wanted."""

import asyncio
import logging
import os
import stat
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from bullpen.api.client import Client
from bullpen.api.peers import authorize_owner, peer_pid
from bullpen.api.runtime import Paths
from bullpen.api.settings import MailSettings, Settings
from bullpen.connection import Builder, SocketTransport, Transport, listen_unix
from bullpen.errors import BullpenError
from bullpen.servers.mcp.peer import Peer, framer
from bullpen.servers.mcp.tools import Caller, Tools

if TYPE_CHECKING:
    from bullpen.connection.transports.stream import Reader, Writer

__all__ = ["OpenClient", "serve"]

logger = logging.getLogger("bullpen.mcp")

LOOK_SECONDS = 5.0  # how long the socket may be missing before it is made anew

OpenClient = Callable[[int], AbstractAsyncContextManager[Client]]
"""Opens a way to the daemon in the name of a process, by its number; 0 if it is not known."""


async def serve(
    open_client: OpenClient,
    paths: Paths,
    settings: Settings,
    *,
    look_seconds: float = LOOK_SECONDS,
) -> None:
    """Serve MCP until this is cancelled. What cannot be served is logged, and tried again."""
    async with asyncio.TaskGroup() as group:
        peers = _Peers(open_client, settings.mail)
        group.create_task(_serve_socket(peers, paths.mcp_socket, look_seconds))
        if settings.mcp.http:
            group.create_task(_serve_http(open_client, paths, settings))


async def _serve_socket(peers: Builder, path: Path, look_seconds: float) -> None:
    while True:
        try:
            async with listen_unix(str(path), peers, framer=framer, authorize=authorize_owner):
                logger.info("serving MCP at %s", path)
                await _removal(path, look_seconds)
            logger.warning("%s was removed; it is made anew", path)
        except BullpenError as error:
            logger.error("MCP cannot be served: %s", error)
            await asyncio.sleep(look_seconds)


async def _serve_http(open_client: OpenClient, paths: Paths, settings: Settings) -> None:
    from bullpen.servers.mcp.http import serve_http

    async with open_client(0) as client:
        tools = Tools(client, Caller(), send_seconds=settings.mail.send_seconds)
        try:
            await serve_http(client, tools, paths, settings.mcp.http_port)
        except (OSError, BullpenError) as error:
            logger.error("MCP cannot be served over HTTP: %s", error)


class _Peers(Builder):
    """Describes the connection of each peer anew: what one has said is not for another."""

    def __init__(self, open_client: OpenClient, settings: MailSettings) -> None:
        super().__init__()
        self._open_client = open_client
        self._settings = settings

    async def serve_with(self, transport: "Transport | tuple[Writer, Reader]") -> None:
        connected = transport.connected if isinstance(transport, SocketTransport) else None
        pid = peer_pid(connected) if connected is not None else 0
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._open_client(pid))
            tools = Tools(client, Caller(pid=pid), send_seconds=self._settings.send_seconds)
            peer = Peer(tools, idle_seconds=self._settings.idle_seconds)
            connection = await stack.enter_async_context(peer.builder.connect(transport))
            connection.spawn(peer.watch(connection), name="idle")
            await connection.wait_closed()


async def _removal(path: Path, look_seconds: float) -> None:
    """Wait until somebody has removed the socket, as those do who clean up in /tmp."""
    made = found = await asyncio.to_thread(_identity, path)
    while found == made:
        await asyncio.sleep(look_seconds)  # nothing tells: we have to look
        found = await asyncio.to_thread(_identity, path)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return which socket is there, if there is any."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISSOCK(found.st_mode) else None
