"""Going on, after a restart, with those who are told by post what becomes of their tasks."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.push import ListPush
from bullpen.connection import RequestTimeout, RpcError
from bullpen.model.push import PushAddress
from bullpen.servers.a2a.room import Room

if TYPE_CHECKING:
    from bullpen.servers.a2a.v1.push import Push

__all__ = ["resume_push"]

logger = logging.getLogger("bullpen.a2a")


async def resume_push(room: Room) -> None:
    """Begin to tell those who were not told to the end; without any, nothing heavy is loaded."""
    try:
        kept = await room.ask(ListPush())
        if owed := [each for each in kept if each.is_owed]:
            hand_back = await asyncio.to_thread(_load_answers)
            for each in owed:
                hand_back(room, each)
        if len(owed) < len(kept):
            kind = await asyncio.to_thread(_load)
            await room.part(kind).resume()
    except (DaemonUnavailable, RequestTimeout, RpcError) as error:
        logger.error("push notifications do not go on: %s", type(error).__name__)


def _load() -> "type[Push]":
    from bullpen.servers.a2a.v1.push import Push

    return Push


def _load_answers() -> Callable[[Room, PushAddress], None]:
    from bullpen.servers.a2a.callbacks import hand_back

    return hand_back
