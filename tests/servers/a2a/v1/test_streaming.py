"""What becomes of a task is streamed: first the task, then each change and what is said."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.messages import MessageType
from bullpen.testing.codex_server.shared import SharedCodex
from bullpen.testing.tmux import eventually
from tests.servers.a2a.v1.guests import Guest, House, house, text_message


async def collect(stream: Any, into: list[dict[str, Any]]) -> None:
    async with aclosing(stream):
        async for event in stream:
            into.append(event)  # noqa: PERF401 - as they come


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [next(iter(each)) for each in events]


def states(events: list[dict[str, Any]]) -> list[str]:
    told = [each.get("task") or each.get("statusUpdate") for each in events]
    return [each["status"]["state"].removeprefix("TASK_STATE_") for each in told if each]


@pytest.mark.requirement("a2a:streaming", "pitfall:1")
async def test_a_stream_begins_with_the_task_and_ends_with_its_end() -> None:
    async with house() as (there, guest):
        events: list[dict[str, Any]] = []
        stream = guest.stream("SendStreamingMessage", {"message": text_message("go")})
        reading = asyncio.create_task(collect(stream, events))
        typed = await there.agent.next()
        await eventually(lambda: bool(events))  # from here on everything is told
        await there.reply("half of it", type=MessageType.PROGRESS)
        await there.agent.answer(typed, "all of it")
        await reading
        assert kinds(events)[0] == "task"
        assert states(events)[-1] == "COMPLETED"
        assert "WORKING" in states(events)
        [artifact] = [each["artifactUpdate"] for each in events if "artifactUpdate" in each]
        assert artifact["artifact"]["parts"] == [{"text": "all of it"}]
        assert artifact["lastChunk"]
        assert "append" not in artifact
        said = [
            each["statusUpdate"]["status"].get("message", {}).get("parts")
            for each in events
            if "statusUpdate" in each
        ]
        assert [{"text": "half of it"}] in said
        task_id = events[0]["task"]["id"]
        assert await guest.refusal("SubscribeToTask", {"id": task_id}) == -32004


async def next_chunk(stream: Any) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while "artifactUpdate" not in (event := await anext(stream)):
            pass
    chunk = event["artifactUpdate"]
    assert isinstance(chunk, dict)
    return chunk


def put_together(chunks: list[dict[str, Any]]) -> str:
    """Return the artifact that some chunks make."""
    whole = ""
    for each in chunks:
        [part] = each["artifact"]["parts"]
        whole = (whole if each.get("append") else "") + part["text"]
    assert len({each["artifact"]["artifactId"] for each in chunks}) == 1
    assert [each for each in chunks if each.get("lastChunk")] == chunks[-1:]
    return whole


@asynccontextmanager
async def codex_house(home: Path) -> AsyncIterator[tuple[SharedCodex, House, Guest]]:
    """An agent whose terminal runs on an app server."""
    async with SharedCodex(home / "app.sock") as codex:
        codex.start_thread("t1")
        codex.say_as_user("t1", "typed by hand")  # so that the thread can be joined
        codex.end("t1")
        async with house(doors={"app_server": codex.address}) as (there, guest):
            yield codex, there, guest


@pytest.mark.requirement("a2a:deltas")
async def test_what_the_agent_says_is_streamed_as_it_says_it(home: Path) -> None:
    async with codex_house(home) as (codex, _, guest):
        stream = guest.stream("SendStreamingMessage", {"message": text_message("go")})
        async with aclosing(stream), asyncio.timeout(30):
            task_id = (await anext(stream))["task"]["id"]
            await eventually(lambda: bool(codex.asked("turn/start")))
            await eventually(lambda: codex.is_running("t1"))
            codex.think("t1", "hm")
            codex.begin("t1")
            codex.say("t1", "on the way")
            chunks = [await next_chunk(stream)]
            codex.finish("t1")
            codex.begin("t1")
            codex.say("t1", "one ")
            chunks.append(await next_chunk(stream))
            codex.say("t1", "two ")
            chunks.append(await next_chunk(stream))
            late = guest.stream("SubscribeToTask", {"id": task_id})  # it is told from the beginning
            async with aclosing(late):
                assert "task" in await anext(late)
                others = [await next_chunk(late)]
                codex.say("t1", "three")
                codex.finish("t1")
                codex.end("t1")
                rest = [each async for each in stream]
                more = [each async for each in late]
        assert [each.get("append", False) for each in chunks] == [False, False, True]
        for told, found in ((rest, chunks), (more, others)):
            found += [each["artifactUpdate"] for each in told if "artifactUpdate" in each]
            assert put_together(found) == "one two three"
            assert states(told)[-1] == "COMPLETED"
        assert others[0]["artifact"]["parts"] == [{"text": "one two "}]
        done = await guest.ask("GetTask", {"id": task_id})
        assert [each["parts"] for each in done["artifacts"]] == [[{"text": "one two three"}]]


@pytest.mark.requirement("a2a:deltas")
async def test_a_stream_ends_with_the_answer_whatever_was_said_before(home: Path) -> None:
    async with codex_house(home) as (codex, there, guest):
        stream = guest.stream("SendStreamingMessage", {"message": text_message("go")})
        async with aclosing(stream), asyncio.timeout(30):
            await anext(stream)
            await eventually(lambda: codex.is_running("t1"))
            codex.begin("t1")
            codex.say("t1", "it is red")
            chunks = [await next_chunk(stream)]
            await there.reply("it is blue")  # which it says by itself, before its turn has ended
            chunks += [each["artifactUpdate"] async for each in stream if "artifactUpdate" in each]
        assert put_together(chunks) == "it is blue"


@pytest.mark.requirement("a2a:deltas")
async def test_what_the_user_asks_is_nothing_of_a_task(home: Path) -> None:
    async with codex_house(home) as (codex, there, guest):
        codex.say_as_user("t1", "typed by hand")
        codex.begin("t1")
        sent = await guest.ask(
            "SendMessage",
            {"message": text_message("go"), "configuration": {"returnImmediately": True}},
        )
        stream = guest.stream("SubscribeToTask", {"id": sent["task"]["id"]})
        async with aclosing(stream), asyncio.timeout(30):
            await anext(stream)
            codex.say("t1", "for the user")
            codex.finish("t1")
            codex.end("t1")
            await eventually(lambda: len(codex.asked("turn/start")) == 1)
            await eventually(lambda: codex.is_running("t1"))
            codex.begin("t1")
            for each in "in many small pieces":
                codex.say("t1", each)
            codex.finish("t1")
            codex.end("t1")
            chunks = [each["artifactUpdate"] async for each in stream if "artifactUpdate" in each]
        assert put_together(chunks) == "in many small pieces"
        assert len(chunks) < 20
        assert there.agent.typed.empty()


@pytest.mark.requirement("a2a:subscribing")
async def test_who_subscribes_follows_the_task_through_a_question_to_its_end() -> None:
    async with house() as (there, guest):
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("go")}))
        await there.agent.next()
        await there.reply("which?", type=MessageType.PROGRESS, metadata={"asks": True})
        task = (await sending)["task"]
        streams = [guest.stream("SubscribeToTask", {"id": task["id"]}) for _ in range(3)]
        told: list[list[dict[str, Any]]] = [[], [], []]
        for stream, events in zip(streams, told, strict=True):
            events.append(await anext(stream))
        await streams[0].aclose()  # who leaves takes nothing from the others
        pairs = list(zip(streams, told, strict=True))[1:]
        reading = [asyncio.create_task(collect(*each)) for each in pairs]
        follow_up = text_message("left", taskId=task["id"])
        answering = asyncio.create_task(guest.ask("SendMessage", {"message": follow_up}))
        typed = await there.agent.next()
        await there.agent.answer(typed, "done")
        await answering
        await asyncio.gather(*reading)
        assert told[1] == told[2]
        assert states(told[1])[0] == "INPUT_REQUIRED"
        assert states(told[1])[-1] == "COMPLETED"
        ids = {next(iter(each.values())).get("taskId", task["id"]) for each in told[1]}
        assert ids == {task["id"]}


async def test_an_agent_that_dies_ends_the_task_and_the_stream() -> None:
    async with house() as (there, guest):
        events: list[dict[str, Any]] = []
        stream = guest.stream("SendStreamingMessage", {"message": text_message("go")})
        reading = asyncio.create_task(collect(stream, events))
        typed = await there.agent.next()
        await eventually(lambda: bool(events))
        await there.agent.end(1)
        async with asyncio.timeout(20):
            await reading
        assert typed.text.endswith("go")
        assert states(events)[-1] == "FAILED"
        assert events[-1]["statusUpdate"]["status"]["message"]["parts"][0]["text"]
