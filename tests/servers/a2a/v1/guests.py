"""An agent of a real daemon, served by A2A 1.0, and those who ask it something, for tests."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from bullpen.api import talk
from bullpen.servers.a2a.room import Caller, Room
from bullpen.servers.a2a.v1.routes import CALLER_KEY, routes
from tests.daemon.wrapping import ScriptedWrapper, wrapped
from tests.servers.a2a.house import SECONDS, room_of_a_daemon

__all__ = ["Guest", "House", "house", "served", "text_message"]

_NAMES = iter(range(1, 1_000_000))


def text_message(text: str = "hello", **more: Any) -> dict[str, Any]:
    """Return a message as it is sent, with an id of its own."""
    return {
        "messageId": f"c-{next(_NAMES)}",
        "role": "ROLE_USER",
        "parts": [{"text": text}],
        **more,
    }


class House:
    """An agent, and where it is served."""

    def __init__(self, room: Room, agent: ScriptedWrapper, url: str) -> None:
        self.room = room
        self.agent = agent
        self.url = url
        self.caller: Caller | None = None

    async def reply(self, content: str, **more: Any) -> Any:
        """Have the agent answer the message it works on, through the api."""
        request = talk.ReplyMessage(content=content, secret=self.agent.secret, **more)
        return await self.agent.connection.request(request, timeout=SECONDS)


class Guest:
    """One who speaks plain HTTP."""

    def __init__(self, url: str, client: httpx.AsyncClient) -> None:
        self.url = url
        self.http = client

    async def rpc(self, method: str, params: Any = None, **headers: str) -> dict[str, Any]:
        """Return the answer to a request, an error or not."""
        response = await self.http.post(
            "a2a/jsonrpc",
            json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}},
            headers={"a2a-version": "1.0", **headers},
        )
        assert response.status_code == 200
        told = response.json()
        assert isinstance(told, dict)
        assert told["id"] == 1
        return told

    async def ask(self, method: str, params: Any = None) -> Any:
        """Return the result of a request."""
        told = await self.rpc(method, params)
        assert "error" not in told, told
        return told["result"]

    async def refusal(self, method: str, params: Any = None, **headers: str) -> int:
        """Return the code of the error a request is answered with."""
        told = await self.rpc(method, params, **headers)
        assert "error" in told, told
        code = told["error"]["code"]
        assert isinstance(code, int)
        return code

    async def stream(self, method: str, params: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Yield what is streamed."""
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        async with self.http.stream(
            "POST", "a2a/jsonrpc", json=body, headers={"a2a-version": "1.0"}
        ) as response:
            async for line in response.aiter_lines():
                if line.startswith("data:"):
                    told = json.loads(line.removeprefix("data:"))
                    assert "error" not in told, told
                    yield told["result"]


@asynccontextmanager
async def house(name: str = "codex", **more: Any) -> AsyncIterator[tuple[House, Guest]]:
    """Serve an idle agent of a real daemon on a port, for a block."""
    async with room_of_a_daemon() as (room, _), wrapped(name, **more) as agent:
        found = House(room, agent, "")
        app = _asked_by(found, Starlette(routes=routes(room, agent.name)))
        async with served(app) as url:
            found.url = url
            async with httpx.AsyncClient(base_url=url, timeout=SECONDS, trust_env=False) as client:
                yield found, Guest(url, client)


def _asked_by(found: House, app: ASGIApp) -> ASGIApp:
    """Have a test say who asks."""

    async def told(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and found.caller is not None:
            scope[CALLER_KEY] = found.caller
        await app(scope, receive, send)

    return told


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def served(app: ASGIApp) -> AsyncIterator[str]:
    config = uvicorn.Config(
        app, log_config=None, lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            server.should_exit = True
            await serving
