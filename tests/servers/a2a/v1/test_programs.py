"""A real program, asked by A2A peers: what it says is streamed while it says it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

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
