"""Tasks for a wrapped agent: how soon each is typed and answered, and whether by its own reply.

A real daemon, a real wrapper, and the dummy in it, which says what it was told and takes no time
for that. One task after the other: the time from before it is sent until it is typed, and until
who sent it has the reply. Each reply must be that of its own task, to the letter, and none is left.
"""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from bench.figure import Figure
from bench.observe import environment
from bench.talk import Caller, limited, loaded, percentiles, talking_daemon

__all__ = ["run", "wrapped_dummy"]

ROW = "wrapped-tasks"
TASKS = 1000
NAME = "dummy"
SECONDS = 30.0


async def run(quick: bool) -> list[Figure]:
    tasks = 5 if quick else TASKS
    typed: list[float] = []
    answered: list[float] = []
    own = 0
    async with talking_daemon() as (_, home, callers), wrapped_dummy(home):
        user = await callers.user()
        await until_ready(user)
        for number in range(tasks + 1):
            text = f"task {number} of {os.urandom(4).hex()}"
            began, at = time.perf_counter(), datetime.now(UTC)
            sent = await user.ask("mail.send", to=NAME, content=text)
            name = sent["message"]["id"]
            waited = await user.ask(
                "mail.wait", message_id=name, take=True, timeout_seconds=SECONDS
            )
            answered.append(time.perf_counter() - began)
            reply = waited["reply"]["content"] if waited["reply"] else None
            own += reply == f"[DUMMY] You said: [from user] {text}"
            trace = await user.ask("mail.trace", message_id=name)
            typed.append((injected_at(trace["receipts"]) - at).total_seconds())
        left = len((await user.ask("mail.inbox"))["deliveries"])
        dead = len(await user.ask("mail.dead_letters"))
    return [
        loaded(ROW),
        *percentiles(ROW, "typed into an idle agent", typed[1:], p50=50, p95=50),
        *percentiles(
            ROW, "answered by an agent that takes no time", answered[1:], p50=100, p95=100
        ),
        Figure(
            row=ROW,
            what="tasks with their own reply, to the letter",
            ours=own,
            theirs=tasks + 1,
            unit="",
            against="tasks",
            at_least=1.0,
        ),
        limited(ROW, "replies and messages left over, and one", 1 + left + dead, 1, ""),
    ]


def injected_at(receipts: list[dict[str, str]]) -> datetime:
    """Return when a message was typed."""
    [at] = [each["at"] for each in receipts if each["state"] == "injected"]
    return datetime.fromisoformat(at)


@asynccontextmanager
async def wrapped_dummy(
    home: Path, name: str = NAME, *, seconds: float = 0
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a dummy in a wrapper that nobody looks at, for a block; it takes so long for a task."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "bullpen.wrapper", "--no-start", "--name", name, "--", "dummy"),
        env={**environment(home), "DUMMY_AGENT_SECONDS": str(seconds)},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def until_ready(user: Caller, name: str = NAME) -> None:
    """Wait until an agent can be talked to."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = {each["name"]: each for each in await user.ask("agent.contacts")}
            if name in found and found[name]["activity"] == "idle":
                return
            await asyncio.sleep(0.02)
