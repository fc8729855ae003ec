"""Just enough HTTP to speak with an agent's own server, here or elsewhere.

One connection per request, JSON both ways, and streams of server-sent events. Nothing heavy is
imported for it, everything has a limit in bytes and in time, certificates are verified, and an
error says whether the request may have been taken. Redirects are told, not followed.
"""

import asyncio
import base64
import ipaddress
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from bullpen.agents.providers.lenient import decode_leniently
from bullpen.errors import BullpenError

__all__ = ["HttpAnswer", "HttpError", "HttpEvents", "HttpServer"]

SECONDS: Final = 10.0
MOST_BYTES: Final = 16 * 2**20
LINE_BYTES: Final = 64 * 2**10
PORTS: Final = {"http": 80, "https": 443}

_IN_PATHS: Final = "%/:?#[]@!$&'()*+,;=-._~"  # what a path may have as it is


class HttpError(BullpenError):
    """There was no answer. If `was_sent`, the request may have been taken all the same."""

    def __init__(self, address: str, reason: object, *, was_sent: bool) -> None:
        super().__init__(f"no answer from {address}: {reason}")
        self.reason = str(reason)
        self.was_sent = was_sent


class HttpAnswer(msgspec.Struct, frozen=True):
    """What a server answered."""

    status: int
    body: bytes = b""
    headers: dict[str, str] = {}
    """By their names in lower case."""
    is_here: bool = False
    """It came from this machine, or from what only its own network knows."""

    @property
    def is_ok(self) -> bool:
        """Whether it did what it was asked."""
        return 200 <= self.status < 300

    @property
    def value(self) -> Any:
        """The JSON in it; None if it is anything else."""
        try:
            return decode_leniently(self.body)
        except ValueError:
            return None


