"""A thousand sessions opened, used and closed, again and again, on one router.

Nothing may grow with the sessions that have been: tasks, descriptors, memory. What is compared is
the state after the last generation and after a first one, in which caches and pools were filled.
"""

import asyncio
import gc
import tracemalloc

import psutil

from bench.feeder import ANSWER, feeder
from bench.figure import Figure
from bullpen.connection import SocketTransport
from bullpen.connection.router import MessageRouter

__all__ = ["run"]

AT_A_TIME = 50  # sessions in use, of those that are open
WARM_UP = 2  # generations
TARGETS = {
    "tasks": 1.0,
    "descriptors": 1.0,
    "resident": 1.02,  # 65 bytes of each session
    "allocated by Python": 1.05,  # of what the soak itself allocates: less than a byte of each
}


async def run(quick: bool) -> list[Figure]:
    generations, sessions = (2, 20) if quick else (10, 1000)
    with feeder() as path:
        async with await MessageRouter.open(SocketTransport.unix(path)) as router:
            before, after = await before_and_after(router, generations, sessions)
            tracemalloc.start()  # only now: what it needs itself is resident, too
            try:
                traced = await before_and_after(router, generations, sessions)
            finally:
                tracemalloc.stop()
    before["allocated by Python"], after["allocated by Python"] = (
        each["allocated by Python"] for each in traced
    )
    return [
        Figure(
            row="soak",
            what=f"{name} after {generations} times {sessions} sessions",
            ours=after[name],
            theirs=before[name],
            unit="" if name in ("tasks", "descriptors") else "KiB",
            against="after a warm-up",
            at_most=target,
        )
        for name, target in TARGETS.items()
    ]


async def before_and_after(
    router: MessageRouter, generations: int, sessions: int
) -> list[dict[str, float]]:
    """Return the state after a warm-up, and after that many generations more."""
    states = []
    for count in (WARM_UP, generations):
        for _ in range(count):
            await use(router, sessions)
        states.append(state())
    return states


async def use(router: MessageRouter, sessions: int) -> None:
    """Open so many sessions, have a turn in each, and close them."""
    opened = [await router.create_session() for _ in range(sessions)]
    waiting = iter(opened)

    async def work() -> None:
        for session_id, channel in waiting:
            async with channel:
                await router.request("session.send", {"sessionId": session_id, "prompt": "go on"})
                if await channel.read_streaming() != ANSWER:
                    raise AssertionError("the answer is not what the server said")

    await asyncio.gather(*(work() for _ in range(AT_A_TIME)))


def state() -> dict[str, float]:
    """Return what must not grow."""
    gc.collect()
    process = psutil.Process()
    return {
        "tasks": len(asyncio.all_tasks()),
        "descriptors": process.num_fds(),
        "resident": process.memory_info().rss / 2**10,
        "allocated by Python": tracemalloc.get_traced_memory()[0] / 2**10,
    }
