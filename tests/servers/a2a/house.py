"""A real daemon with guests in it, for tests; and HTTP without any of our code."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from bullpen.api.runtime import Paths, prepare
from bullpen.api.settings import Settings
from bullpen.daemon.main import Daemon
from bullpen.servers.a2a.room import OpenClient, Room
from bullpen.servers.a2a.serve import serve
from tests.daemon.harness import Peer, settings, until

__all__ = [
    "SECONDS",
    "Answer",
    "House",
    "Web",
    "linux_only",
    "read_answer",
    "room_of_a_daemon",
    "served",
]

SECONDS = 20.0

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only there it is told who calls")


@asynccontextmanager
async def room_of_a_daemon(**sections: Any) -> AsyncIterator[tuple[Room, Peer]]:
    """Run a daemon for a block, and be in its room as a server beside it is."""
    opened: asyncio.Future[Room] = asyncio.get_running_loop().create_future()

    async def companion(open_client: OpenClient, _: Paths, __: Settings) -> None:
        async with Room.open(open_client) as room:
            opened.set_result(room)
            await asyncio.Event().wait()

    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    async with Daemon(settings(**sections), paths, companions=[companion]):
        async with asyncio.timeout(SECONDS):
            room = await opened
        yield room, Peer(paths.socket)


class Answer(NamedTuple):
    """What came back."""

    status: int
    body: Any
    """The JSON in it, if there is any."""
    headers: dict[str, str]
    raw: bytes


class Web:
    """Asks a port, each time over a connection of its own."""

    def __init__(self, port: int, base: str = "") -> None:
        self.port = port
        self.base = base

    def at(self, agent: str) -> "Web":
        """The same for one agent."""
        return Web(self.port, f"/agents/{agent}")

    async def get(self, path: str, **headers: str) -> Answer:
        return await self.ask("GET", path, None, **headers)

    async def post(self, path: str, body: Any, **headers: str) -> Answer:
        return await self.ask("POST", path, body, **headers)

    async def ask(self, method: str, path: str, body: Any, **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else None
        named = {key.replace("_", "-"): value for key, value in headers.items()}
        async with asyncio.timeout(SECONDS):
            return await self._ask(method, f"{self.base}{path}", data or b"", named)

    async def _ask(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        given = {"Host": f"127.0.0.1:{self.port}", "Connection": "close", **headers}
        given.setdefault("Content-Length", str(len(body)))
        head = "".join(f"{key}: {value}\r\n" for key, value in given.items())
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            return read_answer(await reader.read())
        finally:
            writer.close()

    @asynccontextmanager
    async def stream(self, path: str) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Read the events of a stream as they come, for a block."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)

        async def lines() -> AsyncIterator[dict[str, Any]]:
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    yield json.loads(line.removeprefix(b"data: "))

        try:
            head = f"GET {self.base}{path} HTTP/1.1\r\nHost: localhost\r\n\r\n"
            writer.write(head.encode())
            yield lines()
        finally:
            writer.close()

    async def events(self, path: str, **headers: str) -> list[dict[str, Any]]:
        """Return the events of a stream that ends."""
        answer = await self.get(path, **headers)
        assert answer.headers["content-type"].startswith("text/event-stream"), answer
        lines = [line for line in answer.raw.decode().split("\n\n") if line.startswith("data: ")]
        return [json.loads(line.removeprefix("data: ")) for line in lines]


def read_answer(data: bytes) -> Answer:
    """Return what stands in the bytes of a whole response."""
    head, _, raw = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    named = {key.lower(): value for key, _, value in (line.partition(": ") for line in lines)}
    if named.get("transfer-encoding") == "chunked":
        chunks, raw = raw, b""
        while chunks:
            size, _, chunks = chunks.partition(b"\r\n")
            length = int(size, 16)
            raw, chunks = raw + chunks[:length], chunks[length + 2 :]
    is_json = named.get("content-type", "").startswith("application/json")
    return Answer(int(first.split()[1]), json.loads(raw) if is_json else None, named, raw)


class House(NamedTuple):
    """A daemon that serves A2A."""

    paths: Paths
    peer: Peer
    web: Web
    """At the port of all agents."""


@asynccontextmanager
async def served(**sections: Any) -> AsyncIterator[House]:
    """Run a daemon that serves A2A, for a block."""
    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    async with Daemon(settings(**sections), paths, companions=[serve]):

        async def port() -> int:
            try:
                return int(await asyncio.to_thread(paths.a2a_port.read_text))
            except FileNotFoundError:
                return 0

        yield House(paths, Peer(paths.socket), Web(await until(port, SECONDS)))
