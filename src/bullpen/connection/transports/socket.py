"""Stream sockets: Unix, TCP, or any connected pair."""

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from bullpen.connection.errors import AddressError
from bullpen.connection.transport import Receiver
from bullpen.connection.transports.descriptor import DescriptorTransport

__all__ = ["SocketTransport", "check_unix_path"]

# The kernel keeps a socket's path in a fixed field: 108 bytes on Linux, 104 on macOS and BSD.
MAX_UNIX_PATH_BYTES = 107 if sys.platform.startswith("linux") else 103

_Dial = Callable[[], Awaitable[socket.socket]]


class SocketTransport(DescriptorTransport):
    """Frames on a connected socket. Make one with `unix`, `tcp` or `over`."""

    def __init__(self, dial: _Dial, **options: Any) -> None:
        super().__init__(**options)
        self._dial = dial
        self._socket: socket.socket | None = None
        self._release = self._close_socket

    @classmethod
    def unix(cls, path: str, **options: Any) -> "SocketTransport":
        """Connect to a Unix socket when started."""

        async def dial() -> socket.socket:
            check_unix_path(path)
            return await _connect(f"unix://{path}", socket.AF_UNIX, path)

        return cls(dial, **options)

    @classmethod
    def tcp(cls, host: str, port: int, **options: Any) -> "SocketTransport":
        """Connect to a TCP port when started."""

        async def dial() -> socket.socket:
            address = f"tcp://{host}:{port}"
            loop = asyncio.get_running_loop()
            failure: AddressError | None = None
            try:
                found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                raise AddressError(address, error.strerror or error) from error
            for family, _, _, _, target in found:
                try:
                    return await _connect(address, family, target)
                except AddressError as error:
                    failure = error
            raise failure or AddressError(address, "unknown host")

        return cls(dial, **options)

    @classmethod
    def over(cls, connected: socket.socket, **options: Any) -> "SocketTransport":
        """Take over a connected stream socket, for example one end of a `socketpair`."""

        async def dial() -> socket.socket:
            return connected

        return cls(dial, **options)

    async def open(self, receiver: Receiver) -> None:
        self._socket = await self._dial()
        if self._socket.family != socket.AF_UNIX:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read_fd = self._write_fd = self._socket.fileno()
        await super().open(receiver)

    def _close_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()


def check_unix_path(path: str) -> None:
    """Refuse, in words, a path the kernel has no room for."""
    length = len(path.encode())
    if length > MAX_UNIX_PATH_BYTES:
        reason = f"the path has {length} bytes; a Unix socket's may have {MAX_UNIX_PATH_BYTES}"
        raise AddressError(f"unix://{path}", reason)


async def _connect(address: str, family: int, target: Any) -> socket.socket:
    connecting = socket.socket(family, socket.SOCK_STREAM)
    connecting.setblocking(False)
    try:
        await asyncio.get_running_loop().sock_connect(connecting, target)
    except OSError as error:
        connecting.close()
        raise AddressError(address, error.strerror or error) from error
    except BaseException:
        connecting.close()
        raise
    return connecting
