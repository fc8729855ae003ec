"""An agent without a terminal that says what it was told: `python -m bench.echo_agent SOCKET NAME`.

It is a process of its own, announces itself to the daemon as a wrapper does, fetches its messages
as soon as there are any, and answers each. Told to count to a number it waits for another message,
and says each number before it answers. It prints a line when it is there.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.beside import beside
from bench.observe import LINE_LIMIT
from bench.talk import Caller

__all__ = ["COUNT", "echo_agent"]

COUNT = "count to "
AT_ONCE = 64
WAIT_SECONDS = 50.0


@asynccontextmanager
async def echo_agent(home: Path, name: str) -> AsyncIterator[None]:
    """Have such an agent at the daemon of a home, for a block."""
    async with beside("bench.echo_agent", str(home / "bullpen/run/bullpend.sock"), name):
        yield


async def main(socket: str, name: str) -> None:
    """Answer until the daemon is gone."""
    caller = Caller(*await asyncio.open_unix_connection(socket, limit=LINE_LIMIT))
    await caller.register(name)
    print("ready", flush=True)
    while True:
        for message in await fetch(caller, AT_ONCE):
            await answer(caller, message)


async def fetch(caller: Caller, limit: int) -> list[dict[str, Any]]:
    """Return the next messages, if any come within a while."""
    found = await caller.ask("mail.inbox", take=True, limit=limit, timeout_seconds=WAIT_SECONDS)
    return [each["message"] for each in found["deliveries"]]


async def answer(caller: Caller, message: dict[str, Any]) -> None:
    """Say what was said, or count first."""
    said, to = message["content"], {"to_message": message["id"]}
    if said.startswith(COUNT):
        while not await fetch(caller, 1):
            pass
        for number in range(int(said.removeprefix(COUNT))):
            await caller.ask("mail.reply", type="progress", content=f"number {number}", **to)
    await caller.ask("mail.reply", type="task_complete", content=f"You said: {said}", **to)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]), debug=False)
