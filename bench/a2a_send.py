"""A2A's `SendMessage` to an echo agent: ours, kept on disk, beside the official SDK's, in memory.

Two servers on this machine, asked in turn by the same client over the same sockets, JSON-RPC both:
the SDK's default request handler with its memory store and an agent that is a function; and our
daemon, with an agent that is a process of its own, fetches its messages and answers. *Accepted* is
a request that asks to be answered at once with the task; *answered* is one that waits for what the
agent says. First one after the other, then sixteen at a time.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

from bench.a2a import a2a_port
from bench.echo_agent import echo_agent
from bench.figure import Figure
from bench.sdk_agent import PATH, sdk_agent
from bench.talk import loaded, talking_daemon, used_by
from bench.web import Web, message

__all__ = ["AGENT", "OURS", "TEXT", "THEIRS", "Asked", "Rate", "compare", "run"]

ROW = "a2a-send"
PARALLEL = 16
TEXT = "please look at the parser, " * 4
AGENT = "echo"
OURS, THEIRS = "ours", "theirs"


class Rate(NamedTuple):
    """How many a second, of time on the wall and of the server's processor time."""

    wall: float
    cpu: float


class Asked(Protocol):
    """One of the two."""

    async def rate(self, requests: int, at_a_time: int, *, is_awaited: bool) -> Rate:
        """Return how fast so many requests are answered."""


class Server:
    """One of the two, asked over HTTP."""

    def __init__(self, pid: int, port: int, path: str) -> None:
        self._pid = pid
        self._port = port
        self._path = path
        self._numbers = count()

    async def rate(self, requests: int, at_a_time: int, *, is_awaited: bool) -> Rate:
        """Return how fast so many are answered, over connections that were used before."""
        webs = [await Web.connect(self._port) for _ in range(at_a_time)]
        left = iter(range(requests))

        async def send(web: Web) -> None:
            number = f"bench-{next(self._numbers)}"
            await web.exchange(message(self._path, number, TEXT, is_awaited=is_awaited))

        async def keep_sending(web: Web) -> None:
            for _ in left:
                await send(web)

        await asyncio.gather(*map(send, webs))
        used, began = used_by(self._pid), time.perf_counter()
        await asyncio.gather(*map(keep_sending, webs))
        took = time.perf_counter() - began
        used = used_by(self._pid) - used
        for web in webs:
            web.close()
        return Rate(requests / took, requests / max(used, 1e-3))


async def run(quick: bool) -> list[Figure]:
    rounds, requests = (1, 32) if quick else (6, 400)
    async with servers() as found:
        return [loaded(ROW), *await compare(ROW, found, rounds, requests)]


async def compare(row: str, asked: Mapping[str, Asked], rounds: int, requests: int) -> list[Figure]:
    """Ask both in turn, in every way, and return what came of it."""
    figures = []
    for word, is_awaited in (("accepted", False), ("answered", True)):
        for how, at_a_time in (("one after the other", 1), (f"{PARALLEL} at a time", PARALLEL)):
            measures = {
                name: partial(each.rate, requests, at_a_time, is_awaited=is_awaited)
                for name, each in asked.items()
            }
            best = await best_of(rounds, measures)
            figures += figures_of(row, f"SendMessage {word}, {how}", best[OURS], best[THEIRS])
    return figures


def figures_of(row: str, what: str, ours: Rate, theirs: Rate) -> list[Figure]:
    """Return one figure with a target and one to understand it by."""
    wall = Figure(
        row=row,
        what=what,
        ours=ours.wall,
        theirs=theirs.wall,
        unit="/s",
        against="SDK, in memory",
        at_least=5.0,
    )
    cpu = Figure(
        row=row,
        what="… by the server's processor time",
        ours=ours.cpu,
        theirs=theirs.cpu,
        unit="/s",
        against="SDK, in memory",
    )
    return [wall, cpu]


async def best_of(
    rounds: int, measures: Mapping[str, Callable[[], Awaitable[Rate]]]
) -> dict[str, Rate]:
    """Return the best of several rounds of each, taken in turn."""
    best = dict.fromkeys(measures, Rate(0.0, 0.0))
    for _ in range(rounds):
        for name, measure in measures.items():
            now = await measure()
            best[name] = Rate(max(now.wall, best[name].wall), max(now.cpu, best[name].cpu))
    return best


@asynccontextmanager
async def servers() -> AsyncIterator[dict[str, Server]]:
    """Have both servers for a block."""
    async with (
        talking_daemon(beside=None) as (pid, home, _),
        echo_agent(home, AGENT),
        sdk_agent() as (sdk_pid, sdk_port),
    ):
        yield {
            OURS: Server(pid, await a2a_port(home), f"/agents/{AGENT}/a2a/jsonrpc"),
            THEIRS: Server(sdk_pid, sdk_port, PATH),
        }
