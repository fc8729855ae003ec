"""The gateway's connection to one source: opened when it is needed, and again after it was lost."""

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import msgspec

from bullpen.api.methods import DeliverRaw, EventsAvailable, PullEvents, PullReply
from bullpen.connection import (
    Connection,
    ConnectionClosed,
    RemoteError,
    RequestTimeout,
    Transport,
    TransportError,
)
from bullpen.errors import BullpenError
from bullpen.jsonrpc.errors import INVALID_PARAMS
from bullpen.model.sources import SourceHealth
from bullpen.model.states import SourceKind
from bullpen.observe.sources.serve import PullCommitted
from bullpen.terminal.tmux.backoff import Backoff

__all__ = ["Feed", "OpenTransport", "Pulled", "Unreachable"]

logger = logging.getLogger("bullpen.observe")

MAX_CURSOR_LENGTH = 1024

OpenTransport = Callable[[], Transport | Awaitable[Transport]]
"""Makes a new way to a source; called again for each connection."""


class Unreachable(BullpenError):
    """A source cannot be asked, or its answer makes no sense. It is asked again later."""


class Pulled(msgspec.Struct, frozen=True, kw_only=True):
    """What a source answered. Its events may be anything, over a channel observations."""

    events: tuple[Any, ...]
    next_cursor: str
    heartbeat_ts: datetime
    source_health: SourceHealth


class Feed:
    """One source, as far as pulling from it goes.

    Given a connection, it uses that one as long as it lasts and leaves it open. Given a way to make
    transports, it connects itself, with a growing pause after each failure.
    """

    def __init__(
        self,
        kind: SourceKind,
        source: Connection | OpenTransport,
        *,
        timeout_seconds: float,
        on_notice: Callable[["Feed"], None],
    ) -> None:
        self.kind = kind
        self.is_nudged = False  # it has said that it has something
        self.pulling: asyncio.Task[None] | None = None
        self._connection = source if isinstance(source, Connection) else None
        self._open_transport = None if isinstance(source, Connection) else source
        self._timeout = timeout_seconds
        self._on_notice = on_notice
        self._backoff = Backoff()
        self._connecting = asyncio.Lock()  # a pull and a delivery may come at the same time
        self._is_closed = False
        self._is_plain = False  # it knows no params but those of the seed

    def has_news(self, now: datetime) -> bool:
        """Whether it has said so, and can be pulled from."""
        is_open = self._connection is not None and not self._connection.is_closed
        return self.is_nudged and is_open and self.may_pull(now)

    def may_pull(self, now: datetime) -> bool:
        """Whether nobody pulls from it just now, and the pause after a failure is over."""
        return self.pulling is None and self._backoff.may_try(now.timestamp())

    async def pull(
        self, cursor: str | None, committed: str | None, limit: int, now: Callable[[], datetime]
    ) -> Pulled:
        """Ask for what follows a cursor.

        Raises:
            RemoteError: the source refused, perhaps the cursor.
            Unreachable: there is no answer that makes sense.
        """
        self.is_nudged = False
        try:
            connection = await self._connect()
            answer = await self._ask(connection, cursor, committed, limit)
        except RemoteError:
            self._backoff.succeeded()
            raise
        except RequestTimeout as error:  # it may be busy; the connection is fine
            raise Unreachable(str(error)) from error
        except (ConnectionClosed, TransportError, TimeoutError) as error:
            self._backoff.failed(now().timestamp())
            raise Unreachable(str(error) or "it cannot be connected to in time") from error
        except (ValueError, RecursionError) as error:
            raise Unreachable("its answer is not readable") from error
        self._backoff.succeeded()
        return _read(answer)

    async def deliver(self, request: DeliverRaw) -> None:
        """Hand over what a program has pushed.

        Raises:
            RemoteError: the source makes nothing of it.
            Unreachable: it cannot be told.
        """
        try:
            connection = await self._connect()
            await connection.request(request, timeout=self._timeout)
        except (ConnectionClosed, TransportError, TimeoutError, RequestTimeout) as error:
            raise Unreachable(str(error) or "it cannot be connected to in time") from error

    async def aclose(self) -> None:
        """Stop pulling, and close what was opened here."""
        if self.pulling is not None:
            self.pulling.cancel()
            await asyncio.wait((self.pulling,))
        self._is_closed = True
        async with self._connecting:  # which is bounded by the timeout
            if self._open_transport is not None and self._connection is not None:
                await self._connection.aclose()

    async def _connect(self) -> Connection:
        async with self._connecting:
            return await self._connect_alone()

    async def _connect_alone(self) -> Connection:
        if self._connection is not None and not self._connection.is_closed:
            return self._connection
        if self._open_transport is None or self._is_closed:
            raise ConnectionClosed(self._connection.cause if self._connection else None)
        if self._connection is not None:
            await self._connection.aclose()
        builder = (
            Connection.builder()
            .name(f"gateway:{self.kind}")
            .timeout(self._timeout)
            .on_notification(EventsAvailable, self._noticed)
        )
        async with asyncio.timeout(self._timeout):
            transport = self._open_transport()
            if inspect.isawaitable(transport):
                transport = await transport
            self._connection = await builder.open(transport)
        return self._connection

    async def _ask(
        self, connection: Connection, cursor: str | None, committed: str | None, limit: int
    ) -> Any:
        plain = PullEvents(cursor=cursor, limit=limit)
        if not self._is_plain:
            request = PullCommitted(
                cursor=cursor, limit=limit, committed_cursor=committed, wants_notice=True
            )
            try:
                return await self._send(connection, request)
            except RemoteError as error:
                if error.code != INVALID_PARAMS:
                    raise
            self._is_plain = True
        return await self._send(connection, plain)

    async def _send(self, connection: Connection, request: PullEvents) -> Any:
        # Without a result type: an event that makes no sense is not to spoil the others.
        return await connection.request(PullEvents.METHOD, request, timeout=self._timeout)

    def _noticed(self, notice: EventsAvailable, context: object) -> None:  # noqa: ARG002
        self.is_nudged = True
        self._on_notice(self)


def _read(answer: object) -> Pulled:
    if isinstance(answer, PullReply):
        return Pulled(
            events=answer.events,
            next_cursor=answer.next_cursor,
            heartbeat_ts=answer.heartbeat_ts,
            source_health=answer.source_health,
        )
    try:
        pulled = msgspec.convert(answer, Pulled)
    except msgspec.ValidationError as error:
        raise Unreachable(f"its answer makes no sense: {error}") from error
    cursor = pulled.next_cursor
    if len(cursor) > MAX_CURSOR_LENGTH or not cursor.isprintable():  # it is kept in the store
        raise Unreachable(f"its cursor is no good: {cursor[:80]!r}")
    return pulled
