"""What A2A peers do through the daemon is done in their own name, and never in the user's."""

import asyncio
from contextlib import aclosing

import pytest

from bullpen.api.errors import reason_of
from bullpen.connection import RpcError
from bullpen.model.deliveries import ReceiptState
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.room import ANONYMOUS, Caller, Output, Room, Scope
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import SECONDS, room_of_a_daemon

CONTROLLER = Caller(name="a2a:ci", scopes=frozenset(Scope))


async def finished(room: Room, task_id: str) -> Task:
    async with asyncio.timeout(SECONDS):
        return await room.wait(task_id, seconds=SECONDS)


async def test_a_guest_asks_and_finds_the_answer_where_it_asked() -> None:
    async with room_of_a_daemon() as (room, peer), wrapped("codex") as agent:
        sent = await room.send(ANONYMOUS, "codex", "review this")
        assert (sent.state, sent.sender, sent.recipient) == (TaskState.SUBMITTED, "a2a", "codex")
        asked = await agent.next()
        assert asked.sender == "a2a"
        await agent.step(asked, ReceiptState.SEEN)
        await agent.answer(asked, "it is fine")
        task = await finished(room, sent.id)
        assert (task.state, task.text) == (TaskState.COMPLETED, "it is fine")
        # Nobody reads a guest's mailbox: what answers him is not left in one.
        assert (await peer.ask("mail.inbox", agent="a2a"))["deliveries"] == []
        assert "a2a" not in {each["name"] for each in await peer.ask("agent.contacts")}


async def test_an_agent_can_answer_a_guest_and_not_begin_with_one() -> None:
    async with room_of_a_daemon() as (room, peer), wrapped("codex") as agent:
        sent = await room.send(ANONYMOUS, "codex", "review this")
        await agent.step(await agent.next(), ReceiptState.SEEN)
        await peer.ask("mail.reply", content="done", to_message=sent.id, secret=agent.secret)
        assert (await finished(room, sent.id)).text == "done"
        with pytest.raises(Exception, match="a2a"):
            await peer.ask("mail.send", to="a2a", content="hello?", secret=agent.secret)


async def test_only_who_may_control_interrupts_and_cancels_what_others_asked_for() -> None:
    async with room_of_a_daemon() as (room, peer), wrapped("codex") as agent:
        sent = await peer.ask("mail.send", to="codex", content="a long one")
        task_id = sent["message"]["id"]
        await agent.step(await agent.next(), ReceiptState.SEEN)
        with pytest.raises(RpcError) as refused:
            await room.cancel(ANONYMOUS, task_id)
        assert reason_of(refused.value) == "not_permitted"
        with pytest.raises(RpcError) as refused:
            await room.interrupt(ANONYMOUS, "codex")
        assert reason_of(refused.value) == "not_permitted"
        assert agent.interrupts == 0
        await room.interrupt(CONTROLLER, "codex")
        assert agent.interrupts == 1
        assert (await room.cancel(CONTROLLER, task_id)).state is TaskState.CANCELED


async def test_a_guest_cancels_its_own_task_and_not_that_of_another() -> None:
    other = Caller(name="a2a:other")
    async with room_of_a_daemon() as (room, _), wrapped("codex"):
        sent = await room.send(ANONYMOUS, "codex", "review this")
        with pytest.raises(RpcError):
            await room.cancel(other, sent.id)
        assert (await room.cancel(ANONYMOUS, sent.id)).state is TaskState.CANCELED
        with pytest.raises(RpcError) as refused:
            await room.cancel(ANONYMOUS, sent.id)
        assert reason_of(refused.value) == "task_over"


async def test_an_agent_that_shows_its_secret_speaks_for_itself() -> None:
    async with room_of_a_daemon() as (room, _), wrapped("claude") as claude, wrapped("codex"):
        assert await room.whose(claude.secret) == "claude"
        assert await room.whose("made up") is None
        caller = Caller(name="claude", secret=claude.secret)
        assert (await room.send(caller, "codex", "review this")).sender == "claude"


async def test_every_watcher_is_told_each_change_to_the_end() -> None:
    async with room_of_a_daemon() as (room, _), wrapped("codex") as agent:
        sent = await room.send(ANONYMOUS, "codex", "review this")

        async def follow() -> list[Task | Output]:
            async with asyncio.timeout(SECONDS), aclosing(room.watch(sent.id)) as told:
                return [each async for each in told]

        following = [asyncio.create_task(follow()) for _ in range(20)]
        asked = await agent.next()
        await agent.step(asked, ReceiptState.SEEN)
        await agent.answer(asked, "it is fine")
        for told in await asyncio.gather(*following):
            last = told[-1]
            assert isinstance(last, Task)
            assert (last.state, last.text) == (TaskState.COMPLETED, "it is fine")
        over = [each async for each in room.watch(sent.id)]
        assert [each.state for each in over if isinstance(each, Task)] == [TaskState.COMPLETED]


async def test_who_watches_what_is_not_there_is_told_so() -> None:
    async with room_of_a_daemon() as (room, _):
        assert await room.find_task("m-none") is None
        with pytest.raises(RpcError) as refused:
            await anext(room.watch("m-none"))
        assert reason_of(refused.value) == "message_not_found"
