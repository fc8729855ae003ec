"""The request handlers alone, without HTTP: ours, over a daemon that keeps on disk, and the SDK's.

Each is called in a process of its own, by a loop beside it, with a message that is read already.
Ours is in the daemon as its server has it, with an echo agent that is another process; the SDK's
default one has its memory store, and an agent that is a function.

`python -m bench.a2a_handler SOCKET [theirs]` is such a process. Who connects to the socket and
sends what to measure is told how fast it was.
"""

import asyncio
import json
import logging
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.request_handlers.request_handler import RequestHandler
from a2a.types import a2a_pb2 as pb

from bench.a2a_send import AGENT, OURS, TEXT, THEIRS, Asked, Rate, compare
from bench.beside import beside
from bench.echo_agent import echo_agent
from bench.figure import Figure
from bench.sdk_agent import default_handler
from bench.talk import loaded, talking_daemon
from bullpen.api.options import DaemonOptions
from bullpen.daemon.main import run as run_daemon
from bullpen.servers.a2a.room import OpenClient, Room
from bullpen.servers.a2a.v1.handler import Handler

__all__ = ["run"]

ROW = "a2a-handler"


async def run(quick: bool) -> list[Figure]:
    rounds, requests = (1, 32) if quick else (6, 400)
    async with handlers() as found:
        return [loaded(ROW), *await compare(ROW, found, rounds, requests)]


@asynccontextmanager
async def handlers() -> AsyncIterator[dict[str, Asked]]:
    """Have both for a block."""
    async with (
        talking_daemon(beside="bench.a2a_handler") as (_, home, _callers),
        echo_agent(home, AGENT),
        sdk(home / "theirs") as theirs,
    ):
        yield {OURS: Process(home / "beside"), THEIRS: theirs}


class Process:
    """One of the two."""

    def __init__(self, socket: Path) -> None:
        self._socket = str(socket)

    async def rate(self, requests: int, at_a_time: int, *, is_awaited: bool) -> Rate:
        """Return how fast so many messages are sent."""
        reader, writer = await asyncio.open_unix_connection(self._socket)
        wanted = {"requests": requests, "at_a_time": at_a_time, "is_awaited": is_awaited}
        writer.write(json.dumps(wanted).encode() + b"\n")
        told = json.loads(await reader.readline())
        writer.close()
        return Rate(**told)


@asynccontextmanager
async def sdk(socket: Path) -> AsyncIterator[Process]:
    async with beside("bench.a2a_handler", str(socket), THEIRS):
        yield Process(socket)


# ------------------------------------------------------------------------------ in such a process


class Caller:
    """Calls a handler as fast as it goes."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._numbers = count()

    async def tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Measure for who asks, once."""
        rate = await self._measure(**json.loads(await reader.readline()))
        writer.write(json.dumps(rate._asdict()).encode() + b"\n")
        await writer.drain()
        writer.close()

    async def _measure(self, requests: int, at_a_time: int, is_awaited: bool) -> Rate:
        messages = [self._message(is_awaited) for _ in range(requests)]

        async def keep_sending() -> None:
            while messages:
                await self._handler.on_message_send(messages.pop(), ServerCallContext())

        used, began = time.process_time(), time.perf_counter()
        await asyncio.gather(*(keep_sending() for _ in range(at_a_time)))
        took, used = time.perf_counter() - began, time.process_time() - used
        return Rate(requests / took, requests / used)

    def _message(self, is_awaited: bool) -> pb.SendMessageRequest:
        message = pb.Message(
            message_id=f"bench-{next(self._numbers)}",
            role=pb.Role.ROLE_USER,
            parts=[pb.Part(text=TEXT)],
        )
        request = pb.SendMessageRequest(message=message)
        request.configuration.return_immediately = not is_awaited
        return request


async def accompany(open_client: OpenClient, *_: Any) -> None:
    """Measure ours beside a daemon, until it ends."""
    async with Room.open(open_client) as room:
        await serve(Handler(room, AGENT))


async def serve(handler: RequestHandler) -> None:
    async with await asyncio.start_unix_server(Caller(handler).tell, sys.argv[1]) as server:
        if THEIRS in sys.argv:
            print("ready", flush=True)
        await server.serve_forever()


async def serve_sdk() -> None:
    """Measure theirs, until ended."""
    logging.disable(logging.CRITICAL)
    await serve(default_handler())


if __name__ == "__main__":
    if THEIRS in sys.argv:
        asyncio.run(serve_sdk(), debug=False)
    else:
        sys.exit(run_daemon(DaemonOptions(foreground=False), [accompany]))
