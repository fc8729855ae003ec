"""Holding the port an agent is announced at, so that nobody else can be taken for it.

Whoever finds an agent in the registry looks whether its port is open: Synapse throws the entry away
otherwise. A daemon that serves A2A is handed the listening socket, and serves the port as long as
it is there; without one it is said here that nothing is served, and nothing else.
"""

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path

__all__ = ["HeldPort"]

logger = logging.getLogger("bullpen.wrapper")

HOST = "127.0.0.1"  # never anywhere else
BACKLOG = 128
MAX_CALLERS = 16
MAX_BYTES = 2**16
CALL_SECONDS = 5.0
ANSWER_SECONDS = 10.0  # for the daemon to take the port
RETURN_SECONDS = 0.5  # for it to let go of it
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
BODY = b'{"detail":"Agent not running: no daemon serves it just now"}'
ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Retry-After: 1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(BODY), BODY)
)


class HeldPort:
    """A port that is ours, from `open` to `close`."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self._server: asyncio.Server | None = None
        self._callers: set[_Caller] = set()

    @classmethod
    async def open(cls, port: int) -> "HeldPort | None":
        """Hold a port; None if it cannot be had any more, which is logged."""
        listening = socket.socket()
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((HOST, port))
            listening.listen(BACKLOG)
            listening.setblocking(False)
            held = cls(listening)
            await held._answer()
        except OSError as error:
            listening.close()
            logger.warning("port %d cannot be held: %s", port, error.strerror or error)
            return None
        return held

    @property
    def port(self) -> int:
        """Which one it is."""
        found: int = self._listening.getsockname()[1]
        return found

    async def hand_over(self, path: Path, secret: Callable[[], str]) -> None:
        """Let the daemon whose socket is at a path serve the port whenever it can.

        `secret` tells the agent's. Runs until cancelled; then, and without a daemon, it is again
        answered here.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                with await self._connect(path, secret()) as daemon:
                    pause = FIRST_PAUSE
                    await self._step_aside(daemon)
            except (OSError, TimeoutError):
                pass  # there is none, or it does not know us yet
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _connect(self, path: Path, secret: str) -> socket.socket:
        """Hand the socket over; return the connection as long as which it is served."""
        loop = asyncio.get_running_loop()
        daemon = socket.socket(socket.AF_UNIX)
        try:
            daemon.setblocking(False)
            async with asyncio.timeout(ANSWER_SECONDS):
                await loop.sock_connect(daemon, str(path))
                hello = json.dumps({"secret": secret}).encode()
                socket.send_fds(daemon, [hello], [self._listening.fileno()])
                if not await loop.sock_recv(daemon, 1):
                    raise ConnectionRefusedError
        except BaseException:
            daemon.close()
            raise
        return daemon

    async def _step_aside(self, daemon: socket.socket) -> None:
        """Answer nobody who calls from now on, as long as the daemon does."""
        self._stop_listening()
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_recv(daemon, 1)
        except asyncio.CancelledError:
            with contextlib.suppress(OSError, TimeoutError):
                daemon.shutdown(socket.SHUT_WR)
                async with asyncio.timeout(RETURN_SECONDS):  # so that the port is free then
                    await loop.sock_recv(daemon, 1)
            raise
        finally:
            await self._answer()

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Caller(self._callers), sock=self._listening.dup(), backlog=BACKLOG
        )

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    def close(self) -> None:
        """Let go of it."""
        self._stop_listening()
        for caller in tuple(self._callers):
            caller.abort()
        self._listening.close()


class _Caller(asyncio.Protocol):
    """One who called: after its request it hears that nothing is served."""

    def __init__(self, callers: "set[_Caller]") -> None:
        self._callers = callers
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if len(self._callers) >= MAX_CALLERS:
            transport.abort()
            return
        self._callers.add(self)
        self._timer = asyncio.get_running_loop().call_later(CALL_SECONDS, transport.abort)

    def data_received(self, data: bytes) -> None:
        self._head += data
        if self._transport is not None and (
            b"\r\n\r\n" in self._head or len(self._head) > MAX_BYTES
        ):
            self._transport.write(ANSWER)
            self._transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._callers.discard(self)
        if self._timer is not None:
            self._timer.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
