"""The fake CLI server as a process, started like the real one.

    python -m bullpen.testing.cli_server --headless --port 0 --script "stream 3; crash 7"

It prints `CLI server listening on port N` (or speaks on stdin and stdout with `--stdio`). With
`--journal FILE` every process appends a line of JSON for each thing that happens to it:
`{"pid": 1, "what": "started"}`, then "accepted" and "closed" for each connection, and "ended".
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from bullpen.connection.errors import ConnectionClosed
from bullpen.connection.transport import Transport
from bullpen.connection.transports.descriptor import DescriptorTransport
from bullpen.connection.transports.socket import SocketTransport
from bullpen.jsonrpc.framing import ContentLengthFramer
from bullpen.testing.cli_server.server import FakeCliServer

__all__ = ["main"]

BACKLOG = 128
CHILD_SECONDS = 60  # how long it may outlive a test that failed to end it


class Journal:
    """What happened to this process, for somebody outside to count."""

    def __init__(self, path: str | None) -> None:
        self._path = path

    def write(self, what: str, **facts: object) -> None:
        if self._path is not None:
            line = json.dumps({"pid": os.getpid(), "what": what, **facts}) + "\n"
            with Path(self._path).open("a", encoding="utf-8") as file:
                file.write(line)


def main(arguments: list[str] | None = None) -> int:
    """Run the server until it is told to stop."""
    options = _parse(arguments)
    script = options.script or ""
    if script.startswith("@"):
        script = Path(script[1:]).read_text(encoding="utf-8")
    server = FakeCliServer(script)
    journal = Journal(options.journal)
    journal.write("started")
    for number in range(server.script.noise):
        sys.stderr.write(f"noise {number}\n")
    sys.stderr.flush()
    if server.script.has_child:
        sleep = f"import time; time.sleep({CHILD_SECONDS})"
        child = subprocess.Popen([sys.executable, "-c", sleep], stdin=subprocess.DEVNULL)
        journal.write("child", child=child.pid)
    if server.script.exit_status is not None:
        return server.script.exit_status
    try:
        asyncio.run(_serve(server, journal, options.port if not options.stdio else None))
    finally:
        journal.write("ended")
    return 0


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cli_server", description=__doc__.split("\n")[0])
    parser.add_argument("--port", type=int, default=0, help="0 for any that is free")
    parser.add_argument("--stdio", action="store_true", help="speak on stdin and stdout")
    parser.add_argument("--script", help="what to do, or @FILE; see bullpen.testing.cli_server")
    parser.add_argument("--journal", help="a file to append what happens to")
    for flag in ("--headless", "--server", "--no-auto-update", "--no-auto-login"):
        parser.add_argument(flag, action="store_true", help="as the real one has")
    parser.add_argument("--log-level", help="as the real one has")
    return parser.parse_args(arguments)


async def _serve(server: FakeCliServer, journal: Journal, port: int | None) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    try:
        async with asyncio.TaskGroup() as connections:
            if not server.script.is_stubborn:
                connections.create_task(_stop_after(stopped))
            if port is None:
                transport = DescriptorTransport(0, 1, framer=ContentLengthFramer())
                await _serve_one(server, journal, transport)
                raise _Stopped
            with _listen(port) as listening:
                _announce(server, listening.getsockname()[1])
                await _accept(server, journal, listening, connections)
    except* _Stopped:
        pass


class _Stopped(Exception):
    """Ends all connections."""


async def _stop_after(stopped: asyncio.Event) -> None:
    await stopped.wait()
    raise _Stopped


async def _accept(
    server: FakeCliServer,
    journal: Journal,
    listening: socket.socket,
    connections: asyncio.TaskGroup,
) -> None:
    while True:
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        transport = SocketTransport.over(accepted, framer=ContentLengthFramer())
        connections.create_task(_serve_one(server, journal, transport))


async def _serve_one(server: FakeCliServer, journal: Journal, transport: Transport) -> None:
    journal.write("accepted")
    try:
        with contextlib.suppress(ConnectionClosed):
            await server.serve(transport)
    finally:
        journal.write("closed")


def _listen(port: int) -> socket.socket:
    listening = socket.create_server(("127.0.0.1", port), backlog=BACKLOG)
    listening.setblocking(False)
    return listening


def _announce(server: FakeCliServer, port: int) -> None:
    if server.script.greeting:
        sys.stdout.write(server.script.greeting + "\n")
    line = server.script.port_line
    if line is None:
        line = f"CLI server listening on port {port}"
    if line:
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
