"""Going on, after a restart, with those who are told by post what becomes of their tasks."""

import asyncio
import logging
from typing import TYPE_CHECKING

from bullpen.api.errors import DaemonUnavailable
from bullpen.api.push import ListPush
from bullpen.connection import RequestTimeout, RpcError
from bullpen.servers.a2a.room import Room

if TYPE_CHECKING:
    from bullpen.servers.a2a.v1.push import Push

__all__ = ["resume_push"]

logger = logging.getLogger("bullpen.a2a")


async def resume_push(room: Room) -> None:
    """Begin to tell those who were not told to the end; without any, nothing heavy is loaded."""
    try:
        if await room.ask(ListPush()):
            kind = await asyncio.to_thread(_load)
            await room.part(kind).resume()
    except (DaemonUnavailable, RequestTimeout, RpcError) as error:
        logger.error("push notifications do not go on: %s", type(error).__name__)


def _load() -> "type[Push]":
    from bullpen.servers.a2a.v1.push import Push

    return Push
