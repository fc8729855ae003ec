"""Serving a source: its looks, its health, and what it said until somebody has kept it.

    async with SourceServer(source, now) as server:
        gateway.attach(source.kind, server.open_channel)

The same server answers over a channel, as here, or over a Unix socket in a process of its own
(`serve_source`).
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec
from msgspec import UNSET, UnsetType

from bullpen.api.errors import ApiError
from bullpen.api.methods import DeliverRaw, EventsAvailable, PullEvents, PullReply
from bullpen.connection import (
    Builder,
    Connection,
    ConnectionClosed,
    Context,
    RpcError,
    Transport,
    TransportClosed,
    TransportError,
    channel_pair,
    listen_unix,
)
from bullpen.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS
from bullpen.model.events import HEARTBEAT
from bullpen.model.observations import Observation
from bullpen.model.reasons import Reason
from bullpen.model.sources import SourceHealth
from bullpen.model.states import HealthStatus
from bullpen.observe.admission import MAX_EVENT_BYTES
from bullpen.observe.errors import InvalidCursor
from bullpen.observe.health import Health, Look, step, worst
from bullpen.observe.sources.buffer import EventBuffer
from bullpen.observe.sources.port import Now, Source, SourceTrouble

__all__ = ["MAX_PULL", "PullCommitted", "ServeLimits", "SourceServer", "serve_source"]

logger = logging.getLogger("bullpen.observe")

MAX_PULL = 5_000
CALM_SECONDS = 2.0  # between the looks of a source that has nobody to look at
SHORTEST_PAUSE = 0.25  # of the interval, after a look that took longer than it
LOSS_SHOWN = timedelta(seconds=60)
ERRORS_REMEMBERED = 100


class PullCommitted(PullEvents):
    """A pull by whoever also says what it has kept, which is all that is dropped then.

    Whoever pulls without saying so has kept what lies before its cursor.
    """

    committed_cursor: str | UnsetType | None = UNSET
    wants_notice: bool = False
    """Send `source.events_available`, once between two pulls."""


class ServeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The times a source is given, and the bounds of what it may have said."""

    open_timeout_seconds: float = 15.0
    look_timeout_seconds: float = 10.0
    deliver_timeout_seconds: float = 10.0
    close_timeout_seconds: float = 5.0
    retry_open_seconds: float = 5.0
    max_events: int = 10_000
    max_bytes: int = 32 * 2**20


