"""Who is let in, with what, and that nobody who is not keeps the others from being served."""

import asyncio
import json
import logging
import os
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.errors import ApiError
from bullpen.api.runtime import Paths
from bullpen.model.reasons import Reason
from bullpen.servers.a2a import http, security
from bullpen.servers.a2a.room import Scope
from bullpen.servers.a2a.seed import refusal_of
from bullpen.servers.a2a.tokens import Tokens
from tests.daemon.harness import until
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import SECONDS, House, linux_only, read_answer, served

TOKEN = "a-token-that-is-long-enough"
HELLO = {"content": "hello", "priority": 1}
HEAVY = {"a2a", "anyio", "grpc", "pydantic", "starlette", "uvicorn"}


def give(name: str, *scopes: str, token: str = TOKEN, mode: int = 0o600) -> Path:
    directory = Paths.resolve().a2a_tokens
    mask = os.umask(0o077)
    directory.mkdir(parents=True, exist_ok=True)
    os.umask(mask)
    path = directory / f"{name}.json"
    path.write_text(json.dumps({"token": token, "scopes": scopes}))
    path.chmod(mode)
    return path


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


@asynccontextmanager
async def raw(house: House) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", house.web.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(SECONDS):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def serves_on(house: House) -> None:
    assert (await house.web.get("/agents")).status == 200


def test_nothing_heavy_is_loaded_before_somebody_connects() -> None:
    program = "import sys, bullpen.servers.a2a.serve, bullpen.daemon.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    assert b"bullpen.servers.a2a.ports" in loaded
    assert not HEAVY & set(loaded.decode().split())


@linux_only
@pytest.mark.requirement("a2a:tokens", "S-192")
async def test_a_token_opens_what_it_says_and_nothing_else(home: Path) -> None:
    reader = give("looker", "read", token="looks-" + TOKEN)
    give("ci", "read", "send")
    give("chief", "read", "send", "control", token="chief-" + TOKEN)
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        assert (await web.get("/status", **bearer("looks-" + TOKEN))).status == 200
        refused = await web.post("/message", HELLO, **bearer("looks-" + TOKEN))
        assert (refused.status, "a2a:looker" in refused.body["detail"]) == (403, True)
        sent = await web.post("/message", HELLO, **bearer())
        assert (await agent.next()).sender == "a2a:ci"
        mine = (await house.peer.ask("mail.send", to="codex", content="mine"))["message"]["id"]
        for who in ({}, bearer()):  # what the user asked for is not theirs to end
            assert (await web.post(f"/tasks/{mine}/cancel", b"", **who)).status == 403
        assert (
            await web.post(f"/tasks/{mine}/cancel", b"", **bearer("chief-" + TOKEN))
        ).status == 200
        assert (await web.post(f"/tasks/{sent.body['task_id']}/cancel", b"")).status == 403
        await asyncio.to_thread(reader.unlink)
        assert (await web.get("/status", **bearer("looks-" + TOKEN))).status == 401


