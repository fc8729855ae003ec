"""Pulling from sources: all of them at the same time, and none of them waited for.

How far each was read is a pair of cursors: what was fetched, and what of it is committed, because
all that was read up to there has been acknowledged by whoever keeps it.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from bullpen.api.errors import ApiError, reason_of
from bullpen.api.methods import DeliverRaw
from bullpen.connection import Connection, RemoteError
from bullpen.model.reasons import Reason
from bullpen.model.sources import CursorState
from bullpen.model.states import SourceKind
from bullpen.observe.consumers import FOLD, PROJECTION, Trouble
from bullpen.observe.cursors import Recovery, SourceCursor
from bullpen.observe.deliveries import DeliveryLimits, DeliveryLog
from bullpen.observe.feed import Feed, OpenTransport, Pulled, Unreachable
from bullpen.observe.sources.port import Now

__all__ = ["Feeds", "GatewayLimits"]

logger = logging.getLogger("bullpen.observe")


class GatewayLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is pulled, and how long is waited for it."""

    pull_limit: int = 500
    pulls_in_a_row: int = 20
    """As long as a source gives all that was asked for."""
    pull_timeout_seconds: float = 5.0
    patience_seconds: float = 0.25
    """For how long `pull` waits for the slowest; its answer is then taken when it comes."""
    deliveries: DeliveryLimits = DeliveryLimits()


