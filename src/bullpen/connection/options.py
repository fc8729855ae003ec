"""What can be set on a connection, and what it tells about itself."""

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import msgspec

from bullpen.connection.handlers import Link
from bullpen.connection.transport import Clock, Decode
from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.dialect import PLAIN, Dialect
from bullpen.jsonrpc.wire import Message

__all__ = ["ConnectionStats", "Limits", "Observer", "Options", "Stage", "Trace"]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The bounds of one connection. Every queue has one."""

    running_handlers: int = 256
    """Inbound requests worked on at the same time; later ones wait."""
    waiting_requests: int = 1024
    """Inbound requests that may wait; one more is answered -32001 and may be tried again."""
    waiting_notifications: int = 100_000
    """Notifications not handled yet; one more ends the connection with `SlowConsumer`."""
    waiting_bytes: int = 64 * 2**20
    """The same in bytes on the wire, of notifications and of requests each."""
    malformed_in_a_row: int = 100
    """After so many frames that were nothing at all, the peer is not speaking JSON-RPC."""
    finish_seconds: float = 1.0
    """How long handlers may go on after the peer said its last word."""


class Stage(StrEnum):
    """Where a message is on its way."""

    REQUESTED = "requested"  # out: a caller asked for it
    ASSIGNED = "assigned"  # out: it has an id and a waiter
    SENT = "sent"  # out: the transport has taken it
    RECEIVED = "received"  # in: the transport handed it up
    ROUTED = "routed"  # in: a route, a waiter or the handlers have it
    HANDLED = "handled"  # in: a handler returned
    FAILED = "failed"  # a handler or spawned work raised; `detail` is the exception
    DROPPED = "dropped"  # nobody wanted it; `detail` says why


class Trace(msgspec.Struct, frozen=True):
    """One step of one message, for those who watch."""

    connection: str
    stage: Stage
    message: Message | None = None
    detail: Any = None


Observer = Callable[[Trace], None]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a builder has been told."""

    name: str = "connection"
    dialect: Dialect = PLAIN
    links: tuple[Link, ...] = ()
    observers: tuple[Observer, ...] = ()
    limits: Limits = Limits()
    timeout_seconds: float | None = 60.0
    debug: bool = False
    clock: Clock | None = None
    decode: Decode = decode_frame


class ConnectionStats(msgspec.Struct, frozen=True, kw_only=True):
    """A connection's figures at one moment."""

    requests_sent: int
    requests_pending: int
    requests_running: int
    requests_waiting: int
    notifications_waiting: int
    bytes_waiting: int
    most_notifications_waiting: int
    unknown_responses: int
    malformed: int
    overloaded: int
    dropped_notifications: int
