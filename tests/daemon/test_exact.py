"""Many tasks for one wrapped agent: each has its own reply, to the letter, and none is lost."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.states import Activity
from tests.daemon.harness import Peer, running_daemon, until
from tests.daemon.wrapping import wrapped

TASKS = 100
SECONDS = 120.0  # for all of it; the agent takes no time
TEXTS = (
    "task {}",  # of which some begin others
    "{} > and its prompt",
    "日本語 {} のテスト",
    "{}: [DUMMY] You said: something else",
    "{} with  many   spaces",
)


@asynccontextmanager
async def wrapped_dummy() -> AsyncIterator[None]:
    """Run a dummy that takes no time in a wrapper of its own process."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bullpen.wrapper", "--no-start", "--name", "dummy", "--", "dummy"),
        env={**os.environ, "DUMMY_AGENT_SECONDS": "0"},
        stdin=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.requirement("talk:exact")
async def test_every_task_has_its_own_reply_and_nothing_is_lost(home: Path) -> None:
    texts = [TEXTS[number % len(TEXTS)].format(number) for number in range(TASKS)]
    async with asyncio.timeout(SECONDS), running_daemon() as (peer, _), wrapped_dummy():
        await until(lambda: _is_idle(peer), SECONDS)
        sent = [
            (await peer.ask("mail.send", to="dummy", content=each))["message"] for each in texts
        ]
        replies = [await _reply(peer, each["id"]) for each in sent]
        said = [f"[DUMMY] You said: [from user] {each}" for each in texts]
        assert [each["content"] for each in replies] == said
        assert [each["reply_to"] for each in replies] == [each["id"] for each in sent]
        assert (await peer.ask("mail.inbox"))["deliveries"] == []
        assert await peer.ask("mail.dead_letters") == []
        logged = [each["entry"] for each in await peer.ask("mail.log", limit=500)]
        assert len(logged) == 2 * TASKS  # there, and back, once each
        assert all(each["success"] for each in logged)


async def _is_idle(peer: Peer) -> bool:
    contacts = {each["name"]: each["activity"] for each in await peer.ask("agent.contacts")}
    return contacts.get("dummy") == "idle"


async def _reply(peer: Peer, message_id: str) -> Any:
    """Return the answer to a message, and take it."""
    while True:
        waited = await peer.ask("mail.wait", message_id=message_id, take=True, timeout_seconds=5)
        if waited["outcome"] != "timeout":
            assert waited["outcome"] == "reached", waited
            return waited["reply"]


@pytest.mark.requirement("talk:look")
async def test_who_went_away_while_he_waited_for_mail_takes_none_with_him(home: Path) -> None:
    async with running_daemon() as (peer, _), wrapped("codex") as agent:
        await agent.tell(Activity.RUNNING)
        reader, writer = await asyncio.open_unix_connection(str(peer.path))
        params = {"take": True, "timeout_seconds": 30, "secret": agent.secret}
        request = {"id": 1, "method": "mail.inbox", "params": params}
        writer.write(json.dumps(request).encode() + b"\n")
        whoami = {"id": 2, "method": "agent.whoami", "params": {}}
        writer.write(json.dumps(whoami).encode() + b"\n")
        assert json.loads(await reader.readline())["id"] == 2  # the other one waits
        # What is written now is written after the first look.
        await peer.ask("mail.send", to="user", content="busy", secret=agent.secret)
        writer.close()
        await writer.wait_closed()
        await peer.ask("mail.send", to="codex", content="are you there?")
        [waiting] = (await peer.ask("mail.inbox", secret=agent.secret))["deliveries"]
        assert (waiting["message"]["content"], waiting["state"]) == ("are you there?", "queued")