class Feeds:
    """The sources that are pulled from, and how far each was read.

    `take` is given what a source answered, and puts it into the log; `stir` is called when there is
    something to pull, `on_unreachable` with the reason when a source could not be.
    """

    def __init__(
        self,
        log: DeliveryLog,
        now: Now,
        limits: GatewayLimits,
        *,
        take: Callable[[SourceKind, Pulled], None],
        stir: Callable[[], None],
        on_unreachable: Callable[[SourceKind, str], None],
        on_trouble: Trouble,
    ) -> None:
        self._log = log
        self._now = now
        self._limits = limits
        self._take = take
        self._stir = stir
        self._on_unreachable = on_unreachable
        self._on_trouble = on_trouble
        self._feeds: dict[SourceKind, Feed] = {}
        self._cursors: dict[SourceKind, SourceCursor] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __contains__(self, kind: SourceKind) -> bool:
        return kind in self._feeds

    def __getitem__(self, kind: SourceKind) -> Feed:
        return self._feeds[kind]

    def connect(self, kind: SourceKind, source: Connection | OpenTransport) -> None:
        """Pull from a source from now on, in the place of any other of its kind."""
        self.detach(kind)
        self._cursors.setdefault(kind, SourceCursor())
        self._feeds[kind] = Feed(
            kind,
            source,
            timeout_seconds=self._limits.pull_timeout_seconds,
            on_notice=lambda _: self._stir(),
        )

    def forget(self, kind: SourceKind) -> None:
        """Read whoever is next of a kind from its start."""
        self._cursors.pop(kind, None)

    def detach(self, kind: SourceKind) -> None:
        """Pull no longer from a source, if there is one of that kind."""
        feed = self._feeds.pop(kind, None)
        if feed is not None:
            closing = asyncio.get_running_loop().create_task(
                feed.aclose(), name=f"gateway:{kind}:close"
            )
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def has_news(self, now: datetime) -> bool:
        """Whether a source has said that it has something, and can be pulled from."""
        return any(feed.has_news(now) for feed in self._feeds.values())

    async def pull(self, now: datetime, *, only_nudged: bool = False) -> None:
        """Pull from all of them, or from those that have said they have something.

        One that takes long is not waited for: its answer is taken when it comes, and until then it
        is not asked again.
        """
        begun = [
            self._begin_pull(feed)
            for feed in self._feeds.values()
            if feed.may_pull(now) and (feed.is_nudged or not only_nudged)
        ]
        if begun:
            await asyncio.wait(begun, timeout=self._limits.patience_seconds)

    async def deliver(self, kind: SourceKind, request: DeliverRaw) -> None:
        """Hand a source what a program has pushed.

        Raises:
            ApiError: there is no such source, or it makes nothing of it.
        """
        feed = self._feeds.get(kind)
        if feed is None:
            raise ApiError(Reason.SOURCE_REGISTRY_MISS, f"there is no {kind} to deliver to")
        try:
            await feed.deliver(request)
        except Unreachable as error:
            raise ApiError(Reason.SOURCE_INADMISSIBLE, f"{kind}: {error}") from error

    def restore(self, state: CursorState) -> None:
        """Go on where a source was read to, as far as that was committed."""
        self._cursors[state.source_kind] = SourceCursor(state.committed_cursor)

    def commit(self, committed_seq: int) -> None:
        """Note that all of the log up to a number is kept."""
        for cursor in self._cursors.values():
            cursor.commit(committed_seq)

    def cursors(self) -> tuple[CursorState, ...]:
        """Return how far each source was read."""
        now = self._now()
        return tuple(
            CursorState(
                source_kind=kind,
                fetched_cursor=cursor.fetched,
                committed_cursor=cursor.committed,
                checkpoint_ts=now,
            )
            for kind, cursor in self._cursors.items()
        )

    async def aclose(self) -> None:
        """Stop pulling, and close what was opened for it. Idempotent."""
        for kind in tuple(self._feeds):
            self.detach(kind)
        if self._closing:
            await asyncio.wait(tuple(self._closing))  # each of them is bounded

    def _begin_pull(self, feed: Feed) -> "asyncio.Task[None]":
        feed.pulling = asyncio.get_running_loop().create_task(
            self._pull_feed(feed), name=f"gateway:{feed.kind}:pull"
        )
        return feed.pulling

    async def _pull_feed(self, feed: Feed) -> None:
        try:
            await self._pull_all(feed)
        except Unreachable as error:
            self._on_unreachable(feed.kind, str(error))
        except RemoteError as error:
            self._on_unreachable(feed.kind, f"it refused to be pulled from: {error.message}")
        except Exception as error:  # the boundary: one source must not end the others' pulling
            logger.exception("%s: pulling failed", feed.kind)
            self._on_unreachable(feed.kind, f"pulling failed: {type(error).__name__}")
        finally:
            feed.pulling = None
            if feed.is_nudged:
                self._stir()

    async def _pull_all(self, feed: Feed) -> None:
        """Pull until the source has nothing more, the log no room, or it has been a lot."""
        cursor = self._cursors[feed.kind]
        for _ in range(self._limits.pulls_in_a_row):
            limit = min(self._limits.pull_limit, self._log.room(FOLD))
            if not limit:
                return
            asked = cursor.fetched
            try:
                pulled = await feed.pull(asked, cursor.committed, limit, self._now)
            except RemoteError as error:
                if not _is_invalid_cursor(error) or asked is None:
                    raise
                self._recover(feed.kind, cursor)
                continue
            if not self._is_feeding(feed):
                return
            self._take(feed.kind, pulled)
            committed = self._log.committed_seq(PROJECTION)
            cursor.fetch(pulled.next_cursor, self._log.last_seq, committed)
            if len(pulled.events) < limit or pulled.next_cursor == asked:
                return

    def _is_feeding(self, feed: Feed) -> bool:
        """Whether it is still the one to be pulled from; it may have moved, or been revoked."""
        return self._feeds.get(feed.kind) is feed

    def _recover(self, kind: SourceKind, cursor: SourceCursor) -> None:
        recovery = cursor.refuse(self._now())
        logger.log(
            logging.WARNING if recovery is Recovery.RESYNC else logging.INFO,
            "%s: it does not know the cursor: %s",
            kind,
            recovery,
        )
        if recovery is Recovery.RESYNC:
            message = f"{kind} refused cursor after cursor and is read from its start"
            self._on_trouble(Reason.INVALID_CURSOR, message, kind)


def _is_invalid_cursor(error: RemoteError) -> bool:
    is_code = error.code == Reason.INVALID_CURSOR
    return is_code or reason_of(error) == Reason.INVALID_CURSOR.word
