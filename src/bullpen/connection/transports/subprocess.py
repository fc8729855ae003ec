"""Programs we start: one to speak to over its stdio, one to connect to at the port it names."""

import asyncio
import contextlib
import re
import socket
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from bullpen.connection.errors import (
    AddressError,
    BadPortLine,
    ExitedEarly,
    StartError,
    StartTimeout,
)
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.process import EXIT_SECONDS, ChildProcess, ProcessTransport
from bullpen.connection.transports.socket import connect_tcp, send_at_once

__all__ = ["PORT_LINE", "ServerProcessTransport", "SubprocessTransport"]

PORT_LINE = r"listening on .*?(\d+)\s*$"
"""Finds the port in `CLI server listening on port 4141` and in `listening on http://[::1]:4141`."""

START_SECONDS = 30.0  # a program from npm that is started for the first time takes its time
MAX_PREAMBLE_BYTES = 2**16  # a server that has said so much without a port will not name one
MAX_LINE_SHOWN = 200  # characters, in an error


class SubprocessTransport(ProcessTransport):
    """Frames on the stdio of a program: `SubprocessTransport(["codex", "app-server"])`.

    The program gets a process group of its own and, unless `env` is given, our environment. No
    shell is involved. Its stderr is always read and the last 64 KiB of it are kept.

    When it ends, so does the connection: cleanly if its exit status is 0, else with
    `ProcessExited`, which has the status and the tail of stderr. Closing ends the program and its
    group: end of stdin, two seconds later SIGTERM, two seconds later SIGKILL. If this process is
    killed, the end of stdin is all that the program is told; one that ignores it goes on.

    Raises on opening:
        CommandNotFound: there is no such program, or it may not be run.
    """

    async def open(self, receiver: Receiver) -> None:
        process = await self._spawn()
        self._read_fd, self._write_fd = process.stdout, process.stdin
        self._release = process.release
        await super().open(receiver)


class ServerProcessTransport(ProcessTransport):
    """Frames on a TCP connection to a server that is started for it, and stopped with it.

    Opening returns when the server has printed a line with its port on stdout and the connection
    is made. Lines before that one are ignored; what it prints later is read and dropped.

    Ending and closing are as with `SubprocessTransport`.

    Raises on opening, after which nothing of the server is left:
        CommandNotFound: there is no such program, or it may not be run.
        ExitedEarly: it ended before it named a port.
        BadPortLine: it said something else instead, or named a port there is not.
        StartTimeout: it said nothing in time.
        AddressError: nobody answers at the port it named.
    """

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        host: str = "127.0.0.1",
        port_line: str = PORT_LINE,
        start_seconds: float = START_SECONDS,
        **options: Any,
    ) -> None:
        super().__init__(command, env=env, cwd=cwd, **options)
        self._host = host
        self._port_line = port_line
        self._start_seconds = start_seconds
        self._search: _PortSearch | None = None
        self._socket: socket.socket | None = None

    async def open(self, receiver: Receiver) -> None:
        process = await self._spawn()
        try:
            self._socket = await self._connect(process)
        except BaseException:
            try:
                await process.stop(by_force=True)
            finally:
                process.release()
            raise
        send_at_once(self._socket)
        self._read_fd = self._write_fd = self._socket.fileno()
        self._release = self._socket.close
        await super().open(receiver)

    async def _connect(self, process: ChildProcess) -> socket.socket:
        self._search = search = _PortSearch(self._port_line)
        process.drain_stdout(search.feed, search.end)
        if process.status is not None:  # it did not wait for us
            raise ExitedEarly(process.exited())
        try:
            async with asyncio.timeout(self._start_seconds):
                port = await search.port
        except TimeoutError:
            if search.last_line:
                raise BadPortLine(search.last_line) from None
            raise StartTimeout(process.command, self._start_seconds) from None
        try:
            return await connect_tcp(self._host, port)
        except AddressError:
            if await process.wait(EXIT_SECONDS):
                raise ExitedEarly(process.exited()) from None
            raise

    def _process_exited(self) -> None:
        if self._search is not None and self._process is not None:
            self._search.fail(ExitedEarly(self._process.exited()))
        super()._process_exited()

    async def _hang_up(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):  # it may have gone first
                self._socket.shutdown(socket.SHUT_WR)
        await super()._hang_up()


class _PortSearch:
    """Looks for the line that names the port."""

    def __init__(self, pattern: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._pattern = re.compile(pattern)
        self._unfinished = b""
        self._bytes = 0
        self.port: asyncio.Future[int] = self._loop.create_future()
        self.last_line = ""

    def feed(self, data: bytes) -> None:
        """Look at what the server said."""
        if self.port.done():
            return
        self._bytes += len(data)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        for line in lines:
            self._look_at(line)
        if self._bytes > MAX_PREAMBLE_BYTES:
            self.fail(BadPortLine(self.last_line))

    def end(self) -> None:
        """Learn that it will say nothing more; why, its exit status tells, if it exits."""
        self._look_at(self._unfinished)
        if not self.port.done():
            self._loop.call_later(EXIT_SECONDS, self.fail, BadPortLine(self.last_line))

    def fail(self, error: StartError) -> None:
        """Give up."""
        if not self.port.done():
            self.port.set_exception(error)

    def _look_at(self, raw: bytes) -> None:
        line = raw.decode(errors="replace").strip()
        if not line or self.port.done():
            return
        self.last_line = line[:MAX_LINE_SHOWN]
        found = self._pattern.search(line)
        if found is None:
            return
        if found[1].isdigit() and 0 < int(found[1]) < 2**16:
            self.port.set_result(int(found[1]))
        else:
            self.fail(BadPortLine(self.last_line))
