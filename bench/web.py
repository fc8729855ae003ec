"""HTTP as plain as it can be, so that what is measured is the other end: no client library."""

import asyncio
import json
from typing import Any, Self

__all__ = ["Web", "message", "post", "request"]

HOST = "127.0.0.1"
JSON_HEADERS = "Content-Type: application/json\r\nA2A-Version: 1.0\r\n"


class Web:
    """One connection, which stays open; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def connect(cls, port: int) -> Self:
        """Connect to a port of this machine."""
        return cls(*await asyncio.open_connection(HOST, port))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def exchange(self, request: bytes) -> bytes:
        """Send a request that was written before; return the body of its answer.

        Raises:
            AssertionError: it was refused.
        """
        self._writer.write(request)
        head = await self._head()
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        body = await self._reader.readexactly(length)
        if b" 200 " not in head[:16] or b'"error":{' in body:
            raise AssertionError(f"it was refused: {head!r} {body!r}")
        return body

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The same for what is written now and read as JSON."""
        return json.loads(await self.exchange(request(method, path, body)))

    async def begin(self, request: bytes) -> None:
        """Begin to read a stream of events."""
        self._writer.write(request)
        head = await self._head()
        if b"text/event-stream" not in head:
            raise AssertionError(f"this is no stream: {head!r}")

    async def event(self) -> dict[str, Any] | None:
        """Return the next event of a stream; None at its end."""
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                told: dict[str, Any] = json.loads(line.removeprefix(b"data: "))
                return told
            if line == b"0\r\n":  # the last chunk
                return None
        return None

    async def _head(self) -> bytes:
        return await self._reader.readuntil(b"\r\n\r\n")


def request(method: str, path: str, body: Any = None) -> bytes:
    """Return the bytes of a request."""
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n{JSON_HEADERS}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


def post(path: str, body: Any) -> bytes:
    """Return the bytes of a request that sends something."""
    return request("POST", path, body)


def message(path: str, number: str, text: str, *, is_awaited: bool) -> bytes:
    """Return A2A's `SendMessage` of JSON-RPC; who awaits is answered when the agent has."""
    said = {"messageId": number, "role": "ROLE_USER", "parts": [{"text": text}]}
    params = {"message": said, "configuration": {"returnImmediately": not is_awaited}}
    return post(path, {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params})
