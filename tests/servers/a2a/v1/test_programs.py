"""A real program, asked by A2A peers: it is heard while it speaks, and answered when it asks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.servers.a2a.room import Caller, Scope
from bullpen.testing.models import ModelServer
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.observe.sources.codex_terminal import prepare, terminal
from tests.servers.a2a.v1.guests import Guest, House, house, text_message
from tests.servers.a2a.v1.test_streaming import next_chunk, put_together, states

pytestmark = [
    pytest.mark.program,
    pytest.mark.tmux,
    pytest.mark.timeout(1000),  # the first run downloads
    pytest.mark.xdist_group("programs"),
]

SECONDS = 60.0
CONTROLS = Caller(name="a2a:tool", scopes=frozenset(Scope))


@asynccontextmanager
async def codex_served(home: Path) -> AsyncIterator[tuple[ModelServer, House, Guest]]:
    """Codex in a terminal on an app server of its own, and an agent of a daemon that it is."""
    socket = home / "codex.sock"
    async with ModelServer() as models, PrivateTmux(width=120, height=40) as tmux:
        served = await prepare("app-server", home, models, ["--listen", f"unix://{socket}"])
        server = await asyncio.create_subprocess_exec(
            *served.argv, env=dict(served.env), cwd=served.cwd, stdin=asyncio.subprocess.DEVNULL
        )
        try:
            await eventually(lambda: asyncio.to_thread(socket.exists))
            started = await prepare("tui", home, models, ["--remote", f"unix://{socket}"])
            async with (
                terminal(tmux, started),
                house(doors={"app_server": f"unix://{socket}"}) as (there, guest),
            ):
                yield models, there, guest
        finally:
            if server.returncode is None:
                server.kill()
            await server.wait()


@pytest.mark.requirement("a2a:deltas")
async def test_what_is_said_is_heard_before_the_turn_has_ended(home: Path) -> None:
    async with codex_served(home) as (models, there, guest), asyncio.timeout(SECONDS):
        script = "<<think hm | say on the way | slowly 0.2 one two three four | wait there>>"
        stream = guest.stream("SendStreamingMessage", {"message": text_message(script)})
        chunks: list[dict[str, Any]] = []
        async with aclosing(stream):
            while not chunks or said(chunks) != "one two three four":
                chunks.append(await next_chunk(stream))
            models.release("there")  # only now the turn can end
            rest = [each async for each in stream]
        texts = [each["artifact"]["parts"][0]["text"] for each in chunks]
        assert not [each for each in texts if "hm" in each or "<<" in each]
        chunks += [each["artifactUpdate"] for each in rest if "artifactUpdate" in each]
        assert put_together(chunks) == "one two three four"
        assert states(rest)[-1] == "COMPLETED"
        assert there.agent.typed.empty()


def said(chunks: list[dict[str, Any]]) -> str:
    """Return what stands in an artifact that is not ended yet."""
    return put_together([*chunks[:-1], chunks[-1] | {"lastChunk": True}])


async def asks(guest: Guest, text: str, words: str) -> str:
    """Send a message of which the agent asks something; return its task when that is in words."""
    task = (await guest.ask("SendMessage", {"message": text_message(text)}))["task"]
    assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"

    async def is_told() -> bool:
        status = (await guest.ask("GetTask", {"id": task["id"]}))["status"]
        return words in status["message"]["parts"][0]["text"]

    await eventually(is_told)  # that it asks may be known before what it asks
    return str(task["id"])


@pytest.mark.requirement("a2a:approval")
async def test_a_command_is_approved_by_who_may_and_nobody_else(home: Path) -> None:
    made = home / "project" / "made.txt"
    async with codex_served(home) as (_, there, guest), asyncio.timeout(SECONDS):
        command = "<<bashesc touch made.txt ;; say it is made>>"
        task_id = await asks(guest, command, "$ touch made.txt")
        approval = text_message("yes", taskId=task_id)
        assert await guest.refusal("SendMessage", {"message": approval}) == -32600
        assert not await asyncio.to_thread(made.exists)
        there.caller = CONTROLS
        vague = text_message("if you like", taskId=task_id)
        assert await guest.refusal("SendMessage", {"message": vague}) == -32602
        done = (await guest.ask("SendMessage", {"message": approval}))["task"]
        assert (done["id"], done["status"]["state"]) == (task_id, "TASK_STATE_COMPLETED")
        assert done["artifacts"][0]["parts"] == [{"text": "it is made"}]
        assert await asyncio.to_thread(made.exists)
        refused = "<<bashesc touch other.txt ;; say it is not made>>"
        task_id = await asks(guest, refused, "$ touch other.txt")
        no = text_message("no", taskId=task_id)
        over = (await guest.ask("SendMessage", {"message": no}))["task"]
        assert over["status"]["state"] == "TASK_STATE_COMPLETED", over
        assert over["artifacts"][0]["parts"] == [{"text": "it is not made"}]
        assert not await asyncio.to_thread(made.with_name("other.txt").exists)
        assert there.agent.keys == b""
        assert there.agent.typed.empty()