@pytest.mark.requirement("a2a:tokens")
def test_a_token_that_others_could_have_read_is_none(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = Tokens(Paths.resolve().a2a_tokens)
    assert tokens.is_empty
    assert tokens.find(TOKEN) is None
    give("readable", "read", mode=0o644)
    give("short", "read", token="short")
    give("..x", "read")
    give("own").write_bytes(b"{")
    link = Paths.resolve().a2a_tokens / "link.json"
    link.symlink_to(give("target", "read").rename(home / "elsewhere.json"))
    assert tokens.is_empty
    assert TOKEN not in caplog.text
    assert str(home) not in caplog.text
    give("good", "read")
    found = tokens.find(TOKEN)
    assert found is not None
    assert (found.name, found.scopes) == ("a2a:good", frozenset({Scope.READ}))


@linux_only
@pytest.mark.requirement("a2a:loopback")
async def test_without_a_token_only_our_own_programs_are_let_in(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served() as house, wrapped("codex") as agent:
        web = house.web.at("codex")
        assert (await web.post("/message", HELLO)).status == 200
        assert (await agent.next()).sender == "a2a"
        for wrong in ("Bearer made-up", "Basic dXNlcjp4", "Bearer", "nonsense"):
            refused = await web.get("/status", Authorization=wrong)
            assert refused.status == 401, wrong
            assert refused.headers["www-authenticate"].startswith("Bearer")
        own = await web.post("/message", HELLO, **bearer(agent.secret))
        assert own.status == 200
        task = await house.peer.ask("task.get", task_id=own.body["task_id"])
        assert task["sender"] == "codex"
        monkeypatch.setattr(os, "getuid", lambda: 54321)
        assert (await web.get("/status")).status == 401  # somebody else's program, that is
        monkeypatch.setattr(security, "TABLES", (home / "none",))
        assert (await web.get("/status")).status == 401  # where nobody tells


@pytest.mark.requirement("a2a:loopback")
async def test_a_token_can_be_asked_of_everybody(home: Path) -> None:
    give("ci", "read")
    async with served(a2a={"loopback": "token"}) as house, wrapped("codex"):
        assert (await house.web.get("/agents")).status == 401
        assert (await house.web.get("/agents", **bearer())).status == 200
        card = await house.web.at("codex").get("/.well-known/agent-card.json", **bearer())
        assert card.body["securityRequirements"] == [{"schemes": {"bearer": {}}}]
        old = await house.web.at("codex").get("/v0.3/.well-known/agent-card.json", **bearer())
        assert old.body["security"] == [{"bearer": []}]


@linux_only
@pytest.mark.requirement("a2a:loopback", "a2a:card")
async def test_a_card_asks_for_no_token_where_none_is_needed(home: Path) -> None:
    async with served() as house, wrapped("codex"):
        for path in ("/.well-known/agent-card.json", "/v0.3/.well-known/agent-card.json"):
            card = (await house.web.at("codex").get(path)).body
            assert not {"security", "securityRequirements"} & set(card)
            assert card["securitySchemes"]


@linux_only
@pytest.mark.requirement("a2a:pages")
async def test_other_names_and_pages_are_refused(home: Path) -> None:
    allowed = {"hosts": "box.example", "origins": "https://good.example"}
    async with served(a2a=allowed) as house:
        port = house.web.port
        for host in (
            "localhost",
            f"localhost:{port}",
            f"127.0.0.1:{port}",
            "[::1]:80",
            "BOX.example",
        ):
            assert (await house.web.get("/agents", Host=host)).status == 200, host
        for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", ""):
            assert (await house.web.get("/agents", Host=host)).status == 421, host
        assert (await house.web.get("/agents", Origin="https://good.example")).status == 200
        for origin in ("https://evil.example", "null", f"http://localhost:{port}"):
            assert (await house.web.get("/agents", Origin=origin)).status == 403, origin


@linux_only
@pytest.mark.requirement("a2a:limits")
async def test_what_is_too_large_is_refused_and_the_others_are_served(home: Path) -> None:
    async with served() as house, wrapped("codex") as agent:
        path = "/agents/codex/tasks/send"
        huge = await house.web.post(path, b"x" * 100_000_000)
        assert huge.status == 413
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode()
        async with raw(house) as (reader, writer):  # who does not say how much
            writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n")
            for _ in range(9):
                writer.write(b"100000\r\n" + b"x" * 2**20 + b"\r\n")
            writer.write(b"0\r\n\r\n")
            assert read_answer(await rest_of(reader)).status == 413
        async with raw(house) as (reader, writer):  # who asks first
            writer.write(head + b"Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n")
            assert read_answer(await rest_of(reader)).status == 413
        big = {"message": {"parts": [{"type": "text", "text": "x" * 2_000_000}]}}
        assert (await house.web.post(path, big)).status == 413  # by the rules of the mail
        assert agent.typed.empty()
        await serves_on(house)


@linux_only
@pytest.mark.requirement("a2a:limits")
async def test_who_is_slow_is_hung_up_on_and_the_others_are_served(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(security, "BODY_SECONDS", 0.3)
    async with served() as house:
        await serves_on(house)
        async with raw(house) as (reader, _):  # says nothing at all
            assert await rest_of(reader) == b""
        async with raw(house) as (reader, writer):  # never ends its head
            writer.write(b"GET /agents HTTP/1.1\r\nHost: localhost\r\nX-")
            assert await rest_of(reader) == b""
        async with raw(house) as (reader, writer):  # the same with its second request
            writer.write(b"GET /agents HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert b"200 OK" in await reader.readline()
            await reader.readuntil(b"[]")
            writer.write(b"GET /ag")
            assert await rest_of(reader) == b""
        async with raw(house) as (reader, writer):  # never ends its body
            writer.write(b"POST /agents/codex/message HTTP/1.1\r\nHost: localhost\r\n")
            writer.write(b"Content-Length: 50\r\n\r\n{")
            assert read_answer(await rest_of(reader)).status == 408
        await serves_on(house)


@linux_only
@pytest.mark.requirement("a2a:limits")
async def test_a_half_closed_connection_is_answered_if_the_request_was_whole(home: Path) -> None:
    async with served() as house, wrapped("codex"):
        async with raw(house) as (reader, writer):
            writer.write(b"GET /agents HTTP/1.1\r\nHost: localhost\r\n\r\n")
            writer.write_eof()
            assert read_answer(await rest_of(reader)).status == 200
        async with raw(house) as (reader, writer):
            writer.write(b"POST /agents/codex/message HTTP/1.1\r\nHost: localhost\r\n")
            writer.write(b"Content-Length: 50\r\n\r\n{")
            writer.write_eof()
            assert await rest_of(reader) == b""
        async with raw(house) as (reader, writer):
            writer.write(b"\x16\x03\x01 no HTTP at all\r\n\r\n")
            assert (await rest_of(reader)).startswith(b"HTTP/1.1 400 ")
        sent = await house.web.at("codex").post("/message", HELLO)
        async with raw(house) as (reader, writer):  # a stream that is left
            path = f"/agents/codex/tasks/{sent.body['task_id']}/subscribe"
            writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert b"200 OK" in await reader.readline()
        await serves_on(house)


@linux_only
@pytest.mark.requirement("a2a:limits")
async def test_who_asks_too_often_is_told_when_to_come_back(home: Path) -> None:
    async with served(a2a={"rate_burst": 3.0, "rate_per_second": 0.01}) as house:
        answers = [await house.web.get("/agents") for _ in range(4)]
        assert [each.status for each in answers] == [200, 200, 200, 429]
        assert int(answers[-1].headers["retry-after"]) > 1


@linux_only
@pytest.mark.requirement("a2a:limits")
async def test_there_is_an_end_to_how_many_are_served_at_once(home: Path) -> None:
    async with served(a2a={"connections": 3}) as house:
        await serves_on(house)
        async with raw(house), raw(house), raw(house):
            assert (await house.web.get("/agents")).status == 503
        await until(lambda: _is_served(house), SECONDS)


async def _is_served(house: House) -> bool:
    return (await house.web.get("/agents")).status == 200


@linux_only
@pytest.mark.requirement("a2a:limits")
async def test_a_sender_the_mail_holds_back_is_told_so(home: Path) -> None:
    slow = {"rate_burst": 1.0, "rate_per_second": 0.01}
    async with served(mail=slow) as house, wrapped("codex"):
        web = house.web.at("codex")
        assert (await web.post("/message", HELLO)).status == 200
        held = await web.post("/message", HELLO)
        assert (held.status, int(held.headers["retry-after"]) > 1) == (429, True)


@pytest.mark.requirement("a2a:elsewhere")
@pytest.mark.parametrize(
    ("more", "missing"),
    [({}, "tls_certificate"), ({"tls_certificate": "some.pem"}, "a token is needed")],
    ids=["no-tls", "no-token"],
)
async def test_another_address_is_not_served_without_tls_and_a_token(
    home: Path, caplog: pytest.LogCaptureFixture, more: dict[str, Any], missing: str
) -> None:
    caplog.set_level(logging.ERROR)

    async def said() -> bool:
        return missing in caplog.text

    async with asyncio.timeout(SECONDS):
        serving = served(a2a={"bind": "0.0.0.0", **more})
        entering = asyncio.create_task(serving.__aenter__())
        try:
            await until(said, SECONDS)
        finally:
            entering.cancel()
            await asyncio.wait([entering])
    assert not Paths.resolve().a2a_port.exists()


@pytest.mark.requirement("a2a:elsewhere")
async def test_another_address_is_served_with_them_and_nobody_is_without_a_token(
    home: Path,
) -> None:
    certificate = await asyncio.to_thread(_make_certificate, home)
    give("ci", "read")
    where = {"bind": "0.0.0.0", "tls_certificate": str(certificate), "hosts": "localhost"}
    async with served(a2a={**where, "loopback": "token"}) as house:
        tls = ssl.create_default_context(cafile=certificate)
        for authorization, status in (("", 401), (f"Authorization: Bearer {TOKEN}\r\n", 200)):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", house.web.port, ssl=tls, server_hostname="localhost"
            )
            head = (
                f"GET /agents HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{authorization}"
            )
            writer.write(f"{head}\r\n".encode())
            answer = read_answer(await rest_of(reader))
            writer.close()
            assert answer.status == status


def _make_certificate(directory: Path) -> Path:
    """Return the path of a key and a certificate of this machine's, in one file."""
    path = directory / "both.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    made = ["-keyout", str(path), "-out", str(directory / "certificate.pem")]
    kind = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    subprocess.run(["openssl", "req", *kind, *subject, *made], check=True, capture_output=True)
    with path.open("a") as both:
        both.write((directory / "certificate.pem").read_text())
    return path


@pytest.mark.requirement("a2a:errors")
def test_what_is_our_own_trouble_is_not_told() -> None:
    error = ApiError(Reason.STORE_UNAVAILABLE, "cannot write /home/me/state.db")
    refused = refusal_of(error)
    assert refused.status == 500
    assert "/home" not in str(refused.detail)