class SourceServer:
    """Looks through a source for the length of a block, and serves what it says.

    Two looks never run at the same time: one that hangs is cancelled and waited for. A look that
    crashes is logged, once for each kind of crash, and is followed by the next.
    """

    def __init__(
        self, source: Source, now: Now, *, epoch: str = "", limits: ServeLimits | None = None
    ) -> None:
        self._source = source
        self._now = now
        self._limits = limits or ServeLimits()
        self._buffer = EventBuffer(
            epoch or secrets.token_hex(4),
            capacity=self._limits.max_events,
            max_bytes=self._limits.max_bytes,
        )
        at = now()
        self._health = Health(HealthStatus.DEGRADED, at, at, "it has not looked yet")
        self._is_absent = False
        self._last_event_at: datetime | None = None
        self._lost_at: datetime | None = None
        self._refused = 0  # observations that cannot be written
        self._logged: dict[object, None] = {}  # the crashes that were logged
        self._logged_status = HealthStatus.HEALTHY
        self._has_committer = False
        self._peers: dict[Connection, bool] = {}  # who wants notices, and whether it has one
        self._notice_is_due = False
        self._channels: set[Connection] = set()
        self._opened = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        self._runner = asyncio.create_task(self._run(), name=f"{self._source.kind}:looks")
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._is_closed = True
        if self._runner is not None:
            # It waits itself, for a look that does not end.
            await _end(self._runner, 2 * self._limits.close_timeout_seconds)
        for connection in tuple(self._channels):
            await connection.aclose()
        await self._close_source()

    @property
    def buffered(self) -> int:
        """How many observations are kept."""
        return len(self._buffer)

    def health(self) -> SourceHealth:
        """Return how the source fares."""
        health, now = self._health, self._now()
        status, reason = health.status, health.reason
        if self._lost_at is not None and now - self._lost_at <= LOSS_SHOWN:
            status = worst(status, HealthStatus.DEGRADED)
            reason = reason or f"{self._buffer.lost} observations were lost: nobody pulled them"
        dropped = {"buffer_full": self._buffer.lost, "unserializable": self._refused}
        return SourceHealth(
            status=status,
            checked_at=health.checked_at,
            reason=reason,
            is_absent=self._is_absent,
            last_event_at=self._last_event_at,
            dropped={name: count for name, count in dropped.items() if count},
            version=self._source.version,
        )

    def builder(self) -> Builder:
        """Return what serves this source over any transport, to any number of peers."""
        return (
            Connection.builder()
            .name(f"source:{self._source.kind}")
            .on_request(PullEvents.METHOD, self._pull)
            .on_request(DeliverRaw, self._deliver)
        )

    async def open_channel(self) -> Transport:
        """Return an end of a channel at whose other end this source is served.

        Raises:
            TransportClosed: it is served no longer.
        """
        if self._is_closed:
            raise TransportClosed(f"{self._source.kind} is no longer served")
        near, far = channel_pair()
        connection = await self.builder().open(far)
        self._channels.add(connection)
        connection.on_close(lambda _: self._channels.discard(connection))
        return near

    # ------------------------------------------------------------------------------------- looking

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        await self._open()
        self._opened.set()
        while True:
            begun = loop.time()
            await self._look()
            interval = self._source.interval_seconds
            if self._source.is_calm:
                interval = max(interval, CALM_SECONDS)
            await asyncio.sleep(_pause(begun, loop.time(), interval))

    async def _open(self) -> None:
        """Open the source, however often that has to be tried."""
        while True:
            try:
                async with asyncio.timeout(self._limits.open_timeout_seconds):
                    await self._source.open(self._emit)
            except TimeoutError:
                seconds = self._limits.open_timeout_seconds
                self._note(Look.BLIND, f"it did not open within {seconds:g} s")
            except Exception as error:  # noqa: BLE001 - the boundary: a source is not its server
                self._note_error(error)
            else:
                return
            await self._close_source()
            await asyncio.sleep(self._limits.retry_open_seconds)

    async def _look(self) -> None:
        """Look once, however long that takes."""
        timeout = self._limits.look_timeout_seconds
        look = asyncio.create_task(self._look_once(), name=f"{self._source.kind}:look")
        timeouts = 0
        try:
            while not (await asyncio.wait((look,), timeout=timeout))[0]:
                timeouts += 1
                self._note(Look.TIMED_OUT, f"it has been looking for {timeouts * timeout:g} s")
                look.cancel()
        finally:
            if not look.done():
                await _end(look, self._limits.close_timeout_seconds)
        if look.cancelled():
            if not timeouts:
                self._note(Look.FAILED, "its look was cancelled")
        elif error := look.exception():
            self._note_error(error)
        else:
            self._note(Look.SUCCEEDED)

    async def _look_once(self) -> None:
        await self._source.look()

    def _note_error(self, error: BaseException) -> None:
        if isinstance(error, SourceTrouble):
            self._note(
                Look.BLIND if error.is_down else Look.PARTIAL,
                str(error),
                is_absent=error.is_absent,
            )
        else:
            self._log_once(error, "looking crashed")
            self._note(Look.FAILED, f"it crashed: {type(error).__name__}: {error}")

    def _log_once(self, error: BaseException, what: str) -> None:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        # The same line again is the same crash, also if its words differ a little.
        crash = (type(error), place and (place.tb_frame.f_code, place.tb_lineno))
        if crash in self._logged:
            return
        if len(self._logged) >= ERRORS_REMEMBERED:
            del self._logged[next(iter(self._logged))]
        self._logged[crash] = None
        logger.error("%s: %s", self._source.kind, what, exc_info=error)

    def _note(self, look: Look, reason: str = "", *, is_absent: bool = False) -> None:
        self._health = step(self._health, look, self._now(), reason)
        status = self._health.status
        if look is not Look.EMITTED:
            self._is_absent = is_absent
        if look is not Look.EMITTED and status is not self._logged_status:
            self._logged_status = status
            is_fine = is_absent or status is HealthStatus.HEALTHY
            level = logging.INFO if is_fine else logging.WARNING
            logger.log(
                level, "%s is %s %s", self._source.kind, status, f"({reason})" * bool(reason)
            )

    async def _close_source(self) -> None:
        try:
            async with asyncio.timeout(self._limits.close_timeout_seconds):
                await self._source.aclose()
        except Exception:  # the boundary: closing must come to its end
            logger.exception("%s: closing the source failed", self._source.kind)

    # ------------------------------------------------------------------------------------- emitting

    def _emit(self, observation: Observation) -> None:
        try:
            size = len(msgspec.json.encode(observation))
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            self._refused += 1
            self._log_once(error, "an observation cannot be written as JSON")
            return
        if size > MAX_EVENT_BYTES:  # what happened matters more than what came with it
            observation = msgspec.structs.replace(observation, payload={"omitted_bytes": size})
            size = len(msgspec.json.encode(observation))
        now = self._now()
        if self._buffer.append(observation, size):
            self._lost_at = now
        self._last_event_at = now
        if observation.event_type != HEARTBEAT:
            self._note(Look.EMITTED)
        if not self._notice_is_due and not all(self._peers.values()):
            self._notice_is_due = True
            asyncio.get_running_loop().call_soon(self._notify)

    def _notify(self) -> None:
        self._notice_is_due = False
        notice = EventsAvailable(source_kind=self._source.kind)
        for peer, was_told in tuple(self._peers.items()):
            if not was_told:
                self._peers[peer] = True
                # Whoever cannot be told pulls sooner or later.
                with contextlib.suppress(ConnectionClosed, TransportError):
                    peer.send_notification(notice)

    # ------------------------------------------------------------------------------------- serving

    def _pull(self, params: Any, context: Context) -> PullReply:
        try:
            # Over a channel comes whatever object the peer has made of it.
            request = msgspec.convert(params, PullCommitted, from_attributes=True)
        except msgspec.ValidationError as error:
            raise RpcError(INVALID_PARAMS, f"Invalid params: {error}") from error
        if not 1 <= request.limit <= MAX_PULL:
            raise RpcError(INVALID_PARAMS, f"Invalid params: limit is not from 1 to {MAX_PULL}")
        try:
            events, next_cursor = self._buffer.pull(request.cursor, request.limit)
        except InvalidCursor as error:
            raise ApiError(error.reason, str(error)) from error
        self._compact(request)
        if request.wants_notice:
            self._expect_notices(context.connection)
        return PullReply(
            events=events,
            next_cursor=next_cursor,
            heartbeat_ts=self._now(),
            source_health=self._health_beside(events),
        )

    def _health_beside(self, events: tuple[Observation, ...]) -> SourceHealth:
        """Return the health to tell with these.

        Nothing is taken from a source that is down. What was seen before it went down still
        counts, so that is told first.
        """
        health = self.health()
        has_news = any(each.event_type != HEARTBEAT for each in events)
        if has_news and health.status is HealthStatus.DOWN:
            return msgspec.structs.replace(health, status=HealthStatus.DEGRADED)
        return health

    def _compact(self, request: PullCommitted) -> None:
        kept = request.committed_cursor
        if kept is UNSET:
            kept = None if self._has_committer else request.cursor
        else:
            self._has_committer = True
        if kept is not None:
            with contextlib.suppress(InvalidCursor):  # of an earlier run: nothing of it is here
                self._buffer.compact(kept)

    def _expect_notices(self, peer: Connection) -> None:
        if peer not in self._peers:
            peer.on_close(lambda _: self._peers.__delitem__(peer))
        self._peers[peer] = False

    async def _deliver(self, request: DeliverRaw, context: Context) -> bool:  # noqa: ARG002
        if request.at.tzinfo is None:
            raise RpcError(INVALID_PARAMS, "Invalid params: at has no offset from UTC")
        try:
            async with asyncio.timeout(self._limits.deliver_timeout_seconds):
                await self._opened.wait()
                await self._source.deliver(request.payload, request.at, request.origin)
        except SourceTrouble as error:
            raise ApiError(Reason.INVALID_SOURCE_EVENT, str(error)) from error
        except TimeoutError as error:
            raise RpcError(INTERNAL_ERROR, "the source did not take it in time") from error
        return True


