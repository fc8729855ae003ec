"""Serves at whatever address it is given: the only thing that changes is the configuration."""

import asyncio
import sys
from contextlib import AbstractAsyncContextManager

from bullpen.connection import Connection, Listener, listen


def serve_at(address: str) -> AbstractAsyncContextManager[Listener]:
    return listen(address, Connection.builder().on_request("greet", lambda name, _: f"Hi {name}"))


async def main(address: str) -> None:
    async with serve_at(address) as listener:
        if listener.address != "stdio:":
            sys.stdout.write(f"{listener.address}\n")
            sys.stdout.flush()
        await listener.wait_closed()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
