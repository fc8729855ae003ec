"""The fake server that clients share must do what the real one does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import Connection, Notification, RemoteError, open_transport
from bullpen.jsonrpc.wire import decode_value
from bullpen.testing.codex_server.shared import SharedCodex
from bullpen.testing.models import ModelServer
from bullpen.testing.tmux import eventually
from tests.programs.servers import recipe

CLIENT = {"clientInfo": {"name": "test", "title": "test", "version": "0"}}
TOLD = (
    "thread/started",
    "thread/status/changed",
    "turn/started",
    "item/started",
    "item/completed",
    "turn/completed",
)


class Client:
    """One of several clients, and what it was told of what a door listens to."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.answer = ""
        self.connection: Connection

    def hear(self, message: Any, _context: Any) -> None:
        if not isinstance(message, Notification) or message.method not in TOLD:
            return
        params = decode_value(message.params)
        what = params.get("item", {}).get("type") or params.get("status", {}).get("type", "")
        if message.method == "turn/completed":
            what = params["turn"]["status"]
        self.told.append(f"{message.method} {what}".strip())
        if message.method == "item/completed" and "text" in params["item"]:
            self.answer = params["item"]["text"]

    async def ask(self, method: str, **params: Any) -> Any:
        try:
            return await self.connection.request(method, params)
        except RemoteError as error:
            return error.message.partition(" for thread")[0].partition(":")[0]


@asynccontextmanager
async def clients(address: str) -> AsyncIterator[tuple[Client, Client]]:
    both = Client(), Client()
    async with asyncio.timeout(60):
        builders = [Connection.builder().name("client").on_message(each.hear) for each in both]
        ways = [open_transport(f"ws+{address}") for _ in both]
        async with builders[0].connect(ways[0]) as one, builders[1].connect(ways[1]) as two:
            both[0].connection, both[1].connection = one, two
            for each in both:
                await each.ask("initialize", **CLIENT)
                await each.connection.notify("initialized", {})
            yield both


async def live(address: str, project: Path, answer: Any) -> None:
    """Have one client begin a thread and another speak in it; `answer` has the agent answer."""
    async with clients(address) as (first, second):
        started = await first.ask("thread/start", cwd=str(project))
        thread_id = started["thread"]["id"]
        await eventually(lambda: second.told == ["thread/started"])
        read = await second.ask("thread/read", threadId=thread_id)
        assert (read["thread"]["status"], read["thread"]["ephemeral"]) == ({"type": "idle"}, False)
        assert await second.ask("thread/resume", threadId=thread_id) == "no rollout found"
        said = [{"type": "text", "text": "<<wait go | say hello>>"}]
        given = {"threadId": thread_id, "clientUserMessageId": "mark", "input": said}
        begun = (await second.ask("turn/start", **given))["turn"]

        async def has_joined() -> bool:
            answer = await second.ask("thread/resume", threadId=thread_id)
            turns.extend(answer["thread"]["turns"] if isinstance(answer, dict) else [])
            return bool(turns)

        turns: list[dict[str, Any]] = []
        await eventually(has_joined)
        await eventually(lambda: "item/completed userMessage" in first.told)
        [turn] = turns
        assert turn["id"] == begun["id"]
        assert begun["status"] == "inProgress"
        assert turn["status"] in ("inProgress", "interrupted")  # if it is just about to begin
        answer(thread_id)
        await eventually(lambda: any("turn/completed" in each for each in second.told))
        assert first.told == [
            "thread/started",
            "thread/status/changed active",
            "turn/started",
            "item/started userMessage",
            "item/completed userMessage",
            "item/started agentMessage",
            "item/completed agentMessage",
            "thread/status/changed idle",
            "turn/completed completed",
        ]
        assert second.told[-2:] == first.told[-2:]
        assert second.answer == first.answer == "hello"
        listed = await second.ask("thread/turns/list", threadId=thread_id, itemsView="full")
        [only] = listed["data"]
        assert [each["type"] for each in only["items"]] == ["userMessage", "agentMessage"]
        assert only["items"][0]["clientId"] == "mark"


async def test_it_is_shared_like_the_real_one(home: Path) -> None:
    async with SharedCodex(home / "a.sock") as codex:

        def answer(thread_id: str) -> None:
            codex.answer(thread_id, "hello")
            codex.end(thread_id)

        await live(codex.address, home, answer)


@pytest.mark.program
@pytest.mark.timeout(1000)  # the first run downloads
@pytest.mark.xdist_group("programs")
async def test_the_real_one_is_shared_so(home: Path) -> None:
    socket = home / "a.sock"
    async with ModelServer() as models:
        started = await recipe("codex", "app-server", home, models)
        server = await asyncio.create_subprocess_exec(
            *started.argv,
            *("--listen", f"unix://{socket}"),
            env=dict(started.env),
            cwd=started.cwd,
            stdin=asyncio.subprocess.DEVNULL,
        )
        try:
            await eventually(lambda: asyncio.to_thread(socket.exists))
            await live(f"unix://{socket}", started.cwd, lambda _: models.release("go"))
        finally:
            server.kill()
            await server.wait()
