"""A2A peers ask an agent for something, and get what it answers."""

import asyncio

from tests.servers.a2a.v1.guests import house, text_message


async def test_a_message_waits_for_the_answer() -> None:
    async with house() as (there, guest):
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("hi")}))
        typed = await there.agent.next()
        assert typed.text.endswith("hi")
        await there.agent.answer(typed, "hello to you")
        task = (await sending)["task"]
        assert task["status"]["state"] == "TASK_STATE_COMPLETED"
        assert task["artifacts"][0]["parts"] == [{"text": "hello to you"}]
        assert await guest.ask("GetTask", {"id": task["id"]}) == task
