"""How long it takes until a message is accepted: it is kept on disk, and outlives the daemon.

The daemon is a process of its own; agents send to agents that fetch their messages some other time.
One message is sent after the other, then a hundred at the same time over as many connections, again
and again. Meanwhile a task in the daemon wants to run every millisecond: by how much it is late is
for how long the event loop was blocked, by its own work or because the machine was busy.
"""

import asyncio
import time

from bench.beating import longest_block
from bench.figure import Figure
from bench.talk import Caller, call, limited, loaded, percentiles, talking_daemon, used_by

__all__ = ["run"]

ROW = "mail-accept"
SENDERS = 100
AGENTS = 35
TEXT = "please look at the parser, " * 10
BLOCK_MS = 20.0


async def run(quick: bool) -> list[Figure]:
    sequential, bursts = (20, 1) if quick else (2000, 40)
    async with talking_daemon() as (pid, home, callers):
        agents = [await callers.agent(f"a{number}") for number in range(AGENTS)]
        senders = [await callers.user() for _ in range(SENDERS)]

        def line(number: int) -> bytes:
            sender, to = agents[number % AGENTS], agents[(number + 1) % AGENTS]
            return call("mail.send", to=to.name, content=TEXT, secret=sender.secret)

        await asyncio.gather(*(timed(each, line(0)) for each in senders))  # warms up
        await longest_block(home / "beside")
        one = [await timed(senders[number % SENDERS], line(number)) for number in range(sequential)]
        alone = await longest_block(home / "beside")
        many: list[float] = []
        before = used_by(pid)
        for burst in range(bursts):
            lines = [line(burst + number) for number in range(SENDERS)]
            many += await asyncio.gather(*map(timed, senders, lines))
        used = (used_by(pid) - before) / bursts
        together = await longest_block(home / "beside")
    return [
        loaded(ROW),
        *percentiles(ROW, "accepted, one after the other", one, p50=5, p99=20),
        *percentiles(ROW, "accepted, 100 at the same time", many, p50=5, p99=20),
        limited(ROW, "a hundred, by the daemon's processor time", 1000 * used, BLOCK_MS, "ms"),
        limited(ROW, "longest block, one after the other", 1000 * alone["late"], BLOCK_MS, "ms"),
        limited(ROW, "longest block, 100 at a time", 1000 * together["late"], BLOCK_MS, "ms"),
        limited(ROW, "… of it the loop's own work", 1000 * together["work"], BLOCK_MS, "ms"),
    ]


async def timed(sender: Caller, line: bytes) -> float:
    """Return how long it took until a message was accepted."""
    began = time.perf_counter()
    answer = await sender.exchange(line)
    took = time.perf_counter() - began
    if b'"result"' not in answer:
        raise AssertionError(f"it was not accepted: {answer!r}")
    return took
