"""A JSON-RPC peer driven by asyncio: one connection, any transport, many sessions.

`Connection.builder()` describes handlers before and apart from the transport; `connect` and
`serve_with` put the two together. Transports move messages and know nothing of the protocol.
`MessageRouter` is a client of a connection that shares it between many sessions.

It is not a framework for one protocol: ACP, MCP, Codex and Copilot are dialects and method names
to it. Users import from here alone; it depends on msgspec and nothing else.

Production transports: sockets, pipes, stdio, subprocesses, streams, WebSockets, channels.
In memory: `channel_pair` here, `create_mock_transport` in `bullpen.testing`.
"""

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
from bullpen.connection.transports.channel import channel_pair, create_paired_transports
from bullpen.connection.transports.descriptor import DescriptorTransport
from bullpen.connection.transports.socket import SocketTransport
from bullpen.connection.typed import TypedNotification, TypedRequest
from bullpen.jsonrpc.dialect import ACP, LSP, MCP, PLAIN, Dialect
from bullpen.jsonrpc.errors import LocalProtocolError, RemoteError, RemoteProtocolError, RpcError
from bullpen.jsonrpc.framing import ContentLengthFramer, LineFramer
from bullpen.jsonrpc.wire import Batch, Error, Malformed, Message, Notification, Request, Response

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
    "SlowConsumer",
    "SocketTransport",
    "Stage",
    "StartError",
    "Trace",
    "Transport",
    "TransportClosed",
    "TransportError",
    "TransportReused",
    "TypedNotification",
    "TypedRequest",
    "WouldDeadlock",
    "channel_pair",
    "create_paired_transports",
]
