"""Addresses: how two programs are connected, as a matter of configuration.

| address | connects to | listens at |
|---|---|---|
| `stdio:` | this program's stdin and stdout | the same |
| `stdio:codex app-server` | a program that is started for it, over its stdio | - |
| `tcp://127.0.0.1:4500` | a TCP port | the port; a free one for 0 |
| `unix:///run/agent.sock` | a Unix socket | a socket for its owner alone |
| `ws://127.0.0.1:4500/path` | a WebSocket server (`wss:` over TLS) | the port; not `wss:` |
| `ws+unix:///run/agent.sock` | a WebSocket server on a Unix socket | a socket for its owner alone |
| `inproc:name` | whoever serves under a name in this process | the name |

The first four may end in `?framing=content-length`, as Copilot and language servers want it; else
there is one message per line. A command is split into words as a shell does it, but there is no
shell.
"""

import re
import shlex
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NamedTuple

from bullpen.connection.builder import Builder
from bullpen.connection.errors import AddressError
from bullpen.connection.listener import (
    MAX_PEERS,
    Listener,
    listen_inproc,
    listen_stdio,
    listen_tcp,
    listen_unix,
    listen_websocket,
    listen_websocket_unix,
)
from bullpen.connection.transport import Transport
from bullpen.connection.transports.inproc import InprocTransport
from bullpen.connection.transports.socket import SocketTransport, check_unix_path
from bullpen.jsonrpc.framing import ContentLengthFramer, Framer, LineFramer

__all__ = ["listen", "open_transport"]

FRAMERS: dict[str, Callable[[], Framer]] = {
    "content-length": ContentLengthFramer,
    "newline": LineFramer,
}
SCHEMES = "stdio: tcp:// unix:// ws:// wss:// ws+unix:// inproc:"


def open_transport(address: str) -> Transport:
    """Return a transport that will connect to an address when it is started.

    Raises:
        AddressError: it is no address.
    """
    target = _parse(address)
    match target.scheme:
        case "stdio":
            return _open_stdio(target)
        case "tcp":
            host, port = target.host_and_port()
            return SocketTransport.tcp(host, port, framer=target.framer())
        case "unix":
            return SocketTransport.unix(target.path(), framer=target.framer())
        case "ws" | "wss":
            from bullpen.connection.transports.websocket import WebSocketTransport

            return WebSocketTransport(address)
        case "ws+unix":
            from bullpen.connection.transports.websocket import WebSocketTransport

            return WebSocketTransport.unix(target.path())
        case _:
            return InprocTransport(target.name())


def listen(
    address: str, builder: Builder, *, max_peers: int = MAX_PEERS
) -> AbstractAsyncContextManager[Listener]:
    """Serve an address for the length of an `async with` block.

    Raises:
        AddressError: it is no address, or none to listen at.
    """
    target = _parse(address)
    match target.scheme:
        case "stdio":
            if target.rest:
                raise AddressError(address, "a program can be connected to, not listened at")
            return listen_stdio(builder, framer=target.framer())
        case "tcp":
            host, port = target.host_and_port()
            return listen_tcp(host, port, builder, max_peers=max_peers, framer=target.framer)
        case "unix":
            path = target.path()
            return listen_unix(path, builder, max_peers=max_peers, framer=target.framer)
        case "ws":
            host, port = target.host_and_port()
            return listen_websocket(host, port, builder, max_peers=max_peers)
        case "ws+unix":
            return listen_websocket_unix(target.path(), builder, max_peers=max_peers)
        case "wss":
            raise AddressError(address, "TLS is left to a proxy in front of ws:")
        case _:
            return listen_inproc(target.name(), builder, max_peers=max_peers)


class _Target(NamedTuple):
    address: str
    scheme: str
    rest: str
    framer: Callable[[], Framer]

    def host_and_port(self) -> tuple[str, int]:
        found = re.fullmatch(r"//(?:\[([^]]+)]|([^:/\s]+)):(\d{1,5})/?", self.rest)
        if found is None or int(found[3]) > 65535:
            raise AddressError(self.address, f"expected {self.scheme}://host:port")
        return found[1] or found[2], int(found[3])

    def path(self) -> str:
        if not re.match("///[^/]", self.rest):
            raise AddressError(self.address, f"expected {self.scheme}:///absolute/path")
        path = self.rest.removeprefix("//")
        check_unix_path(path)
        return path

    def name(self) -> str:
        if not self.rest:
            raise AddressError(self.address, "expected inproc:name")
        return self.rest

    def words(self) -> list[str]:
        try:
            return shlex.split(self.rest)
        except ValueError as error:  # a quotation that does not end
            raise AddressError(self.address, error) from error


def _parse(address: str) -> _Target:
    scheme, colon, rest = address.partition(":")
    if not colon or scheme not in ("stdio", "tcp", "unix", "ws", "wss", "ws+unix", "inproc"):
        raise AddressError(address, f"expected one of {SCHEMES}")
    framing = "newline"
    if scheme in ("stdio", "tcp", "unix") and (asked := re.search(r"\?framing=([^?\s]*)$", rest)):
        framing, rest = asked[1], rest[: asked.start()]
    if framing not in FRAMERS:
        raise AddressError(address, f"framing is one of {', '.join(FRAMERS)}")
    return _Target(address, scheme, rest, FRAMERS[framing])


def _open_stdio(target: _Target) -> Transport:
    words = target.words()
    if words:
        from bullpen.connection.transports.subprocess import SubprocessTransport

        return SubprocessTransport(words, framer=target.framer())
    from bullpen.connection.transports.stdio import StdioTransport

    return StdioTransport(framer=target.framer())
