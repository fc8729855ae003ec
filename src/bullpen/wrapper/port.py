"""Holding the port an agent is announced at, so that nobody else can be taken for it.

Whoever finds an agent in the registry looks whether its port is open: Synapse throws the entry away
otherwise. As long as nothing is served there, it is said so, and nothing else.
"""

import asyncio
import logging

__all__ = ["HeldPort"]

logger = logging.getLogger("bullpen.wrapper")

HOST = "127.0.0.1"  # never anywhere else
MAX_CALLERS = 16
MAX_BYTES = 2**16
CALL_SECONDS = 5.0
BODY = b'{"detail":"this agent is reached through bullpen: it serves no A2A here"}'
ANSWER = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(BODY), BODY)
)


class HeldPort:
    """A port that is ours, from `open` to `close`."""

    def __init__(self, server: asyncio.Server, callers: "set[_Caller]") -> None:
        self._server = server
        self._callers = callers

    @classmethod
    async def open(cls, port: int) -> "HeldPort | None":
        """Hold a port; None if it cannot be had any more, which is logged."""
        callers: set[_Caller] = set()
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(lambda: _Caller(callers), HOST, port)
        except OSError as error:
            logger.warning("port %d cannot be held: %s", port, error.strerror or error)
            return None
        return cls(server, callers)

    def close(self) -> None:
        """Let go of it."""
        self._server.close()
        for caller in tuple(self._callers):
            caller.abort()


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
