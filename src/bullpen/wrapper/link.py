"""The connection with the daemon, which may go away and come back; the agent does not notice.

The first thing said on every connection is who we are. What could not be told in between is told by
what became of each attempt, and by the state as it is now.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TypeVar

import msgspec

from bullpen.api.errors import reason_of
from bullpen.api.runtime import Paths
from bullpen.api.wrapping import RegisterReply, RegisterWrapper
from bullpen.connection import (
    Builder,
    Connection,
    ConnectionClosed,
    RemoteError,
    SocketTransport,
    TypedNotification,
    TypedRequest,
)
from bullpen.errors import BullpenError
from bullpen.model.reasons import Reason

__all__ = ["Link"]

logger = logging.getLogger("bullpen.wrapper")

REGISTER_SECONDS = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 1.0  # the latter is how long agents are missing to a new daemon

_NOT_KNOWN = tuple(
    each.word
    for each in (Reason.IDENTITY_UNKNOWN, Reason.IDENTITY_EXPIRED, Reason.IDENTITY_FOREIGN)
)

R = TypeVar("R")


class Link:
    """The way to the daemon. `opened` is called after every registration."""

    def __init__(
        self,
        paths: Paths,
        builder: Builder,
        register: Callable[[], RegisterWrapper],
        *,
        opened: Callable[[RegisterReply], None],
        starts_daemon: bool = True,
    ) -> None:
        self._paths = paths
        self._builder = builder
        self._register = register
        self._opened = opened
        self._starts_daemon = starts_daemon
        self._connection: Connection | None = None
        self.who: RegisterReply | None = None
        """As whom we are registered; None as long as there never was a daemon."""

    @property
    def is_open(self) -> bool:
        """Whether there is a daemon, as far as is known."""
        return self._connection is not None and not self._connection.is_closed

    async def open(self) -> RegisterReply:
        """Find the daemon, or start it, and register.

        Raises:
            BullpenError: there is none, or it refuses.
        """
        try:
            return await self._open()
        except RemoteError:
            raise
        except BullpenError:
            if not self._starts_daemon:
                raise
        from bullpen.api.start import start_daemon  # which most wrappers need not load

        await start_daemon(self._paths)
        return await self._open()

    async def run(self) -> None:
        """Keep the connection, and make it again when it is lost. Runs until cancelled."""
        pause = FIRST_PAUSE
        while True:
            if self._connection is not None:
                await self._connection.wait_closed()
                await self._hang_up()
                pause = FIRST_PAUSE
            try:
                await self._open()
            except BullpenError as error:
                logger.info("no daemon yet: %s", error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    def tell(self, notification: TypedNotification) -> bool:
        """Tell the daemon something, if it is there; return whether it may have heard."""
        if self._connection is None:
            return False
        try:
            self._connection.send_notification(notification)
        except BullpenError:
            return False
        return True

    async def request(self, request: TypedRequest[R], *, seconds: float) -> R:
        """Ask the daemon something.

        Raises:
            BullpenError: it is not there, refuses, or does not answer in time.
        """
        if self._connection is None:
            raise ConnectionClosed(None)
        return await self._connection.request(request, timeout=seconds)

    async def aclose(self) -> None:
        """Hang up."""
        await self._hang_up()

    async def _open(self) -> RegisterReply:
        connection = await self._builder.open(SocketTransport.unix(str(self._paths.socket)))
        try:
            self.who = await self._introduce(connection)
        except BaseException:
            await connection.aclose()
            raise
        self._connection = connection
        self._opened(self.who)
        return self.who

    async def _introduce(self, connection: Connection) -> RegisterReply:
        request = self._register()
        try:
            return await connection.request(request, timeout=REGISTER_SECONDS)
        except RemoteError as error:
            if not request.secret or reason_of(error) not in _NOT_KNOWN:
                raise  # and come back as who we are
            # Another daemon than the one that gave it, perhaps after its state was deleted.
            logger.warning("the daemon does not know us: %s", error)
            again = msgspec.structs.replace(request, secret="")
            return await connection.request(again, timeout=REGISTER_SECONDS)

    async def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(BullpenError):
                await connection.aclose()
