"""`POST /tasks/send-priority`: how long a hundred clients wait until their task is taken.

The daemon, ten wrapped dummies that are busy with their first task, and a hundred clients that stay
connected, all real processes and sockets. What is *in parallel* can be two things, so both are
measured. At a rate: each client has its own plan, a task every second, and sends when it is due,
whatever became of the others; the time counts from when it was due. At once: all hundred send in
the same moment, again and again; then each waits for half of the others.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack

from bench.a2a import a2a_port
from bench.figure import Figure
from bench.talk import limited, loaded, percentiles, talking_daemon, used_by
from bench.web import Web, post
from bench.wrapped_tasks import until_ready, wrapped_dummy

__all__ = ["run"]

ROW = "a2a-priority"
CLIENTS = 100
AGENTS = 10
EVERY_SECONDS = 1.0
TASK_SECONDS = 600.0  # agents are at work for minutes, and not what is measured
PRIORITY = 3  # the agents are not to be interrupted
PAUSE_SECONDS = 1.0
TEXT = "please look at the parser"


async def run(quick: bool) -> list[Figure]:
    agents, each, bursts = (1, 1, 1) if quick else (AGENTS, 20, 20)
    async with (
        talking_daemon(beside=None) as (pid, home, callers),
        AsyncExitStack() as stack,
    ):
        names = [f"dummy-{number}" for number in range(agents)]
        for name in names:
            await stack.enter_async_context(wrapped_dummy(home, name, seconds=TASK_SECONDS))
        user = await callers.user()
        for name in names:
            await until_ready(user, name)
        port = await a2a_port(home)
        webs = [await Web.connect(port) for _ in range(CLIENTS)]
        requests = [request(names[number % agents]) for number in range(CLIENTS)]
        await asyncio.gather(*map(timed, webs, requests))  # warms up
        planned = await at_a_rate(webs, requests, each)
        await asyncio.sleep(PAUSE_SECONDS)
        together: list[float] = []
        used = 0.0
        for _ in range(bursts):
            before = used_by(pid)
            together += await asyncio.gather(*map(timed, webs, requests))
            used += used_by(pid) - before
            await asyncio.sleep(PAUSE_SECONDS)
        for web in webs:
            web.close()
    rate = f"{CLIENTS} clients, {CLIENTS / EVERY_SECONDS:g} a second"
    cost = 1000 * used / bursts
    return [
        loaded(ROW),
        *percentiles(ROW, f"send-priority, {rate}", planned, p50=5, p99=20),
        *percentiles(ROW, f"send-priority, {CLIENTS} at once", together, p50=5, p99=20),
        limited(ROW, "such a hundred, by the daemon's processor time", cost, 20, "ms"),
    ]


def request(agent: str) -> bytes:
    """Return a task for an agent."""
    message = {"role": "user", "parts": [{"type": "text", "text": TEXT}]}
    return post(f"/agents/{agent}/tasks/send-priority?priority={PRIORITY}", {"message": message})


async def timed(web: Web, request: bytes) -> float:
    """Return how long it took until a task was taken."""
    began = time.perf_counter()
    await web.exchange(request)
    return time.perf_counter() - began


async def at_a_rate(webs: Sequence[Web], requests: Sequence[bytes], each: int) -> list[float]:
    """Have each client send at its own times; return how late after these it was answered."""
    began = time.perf_counter() + 0.5
    took: list[float] = []

    async def keep_sending(number: int) -> None:
        for turn in range(each):
            due = began + EVERY_SECONDS * (turn + number / len(webs))
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            await webs[number].exchange(requests[number])
            took.append(time.perf_counter() - due)

    await asyncio.gather(*map(keep_sending, range(len(webs))))
    return took
