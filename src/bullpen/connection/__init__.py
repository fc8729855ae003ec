"""A JSON-RPC peer driven by asyncio: one connection, any transport, many sessions.

`Connection.builder()` describes handlers before and apart from the transport; `connect` and
`serve_with` put the two together. Transports move messages and know nothing of the protocol.
`MessageRouter` is a client of a connection that shares it between many sessions.

It is not a framework for one protocol: ACP, MCP, Codex and Copilot are dialects and method names
to it. Users import from here alone; it depends on msgspec and nothing else.

Production transports: sockets, pipes, stdio, subprocesses, streams, WebSockets, channels.
In memory: `channel_pair` here, `create_mock_transport` in `bullpen.testing`.
"""

from typing import TYPE_CHECKING, Any

from bullpen.connection.builder import Builder
from bullpen.connection.connection import Connection, Route
from bullpen.connection.context import Context, Responder
from bullpen.connection.errors import (
    AddressError,
    ConnectionClosed,
    ProcessExited,
    RequestTimeout,
    SendBufferFull,
    SlowConsumer,
    StartError,
    TransportClosed,
    TransportError,
    TransportReused,
    WouldDeadlock,
)
from bullpen.connection.handlers import DECLINED, Declined
from bullpen.connection.options import ConnectionStats, Limits, Stage, Trace
from bullpen.connection.transport import Clock, Receiver, Transport
from bullpen.connection.typed import TypedNotification, TypedRequest
from bullpen.jsonrpc.dialect import ACP, LSP, MCP, PLAIN, Dialect
from bullpen.jsonrpc.errors import LocalProtocolError, RemoteError, RemoteProtocolError, RpcError
from bullpen.jsonrpc.framing import ContentLengthFramer, LineFramer
from bullpen.jsonrpc.wire import Batch, Error, Malformed, Message, Notification, Request, Response

if TYPE_CHECKING:
    from bullpen.connection.address import listen, open_transport
    from bullpen.connection.listener import Listener, listen_tcp, listen_unix
    from bullpen.connection.transports.channel import channel_pair, create_paired_transports
    from bullpen.connection.transports.descriptor import DescriptorTransport
    from bullpen.connection.transports.socket import SocketTransport
    from bullpen.connection.transports.stdio import StdioTransport
    from bullpen.connection.transports.stream import StreamTransport
    from bullpen.connection.transports.subprocess import ServerProcessTransport, SubprocessTransport
    from bullpen.connection.transports.websocket import WebSocketTransport

__all__ = [
    "ACP",
    "DECLINED",
    "LSP",
    "MCP",
    "PLAIN",
    "AddressError",
    "Batch",
    "Builder",
    "Clock",
    "Connection",
    "ConnectionClosed",
    "ConnectionStats",
    "ContentLengthFramer",
    "Context",
    "Declined",
    "DescriptorTransport",
    "Dialect",
    "Error",
    "Limits",
    "LineFramer",
    "Listener",
    "LocalProtocolError",
    "Malformed",
    "Message",
    "Notification",
    "ProcessExited",
    "Receiver",
    "RemoteError",
    "RemoteProtocolError",
    "Request",
    "RequestTimeout",
    "Responder",
    "Response",
    "Route",
    "RpcError",
    "SendBufferFull",
    "ServerProcessTransport",
    "SlowConsumer",
    "SocketTransport",
    "Stage",
    "StartError",
    "StdioTransport",
    "StreamTransport",
    "SubprocessTransport",
    "Trace",
    "Transport",
    "TransportClosed",
    "TransportError",
    "TransportReused",
    "TypedNotification",
    "TypedRequest",
    "WebSocketTransport",
    "WouldDeadlock",
    "channel_pair",
    "create_paired_transports",
    "listen",
    "listen_tcp",
    "listen_unix",
    "open_transport",
]

# A program uses one or two ways to connect: each is imported when it is first asked for.
_HOMES = {
    "bullpen.connection.address": ("listen", "open_transport"),
    "bullpen.connection.listener": ("Listener", "listen_tcp", "listen_unix"),
    "bullpen.connection.transports.channel": ("channel_pair", "create_paired_transports"),
    "bullpen.connection.transports.descriptor": ("DescriptorTransport",),
    "bullpen.connection.transports.socket": ("SocketTransport",),
    "bullpen.connection.transports.stdio": ("StdioTransport",),
    "bullpen.connection.transports.stream": ("StreamTransport",),
    "bullpen.connection.transports.subprocess": ("ServerProcessTransport", "SubprocessTransport"),
    "bullpen.connection.transports.websocket": ("WebSocketTransport",),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(import_module(module), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
