"""MCP over HTTP, on loopback: for programs that take an address instead of a command.

Whoever calls shows the secret of an agent, and speaks for it, or the user's own token, which is in
a file that only the user can read. Pages in a browser are refused by what they say of their origin.
uvicorn and Starlette are imported by the first who connects, like the SDK.
"""

import asyncio
import contextlib
import hmac
import logging
import secrets
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bullpen.api.client import Client
from bullpen.api.files import write_private
from bullpen.api.runtime import Paths
from bullpen.api.talk import WhoAmI
from bullpen.connection import RpcError
from bullpen.servers.mcp.tools import USER, Caller, Tools

if TYPE_CHECKING:
    import uvicorn
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
    from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["PATH", "serve_http"]

logger = logging.getLogger("bullpen.mcp")

LOOPBACK = "127.0.0.1"
PATH = "/mcp"
BACKLOG = 128
STOP_SECONDS = 1
TOOLS_KEY = "bullpen.tools"
WATCHER = "_shutdown_watcher"


async def serve_http(client: Client, tools: Tools, paths: Paths, port: int) -> None:
    """Serve a port until this is cancelled; which one stands in a file meanwhile.

    Raises:
        OSError: the port, or one of the files, cannot be had.
    """
    with contextlib.ExitStack() as stack:
        token = await asyncio.to_thread(_token, paths.mcp_token)
        # Of a socket whose protocol is not named asyncio does not know that it is TCP, and lets
        # Nagle's algorithm hold back the end of each answer for 40 ms.
        tcp = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening = stack.enter_context(socket.socket(*tcp))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((LOOPBACK, port))
        listening.listen(BACKLOG)
        listening.setblocking(False)
        bound = listening.getsockname()[1]
        await asyncio.to_thread(write_private, paths.mcp_port, f"{bound}\n")
        try:
            logger.info("serving MCP at http://%s:%d%s", LOOPBACK, bound, PATH)
            await _somebody(listening)
            server, sessions = await asyncio.to_thread(_make_server, client, tools, token)
            await _run(server, sessions, listening)
        finally:
            await asyncio.to_thread(paths.mcp_port.unlink, missing_ok=True)


async def _somebody(listening: socket.socket) -> None:
    """Wait until somebody wants to connect."""
    loop = asyncio.get_running_loop()
    came = asyncio.Event()
    loop.add_reader(listening, came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(listening)


async def _run(
    server: "uvicorn.Server", sessions: "StreamableHTTPSessionManager", listening: socket.socket
) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listening]), name="mcp:http")
    try:
        async with sessions.run():
            await asyncio.shield(serving)
    finally:  # the sessions have ended, and with them what was still being answered
        server.should_exit = True
        await asyncio.wait([serving], timeout=STOP_SECONDS + 1)
        left = [serving, *_watchers()]
        for task in left:
            task.cancel()
        await asyncio.wait(left)


def _watchers() -> "list[asyncio.Task[Any]]":
    """Return what sse-starlette leaves behind: it looks for the end of a server for ever."""
    tasks = asyncio.all_tasks()
    return [each for each in tasks if getattr(each.get_coro(), "__name__", "") == WATCHER]


def _make_server(
    client: Client, tools: Tools, token: str
) -> "tuple[uvicorn.Server, StreamableHTTPSessionManager]":
    import uvicorn

    from bullpen.servers.mcp.sdk import make_server

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield  # signals are the daemon's business

    mcp = make_server(_tools_of)
    app = mcp.streamable_http_app(streamable_http_path=PATH, host=LOOPBACK)
    config = uvicorn.Config(
        _Door(app, client, tools, token),
        lifespan="off",  # which is that of the sessions
        log_config=None,
        access_log=False,
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return Server(config), mcp.session_manager


def _tools_of(request: Any) -> Tools:
    tools = request.scope[TOOLS_KEY]
    assert isinstance(tools, Tools)
    return tools


class _Door:
    """Lets in who shows a secret or the token, and says to the tools who it is."""

    def __init__(self, app: "ASGIApp", client: Client, tools: Tools, token: str) -> None:
        self._app = app
        self._client = client
        self._tools = tools
        self._token = token

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        shown = _bearer(scope["headers"])
        name = await self._whose(shown)
        if name is None:
            await _refuse(scope, receive, send)
            return
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
        from mcp.server.auth.provider import AccessToken

        # By this the SDK sees to it that a session is used by the one who began it.
        token = AccessToken(token="", client_id=name, scopes=[])
        scope["user"] = AuthenticatedUser(token)
        secret = "" if self._is_token(shown) else shown
        scope[TOOLS_KEY] = self._tools.called_by(Caller(secret=secret))
        await self._app(scope, receive, send)

    async def _whose(self, shown: str) -> str | None:
        if not shown:
            return None
        if self._is_token(shown):
            return USER
        try:
            return (await self._client.request(WhoAmI(secret=shown))).name
        except RpcError:
            return None

    def _is_token(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode(), self._token.encode())


def _bearer(headers: list[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        scheme, _, token = value.partition(b" ")
        if name.lower() == b"authorization" and scheme.lower() == b"bearer":
            return token.strip().decode("ascii", "replace")
    return ""


async def _refuse(scope: "Scope", receive: "Receive", send: "Send") -> None:
    from starlette.responses import JSONResponse

    response = JSONResponse(
        {
            "error": "invalid_token",
            "error_description": "show the secret of an agent, or the token in mcp.token",
        },
        status_code=401,
        headers={"www-authenticate": 'Bearer error="invalid_token"'},
    )
    await response(scope, receive, send)


def _token(path: Path) -> str:
    """Return the user's token, the same for ever; only the user can read it."""
    with contextlib.suppress(FileNotFoundError):
        if found := path.read_text(encoding="ascii", errors="replace").strip():
            return found
    token = secrets.token_urlsafe(32)
    write_private(path, f"{token}\n")
    return token
