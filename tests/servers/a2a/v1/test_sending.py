"""A2A peers ask an agent for something, and get what it answers."""

import asyncio

import pytest

from tests.servers.a2a.v1.guests import house, text_message


@pytest.mark.requirement("a2a:sending")
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


async def test_nobody_waits_for_an_agent_that_has_ended() -> None:
    async with house() as (there, guest):
        now = {"configuration": {"returnImmediately": True}}
        first = await guest.ask("SendMessage", {"message": text_message("first"), **now})
        await guest.ask("SendMessage", {"message": text_message("second"), **now})
        await there.agent.next()
        await there.agent.end(1)
        async with asyncio.timeout(20):
            sent = await guest.ask("SendMessage", {"message": text_message("are you there?")})
            assert sent["task"]["status"]["state"] == "TASK_STATE_SUBMITTED"
            card = (await guest.http.get(".well-known/agent-card.json")).json()
            assert "it has ended" in card["description"]
            status = first["task"]["status"]
            while status["state"] != "TASK_STATE_FAILED":  # what it had is over, and says why
                status = (await guest.ask("GetTask", {"id": first["task"]["id"]}))["status"]
        assert status["message"]["parts"][0]["text"]


async def test_who_asks_an_agent_that_never_was_is_told_so() -> None:
    async with house() as (there, guest):
        await there.agent.end(0)
        assert await guest.refusal("SendMessage", {"message": text_message()}) == -32004
        assert (await guest.http.get(".well-known/agent-card.json")).status_code == 400
