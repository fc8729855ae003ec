"""What becomes of a task is streamed: first the task, then each change and what is said."""

import asyncio
from contextlib import aclosing
from typing import Any

from bullpen.api import talk
from bullpen.model.messages import MessageType
from tests.servers.a2a.v1.guests import house, text_message


async def collect(stream: Any, into: list[dict[str, Any]]) -> None:
    async with aclosing(stream):
        async for event in stream:
            into.append(event)  # noqa: PERF401 - as they come


def kinds(events: list[dict[str, Any]]) -> list[str]:
    return [next(iter(each)) for each in events]


def states(events: list[dict[str, Any]]) -> list[str]:
    told = [each.get("task") or each.get("statusUpdate") for each in events]
    return [each["status"]["state"].removeprefix("TASK_STATE_") for each in told if each]


async def test_a_stream_begins_with_the_task_and_ends_with_its_end() -> None:
    async with house() as (there, guest):
        events: list[dict[str, Any]] = []
        stream = guest.stream("SendStreamingMessage", {"message": text_message("go")})
        reading = asyncio.create_task(collect(stream, events))
        typed = await there.agent.next()
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


async def test_what_the_agent_says_on_the_way_is_streamed_as_it_says_it() -> None:
    async with house() as (there, guest):
        stream = guest.stream("SendStreamingMessage", {"message": text_message("go")})
        async with aclosing(stream), asyncio.timeout(20):
            task = (await anext(stream))["task"]
            typed = await there.agent.next()
            chunks = []
            for text in ("one ", "two "):
                there.room._hear(talk.TaskOutput(task["id"], text))
                while "artifactUpdate" not in (event := await anext(stream)):
                    pass
                chunks.append(event["artifactUpdate"])
            await there.agent.answer(typed, "one two three")
            rest = [each async for each in stream]
        chunks += [each["artifactUpdate"] for each in rest if "artifactUpdate" in each]
        assert [each.get("append", False) for each in chunks] == [False, True, True]
        assert [each["artifact"]["parts"][0]["text"] for each in chunks] == [
            "one ",
            "two ",
            "three",
        ]
        assert len({each["artifact"]["artifactId"] for each in chunks}) == 1
        assert chunks[-1]["lastChunk"]
        assert states(rest)[-1] == "COMPLETED"


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
        await there.agent.end(1)
        async with asyncio.timeout(20):
            await reading
        assert typed.text.endswith("go")
        assert states(events)[-1] == "FAILED"
        assert events[-1]["statusUpdate"]["status"]["message"]["parts"][0]["text"]