async def serve_source(
    source: Source,
    socket_path: str,
    now: Now,
    *,
    limits: ServeLimits | None = None,
    on_ready: Callable[[], None] | None = None,
) -> None:
    """Serve a source at a Unix socket, which is its owner's alone, until cancelled.

    Raises:
        AddressError: the socket cannot be made there.
    """
    async with (
        SourceServer(source, now, limits=limits) as server,
        listen_unix(socket_path, server.builder()) as listener,
    ):
        if on_ready is not None:
            on_ready()
        await listener.wait_closed()


async def _end(work: "asyncio.Task[None]", timeout_seconds: float) -> None:
    work.cancel()
    _, stuck = await asyncio.wait((work,), timeout=timeout_seconds)
    if stuck:
        logger.error("%s does not end", work.get_name())
    elif not work.cancelled() and (error := work.exception()) is not None:
        logger.error("%s failed", work.get_name(), exc_info=error)


def _pause(begun: float, now: float, interval: float) -> float:
    """Return how long to wait for the next look.

    Everybody looks at the same beats of the clock, so that the process is woken once for all.
    """
    beat = (begun // interval + 1) * interval
    if beat - begun < interval / 2:  # it began late: the next beat is too soon
        beat += interval
    return max(beat - now, interval * SHORTEST_PAUSE)
