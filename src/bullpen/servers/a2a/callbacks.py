"""Handing an answer back to the agent of Synapse that asked.

Such an agent does not look how its task is. What it asks names itself, where it is served, and a
task of its own that waits; whoever was asked posts the answer there. We do so for agents of this
machine that are not ours, at the address under which everybody knows them: that somebody else is
named, or another address, is no reason to post there.
"""

import asyncio
import logging
from contextlib import aclosing
from typing import Any, Final

import msgspec

from bullpen.errors import BullpenError
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.room import Room
from bullpen.servers.a2a.v1.posting import Poster, Target, Unanswered

__all__ = ["begin_to_hand_back"]

logger = logging.getLogger("bullpen.a2a")

WAITING: Final = frozenset({"wait", "notify"})
"""The modes of asking in which an answer is wanted."""
POST_SECONDS = 10.0
PAUSES_SECONDS = (1.0, 4.0)  # between tries


class _Sender(msgspec.Struct):
    sender_id: str
    sender_endpoint: str


class _Asked(msgspec.Struct):
    """What an agent of Synapse says with a message that it wants answered."""

    sender: _Sender
    sender_task_id: str
    response_mode: str


def begin_to_hand_back(room: Room, task: Task, metadata: dict[str, Any]) -> None:
    """Have the answer to a task posted to who asked, if he said with it that he waits for it."""
    try:
        asked = msgspec.convert(metadata, _Asked)
    except msgspec.ValidationError:
        return
    if asked.response_mode in WAITING:
        room.begin(_hand_back(room, task, asked))


async def _hand_back(room: Room, task: Task, asked: _Asked) -> None:
    try:
        async with aclosing(room.watch(task.id)) as told:
            async for each in told:
                if isinstance(each, Task) and each.state.is_over:
                    await _post(room, each, asked)
                    return
    except (BullpenError, TimeoutError) as error:
        logger.warning("the answer of %s is not handed back: %s", task.id, type(error).__name__)


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
