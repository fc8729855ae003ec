"""An agent on its own stdin and stdout, in a world that prints where it should not."""

import asyncio
import os
import subprocess
import sys
from typing import Any

from bullpen.connection import AddressError, Connection, Context, StdioTransport


async def chatter(_: Any, context: Context) -> str:
    sys.stdout.write("a stray print\n")
    sys.stdout.flush()
    os.write(1, b"a stray write\n")
    command = ["sh", "-c", "echo a stray child; cat"]
    child = await asyncio.create_subprocess_exec(*command, stdin=None)
    return f"{await child.wait()} {os.read(0, 1)!r}"


async def open_another(_: Any, context: Context) -> str:
    try:
        await Connection.builder().open(StdioTransport())
    except AddressError as error:
        return str(error)
    return "opened"


def main() -> None:
    sys.stdout.write("printed before\n")  # and not flushed
    agent = (
        Connection.builder()
        .on_request("echo", lambda value, context: value)
        .on_request("chatter", chatter)
        .on_request("open another", open_another)
    )
    asyncio.run(agent.serve_with(StdioTransport()))
    assert os.get_blocking(0)
    assert os.get_blocking(1)
    sys.stdout.write("printed after\n")
    sys.stdout.flush()
    subprocess.run(["echo", "echoed after"], check=True)


if __name__ == "__main__":
    main()
