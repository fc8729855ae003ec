"""Agents that write to each other without an end are cut, however they do it."""

import asyncio

import pytest

from bullpen.mail.doors import Rung
from bullpen.mail.errors import MessageRefused
from bullpen.model.messages import MessageType
from bullpen.model.reasons import Reason
from tests.mail.rooms import Room, ScriptedDoor


@pytest.mark.requirement("talk:loop")
async def test_two_that_send_on_whatever_they_get_are_cut_before_they_are_thousands() -> None:
    door = ScriptedDoor(Rung.PTY, "alice", "bob")
    async with Room.open(door) as room:
        reason: Reason | None = None
        waiting = [("alice", await room.send("alice", "hello"))]
        sent = 0
        while waiting:
            agent, cause = waiting.pop(0)
            other = "bob" if agent == "alice" else "alice"
            message = await room.mailboxes.find(cause)
            room.causes[agent] = message
            try:  # each sends it on, and answers it: twice as many every time
                waiting.append((other, await room.send(other, "hello", sender=agent)))
                sent += 1
                if message.from_agent == other and message.type is MessageType.TASK_REQUEST:
                    more = {"reply_to": cause, "type": MessageType.TASK_RESPONSE}
                    waiting.append((other, await room.send(other, "yes", sender=agent, **more)))
            except MessageRefused as refused:
                reason = refused.reason
            room.advance(1)
            await asyncio.sleep(0)
        assert reason is Reason.MESSAGE_LOOP
        assert sent < 150


@pytest.mark.requirement("talk:loop")
async def test_who_tells_of_his_progress_is_not_cut() -> None:
    async with Room.open(ScriptedDoor(Rung.PTY, "boss", "coder")) as room:
        cause = await room.mailboxes.find(await room.send("coder", sender="boss"))
        room.causes["coder"] = cause
        for number in range(200):
            await room.send("boss", f"{number} %", sender="coder", type=MessageType.INFO)
            room.advance(1)
