"""What is not HTTP, or too much of it, is answered or hung up on; and others are served."""

import asyncio
import socket
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bullpen.servers.a2a import http, security
from tests.daemon.harness import until
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import SECONDS, House, linux_only, read_answer, served

pytestmark = [linux_only, pytest.mark.requirement("a2a:bad-input", "a2a:limits")]

HOST = b"Host: localhost\r\n"
CLOSE = HOST + b"Connection: close\r\n"
GET = b"GET /agents HTTP/1.1\r\n"
POST = b"POST /agents/codex/a2a/jsonrpc HTTP/1.1\r\nContent-Type: application/json\r\n"
CHUNKED = POST + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
MANY = b"".join(b"X-%d: y\r\n" % number for number in range(40_000))

REFUSED = {
    "no HTTP": (b"\x16\x03\x01\x00\xa5\x01\r\n\r\n", 400),
    "every byte": (bytes(range(256)) * 4, 400),
    "no host": (GET + b"\r\n", 400),
    "two hosts": (GET + HOST + b"Host: evil.example\r\n\r\n", 400),
    "another host": (GET + b"Host: evil.example\r\n\r\n", 421),
    "a host with a name before it": (GET + b"Host: localhost@evil.example\r\n\r\n", 421),
    "a host behind the port": (GET + b"Host: localhost:80@evil.example\r\n\r\n", 421),
    "another host in the target": (b"GET http://evil.example/agents HTTP/1.1\r\n" + HOST, 404),
    "two origins": (GET + HOST + b"Origin:\r\nOrigin: https://evil.example\r\n\r\n", 400),
    "another origin": (GET + HOST + b"Origin: https://evil.example\r\n\r\n", 403),
    "no origin's origin": (GET + HOST + b"Origin: null\r\n\r\n", 403),
    "a preflight": (b"OPTIONS /agents HTTP/1.1\r\n" + HOST + b"Origin: https://a.b\r\n\r\n", 403),
    "two tokens": (GET + HOST + b"Authorization:\r\nAuthorization: Bearer x\r\n\r\n", 400),
    "a token of bytes": (GET + HOST + b"Authorization: Bearer \xff\xfe\r\n\r\n", 401),
    "a token like a path": (GET + HOST + b"Authorization: Bearer ../../x\r\n\r\n", 401),
    "a NUL in a header": (GET + b"Host: localhost\x00\r\n\r\n", 400),
    "no colon": (GET + HOST + b"nothing\r\n\r\n", 400),
    "too many headers": (GET + HOST + MANY + b"\r\n", 431),
    "a large header": (GET + HOST + b"X: " + b"a" * 300_000 + b"\r\n\r\n", 431),
    "a large header at once": (GET + HOST + b"X: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    "a long path": (b"GET /" + b"a" * 300_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 431),
    "a path beside": (b"GET /agents/../../etc/passwd HTTP/1.1\r\n" + CLOSE + b"\r\n", 404),
    "an agent of bytes": (b"GET /agents/%ff%00/status HTTP/1.1\r\n" + CLOSE + b"\r\n", 404),
    "lines in a path": (b"GET /agents/codex/tasks/%0d%0aX HTTP/1.1\r\n" + CLOSE + b"\r\n", 404),
    "an unknown method": (b"BREW /agents HTTP/1.1\r\n" + CLOSE + b"\r\n", 405),
    "a method it has not": (b"DELETE /agents/codex/status HTTP/1.1\r\n" + CLOSE + b"\r\n", 405),
    "OPTIONS": (b"OPTIONS /agents/codex/a2a/jsonrpc HTTP/1.1\r\n" + CLOSE + b"\r\n", 405),
    "TRACE": (b"TRACE /agents/codex/status HTTP/1.1\r\n" + CLOSE + b"\r\n", 405),
    "CONNECT": (b"CONNECT evil.example:443 HTTP/1.1\r\n" + CLOSE + b"\r\n", 404),
    "no length": (POST + HOST + b"Content-Length: five\r\n\r\n{}", 400),
    "a negative length": (POST + HOST + b"Content-Length: -5\r\n\r\n{}", 400),
    "two lengths": (POST + HOST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400),
    "a length of many digits": (POST + HOST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", 400),
    "a coding we have not": (POST + HOST + b"Transfer-Encoding: gzip\r\n\r\n{}", 501),
    "no chunk": (CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n", 400),
    "a negative chunk": (CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n", 400),
    "a chunk that is longer": (CHUNKED + b"2\r\n{}xxxx\r\n0\r\n\r\n", 400),
    "a huge chunk": (CHUNKED + b"ffffffffffffffff\r\n{}", 408),
    "a body that is late": (POST + HOST + b"Content-Length: 5\r\n\r\n{", 408),
}


@asynccontextmanager
async def raw(house: House) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", house.web.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def said(house: House, data: bytes) -> bytes:
    """Return all that comes back."""
    async with asyncio.timeout(SECONDS), raw(house) as (reader, writer):
        writer.write(data)
        return await reader.read()


async def serves_on(house: House) -> None:
    assert (await house.web.get("/agents")).status == 200


async def test_what_is_not_http_or_not_for_us_is_refused_in_so_many_words(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(security, "BODY_SECONDS", 0.5)
    async with served() as house, wrapped("codex") as agent:
        for name, (data, status) in REFUSED.items():
            whole = data if b"\r\n\r\n" in data else data + b"\r\n"
            answer = read_answer(await said(house, whole))
            assert (answer.status, list(answer.body)) == (status, ["detail"]), (name, answer)
            assert str(home) not in answer.raw.decode(), name
        assert agent.typed.empty()
        for path in (
            "/agents",
            "/agents/codex/status",
            "/agents/codex/.well-known/agent-card.json",
        ):
            head, whole = [
                await said(house, f"{each} {path} HTTP/1.1\r\n".encode() + CLOSE + b"\r\n")
                for each in ("HEAD", "GET")
            ]
            assert head == whole.partition(b"\r\n\r\n")[0] + b"\r\n\r\n", path
        forwarded = b"X-Forwarded-Host: evil.example\r\nX-Forwarded-For: 8.8.8.8\r\n"
        answer = read_answer(await said(house, GET + CLOSE + forwarded + b"\r\n"))
        assert (answer.status, b"evil" in answer.raw) == (200, False)
        await serves_on(house)
    assert "uvicorn" not in caplog.text  # who fills our log with his mistakes fills the disk


async def test_requests_that_come_at_once_are_answered_one_after_the_other(home: Path) -> None:
    async with served() as house, wrapped("codex"):
        one, last = GET + HOST + b"\r\n", GET + CLOSE + b"\r\n"
        posted = POST + HOST + b"Content-Length: 1\r\n\r\n{"
        got = await said(house, one + posted + one + last)
        assert got.count(b"HTTP/1.1 200 OK") == 4
        assert got.index(b"-32700") < got.rindex(b"[{")
        got = await said(house, one + b"nonsense\r\n\r\n" + one)
        assert (got.count(b"HTTP/1.1 200 OK"), got.count(b"HTTP/1.1 400 ")) == (1, 1)
        await serves_on(house)


async def test_what_is_too_large_is_refused_and_not_kept(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security, "MOST_BYTES", 2**18)
    piece, count = b"x" * 2**16, 100
    async with served() as house, wrapped("codex") as agent:
        await serves_on(house)
        for path, is_told in (
            ("/a2a/jsonrpc", True),
            ("/a2a/rest/message:send", False),
            ("/tasks/send", False),
        ):
            length = f"Content-Length: {len(piece) * count}" if is_told else ""
            head = f"POST /agents/codex{path} HTTP/1.1\r\nHost: localhost\r\n"
            head += (length or "Transfer-Encoding: chunked") + "\r\n\r\n"
            tracemalloc.start()
            async with asyncio.timeout(SECONDS), raw(house) as (reader, writer):
                writer.write(head.encode())
                for _ in range(count):
                    frame = b"%x\r\n%b\r\n" % (len(piece), piece)
                    writer.write(piece if is_told else frame)
                    await writer.drain()
                writer.write(b"" if is_told else b"0\r\n\r\n")
                answer = read_answer(await reader.read())
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert answer.status == 413, path
            assert peak < len(piece) * count / 2, path
        assert agent.typed.empty()
        await serves_on(house)


async def test_who_does_not_read_is_hung_up_on(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALL_SECONDS", 0.3)
    large = {"message": {"parts": [{"type": "text", "text": "x" * 900_000}]}}
    asked = b"GET /agents/codex/tasks HTTP/1.1\r\n" + HOST + b"\r\n"
    async with served() as house, wrapped("codex"):
        assert (await house.web.at("codex").post("/tasks/send", large)).status == 200
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(slow, ("127.0.0.1", house.web.port))

            async def is_hung_up_on() -> bool:
                """Ask on and on, and read nothing."""
                try:
                    slow.send(asked)
                except BlockingIOError:
                    return False
                except OSError:
                    return True
                return False

            await until(is_hung_up_on, SECONDS)
        await serves_on(house)
