"""Stream sockets: Unix, TCP, or any connected pair."""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bullpen.connection.errors import AddressError
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.descriptor import MOST_LAST_READS, DescriptorTransport

__all__ = ["SocketTransport", "check_unix_path", "connect_tcp", "send_at_once"]

# The kernel keeps a socket's path in a fixed field: 108 bytes on Linux, 104 on macOS and BSD.
MAX_UNIX_PATH_BYTES = 107 if sys.platform.startswith("linux") else 103

QUEUE_DELAYS = [0.001 * 2**n for n in range(12)]  # four seconds in all for a busy server

_Dial = Callable[[], Awaitable[socket.socket]]


class SocketTransport(DescriptorTransport):
    """Frames on a connected socket. Make one with `unix`, `tcp` or `over`."""

    def __init__(self, dial: _Dial | socket.socket, **options: Any) -> None:
        super().__init__(**options)
        self._dial = None if isinstance(dial, socket.socket) else dial
        self._socket = dial if isinstance(dial, socket.socket) else None
        self._release = self._close_socket

    @classmethod
    def unix(cls, path: str, **options: Any) -> "SocketTransport":
        """Connect to a Unix socket when started."""

        async def dial() -> socket.socket:
            check_unix_path(path)
            return await _connect_unix(path)

        return cls(dial, **options)

    @classmethod
    def tcp(cls, host: str, port: int, **options: Any) -> "SocketTransport":
        """Connect to a TCP port when started."""
        return cls(lambda: connect_tcp(host, port), **options)

    @classmethod
    def over(cls, connected: socket.socket, **options: Any) -> "SocketTransport":
        """Take over a connected stream socket, for example one end of a `socketpair`."""
        return cls(connected, **options)

    @property
    def connected(self) -> socket.socket | None:
        """The socket, for those who ask the kernel about its peer; None until it is connected."""
        return self._socket

    async def open(self, receiver: Receiver) -> None:
        if self._dial is not None:
            self._socket = await self._dial()
        connected = self._socket
        assert connected is not None
        if connected.family != socket.AF_UNIX:
            send_at_once(connected)
        self._read_fd = self._write_fd = connected.fileno()
        await super().open(receiver)

    async def _hang_up(self) -> None:
        # Closing with something unread would reset the connection and lose what we sent last.
        for _ in range(MOST_LAST_READS):
            if self._loop is None or not self._read():
                break

    def _is_hangup(self, error: OSError) -> bool:
        # On a Unix socket a reset says that the peer closed before it had read everything. Over a
        # network it may also mean that a machine is gone, and is no clean end.
        closed = isinstance(error, ConnectionResetError)
        return closed and self._socket is not None and self._socket.family == socket.AF_UNIX

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()


def send_at_once(connected: socket.socket) -> None:
    """Have the kernel send what it is given at once: it is gathered here already."""
    with contextlib.suppress(OSError):  # so macOS says that the peer has hung up: reading tells
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def check_unix_path(path: str) -> None:
    """Refuse, in words, a path the kernel has no room for."""
    length = len(path.encode())
    if length > MAX_UNIX_PATH_BYTES:
        reason = f"the path has {length} bytes; a Unix socket's may have {MAX_UNIX_PATH_BYTES}"
        raise AddressError(f"unix://{path}", reason)


async def connect_tcp(host: str, port: int) -> socket.socket:
    """Return a socket connected to the first of a host's addresses that answers."""
    address = f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
    failure = AddressError(address, "unknown host")
    for family, target in await _resolve(address, host, port):
        try:
            return await _connect_tcp(address, family, target)
        except AddressError as error:
            failure = error
    raise failure


async def _resolve(address: str, host: str, port: int) -> list[tuple[int, Any]]:
    if not 0 < port < 2**16:
        raise AddressError(address, "a port is a number from 1 to 65535")
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            socket.inet_pton(family, host)
            return [(family, (host, port))]  # a number needs no thread to look it up
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise AddressError(address, getattr(error, "strerror", None) or error) from error
    return [(family, target) for family, _, _, _, target in found]


async def _connect_tcp(address: str, family: int, target: Any) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connecting, target)
    except OSError as error:
        connecting.close()
        # The loop puts words of its own in the place of the system's.
        raise AddressError(address, os.strerror(error.errno or 0)) from error
    except BaseException:
        connecting.close()
        raise
    return connecting


async def _connect_unix(path: str) -> socket.socket:
    address = f"unix://{path}"
    connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        for delay in QUEUE_DELAYS:
            try:
                connecting.connect(path)
            except BlockingIOError:
                # The server has not got round to those before us. The loop's own `sock_connect`
                # would take this for a connection under way, and then for one that is made.
                await asyncio.sleep(delay)
            else:
                return connecting
        raise AddressError(address, "the server does not accept anybody")
    except OSError as error:
        connecting.close()
        raise AddressError(address, error.strerror or error) from error
    except BaseException:
        connecting.close()
        raise
