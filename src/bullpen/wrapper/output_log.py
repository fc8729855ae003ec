"""Keeping all that a program writes in a file, byte by byte, as far back as is useful."""

import asyncio
import logging
import os
from pathlib import Path

from bullpen.wrapper.terminal import AgentTerminal

__all__ = ["keep_output"]

logger = logging.getLogger("bullpen.wrapper")

MAX_BYTES = 10 * 2**20  # of one file; the one before it is kept, too


async def keep_output(terminal: AgentTerminal, path: Path) -> None:
    """Append what is written to a file until the terminal is closed.

    A disk that is too slow for the program loses a part, one that is full all of it; the program
    goes on.
    """
    while True:
        subscription = terminal.subscribe(is_viewer=False)
        try:
            async for data in subscription:
                await asyncio.to_thread(_append, path, data)
        except OSError as error:
            logger.warning("the output is not kept any more: %s", error)
            return
        finally:
            subscription.close()
        if not subscription.is_dropped:
            return
        logger.warning("a part of the output is not kept: the disk is slow")


def _append(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size > MAX_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
            os.close(descriptor)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)
