"""The fake Codex must speak like the real one, and do what its script says."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import Connection, Notification, RemoteError
from bullpen.connection.transports.subprocess import SubprocessTransport
from bullpen.testing.codex_server import CodexScriptError, CodexServer, FakeCodex
from bullpen.testing.models import ModelServer
from bullpen.testing.tmux import eventually
from tests.programs.servers import recipe

CLIENT = {"clientInfo": {"name": "test", "title": "test", "version": "0"}}


@asynccontextmanager
async def connected(command: tuple[str, ...], **options: Any) -> Any:
    told: list[tuple[str, Any]] = []

    def hear(message: Any, _context: Any) -> None:
        if isinstance(message, Notification):
            told.append((message.method, message.params))

    transport = SubprocessTransport(command, **options)
    builder = Connection.builder().name("codex").on_message(hear)
    async with asyncio.timeout(60), builder.connect(transport) as connection:
        yield connection, told


async def speak(connection: Connection) -> list[Any]:
    """Return what a server answers to a client that does nearly everything wrong."""
    answers: list[Any] = []
    for method, params in [
        ("thread/list", {}),
        ("initialize", CLIENT),
        ("initialize", CLIENT),
        ("no/such", {}),
        ("thread/list", {"limit": 50, "sortKey": "updated_at", "cwd": ["/nowhere"]}),
        ("thread/loaded/list", {}),
    ]:
        try:
            answer = await connection.request(method, params)
        except RemoteError as error:
            answers.append((error.code, error.message.partition(", expected")[0]))
        else:
            answers.append(sorted(answer.keys() & {"data", "nextCursor", "userAgent"}))
    return answers


SAID = [
    (-32600, "Not initialized"),
    ["userAgent"],
    (-32600, "Already initialized"),
    (-32600, "Invalid request: unknown variant `no/such`"),
    ["data", "nextCursor"],
    ["data", "nextCursor"],
]


async def test_it_answers_like_the_real_one(home: Path) -> None:
    fake = await FakeCodex.install(home / "bin")
    async with connected(fake.command) as (connection, _):
        assert await speak(connection) == SAID


@pytest.mark.program
@pytest.mark.timeout(1000)  # the first run downloads
@pytest.mark.xdist_group("programs")
async def test_the_real_one_answers_so(home: Path) -> None:
    async with ModelServer() as models:
        started = await recipe("codex", "app-server", home, models)
        options = {"env": started.env, "cwd": started.cwd}
        async with connected(started.argv, **options) as (connection, _):
            assert await speak(connection) == SAID


async def test_it_notes_what_happens_to_it(home: Path) -> None:
    fake = await FakeCodex.install(home / "bin")
    async with connected(fake.command) as (connection, _):
        await connection.request("initialize", CLIENT)
        await connection.notify("initialized", {})
    assert await fake.starts() == 1
    assert await fake.methods() == ["initialize", "initialized"]
    assert [each["params"] for each in await fake.received("initialize")] == [CLIENT]
    assert len(await fake.notes("ended")) == 1


async def test_a_script_is_done_before_the_next_answer_or_when_it_is_woken(home: Path) -> None:
    fake = await FakeCodex.install(home / "bin")
    async with connected(fake.command) as (connection, told):
        await connection.request("initialize", CLIENT)
        await fake.tell('send {"method": "one", "params": {}}')
        assert told == []
        await connection.request("thread/list", {})
        assert [method for method, _ in told] == ["one"]
        await fake.tell('send {"method": "two", "params": {}}')
        await fake.wake()
        await eventually(lambda: [method for method, _ in told] == ["one", "two"])


async def test_threads_are_listed_by_directory_the_latest_first(home: Path) -> None:
    fake = await FakeCodex.install(home / "bin")
    await fake.tell(
        'thread {"id": "a", "cwd": "/a", "updatedAt": 1}',
        'thread {"id": "b", "cwd": "/b", "updatedAt": 2}',
        'thread {"id": "c", "cwd": "/a", "updatedAt": 3}',
        'thread {"id": "title", "cwd": "/a", "updatedAt": 4, "ephemeral": true}',
        "forget b",
        'thread {"id": "a", "cwd": "/a", "updatedAt": 5}',
    )

    async def listed(**params: Any) -> list[str]:
        answer = await connection.request("thread/list", params)
        return [thread["id"] for thread in answer["data"]]

    async with connected(fake.command) as (connection, _):
        await connection.request("initialize", CLIENT)
        assert await listed() == ["a", "c"]
        assert await listed(cwd="/a", limit=1) == ["a"]
        assert await listed(cwd=["/b"]) == []


@pytest.mark.parametrize(
    "line", ["dance", "thread", "thread {}", "send {", "refuse x", "exit now", "thread 7"]
)
def test_a_script_that_makes_no_sense_is_refused(line: str) -> None:
    with pytest.raises(CodexScriptError) as refused:
        CodexServer(list[str]().append).do(line)
    assert refused.value.line == line


def test_an_answer_that_it_is_to_keep_to_itself_is_not_given() -> None:
    said: list[str] = []
    server = CodexServer(said.append)

    for line in ("swallow initialize", "", "print hello"):
        server.do(line)
    server.receive({"id": 1, "method": "initialize", "params": CLIENT})
    server.receive({"id": 1, "result": {}})
    assert said == ["hello"]
