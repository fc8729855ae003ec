"""How long it takes from a hook's first instruction until somebody who follows is told.

The shim is started as an agent program starts it, the daemon is a process of its own, and the
follower reads its socket. The time on the wall counts: it is what an operator waits for.
"""

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

from bench.figure import Figure
from bench.observe import daemon, environment, percentile
from bullpen.agents.hooks import shim

__all__ = ["run"]

TARGET_MS = 300.0
STEPS = {"UserPromptSubmit": "running", "Stop": "idle"}


async def run(quick: bool) -> list[Figure]:
    pairs = 3 if quick else 110
    late: list[float] = []
    async with daemon() as (_, home, follower):
        await follower.ask("subscribe")
        for number in range(pairs + 1):
            for event, activity in STEPS.items():
                payload = {
                    "hook_event_name": event,
                    "session_id": "bench",
                    "cwd": str(home),
                    "prompt_id": str(number),
                }
                began = time.perf_counter()
                sent = asyncio.create_task(asyncio.to_thread(send, event, payload, home))
                await follower.until(activity)
                late.append(time.perf_counter() - began)
                await sent
    milliseconds = [1000 * each for each in late[2:]]  # the first turn warms up
    return [
        Figure(
            row="hook-latency",
            what=f"told after a hook, {percent} of 100",
            ours=percentile(milliseconds, percent),
            theirs=TARGET_MS,
            unit="ms",
            against="the most it may be",
            at_most=1.0 if percent == 95 else None,
        )
        for percent in (50, 95)
    ]


def send(event: str, payload: dict[str, str], home: Path) -> None:
    """Run the shim as a hook does."""
    subprocess.run(
        [sys.executable, "-I", "-S", shim.__file__, "claude", event],
        input=json.dumps(payload).encode(),
        env=environment(home),
        check=True,
        timeout=10,
    )
