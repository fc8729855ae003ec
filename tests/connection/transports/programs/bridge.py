"""Passes messages between this program's stdio and a Unix socket, and chatters meanwhile."""

import asyncio
import sys
from collections.abc import Coroutine, Iterable
from typing import Any

from bullpen.connection import SocketTransport, StdioTransport, Transport
from bullpen.connection.transport import Decode
from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.wire import Message


class Relay:
    """Receives from one transport and sends to another, no faster than that can send."""

    def __init__(self, source: Transport, target: Transport) -> None:
        self.decode: Decode = decode_frame
        self._source = source
        self._target = target
        self._waiting: asyncio.Task[None] | None = None
        self.has_ended = asyncio.Event()

    def receive(self, message: Message, size: int) -> None:
        self._target.send(message)
        print("a stray line")  # noqa: T201
        if self._target.is_congested and (self._waiting is None or self._waiting.done()):
            self._source.pause()
            self._waiting = asyncio.ensure_future(self._wait())

    def receive_burst(self, messages: Iterable[Message], sizes: Iterable[int]) -> None:
        for message, size in zip(messages, sizes, strict=True):
            self.receive(message, size)

    def receive_end(self, cause: Exception | None) -> None:
        self.has_ended.set()

    def run_worker(self, work: Coroutine[Any, Any, None], name: str) -> None:
        raise NotImplementedError

    async def _wait(self) -> None:
        await self._target.drain()
        self._source.resume()


async def main() -> None:
    stdio, wire = StdioTransport(), SocketTransport.unix(sys.argv[1])
    outward, inward = Relay(stdio, wire), Relay(wire, stdio)
    await wire.start(inward)
    await stdio.start(outward)
    # A child that neither writes to the wire nor reads from it.
    await (await asyncio.create_subprocess_shell("echo a stray line; cat")).wait()
    ends = [asyncio.ensure_future(relay.has_ended.wait()) for relay in (outward, inward)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    await wire.close()
    await stdio.close()


if __name__ == "__main__":
    asyncio.run(main())
