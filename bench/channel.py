"""One request over a channel, and the same over a socket with JSON in between.

The handler takes the params as they come and answers with nothing. Both ends are in this process,
as they would be for two components that could be moved apart later.
"""

import functools
import socket
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec

from bench.figure import Figure
from bench.rounds import best_rates, rate
from bullpen.connection import Connection, Context, SocketTransport, Transport, channel_pair

__all__ = ["run"]

Ask = Callable[[Any], Awaitable[Any]]

SMALL = {"n": 1}
LARGE_OBJECT_BYTES = 10 * 2**20
TARGET = 5.0
PEAK_TARGET = 0.01


async def run(quick: bool) -> list[Figure]:
    rounds, seconds = (1, 0.01) if quick else (12, 0.1)
    large = records(100_000)
    figures = []
    async with AsyncExitStack() as stack:
        over_channel = await stack.enter_async_context(opened(*channel_pair()))
        pair = map(SocketTransport.over, socket.socketpair())
        over_socket = await stack.enter_async_context(opened(*pair))
        for size, params, target in (("small", SMALL, None), ("100 kB of", large, TARGET)):
            asks = {
                "channel": functools.partial(over_channel, params),
                "json": functools.partial(over_socket, params),
            }
            best = await best_rates(
                rounds,
                {
                    name: functools.partial(rate, ask, at_a_time=1, seconds=seconds)
                    for name, ask in asks.items()
                },
            )
            figures.append(
                Figure(
                    row="channel",
                    what=f"requests with {size} params over a channel",
                    ours=best["channel"],
                    theirs=best["json"],
                    unit="/s",
                    against="JSON over a socketpair",
                    at_least=target,
                )
            )
        peak = await peak_bytes(over_channel)
    figures.append(
        Figure(
            row="channel",
            what="most allocated while a 10 MiB object crosses a channel",
            ours=peak / 2**10,
            theirs=LARGE_OBJECT_BYTES / 2**10,
            unit="KiB",
            against="the object",
            at_most=PEAK_TARGET,
        )
    )
    return figures


def records(size: int) -> dict[str, Any]:
    """Return params of at least this size on the wire, as a listing might have them."""
    rows: list[dict[str, Any]] = []
    length = 0
    while length < size:
        number = len(rows)
        row = {
            "id": f"pane-{number}",
            "title": "review the parser",
            "is_idle": not number % 2,
            "age_seconds": number * 0.25,
            "tags": ["codex", "left"],
        }
        rows.append(row)
        length += len(msgspec.json.encode(row)) + 1
    return {"panes": rows}


@asynccontextmanager
async def opened(here: Transport, there: Transport) -> AsyncIterator[Ask]:
    """Open both ends; yield a function that sends one request."""

    async def take(_params: Any, _context: Context) -> None: ...

    async with (
        Connection.builder().on_request("take", take).connect(there),
        Connection.builder().connect(here) as connection,
    ):
        yield functools.partial(connection.request, "take")


async def peak_bytes(ask: Ask) -> int:
    """Return the most that was allocated at a time while a large object was handed over."""
    blob = bytes(LARGE_OBJECT_BYTES)
    await ask(blob)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        await ask(blob)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return peak - before
