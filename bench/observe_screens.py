"""How long it takes from a change on a screen until somebody who follows is told.

A real tmux pane shows what an agent shows: it works, it asks, it works again. Between two changes
there is a pause of another length each time, so that they meet the looks at any phase.
"""

import asyncio
import random
import time

from bench.figure import Figure
from bench.observe import AGENT, RUNNING, WAITING, daemon, percentile
from bullpen.testing.tmux import PrivateTmux

__all__ = ["run"]

TARGET_MS = 1200.0
CLEAR = "\x1b[2J\x1b[H"


async def run(quick: bool) -> list[Figure]:
    changes = 2 if quick else 42
    pauses = random.Random(1)
    late: list[float] = []
    async with PrivateTmux(width=120, height=40) as tmux:
        pane = await tmux.new_pane(f"exec bash -c '{AGENT}'")
        async with daemon(tmux) as (_, _, follower):
            await follower.ask("subscribe")
            await tmux.show(pane, CLEAR + RUNNING)
            await follower.until("running")
            for number in range(changes):
                await asyncio.sleep(pauses.random())
                screen, activity = ((RUNNING, "running"), (WAITING, "waiting_approval"))[
                    number % 2 == 0
                ]
                began = time.perf_counter()
                await tmux.show(pane, CLEAR + screen)
                await follower.until(activity)
                late.append(1000 * (time.perf_counter() - began))
    return [
        Figure(
            row="screen-latency",
            what=f"told after a change on a screen, {percent} of 100",
            ours=percentile(late, percent),
            theirs=TARGET_MS,
            unit="ms",
            against="the most it may be",
            at_most=1.0 if percent == 95 else None,
        )
        for percent in (50, 95)
    ]