class HttpServer:
    """A server at an address like `http://127.0.0.1:4096/api`, perhaps behind a password.

    With `keeps_out`, nothing is sent if its name leads to this machine: whatever stands for it.

    Raises:
        ValueError: this is no such address.
    """

    def __init__(
        self,
        address: str,
        *,
        user: str = "",
        password: str = "",
        headers: Mapping[str, str] | None = None,
        seconds: float = SECONDS,
        keeps_out: bool = False,
    ) -> None:
        parts = urlsplit(address)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{address!r} is no http or https address")
        self.address = address
        self._host, self._port = parts.hostname, parts.port or PORTS[parts.scheme]
        self._is_secure = parts.scheme == "https"
        self._prefix = parts.path.rstrip("/")
        self._seconds = seconds
        self._keeps_out = keeps_out
        host = f"[{self._host}]" if ":" in self._host else self._host
        named = host if parts.port is None else f"{host}:{parts.port}"
        self._headers = {"Host": named, "Accept": "*/*", **(headers or {})}
        if password:
            secret = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {secret}"

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        most_bytes: int = MOST_BYTES,
    ) -> HttpAnswer:
        """Ask for something, below the path of the address.

        Raises:
            HttpError: there was no answer, or not in time, or it was too long.
        """
        was_sent = False
        try:
            async with asyncio.timeout(self._seconds), self._connected() as (reader, writer):
                was_sent = True
                status, answered, content = await self._ask(
                    reader, writer, method, path, body, headers
                )
                whole = bytearray()
                while piece := await content.read():
                    whole += piece
                    if len(whole) > most_bytes:
                        raise ValueError("the answer is too long")
                return HttpAnswer(status, bytes(whole), answered, _is_here(writer))
        except (OSError, EOFError, ValueError) as error:  # a timeout is the first
            raise HttpError(self.address, _words(error), was_sent=was_sent) from error

    @asynccontextmanager
    async def events(
        self,
        path: str,
        *,
        silence_seconds: float,
        method: str = "GET",
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        most_bytes: int | None = None,
    ) -> AsyncIterator["HttpEvents"]:
        """Follow a stream of events, each of them JSON, for the length of a block.

        It ends with the connection, or if nothing comes for so many seconds, or too much in all.

        Raises:
            HttpError: there is no such stream, or it is broken.
        """
        try:
            async with self._connected() as (reader, writer):
                async with asyncio.timeout(self._seconds):
                    status, answered, content = await self._ask(
                        reader, writer, method, path, body, headers
                    )
                if status != 200:
                    raise HttpError(self.address, f"status {status}", was_sent=True)
                kind = answered.get("content-type", "")
                yield HttpEvents(content, silence_seconds, kind, most_bytes)
        except (OSError, EOFError, ValueError) as error:
            raise HttpError(self.address, _words(error), was_sent=True) from error

    @asynccontextmanager
    async def _connected(
        self,
    ) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        async with asyncio.timeout(self._seconds):
            context = await asyncio.to_thread(_verifying) if self._is_secure else None
            reader, writer = await asyncio.open_connection(
                self._host, self._port, limit=LINE_BYTES, ssl=context
            )
        try:
            if self._keeps_out and _is_here(writer):
                raise ValueError("it is elsewhere and leads to this machine")
            yield reader, writer
        finally:
            if self._is_secure:
                writer.transport.abort()  # nobody needs to be told goodbye, and to wait for it
            else:
                writer.close()

    async def _ask(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        method: str,
        path: str,
        body: Any,
        more: Mapping[str, str] | None,
    ) -> tuple[int, dict[str, str], "_Content"]:
        content = b"" if body is None else msgspec.json.encode(body)
        headers = self._headers | {"Connection": "close", "Content-Length": str(len(content))}
        if body is not None:
            headers["Content-Type"] = "application/json"
        target = quote(self._prefix + path, safe=_IN_PATHS) or "/"
        lines = [f"{method} {target} HTTP/1.1"]
        lines += [f"{key}: {each}" for key, each in {**headers, **(more or {})}.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()
        words = (await reader.readline()).split(maxsplit=2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
            raise ValueError("this is not HTTP")
        answered = await _read_headers(reader)
        status = int(words[1])
        return status, answered, _Content(reader, answered, is_empty=status in (204, 304))


def _is_here(writer: asyncio.StreamWriter) -> bool:
    """Whether who is connected is on this machine, or at an address that has no meaning beyond."""
    host, *_ = writer.get_extra_info("peername") or ("",)
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or address.is_link_local or address.is_unspecified


def _verifying() -> ssl.SSLContext:
    """Return what verifies certificates; reading the system's takes a moment."""
    return ssl.create_default_context()


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    size = 0
    while (line := await reader.readline()).strip():
        size += len(line)
        if size > LINE_BYTES:
            raise ValueError("the headers are too long")
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


class _Content:
    """A body, read piece by piece however it is cut."""

    def __init__(
        self, reader: asyncio.StreamReader, headers: dict[str, str], *, is_empty: bool
    ) -> None:
        self._reader = reader
        self._is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        length = headers.get("content-length")
        self._left = int(length) if length is not None and not self._is_chunked else None
        self._is_over = is_empty

    async def read(self) -> bytes:
        """Return the next piece; nothing at the end."""
        piece = b"" if self._is_over else await self._next()
        self._is_over = not piece
        return piece

    async def _next(self) -> bytes:
        if self._is_chunked:
            size = int((await self._reader.readline()).split(b";")[0], 16)
            if not 0 <= size <= MOST_BYTES:
                raise ValueError("a piece is too long")
            piece = await self._reader.readexactly(size)
            await self._reader.readline()
            return piece
        if self._left is None:
            return await self._reader.read(LINE_BYTES)
        if self._left < 0:
            raise ValueError("a length is below nothing")
        piece = await self._reader.read(min(self._left, LINE_BYTES))
        self._left -= len(piece)
        if self._left and not piece:
            raise EOFError("the answer was cut off")
        return piece


class HttpEvents:
    """Server-sent events, each of them JSON."""

    def __init__(
        self,
        content: _Content,
        silence_seconds: float,
        content_type: str = "",
        most_bytes: int | None = None,
    ) -> None:
        self.content_type = content_type
        self._left = most_bytes
        self._content = content
        self._silence_seconds = silence_seconds
        self._events: deque[Any] = deque()
        self._rest = b""

    def __aiter__(self) -> "HttpEvents":
        return self

    async def __anext__(self) -> Any:
        while not self._events:
            async with asyncio.timeout(self._silence_seconds):
                piece = await self._content.read()
            if not piece:
                raise StopAsyncIteration
            self._feed(piece)
        return self._events.popleft()

    def _feed(self, piece: bytes) -> None:
        if self._left is not None:
            self._left -= len(piece)
            if self._left < 0:
                raise ValueError("the stream is too long")
        *blocks, self._rest = (self._rest + piece).replace(b"\r\n", b"\n").split(b"\n\n")
        if len(self._rest) > MOST_BYTES:
            raise ValueError("an event is too long")
        for block in blocks:
            data = [line[5:] for line in block.split(b"\n") if line.startswith(b"data:")]
            if data:
                self._events.append(decode_leniently(b"\n".join(data)))


def _words(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    return str(error) or type(error).__name__
