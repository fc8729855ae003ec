"""Those who are told of changes: each over its own connection, in order, without gaps."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from bullpen.api.methods import StateChanged, SubscribeReply, SummaryChanged
from bullpen.connection import (
    Connection,
    ConnectionClosed,
    Context,
    SendBufferFull,
    TypedNotification,
)
from bullpen.model.views import StateChange, Summary

__all__ = ["Subscribers"]


class Subscribers:
    """Tells changes to all who asked. Who does not read is cut off, never told a part of it."""

    def __init__(self) -> None:
        self._connections: set[Connection] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._connections)

    def add(self, context: Context, version: int, missed: Iterable[StateChange] | None) -> None:
        """Answer who subscribes, tell it what it missed, then all that comes.

        Without `missed`, what lies between is forgotten: it is to list everything again.
        """
        connection, changes = context.connection, tuple(missed or ())
        context.respond(SubscribeReply(version - len(changes), resync_required=missed is None))
        for change in changes:
            self._send(connection, StateChanged(change))
        self._connections.add(connection)
        connection.on_close(lambda _: self._connections.discard(connection))

    def tell(self, changes: Iterable[StateChange]) -> None:
        """Tell of changes, and wake whoever waits for one."""
        for change in changes:
            self._broadcast(StateChanged(change))
        self.wake()

    def tell_summary(self, summary: Summary) -> None:
        """Tell that the numbers are others."""
        self._broadcast(SummaryChanged(summary))

    def wake(self) -> None:
        """Let whoever waits look again."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait_until(self, is_so: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until something is so, looking after each change; return whether it is."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(timeout_seconds, 0.0)):
                while not is_so():
                    await self._changed.wait()
        return is_so()

    def hang_up(self) -> None:
        """End the connection of everybody who was told."""
        for connection in tuple(self._connections):
            connection.close_soon()

    def _broadcast(self, notification: TypedNotification) -> None:
        for connection in tuple(self._connections):
            self._send(connection, notification)

    def _send(self, connection: Connection, notification: TypedNotification) -> None:
        try:
            connection.send_notification(notification)
        except (ConnectionClosed, SendBufferFull):
            self._connections.discard(connection)
            connection.close_soon()
