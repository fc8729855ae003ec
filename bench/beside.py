"""Having one of our own programs at work beside a measurement."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

__all__ = ["Beside", "beside"]


class Beside(NamedTuple):
    """A program that has said that it is ready."""

    pid: int
    said: str


@asynccontextmanager
async def beside(module: str, *arguments: str) -> AsyncIterator[Beside]:
    """Run a module in a process of its own for a block, from its first line on."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield Beside(process.pid, (await process.stdout.readline()).decode())
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
