"""Requests and their responses over a Unix socket, both ends in this process.

Every contender reads and writes one end of a `socketpair` with newline framing, sends the same
method and params, and answers with an async handler that returns the params: all that differs is
the library in between. Neither SDK bounds how long a request waits, so ours is told not to.
"""

import asyncio
import functools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from bench.figure import Figure
from bench.rounds import Measure, best_rates, rate
from bullpen.connection import Connection, Context, SocketTransport

__all__ = ["run"]

Request = Callable[[], Awaitable[Any]]
Opener = Callable[[], Any]

PARAMS = {"n": 1}
TARGETS = {1: 3.0, 64: 10.0}


async def run(quick: bool) -> list[Figure]:
    rounds, seconds = (1, 0.01) if quick else (12, 0.2)
    openers: dict[str, Opener] = {"ours": open_ours, "ACP SDK": open_acp, "MCP SDK": open_mcp}
    figures = []
    async with AsyncExitStack() as stack:
        requests = {name: await stack.enter_async_context(openers[name]()) for name in openers}
        for request in requests.values():
            if await request() != PARAMS:
                raise AssertionError("the echo is not what was sent")
        for in_flight, target in TARGETS.items():
            measures = {
                name: _measure(request, in_flight, seconds) for name, request in requests.items()
            }
            best = await best_rates(rounds, measures)
            figures += [
                Figure(
                    row="round-trips",
                    what=f"round trips, {in_flight} in flight",
                    ours=best["ours"],
                    theirs=best[name],
                    unit="/s",
                    against=name,
                    at_least=target,
                )
                for name in ("ACP SDK", "MCP SDK")
            ]
    return figures


def _measure(request: Request, in_flight: int, seconds: float) -> Measure:
    return lambda: rate(request, at_a_time=in_flight, seconds=seconds)


@asynccontextmanager
async def open_ours() -> AsyncIterator[Request]:
    async def echo(params: Any, _context: Context) -> Any:
        return params

    here, there = socket.socketpair()
    async with (
        Connection.builder().on_request("echo", echo).connect(SocketTransport.over(there)),
        Connection.builder().timeout(None).connect(SocketTransport.over(here)) as connection,
    ):
        yield functools.partial(connection.request, "echo", PARAMS)


@asynccontextmanager
async def open_acp() -> AsyncIterator[Request]:
    """Open two of the connections under the SDK's agents and clients."""
    from acp.connection import Connection as AcpConnection

    async def echo(_method: str, params: Any, _is_notification: bool) -> Any:
        return params

    here, there = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=here)
    their_reader, their_writer = await asyncio.open_connection(sock=there)
    async with (
        AcpConnection(echo, their_writer, their_reader),
        AcpConnection(echo, writer, reader) as connection,
    ):
        yield functools.partial(connection.send_request, "echo", PARAMS)
    for each in (writer, their_writer):
        each.close()
        await each.wait_closed()


@asynccontextmanager
async def open_mcp() -> AsyncIterator[Request]:
    """Open two of the dispatchers under the SDK's sessions and servers.

    Both ends get what its stdio client has between pipes and dispatcher. Its stdio server reads
    lines in a thread, which is slower.
    """
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

    from bench.mcp_stdio import stdio_streams

    async def echo(_context: Any, _method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        return dict(params or {})

    async def ignore(_context: Any, _method: str, _params: Mapping[str, Any] | None) -> None: ...

    import anyio

    here, there = socket.socketpair()
    async with (
        stdio_streams(there) as theirs,
        stdio_streams(here) as ours,
        anyio.create_task_group() as tasks,
    ):
        await tasks.start(JSONRPCDispatcher(*theirs).run, echo, ignore)
        dispatcher: JSONRPCDispatcher = JSONRPCDispatcher(*ours)
        await tasks.start(dispatcher.run, echo, ignore)
        yield functools.partial(dispatcher.send_raw_request, "echo", PARAMS)
        tasks.cancel_scope.cancel()
