"""Taking turns: A B C, A B C, … and the best round of each.

What is counted is the processor time of this process: what a shared machine gives to others
meanwhile is nobody's merit or fault. Both ends of a round trip are in this process, so on a quiet
machine it is the time on the wall.
"""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

__all__ = ["Measure", "best_rates", "rate"]

CHUNK = 8  # between two looks at the clock, which should not count

Measure = Callable[[], Awaitable[float]]
"""One short round; returns how many per second of processor time."""


async def best_rates(rounds: int, measures: Mapping[str, Measure]) -> dict[str, float]:
    """Return the best of several rounds of each, taken in turn."""
    best = dict.fromkeys(measures, 0.0)
    for _ in range(rounds):
        for name, measure in measures.items():
            gc.collect()  # nobody pays for what another left behind
            best[name] = max(best[name], await measure())
    return best


async def rate(once: Callable[[], Awaitable[Any]], *, at_a_time: int, seconds: float) -> float:
    """Return how often per second something is done, so many at a time, for a while."""
    done = 0
    began = time.process_time()
    until = began + seconds

    async def repeat() -> None:
        nonlocal done
        while True:
            for _ in range(CHUNK):
                await once()
            done += CHUNK
            if time.process_time() >= until:
                break

    await asyncio.gather(*(repeat() for _ in range(at_a_time)))
    return done / (time.process_time() - began)
