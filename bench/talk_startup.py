"""How long the commands take that agents run to talk: `bullpen send`, and `bullpen mcp`.

A message is sent to an agent that fetches it some other time, by a real daemon; the pump is started
as an agent program starts it, and asked what every such program asks first. The time on the wall
from before the process is started, the best of several: what is left is the command's own.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Mapping

import psutil

from bench.figure import Figure
from bench.observe import environment
from bench.seats import PROGRAM
from bench.talk import limited, loaded, talking_daemon

__all__ = ["run"]

ROW = "talk-startup"
START_MS = 100.0
RESIDENT_MIB = 20.0
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}


async def run(quick: bool) -> list[Figure]:
    runs = 1 if quick else 25
    async with talking_daemon() as (_, home, callers):
        await callers.agent("codex")
        env = environment(home)
        sent = min([await asyncio.to_thread(send_seconds, env) for _ in range(runs + 1)])
        pumps = [await asyncio.to_thread(pump_cost, env) for _ in range(runs + 1)]
        bare = min([await asyncio.to_thread(bare_seconds, env) for _ in range(runs + 1)])
    started = min(seconds for seconds, _ in pumps)
    resident = max(mib for _, mib in pumps)
    return [
        loaded(ROW),
        limited(ROW, "bullpen send, until it is accepted", 1000 * sent, START_MS, "ms"),
        limited(ROW, "bullpen mcp, until it has answered", 1000 * started, START_MS, "ms"),
        limited(ROW, "resident, bullpen mcp", resident, RESIDENT_MIB, "MiB"),
        limited(ROW, "a Python that does nothing", 1000 * bare, START_MS, "ms", counts=False),
    ]


def send_seconds(env: Mapping[str, str]) -> float:
    """Return how long it takes to send a message from the command line."""
    command = [PROGRAM, "send", "codex", "please look at the parser"]
    began = time.perf_counter()
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL, timeout=30)
    return time.perf_counter() - began


def bare_seconds(env: Mapping[str, str]) -> float:
    """Return how long a Python takes that does nothing."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=env, check=True, timeout=30)
    return time.perf_counter() - began


def pump_cost(env: Mapping[str, str]) -> tuple[float, float]:
    """Return how long a pump takes to answer from its start, and what it then holds, in MiB."""
    began = time.perf_counter()
    pipe = subprocess.PIPE
    with subprocess.Popen([PROGRAM, "mcp"], env=env, stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(HELLO).encode() + b"\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        took = time.perf_counter() - began
        if "result" not in answer:
            raise AssertionError(f"it was refused: {answer}")
        resident = psutil.Process(process.pid).memory_info().rss / 2**20
        process.stdin.close()
        process.wait(30)
    return took, resident
