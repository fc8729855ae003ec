"""An agent that waits for somebody: a question of its own, or a dialog in its terminal."""

import asyncio
from typing import Any

import pytest

from bullpen.model.messages import MessageType
from bullpen.model.states import Activity
from bullpen.servers.a2a.room import Caller, Scope
from tests.servers.a2a.v1.guests import Guest, House, house, text_message


async def asked(there: House, guest: Guest, question: str = "which one?") -> dict[str, Any]:
    """Have the agent ask something; return the task."""
    sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("go")}))
    await there.agent.next()
    await there.reply(question, type=MessageType.PROGRESS, metadata={"asks": True})
    task = (await sending)["task"]
    assert isinstance(task, dict)
    return task


@pytest.mark.requirement("a2a:asking")
async def test_a_question_interrupts_the_task_and_a_follow_up_answers_it() -> None:
    async with house() as (there, guest):
        task = await asked(there, guest)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert task["status"]["message"]["parts"] == [{"text": "which one?"}]
        follow_up = text_message("the left one", taskId=task["id"])
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": follow_up}))
        typed = await there.agent.next()
        assert typed.text.endswith("the left one")
        await there.agent.answer(typed, "done")
        done = (await sending)["task"]
        assert (done["id"], done["contextId"]) == (task["id"], task["contextId"])
        assert done["status"]["state"] == "TASK_STATE_COMPLETED"
        assert [each["parts"][0]["text"] for each in done["history"]] == [
            "go",
            "which one?",
            "the left one",
        ]
        assert {each["contextId"] for each in done["history"]} == {task["contextId"]}
        assert await guest.ask("GetTask", {"id": task["id"]}) == done
        listed = await guest.ask("ListTasks", {})
        assert [each["id"] for each in listed["tasks"]] == [task["id"]]


@pytest.mark.requirement("pitfall:2")
async def test_a_second_follow_up_without_a_context_belongs_to_the_same_task() -> None:
    async with house() as (there, guest):
        task = found = await asked(there, guest)
        for text in ("first", "second"):
            follow_up = text_message(text, taskId=task["id"])
            sending = asyncio.create_task(guest.ask("SendMessage", {"message": follow_up}))
            await there.agent.next()
            await there.reply("and?", type=MessageType.PROGRESS, metadata={"asks": True})
            found = (await sending)["task"]
            assert found["contextId"] == task["contextId"]
        texts = [each["parts"][0]["text"] for each in found["history"]]
        assert texts == ["go", "which one?", "first", "and?", "second", "and?"]


async def test_a_task_whose_agent_has_asked_can_be_cancelled_and_is_over_then() -> None:
    async with house() as (there, guest):
        task = await asked(there, guest)
        canceled = await guest.ask("CancelTask", {"id": task["id"]})
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        assert await guest.refusal("CancelTask", {"id": task["id"]}) == -32002
        again = {"message": text_message("hello?", taskId=task["id"])}
        assert await guest.refusal("SendMessage", again) == -32004


async def test_an_agent_that_has_asked_is_free_for_other_messages() -> None:
    async with house() as (there, guest):
        await asked(there, guest)
        other = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("other")}))
        typed = await there.agent.next()
        await there.agent.answer(typed, "yes")
        assert (await other)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"


@pytest.mark.requirement("a2a:dialogs")
async def test_a_peer_never_answers_a_dialog() -> None:
    async with house() as (there, guest):
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("rm")}))
        await there.agent.next()
        await there.agent.tell(Activity.WAITING_APPROVAL, prompt="Run rm? (y/n)")
        task = (await sending)["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        approval = {"message": text_message("y", taskId=task["id"])}
        for scopes in ({Scope.SEND}, {Scope.READ, Scope.SEND, Scope.CONTROL}):
            there.caller = Caller(name="a2a:tool", scopes=frozenset(scopes))
            assert await guest.refusal("SendMessage", approval) == -32600
        there.caller = Caller(secret=there.agent.secret)  # not even an agent by itself
        assert await guest.refusal("SendMessage", approval) == -32600
        assert there.agent.keys == b""
        assert there.agent.typed.empty()
