"""An agent that waits for somebody: a question of its own, or a dialog in its terminal."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.wrapping import InjectMessage
from bullpen.model.dialogs import Dialog
from bullpen.model.messages import MessageType
from bullpen.model.states import Activity, Provider
from bullpen.model.tasks import TaskState
from bullpen.servers.a2a.room import Caller, Scope
from bullpen.testing.codex_server.shared import SharedCodex
from bullpen.testing.tmux import eventually
from tests.daemon.harness import until
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


DIALOG = Dialog(
    id="d-1",
    text="Do you want to proceed?\n  rm -rf build\n1. Yes\n2. No",
    answers=("yes", "no", "1: Yes", "2: No"),
)
OTHER = Dialog(id="d-2", text="Really everything?", answers=("yes", "no"))
TOOL = Caller(name="a2a:tool", scopes=frozenset({Scope.READ, Scope.SEND, Scope.CONTROL}))


async def dialog_opened(there: House, guest: Guest) -> tuple[dict[str, Any], InjectMessage]:
    """Have the agent open a dialog while it works on a task; return both."""
    sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("clean up")}))
    typed = await there.agent.next()
    await there.agent.tell(Activity.WAITING_APPROVAL, dialog=DIALOG)
    task = (await sending)["task"]
    assert isinstance(task, dict)
    return task, typed


@pytest.mark.requirement("a2a:approval")
async def test_what_is_asked_is_told_and_who_may_answers_it_by_a_follow_up() -> None:
    async with house(provider=Provider.CLAUDE) as (there, guest):
        task, typed = await dialog_opened(there, guest)
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        said = task["status"]["message"]
        assert "rm -rf build" in said["parts"][0]["text"]
        assert "yes, no" in said["parts"][0]["text"]
        assert said["metadata"] == {"urn:bullpen:dialog:v1": "d-1"}
        there.caller = TOOL
        follow_up = text_message("yes", taskId=task["id"])
        stream = guest.stream("SendStreamingMessage", {"message": follow_up})
        async with aclosing(stream), asyncio.timeout(20):
            again = (await anext(stream))["task"]
            assert again["id"] == task["id"]
            assert again["status"]["state"] == "TASK_STATE_WORKING"
            assert [(each.dialog_id, each.text) for each in there.agent.answers] == [("d-1", "yes")]
            seen = await there.room.task(task["id"])
            assert (seen.state, seen.dialog) == (TaskState.WORKING, None)
            await there.agent.answer(typed, "it is clean")
            last = [each async for each in stream][-1]
        assert last["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert (await there.room.task(task["id"])).text == "it is clean"
        assert there.agent.keys == b""
        assert there.agent.typed.empty()


@pytest.mark.requirement("a2a:approval", "a2a:dialogs")
@pytest.mark.parametrize("who", ["nobody", "sends", "agent"])
async def test_a_peer_never_answers_a_dialog(who: str) -> None:
    async with house(provider=Provider.CLAUDE) as (there, guest):
        task, _ = await dialog_opened(there, guest)
        there.caller = {
            "nobody": None,
            "sends": Caller(name="a2a:tool", scopes=frozenset({Scope.READ, Scope.SEND})),
            "agent": Caller(secret=there.agent.secret),
        }[who]
        approval = {"message": text_message("yes", taskId=task["id"])}
        told = await guest.rpc("SendMessage", approval)
        assert told["error"]["code"] == -32600
        assert "control" in told["error"]["message"]
        if who == "agent":  # not even one that says that it may
            there.caller = Caller(secret=there.agent.secret, scopes=TOOL.scopes)
            assert await guest.refusal("SendMessage", approval) == -32600
        assert there.agent.answers == []
        assert there.agent.keys == b""
        assert there.agent.typed.empty()
        seen = await guest.ask("GetTask", {"id": task["id"]})
        assert seen["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"


@pytest.mark.requirement("a2a:approval")
async def test_only_what_was_asked_is_answered_and_only_with_what_can_be() -> None:
    async with house(provider=Provider.CLAUDE) as (there, guest):
        task, _ = await dialog_opened(there, guest)
        there.caller = TOOL
        there.agent.outcome = "not_understood"
        told = await guest.rpc("SendMessage", {"message": text_message("dunno", taskId=task["id"])})
        assert told["error"]["code"] == -32602
        assert "yes; no; 1: Yes; 2: No" in told["error"]["message"]
        for outcome in ("not_asked", "ended"):
            there.agent.outcome = outcome
            answer = {"message": text_message("yes", taskId=task["id"])}
            assert await guest.refusal("SendMessage", answer) == -32004
        there.agent.outcome = "answered"
        await there.agent.tell(Activity.WAITING_APPROVAL, dialog=OTHER)
        await until(lambda: _asks(there, task["id"], OTHER), 20.0)
        meant = {"urn:bullpen:dialog:v1": "d-1"}  # which is what the client was shown
        late = {"message": text_message("yes", taskId=task["id"], metadata=meant)}
        assert await guest.refusal("SendMessage", late) == -32004
        assert there.agent.answers == []


@pytest.mark.requirement("a2a:approval", "pitfall:8")
async def test_an_answer_that_is_sent_again_answers_nothing_else() -> None:
    async with house(provider=Provider.CLAUDE) as (there, guest):
        task, typed = await dialog_opened(there, guest)
        there.caller = TOOL
        message = text_message("yes", taskId=task["id"])
        asked = {"message": message, "configuration": {"returnImmediately": True}}
        there.agent.outcome = "not_understood"
        assert await guest.refusal("SendMessage", asked) == -32602
        there.agent.outcome = "answered"
        for _ in range(2):
            assert (await guest.ask("SendMessage", asked))["task"]["id"] == task["id"]
        await there.agent.tell(Activity.WAITING_APPROVAL, dialog=OTHER)
        await until(lambda: _asks(there, task["id"], OTHER), 20.0)
        again = (await guest.ask("SendMessage", asked))["task"]
        assert again["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert [each.dialog_id for each in there.agent.answers] == ["d-1"]
        await there.agent.answer(typed, "it is clean")
        await until(lambda: _is_over(there, task["id"]), 20.0)
        over = (await guest.ask("SendMessage", asked))["task"]
        assert over["status"]["state"] == "TASK_STATE_COMPLETED"
        assert there.agent.typed.empty()


async def _is_over(there: House, task_id: str) -> bool:
    return (await there.room.task(task_id)).state.is_over


async def _asks(there: House, task_id: str, dialog: Dialog) -> bool:
    return (await there.room.task(task_id)).dialog == dialog


@pytest.mark.requirement("a2a:approval")
async def test_a_dialog_that_nobody_can_put_into_words_is_told_after_a_moment() -> None:
    async with house(provider=Provider.CLAUDE) as (there, guest):
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("rm")}))
        await there.agent.next()
        await there.agent.tell(Activity.WAITING_APPROVAL)
        task = (await sending)["task"]
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        there.caller = TOOL
        answer = {"message": text_message("yes", taskId=task["id"])}
        assert await guest.refusal("SendMessage", answer) == -32004


@pytest.mark.requirement("a2a:approval")
async def test_a_question_that_was_answered_is_asked_at_no_other_door() -> None:
    async with house() as (there, guest):
        task = await asked(there, guest)
        first = await there.room.task(task["id"])
        assert (first.state, first.reason) == (TaskState.INPUT_REQUIRED, "which one?")
        follow_up = text_message("the left one", taskId=task["id"])
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": follow_up}))
        typed = await there.agent.next()
        assert (await there.room.task(task["id"])).state is TaskState.WORKING
        await there.agent.tell(Activity.WAITING_APPROVAL)
        assert (await sending)["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert (await there.room.task(task["id"])).state is TaskState.INPUT_REQUIRED
        await there.agent.tell(Activity.RUNNING)
        await there.agent.answer(typed, "done")
        done = await there.room.wait(task["id"], seconds=20)
        assert (done.state, done.text, done.receipt) == (TaskState.COMPLETED, "done", "answered")
        assert await there.room.tasks(state=TaskState.INPUT_REQUIRED) == ()
        assert {each.text for each in await there.room.tasks(state=TaskState.COMPLETED)} == {"done"}


@pytest.mark.requirement("a2a:approval")
async def test_who_subscribes_hears_of_an_answer_that_came_by_another_door() -> None:
    async with house() as (there, guest):
        task = await asked(there, guest)
        question = (await there.room.task(task["id"])).answers[-1]
        stream = guest.stream("SubscribeToTask", {"id": task["id"]})
        async with aclosing(stream), asyncio.timeout(20):
            assert "task" in await anext(stream)
            await there.room.send(Caller(), "codex", "the right one", reply_to=question.id)
            typed = await there.agent.next()
            await there.agent.answer(typed, "right")
            rest = [each async for each in stream]
        assert rest[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        chunks = [each["artifactUpdate"] for each in rest if "artifactUpdate" in each]
        assert [each["artifact"]["parts"] for each in chunks] == [[{"text": "right"}]]


@pytest.mark.requirement("a2a:approval")
async def test_a_screen_that_still_shows_what_was_answered_asks_nothing(home: Path) -> None:
    async with (
        SharedCodex(home / "app.sock") as codex,
        house(provider=Provider.CODEX, doors={"app_server": codex.address}) as (there, guest),
    ):
        codex.start_thread("t1")
        codex.say_as_user("t1", "typed by hand")
        codex.end("t1")
        sending = asyncio.create_task(guest.ask("SendMessage", {"message": text_message("go")}))
        await eventually(lambda: bool(codex.asked("turn/start")))
        await eventually(lambda: codex.is_running("t1"))
        codex.ask_approval("t1", "touch x")
        await there.agent.tell(Activity.WAITING_APPROVAL, dialog=DIALOG)  # it paints it, too
        task = (await sending)["task"]
        assert "$ touch x" in task["status"]["message"]["parts"][0]["text"]
        there.caller = TOOL
        answering = asyncio.create_task(
            guest.ask("SendMessage", {"message": text_message("yes", taskId=task["id"])})
        )
        await eventually(codex.questions[0].done)
        assert await codex.questions[0] == {"decision": "accept"}
        await until(lambda: _is_working(there, task["id"]), 20.0)
        codex.answer("t1", "done")
        codex.end("t1")
        assert (await answering)["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert there.agent.answers == []


async def _is_working(there: House, task_id: str) -> bool:
    return (await there.room.task(task_id)).state is TaskState.WORKING
