"""A program in its terminal, asked by A2A peers: what it has said so far is told in chunks."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.wrapping import Said
from tests.servers.a2a.v1.guests import house, text_message
from tests.servers.a2a.v1.test_streaming import next_chunk, put_together, states

SECONDS = 60.0


@pytest.mark.requirement("a2a:deltas")
async def test_what_a_terminal_shows_is_heard_before_the_turn_has_ended(home: Path) -> None:
    async with house() as (there, guest), asyncio.timeout(SECONDS):
        stream = guest.stream("SendStreamingMessage", {"message": text_message("tell me")})
        chunks: list[dict[str, Any]] = []
        async with aclosing(stream):
            telling = asyncio.create_task(next_chunk(stream))
            asked = await there.agent.next()

            async def say(at: int, text: str, attempt_id: str = asked.attempt_id) -> None:
                await there.agent.connection.notify(Said(attempt_id=attempt_id, at=at, text=text))

            await say(0, "of another message", "m-other:1")
            await say(40, "behind something that nobody has heard")
            await say(0, "half ")
            chunks.append(await telling)
            await say(5, "of it")
            chunks.append(await next_chunk(stream))
            await there.agent.answer(asked, "half of it, and the rest")
            rest = [each async for each in stream]
        texts = [each["artifact"]["parts"][0]["text"] for each in chunks]
        assert texts == ["half ", "of it"]
        chunks += [each["artifactUpdate"] for each in rest if "artifactUpdate" in each]
        assert put_together(chunks) == "half of it, and the rest"
        assert states(rest)[-1] == "COMPLETED"


@pytest.mark.requirement("a2a:deltas")
async def test_who_sends_what_it_says_is_not_heard_by_its_terminal_too(home: Path) -> None:
    async with house() as (there, guest), asyncio.timeout(SECONDS):
        stream = guest.stream("SendStreamingMessage", {"message": text_message("tell me")})
        async with aclosing(stream):
            telling = asyncio.create_task(anext(stream))
            asked = await there.agent.next()
            await telling
            await there.reply("half of it", type="progress")
            said = Said(attempt_id=asked.attempt_id, at=0, text="half of it, on a terminal")
            await there.agent.connection.notify(said)
            await there.reply("all of it", type="task_complete")
            told = str([each async for each in stream])
        assert "all of it" in told
        assert "on a terminal" not in told
