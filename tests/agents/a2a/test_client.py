"""Agents elsewhere are discovered and talked to, whatever they speak and however they behave."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.agents import http
from bullpen.agents.a2a.card import read_card
from bullpen.agents.a2a.client import A2AClient, base_of
from bullpen.agents.a2a.errors import (
    AliasError,
    CardError,
    PeerRefused,
    PeerUnreachable,
    UnknownAgentError,
)
from bullpen.agents.a2a.messages import A2ATask, RemoteState
from bullpen.agents.a2a.peer import Peer
from bullpen.testing.a2a_agent import FakeA2AAgent

DIALECTS = {
    "seed": ("seed", "JSONRPC"),
    "0.3": ("0.3", "JSONRPC"),
    "0.3-rest": ("0.3", "HTTP+JSON"),
    "1.0": ("1.0", "JSONRPC"),
    "1.0-rest": ("1.0", "HTTP+JSON"),
}
ALIAS = "echo-agent"
SECONDS = 20.0
CARD = "/.well-known/agent-card.json"


def fake(dialect: str, **options: Any) -> FakeA2AAgent:
    name, binding = DIALECTS[dialect]
    return FakeA2AAgent(name, binding=binding, **options)


def client(**options: Any) -> A2AClient:
    return A2AClient(**{"look_seconds": 0.05, "seconds": SECONDS, **options})


@pytest.mark.requirement("S-120", "S-122", "S-124", "S-125", "S-130", "a2a:dialects")
@pytest.mark.parametrize("dialect", list(DIALECTS))
async def test_an_agent_is_discovered_sent_something_and_answers(dialect: str) -> None:
    async with fake(dialect) as agent:
        known = client()
        found = await known.discover(f"{agent.url}/")
        assert (found.alias, found.name, found.url) == (ALIAS, "Echo Agent", agent.url)
        assert found.skills[0]["id"] == "echo"
        begun = await known.send_message(ALIAS, "hi")
        assert not begun.status.is_over
        done = await known.send_message(ALIAS, "日本語", wait=True, timeout_seconds=SECONDS)
        assert (done.status, done.text) == (RemoteState.COMPLETED, "echo: 日本語")
        assert agent.texts == ["hi", "日本語"]
        assert (await known.get_task(ALIAS, done.id)).text == "echo: 日本語"
        [kept] = await known.list_agents()
        assert kept.last_seen
        assert kept.added_at == found.added_at
        assert await known.remove_agent(ALIAS)
        with pytest.raises(UnknownAgentError, match=ALIAS):
            await known.send_message(ALIAS, "hi")


@pytest.mark.requirement("S-05", "S-06", "S-120")
async def test_an_agent_of_the_seed_is_asked_at_the_paths_of_the_seed() -> None:
    async with fake("seed") as agent:
        known = client()
        await known.discover(agent.url, "Echo")
        await known.send_message("echo", "hi")
        paths = [(each.method, each.path) for each in agent.asked]
        assert paths == [
            ("GET", CARD),
            ("GET", "/.well-known/agent.json"),
            ("POST", "/tasks/send"),
        ]
        sent = agent.sent[0].body
        assert sent == {"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}


@pytest.mark.requirement("S-04", "S-121", "S-125", "S-150", "S-152")
async def test_an_agent_of_this_machine_is_sent_a_priority() -> None:
    async with fake("seed") as agent:
        known = client()
        begun = await known.send_to_local(agent.url, "hi")
        assert begun.status is RemoteState.WORKING
        done = await known.send_to_local(agent.url, "now", 5, wait=True, timeout_seconds=SECONDS)
        assert (done.status, done.text) == (RemoteState.COMPLETED, "echo: now")
        paths = [each.path for each in agent.sent]
        assert paths == ["/tasks/send-priority?priority=1", "/tasks/send-priority?priority=5"]
        looks = [each.path for each in agent.asked if each.method == "GET"]
        assert set(looks) == {f"/tasks/{done.id}"}
        with pytest.raises(CardError):
            await known.send_to_local("http://example.com", "hi")


async def test_agents_of_1_0_are_told_the_version_and_others_are_not() -> None:
    async with fake("1.0") as new, fake("0.3") as old:
        known = client()
        for agent, alias in ((new, "new"), (old, "old")):
            await known.discover(agent.url, alias)
            await known.send_message(alias, "hi")
        assert new.sent[0].headers["a2a-version"] == "1.0"
        assert "a2a-version" not in old.sent[0].headers


@pytest.mark.requirement("S-123")
@pytest.mark.parametrize("dialect", list(DIALECTS))
async def test_a_task_is_cancelled_if_it_can_be(dialect: str) -> None:
    async with fake(dialect, is_automatic=False) as agent:
        known = client()
        await known.discover(agent.url)
        task = await known.send_message(ALIAS, "hi")
        assert await known.cancel_task(ALIAS, task.id)
        assert (await known.get_task(ALIAS, task.id)).status is RemoteState.CANCELED
        assert not await known.cancel_task(ALIAS, task.id)
        assert not await known.cancel_task(ALIAS, "nobody's")


@pytest.mark.parametrize("dialect", ["0.3", "0.3-rest", "1.0", "1.0-rest"])
async def test_what_an_agent_streams_is_told_as_it_comes(dialect: str) -> None:
    async with fake(dialect, is_automatic=False, streams=True) as agent:
        known = client()
        await known.discover(agent.url)
        task = await known.send_message(ALIAS, "hi")
        async with told_of(known, task) as told:
            await told.until(lambda each: each.status is RemoteState.SUBMITTED)
            agent.work(task.id)
            await told.until(lambda each: each.status is RemoteState.WORKING)
            agent.say(task.id, "one")
            await told.until(lambda each: each.text == "one")
            agent.say(task.id, " two")
            await told.until(lambda each: each.text == "one two")
            agent.complete(task.id)
            done = await told.end
        assert (done.status, done.text) == (RemoteState.COMPLETED, "one two")
        looks = [each for each in agent.asked if agent._what(each) == "get"]
        assert len(looks) == 1  # the last word, and in 0.3 the first


@pytest.mark.parametrize("dialect", ["0.3", "1.0-rest"])
async def test_what_was_said_before_the_stream_began_is_told_as_well(dialect: str) -> None:
    async with fake(dialect, is_automatic=False, streams=True) as agent:
        known = client()
        await known.discover(agent.url)
        task = await known.send_message(ALIAS, "hi")
        agent.work(task.id)
        agent.say(task.id, "one")
        async with told_of(known, task) as told:
            await told.until(lambda each: each.text == "one")
            agent.say(task.id, " two")
            agent.complete(task.id)
            assert (await told.end).text == "one two"


@pytest.mark.parametrize("dialect", ["0.3", "1.0-rest"])
async def test_a_stream_that_breaks_off_is_taken_up_again(dialect: str) -> None:
    async with fake(dialect, is_automatic=False, streams=True) as agent:
        known = client()
        await known.discover(agent.url)
        task = await known.send_message(ALIAS, "hi")
        async with told_of(known, task) as told:
            await told.until(lambda each: each.status is RemoteState.SUBMITTED)
            agent.drop_streams()
            agent.work(task.id)
            await told.until(lambda each: each.status is RemoteState.WORKING)
            agent.complete(task.id, "there")
            assert (await told.end).text == "there"


@pytest.mark.parametrize("dialect", ["0.3", "1.0", "1.0-rest"])
async def test_an_agent_may_answer_without_making_a_task_of_it(dialect: str) -> None:
    async with fake(dialect) as agent:
        agent.answers_directly = True
        known = client()
        await known.discover(agent.url)
        done = await known.send_message(ALIAS, "hi", wait=True, timeout_seconds=SECONDS)
        assert (done.id, done.status, done.text) == ("", RemoteState.COMPLETED, "echo: hi")


@pytest.mark.requirement("S-125")
async def test_who_waits_too_long_is_told_and_the_task_goes_on() -> None:
    async with fake("seed", is_automatic=False) as agent:
        known = client()
        await known.discover(agent.url)
        with pytest.raises(TimeoutError):
            await known.send_message(ALIAS, "hi", wait=True, timeout_seconds=0.2)
        assert not (await known.get_task(ALIAS, agent.last)).status.is_over


async def test_a_question_ends_the_waiting() -> None:
    async with fake("1.0", is_automatic=False) as agent:
        known = client()
        await known.discover(agent.url)
        task = await known.send_message(ALIAS, "hi")
        agent.require(task.id, "which one?")
        asked = await known.wait(ALIAS, task, timeout_seconds=SECONDS)
        assert (asked.status, asked.text) == (RemoteState.INPUT_REQUIRED, "which one?")


@pytest.mark.parametrize(
    ("dialect", "refusal", "code", "is_busy"),
    [
        ("seed", (409, {"detail": "Agent already has a working task"}), 409, True),
        ("seed", (503, {"detail": "Agent not ready"}), 503, True),
        ("seed", (422, {"detail": [{"msg": "field required"}]}), 422, False),
        ("1.0", (200, {"error": {"code": -32005, "message": "no such content"}}), -32005, False),
        ("1.0", (401, None), 401, False),
        ("1.0-rest", (400, {"error": {"code": 400, "message": "no"}}), 400, False),
    ],
    ids=["busy", "starting", "schema", "rpc", "credentials", "rest"],
)
async def test_a_refusal_says_whether_to_try_again(
    dialect: str, refusal: tuple[int, Any], code: int, is_busy: bool
) -> None:
    async with fake(dialect) as agent:
        agent.refuses = refusal
        known = client()
        await known.discover(agent.url)
        with pytest.raises(PeerRefused) as caught:
            await known.send_message(ALIAS, "hi")
        assert (caught.value.code, caught.value.is_busy) == (code, is_busy)


@pytest.mark.parametrize(
    "answer",
    [[], {}, {"result": 5}, {"task": {"id": "t"}}, "hello"],
    ids=["list", "object", "number", "half", "text"],
)
async def test_an_answer_that_makes_no_sense_may_have_been_a_yes(answer: Any) -> None:
    async with fake("1.0") as agent:
        agent.refuses = (200, answer)
        known = client()
        await known.discover(agent.url)
        with pytest.raises(PeerUnreachable) as caught:
            await known.send_message(ALIAS, "hi")
        assert caught.value.was_sent


async def test_an_agent_that_is_gone_has_not_had_it_and_a_slow_one_may_have() -> None:
    async with fake("seed") as agent:
        known = client(seconds=2.0, not_ready_seconds=0.0)
        await known.discover(agent.url)
        await known.peer(ALIAS)
        agent.is_silent = True
        with pytest.raises(PeerUnreachable, match="too long") as slow:
            await known.send_message(ALIAS, "hi")
        assert slow.value.was_sent
    with pytest.raises(PeerUnreachable) as gone:
        await known.send_message(ALIAS, "hi")
    assert not gone.value.was_sent


async def test_an_agent_that_is_lost_in_the_middle_of_a_task_is_given_up_after_a_while() -> None:
    async with fake("seed", is_automatic=False) as agent:
        known = client(lost_seconds=0.2)
        await known.discover(agent.url)
        task = await known.send_message(ALIAS, "hi")
    with pytest.raises(PeerUnreachable):
        await known.wait(ALIAS, task, timeout_seconds=SECONDS)


async def test_an_agent_that_forgot_a_task_says_so() -> None:
    async with fake("1.0", is_automatic=False) as agent:
        known = client()
        await known.discover(agent.url)
        task = await known.send_message(ALIAS, "hi")
        agent.forget(task.id)
        with pytest.raises(PeerRefused) as caught:
            await known.wait(ALIAS, task, timeout_seconds=SECONDS)
        assert caught.value.is_unknown_task


# --------------------------------------------------------------------------------- discovering


@pytest.mark.requirement("a2a:hostile")
async def test_a_card_that_redirects_to_itself_is_refused() -> None:
    async with fake("1.0") as agent:
        agent.moves = {CARD: CARD}
        with pytest.raises(CardError, match="in circles"):
            await client().discover(agent.url)
        agent.moves = {f"/{n}": f"/{n + 1}" for n in range(100)} | {CARD: "/0"}
        with pytest.raises(CardError, match="in circles"):
            await client().discover(agent.url)
        agent.moves = {CARD: "file:///etc/passwd"}
        with pytest.raises(CardError, match="no address"):
            await client().discover(agent.url)


async def test_a_card_may_be_found_elsewhere_on_the_way() -> None:
    async with fake("seed") as agent, fake("1.0") as other:
        agent.moves = {CARD: f"{other.url}{CARD}"}
        known = client()
        found = await known.discover(agent.url)
        assert found.url == agent.url
        done = await known.send_message(ALIAS, "hi", wait=True, timeout_seconds=SECONDS)
        assert done.text == "echo: hi"
        assert other.texts == ["hi"]


async def test_a_request_is_followed_within_its_server_only() -> None:
    async with fake("1.0") as agent, fake("1.0") as other:
        known = client()
        await known.discover(agent.url)
        agent.moves = {"/a2a": f"{other.url}/a2a"}
        with pytest.raises(PeerRefused, match="elsewhere"):
            await known.send_message(ALIAS, "hi")
        agent.moves = {"/a2a": "/a2a"}
        with pytest.raises(PeerRefused, match="in circles"):
            await known.send_message(ALIAS, "hi")
        assert other.asked == []


@pytest.mark.requirement("a2a:hostile")
@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f000001"])
async def test_an_agent_elsewhere_whose_name_leads_here_is_sent_nothing(host: str) -> None:
    async with FakeA2AAgent("1.0") as agent:
        card = read_card(agent.card(), agent.url)
        url = card.url.replace("127.0.0.1", host)
        elsewhere = msgspec.structs.replace(card, url=url, is_here=False)
        with pytest.raises(PeerUnreachable, match="leads to this machine") as refused:
            await Peer(elsewhere).send("hi", message_id="m-1")
        assert (refused.value.was_sent, agent.asked) == (False, [])
        here = msgspec.structs.replace(card, url=url)
        assert (await Peer(here).send("hi", message_id="m-1")).id == agent.last


@pytest.mark.requirement("a2a:hostile")
async def test_a_card_from_elsewhere_may_not_lead_here(monkeypatch: pytest.MonkeyPatch) -> None:
    async with FakeA2AAgent("1.0") as agent:
        answers = iter([False, True])  # of the first server, and of where that sends us
        monkeypatch.setattr(http, "_is_here", lambda _: next(answers))
        agent.moves[CARD] = f"{agent.url.replace('127.0.0.1', '2130706433')}/card"
        with pytest.raises(PeerUnreachable, match="leads to this machine"):
            await client().discover(agent.url)
        assert [each.path for each in agent.asked] == [CARD]


async def test_an_alias_is_not_taken_away_from_another_agent() -> None:
    async with fake("seed") as agent, fake("1.0") as other:
        known = client()
        await known.discover(agent.url)
        with pytest.raises(AliasError, match=agent.url):
            await known.discover(other.url)
        await known.discover(other.url, "other")
        again = await known.discover(agent.url)
        assert [each.alias for each in await known.list_agents()] == [ALIAS, "other"]
        assert again.alias == ALIAS


async def test_where_there_is_no_card_that_is_said() -> None:
    async with fake("seed") as agent:
        agent.has_card = False
        with pytest.raises(CardError, match="404"):
            await client().discover(agent.url)
    with pytest.raises(PeerUnreachable):
        await client().discover(agent.url)


@pytest.mark.requirement("a2a:hostile")
@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2097163\r\n\r\n" + b'{"name":"' + b"x" * 2**21 + b'"}',
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[",
        b"",
    ],
    ids=["not-http", "huge", "endless", "headers", "chunk", "negative", "cut", "nothing"],
)
async def test_a_server_that_makes_no_sense_does_no_harm(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PeerUnreachable):
            await client().discover(f"http://127.0.0.1:{port}")


@pytest.mark.requirement("a2a:hostile")
async def test_a_certificate_that_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("there is no openssl to make a certificate")
    made = await asyncio.create_subprocess_exec(
        *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        *("-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")),
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert await made.wait() == 0
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(PeerUnreachable, match="certificate"):
            await client().discover(f"https://localhost:{port}")
    assert asked == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost:8100", "http://localhost:8100"),
        ("agents.example.com", "https://agents.example.com"),
        ("http://h/a/.well-known/agent.json", "http://h/a"),
        ("https://h//", "https://h"),
    ],
    ids=["local", "elsewhere", "card", "slash"],
)
def test_an_address_may_be_given_in_short(given: str, expected: str) -> None:
    assert base_of(given) == expected


@pytest.mark.parametrize("url", ["", "ftp://h", "http://", "http://h?x=1", "http://a b"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(CardError):
        base_of(url)


# ------------------------------------------------------------------------------------- helpers


class Told:
    """What is told of a task that is followed."""

    def __init__(self) -> None:
        self.all: list[A2ATask] = []
        self._stirred = asyncio.Event()
        self.end: asyncio.Task[A2ATask]

    async def __call__(self, task: A2ATask) -> None:
        self.all.append(task)
        self._stirred.set()

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(SECONDS):
            while not any(condition(each) for each in self.all):
                self._stirred.clear()
                await self._stirred.wait()


@asynccontextmanager
async def told_of(known: A2AClient, task: A2ATask) -> AsyncIterator[Told]:
    told = Told()
    told.end = asyncio.create_task(known.stream(ALIAS, task, told))
    try:
        yield told
    finally:
        told.end.cancel()
        await asyncio.wait([told.end])
