"""The real `codex app-server` over stdio, spoken to with nothing but a connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import Connection, Context, RemoteError
from bullpen.connection.transports.subprocess import SubprocessTransport
from bullpen.jsonrpc.wire import Notification, decode_value
from bullpen.testing.models import ModelServer, Say, Turn, Wait
from tests.programs.servers import recipe

pytestmark = [
    pytest.mark.program,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("programs"),
]


class Codex:
    """A client of the app server: what it was told, in order, and what it is asked."""

    def __init__(self, decision: str = "accept") -> None:
        self.decision = decision
        self.asked: list[dict[str, Any]] = []
        self.told: asyncio.Queue[tuple[str, Any]] = asyncio.Queue()
        self.connection: Connection

    async def approve(self, params: dict[str, Any], _context: Context) -> dict[str, str]:
        self.asked.append(params)
        return {"decision": self.decision}

    async def hear(self, message: Any, _context: Context) -> None:
        if isinstance(message, Notification):
            self.told.put_nowait((message.method, decode_value(message.params)))

    async def until(self, method: str) -> list[tuple[str, Any]]:
        """Return what is told up to a notification, that one included."""
        heard: list[tuple[str, Any]] = []
        while not heard or heard[-1][0] != method:
            heard.append(await self.told.get())
        return heard


@asynccontextmanager
async def codex(home: Path, models: ModelServer, decision: str = "accept") -> AsyncIterator[Codex]:
    started = await recipe("codex", "app-server", home, models)
    client = Codex(decision)
    builder = (
        Connection.builder()
        .name("codex")
        .on_request("item/commandExecution/requestApproval", client.approve)
        .on_message(client.hear)
    )
    transport = SubprocessTransport(started.argv, env=started.env, cwd=started.cwd)
    async with asyncio.timeout(120), builder.connect(transport) as connection:
        client.connection = connection
        info = {"name": "bullpen", "title": "bullpen", "version": "0"}
        answer = await connection.request("initialize", {"clientInfo": info})
        assert answer["codexHome"].endswith(".codex")
        await connection.notify("initialized", {})
        yield client


async def start_thread(client: Codex, home: Path) -> str:
    params = {
        "cwd": str(home / "project"),
        "approvalPolicy": "on-request",
        "sandbox": "workspace-write",
    }
    started = await client.connection.request("thread/start", params)
    return str(started["thread"]["id"])


async def start_turn(client: Codex, thread: str, prompt: str) -> str:
    params = {"threadId": thread, "input": [{"type": "text", "text": prompt}]}
    started = await client.connection.request("turn/start", params)
    return str(started["turn"]["id"])


@pytest.mark.requirement("T-29", "T-41", "contract:O4")
async def test_a_turn_streams_its_answer_in_deltas(home: Path) -> None:
    async with ModelServer() as models, codex(home, models) as client:
        thread = await start_thread(client, home)
        await start_turn(client, thread, "<<slowly 0.02 hello from a real turn>>")
        heard = await client.until("turn/completed")
        deltas = [params["delta"] for method, params in heard if method.endswith("/delta")]
        assert "".join(deltas) == "hello from a real turn"
        assert len(deltas) > 1
        assert heard[-1][1]["turn"]["status"] == "completed"


@pytest.mark.requirement("T-39", "L-9")
async def test_an_approval_it_asks_for_is_answered_and_the_command_runs(home: Path) -> None:
    async with ModelServer() as models, codex(home, models) as client:
        thread = await start_thread(client, home)
        await start_turn(client, thread, "<<bashesc touch approved ;; say done>>")
        heard = await client.until("turn/completed")
        assert heard[-1][1]["turn"]["status"] == "completed"
    assert len(client.asked) == 1
    assert "touch approved" in client.asked[0]["command"]
    assert (home / "project" / "approved").exists()


async def test_a_declined_command_does_not_run(home: Path) -> None:
    async with ModelServer() as models, codex(home, models, decision="decline") as client:
        thread = await start_thread(client, home)
        await start_turn(client, thread, "<<bashesc touch declined ;; say done>>")
        await client.until("turn/completed")
    assert len(client.asked) == 1
    assert not (home / "project" / "declined").exists()


async def test_a_turn_is_interrupted_and_the_next_one_is_clean(home: Path) -> None:
    async with ModelServer() as models, codex(home, models) as client:
        models.script("never ends", Turn(Say("begun"), Wait("never")))
        thread = await start_thread(client, home)
        turn = await start_turn(client, thread, "a turn that never ends")
        await client.until("item/agentMessage/delta")
        await client.connection.request("turn/interrupt", {"threadId": thread, "turnId": turn})
        assert (await client.until("turn/completed"))[-1][1]["turn"]["status"] == "interrupted"
        await start_turn(client, thread, "<<say clean>>")
        heard = await client.until("turn/completed")
        assert "".join(p["delta"] for m, p in heard if m.endswith("/delta")) == "clean"


async def test_its_errors_are_told_to_the_caller(home: Path) -> None:
    async with ModelServer() as models, codex(home, models) as client:
        with pytest.raises(RemoteError) as refused:
            await client.connection.request("thread/start", {"cwd": 17})
        assert refused.value.code == -32600
