"""Handing an answer back to the agent of Synapse that asked.

Such an agent does not look how its task is. What it asks names itself, where it is served, and a
task of its own that waits; whoever was asked posts the answer there. We do so for agents of this
machine that are not ours, at the address under which everybody knows them: that somebody else is
named, or another address, is no reason to post there.

That an answer is owed is kept with the task until it is handed back, or cannot be: so the next
daemon goes on. One that ended in the very moment may hand it back a second time.
"""

import asyncio
import logging
from contextlib import aclosing
from typing import Any, Final

import msgspec

from bullpen.api.errors import DaemonUnavailable, reason_of
from bullpen.api.push import RemovePush, SavePush
from bullpen.connection import RequestTimeout, RpcError
from bullpen.errors import BullpenError
from bullpen.model.push import OWED, PushAddress
from bullpen.model.reasons import Reason
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.room import PEER, Room
from bullpen.servers.a2a.v1.posting import Poster, Target, Unanswered

__all__ = ["hand_back", "owe_answer"]

logger = logging.getLogger("bullpen.a2a")

WAITING: Final = frozenset({"wait", "notify"})
"""The modes of asking in which an answer is wanted."""
POST_SECONDS = 10.0
PAUSES_SECONDS = (1.0, 4.0, 15.0)  # between tries
DAEMON_SECONDS = 5.0  # until it is asked again


class _Sender(msgspec.Struct):
    sender_id: str
    sender_endpoint: str


class _Asked(msgspec.Struct):
    """What an agent of Synapse says with a message that it wants answered."""

    sender: _Sender
    sender_task_id: str
    response_mode: str


async def owe_answer(room: Room, task: Task, metadata: dict[str, Any]) -> None:
    """Have the answer to a task posted to who asked, if he said with it that he waits for it."""
    try:
        asked = msgspec.convert(metadata, _Asked)
    except msgspec.ValidationError:
        return
    if asked.response_mode not in WAITING:
        return
    owed = PushAddress(
        task_id=task.id,
        id=OWED,
        agent=task.recipient,
        owner=PEER,
        is_local=True,
        config={OWED: msgspec.to_builtins(asked)},
    )
    try:
        if not await room.ask(SavePush(owed)):
            logger.warning("the answer of %s is owed only until the daemon ends", task.id)
    except (BullpenError, TimeoutError) as error:
        logger.warning("that the answer of %s is owed is not kept: %s", task.id, error)
    hand_back(room, owed)


def hand_back(room: Room, owed: PushAddress) -> None:
    """Have an answer posted that is owed, as soon as there is one."""
    room.begin(_hand_back(room, owed))


async def _hand_back(room: Room, owed: PushAddress) -> None:
    asked = msgspec.convert(owed.config[OWED], _Asked)
    while True:
        try:
            if (ended := await _ended(room, owed.task_id)) is not None:
                await _post(room, ended, asked)
            await room.ask(RemovePush(owed.task_id, owed.id))
            return
        except (DaemonUnavailable, RequestTimeout):
            await asyncio.sleep(DAEMON_SECONDS)
        except RpcError as error:
            if reason_of(error) != Reason.STORE_UNAVAILABLE.word:
                logger.warning("the answer of %s is not handed back: %s", owed.task_id, error)
                return
            await asyncio.sleep(DAEMON_SECONDS)


async def _ended(room: Room, task_id: str) -> Task | None:
    """Return a task when it is over; None if it is forgotten."""
    if await room.find_task(task_id) is None:
        return None
    async with aclosing(room.watch(task_id)) as told:
        async for each in told:
            if isinstance(each, Task) and each.state.is_over:
                return each
    return None


async def _is_known(room: Room, sender: _Sender) -> bool:
    """Whether somebody is an agent of this machine that is not ours, and is where he says."""
    named = [
        each
        for each in await room.contacts()
        if sender.sender_id in (each.name, *each.also) and not each.is_wrapped
    ]
    places = {each.endpoint for each in named if each.port is not None}
    return sender.sender_endpoint.rstrip("/") in places


async def _post(room: Room, task: Task, asked: _Asked) -> None:
    url = f"{asked.sender.sender_endpoint.rstrip('/')}/tasks/send"
    target = Target(url, {}, is_local=True)
    payload = msgspec.json.encode(_answer(task, asked.sender_task_id))
    poster, why = Poster(POST_SECONDS), ""
    for pause in (*PAUSES_SECONDS, None):
        try:
            if not await _is_known(room, asked.sender):
                why = "nobody is known at that address"  # or not yet
            elif (status := await poster.post(target, payload)) >= 500:
                why = f"it answered {status}"
            else:
                return  # it has it, or does not want it
        except Unanswered as error:
            why = str(error)
        if pause is not None:
            await asyncio.sleep(pause)
    logger.warning("the answer of %s is not handed back: %s", task.id, why)


def _answer(task: Task, waiting: str) -> dict[str, Any]:
    text = task.text or task.reason or f"it is {task.state.value}"
    metadata: dict[str, Any] = {
        "sender": {"sender_id": task.recipient},
        "response_mode": "silent",
        "in_reply_to": waiting,
    }
    if task.state is not TaskState.COMPLETED:
        metadata["reply_status"] = "failed"
        metadata["reply_error"] = {"code": task.state.value, "message": text}
    message = {"role": "agent", "parts": [{"type": "text", "text": text}]}
    return {"message": message, "metadata": metadata}
