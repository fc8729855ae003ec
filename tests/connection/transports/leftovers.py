"""What a transport might leave behind in the operating system."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import psutil

__all__ = ["descriptors", "wait_gone", "wait_threads", "wait_until"]


def descriptors() -> int:
    """Count the open file descriptors of this process."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


async def wait_gone(pid: int) -> None:
    """Wait until there is no such process, or only what its parent has not buried yet."""
    await wait_until(lambda: _is_gone(pid))


def _is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


async def wait_threads(count: int) -> None:
    """Wait until no more than so many threads are left."""
    await wait_until(lambda: threading.active_count() <= count)


async def wait_until(condition: Callable[[], bool]) -> None:
    """Look until something is the case that nobody tells us of."""
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
