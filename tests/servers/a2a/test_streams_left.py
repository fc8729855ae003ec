"""Who follows a task is told to its end, also if its agent dies; and who left is not."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.servers.a2a import http
from bullpen.servers.a2a.room import Room
from bullpen.servers.a2a.v1 import following
from bullpen.testing.a2a_agent import FakeA2AAgent
from tests.daemon.harness import until
from tests.daemon.wrapping import ScriptedWrapper, wrapped
from tests.servers.a2a.house import SECONDS, House, Web, linux_only, served
from tests.servers.a2a.v1.hooks import hooked

pytestmark = [linux_only, pytest.mark.requirement("a2a:deaths")]

V1 = (
    "Host: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
)
DIALECTS = ("JSON-RPC", "REST", "seed")


class Stream:
    """What comes of a request for a stream, and the connection it comes by."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.data: list[Any] = []

    async def next(self) -> Any:
        async with asyncio.timeout(SECONDS):
            while line := await self.reader.readline():
                if line.startswith(b"data:"):
                    self.data.append(json.loads(line.removeprefix(b"data:")))
                    return self.data[-1]
        return None

    async def rest(self) -> str:
        """Return the last that is told."""
        while await self.next() is not None:
            pass
        return json.dumps(self.data[-1])


async def follow(house: House, dialect: str, task_id: str) -> Stream:
    """Follow a task, and hear the first of it."""
    subscribe = {"jsonrpc": "2.0", "id": 1, "method": "SubscribeToTask", "params": {"id": task_id}}
    body = json.dumps(subscribe)
    line = {
        "JSON-RPC": "POST /agents/codex/a2a/jsonrpc",
        "REST": f"POST /agents/codex/a2a/rest/tasks/{task_id}:subscribe",
        "seed": f"GET /agents/codex/tasks/{task_id}/subscribe",
    }[dialect]
    body = body if dialect == "JSON-RPC" else ""
    reader, writer = await asyncio.open_connection("127.0.0.1", house.web.port)
    head = f"{line} HTTP/1.1\r\n{V1}Content-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body.encode())
    stream = Stream(reader, writer)
    assert await stream.next() is not None
    return stream


async def begin(web: Web, agent: ScriptedWrapper, **configuration: Any) -> tuple[str, Any]:
    message = {"messageId": f"{id(web)}", "role": "ROLE_USER", "parts": [{"text": "go"}]}
    said = {"message": message, "configuration": {"returnImmediately": True, **configuration}}
    headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
    answer = await web.post("/a2a/rest/message:send", said, **headers)
    return json.loads(answer.raw)["task"]["id"], await agent.next()


@pytest.fixture
def rooms(monkeypatch: pytest.MonkeyPatch) -> list[Room]:
    """The rooms that are opened."""
    found: list[Room] = []
    make = Room.__init__

    def made(room: Room, *given: Any) -> None:
        make(room, *given)
        found.append(room)

    monkeypatch.setattr(Room, "__init__", made)
    monkeypatch.setattr(http, "PROBE_SECONDS", 0.05)
    return found


@asynccontextmanager
async def house_with_agent() -> AsyncIterator[tuple[House, ScriptedWrapper, Web]]:
    async with served() as house, wrapped("codex") as agent:
        yield house, agent, house.web.at("codex")


async def test_who_has_closed_its_own_side_hears_the_rest_and_who_left_is_let_go_of(
    home: Path, rooms: list[Room]
) -> None:
    async with house_with_agent() as (house, agent, web):
        task_id, typed = await begin(web, agent)
        half_closed = [await follow(house, each, task_id) for each in DIALECTS]
        for each in half_closed:
            each.writer.write_eof()
        closed = [await follow(house, each, task_id) for each in DIALECTS]
        for each in closed:
            each.writer.close()
        reset = [await follow(house, each, task_id) for each in DIALECTS]
        for each in reset:
            each.writer.transport.abort()
        [room] = rooms

        async def only_those_who_are_there() -> bool:
            return len(room._watchers.get(task_id, ())) == len(half_closed)

        await until(only_those_who_are_there, SECONDS)
        await agent.answer(typed, "that is all")
        for stream in half_closed:
            last = await stream.rest()
            assert "COMPLETED" in last.upper(), stream.data
            assert "that is all" in json.dumps(stream.data)
            stream.writer.close()

        async def nobody() -> bool:
            return not room._watchers

        await until(nobody, SECONDS)
        assert (await house.web.get("/agents")).status == 200


async def test_everybody_is_told_when_the_agent_dies_in_the_middle_of_a_task(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "LOOK_SECONDS", 0.1)
    async with hooked() as hook, house_with_agent() as (house, agent, web):
        task_id, _ = await begin(web, agent, taskPushNotificationConfig={"url": hook.url})
        streams = [await follow(house, each, task_id) for each in DIALECTS]
        said = {"message": {"messageId": "two", "role": "ROLE_USER", "parts": [{"text": "next"}]}}
        headers = {"Content-Type": "application/json", "A2A-Version": "1.0"}
        waiting = asyncio.create_task(web.post("/a2a/rest/message:send", said, **headers))

        async def is_waiting() -> bool:
            return any(each["waiting"] for each in await house.peer.ask("agent.contacts"))

        await until(is_waiting, SECONDS)
        await agent.end(1)
        for stream in streams:
            assert "FAILED" in (await stream.rest()).upper(), stream.data
            stream.writer.close()
        await hook.told("FAILED")
        shown = await house.peer.ask("task.get", task_id=task_id)
        assert (shown["state"], str(home) in shown["reason"]) == ("failed", False)
        kept = json.loads((await waiting).raw)["task"]  # for when the agent returns
        assert kept["status"]["state"] == "TASK_STATE_SUBMITTED"
        assert (await house.web.get("/agents")).status == 200


async def test_everybody_is_told_when_the_daemon_ends(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quiet = FakeA2AAgent("seed", is_automatic=False)
    async with quiet as theirs, house_with_agent() as (house, agent, web):
        task_id, _ = await begin(web, agent)
        streams = [await follow(house, each, task_id) for each in DIALECTS]
        await house.peer.ask("external.discover", url=theirs.url, alias="echo")
        path, wanted = "/external/agents/echo/send", {"message": "hi", "wait_for_completion": True}
        waiting = asyncio.create_task(web.post(path, wanted))

        async def has_it() -> bool:
            return bool(theirs.sent)

        await until(has_it, SECONDS)
    for stream in streams:
        assert "error" in await stream.rest(), stream.data
        stream.writer.close()
    answer = await waiting
    assert (answer.status, "ending" in answer.body["detail"]) == (503, True)
    assert "Traceback" not in caplog.text
