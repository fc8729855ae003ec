"""The one door through which observations come: registered, admitted, told apart, put in order.

    sources -> pull_sources / ingest -> the log -> take / pull -> ack

Each observation that is taken gets the next ingest sequence, once. Whoever reads the log is given a
batch and a token, and again until it acknowledges. How far each source was read is committed only
when all that was read from it has been acknowledged by the projection: whatever ends in between,
nothing is lost, and what is read again makes no difference.

Except for pulling and closing, nothing here waits. Every refusal is an `ApiError` of the one table.
"""

import asyncio
import logging
import secrets
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import PurePosixPath
from typing import Any

import msgspec

from bullpen.api.errors import ApiError
from bullpen.api.methods import (
    PROTOCOL_VERSION,
    AckResult,
    DeliverRaw,
    GatewayReply,
    HelloReply,
    IngestReply,
    Refusal,
    RewindReply,
)
from bullpen.connection import Connection, RpcError, open_transport
from bullpen.jsonrpc.errors import INVALID_PARAMS
from bullpen.model.reasons import Reason
from bullpen.model.records import Ingested, Restored
from bullpen.model.sources import CursorState, SourceHealth, SourceRegistration
from bullpen.model.states import HealthStatus, RegistryState, SourceKind
from bullpen.observe.admission import (
    Outcome,
    decode_observation,
    encode_observation,
    event_id_of,
    suppressor,
)
from bullpen.observe.consumers import (
    FOLD,
    MAX_BATCH,
    OURS,
    PROJECTION,
    Consumers,
    Trouble,
    as_api_errors,
)
from bullpen.observe.cursors import Checkpoints
from bullpen.observe.dedup import DedupWindow
from bullpen.observe.deliveries import Delivery, DeliveryLog
from bullpen.observe.errors import Refused
from bullpen.observe.feed import OpenTransport, Pulled
from bullpen.observe.freshness import Link
from bullpen.observe.health import worst
from bullpen.observe.pulling import Feeds, GatewayLimits
from bullpen.observe.refusals import Refusals
from bullpen.observe.registry import HEARTBEAT_TIMEOUT, Registry
from bullpen.observe.sources.port import Now
from bullpen.observe.standing import Standing

__all__ = [
    "FOLD",
    "OURS",
    "PROJECTION",
    "Gateway",
    "GatewayLimits",
    "Outcome",
    "Trouble",
    "ingest_reply",
]

logger = logging.getLogger("bullpen.observe")


class Gateway:
    """Takes the observations of all sources, and gives them out in one order.

    `nonce` belongs to this run of the daemon and `owner_uid` is its user; a source has to have
    both. Numbers go on after `last_ingest_seq`.
    """

    def __init__(
        self,
        now: Now,
        *,
        nonce: str,
        owner_uid: int,
        last_ingest_seq: int = 0,
        limits: GatewayLimits | None = None,
        on_trouble: Trouble | None = None,
    ) -> None:
        limits = limits or GatewayLimits()
        on_trouble = (lambda *_: None) if on_trouble is None else on_trouble
        self._now = now
        self._registry = Registry(
            nonce=nonce, owner_uid=owner_uid, protocol_version=PROTOCOL_VERSION
        )
        self._log = DeliveryLog(
            after=last_ingest_seq,
            prefix=f"{secrets.token_hex(4)}-",
            holder=PROJECTION,
            residents=OURS,
            limits=limits.deliveries,
        )
        self._consumers = Consumers(
            self._log,
            now,
            on_trouble,
            ack_seconds=limits.deliveries.ack_timeout.total_seconds(),
        )
        self._stirred = asyncio.Event()
        self._refusals = Refusals()
        self._feeds = Feeds(
            self._log,
            now,
            limits,
            take=self._take_pulled,
            stir=self._stirred.set,
            on_unreachable=self._note_unreachable,
            on_trouble=on_trouble,
        )
        self._dedup = DedupWindow()
        self._records: dict[SourceKind, Standing] = {}
        self._checkpoints = Checkpoints(now())

    def restore(self, restored: Restored, recent: Iterable[Ingested] = ()) -> None:
        """Go on where another run has ended; `recent` are the latest observations it kept."""
        now = self._now()
        for state in restored.cursors:
            self._feeds.restore(state)
        for each in recent:
            self._dedup.add(each.observation, now)

    # ------------------------------------------------------------------------------------- sources

    def attach(self, kind: SourceKind, source: Connection | OpenTransport | None) -> None:
        """Register a source of our own, and say how to pull from it.

        None is for one that delivers by `ingest` from within this process.

        Raises:
            ApiError: it has been revoked.
        """
        with as_api_errors():
            self._registry.register(kind, self._now(), is_pulled=source is not None)
        record = self._record(kind)
        if source is None:
            record.status, record.reason = HealthStatus.HEALTHY, ""
        else:
            self._feeds.connect(kind, source)

    def hello(
        self,
        kind: SourceKind,
        *,
        nonce: str,
        protocol_version: int,
        peer_uid: int,
        socket_path: str | None = None,
    ) -> HelloReply:
        """Register a source that said hello. With a socket, it is pulled from there from now on.

        Raises:
            ApiError: it is not to be trusted, or has been revoked.
        """
        if socket_path is not None and not PurePosixPath(socket_path).is_absolute():
            raise RpcError(INVALID_PARAMS, "Invalid params: socket_path is not absolute")
        known = self._registry.get(kind)
        with as_api_errors():
            registration = self._registry.hello(
                kind,
                self._now(),
                nonce=nonce,
                protocol_version=protocol_version,
                peer_uid=peer_uid,
                socket_path=socket_path,
            )
        record = self._record(kind)
        if socket_path is not None:
            if known is not None and known.socket_path is None:
                self._feeds.forget(kind)  # what ours gave as a cursor means nothing to another
            self._feeds.connect(kind, lambda: open_transport(f"unix://{socket_path}"))
        elif kind not in self._feeds:
            record.status, record.reason = HealthStatus.HEALTHY, ""
        return HelloReply(registration, HEARTBEAT_TIMEOUT.total_seconds())

    def heartbeat(self, kind: SourceKind) -> SourceRegistration:
        """Note that a source is there.

        Raises:
            ApiError: it never said hello, or has been revoked.
        """
        with as_api_errors():
            return self._registry.heartbeat(kind, self._now())

    def revoke(self, kind: SourceKind) -> SourceRegistration:
        """Take nothing more from a source, as long as this run lasts.

        Raises:
            ApiError: it never said hello.
        """
        with as_api_errors():
            registration = self._registry.revoke(kind)
        self.detach(kind)
        return registration

    def detach(self, kind: SourceKind) -> None:
        """Pull no longer from a source. It is stale soon, if it does not come back."""
        self._feeds.detach(kind)

    def registrations(self) -> tuple[SourceRegistration, ...]:
        """Return who has said hello, and what became of it."""
        self._registry.sweep(self._now())
        return self._registry.list()

    def health(self) -> tuple[tuple[SourceKind, SourceHealth], ...]:
        """Return how each source fares, and what became of what it said."""
        return tuple((kind, self._health(kind)) for kind in self._records)

    def links(self) -> dict[SourceKind, Link]:
        """Return when each source was last heard of, and how it fares, for the resolver."""
        now = self._now()
        return {
            each.source_kind: Link(
                now if self._registry.is_local(each.source_kind) else each.last_heartbeat_at,
                self._own_status(each.source_kind),
            )
            for each in self._registry.list()
        }

    # ------------------------------------------------------------------------------------- pulling

    async def pull_sources(self, *, only_nudged: bool = False) -> int:
        """Pull from every source, or from those that have said they have something.

        All are asked at the same time. One that takes long is not waited for: its answer is taken
        when it comes, and until then it is not asked again. Returns how many observations were
        taken meanwhile.
        """
        now = self._now()
        self._sweep(now)
        before = self._log.last_seq
        await self._feeds.pull(now, only_nudged=only_nudged)
        return self._log.last_seq - before

    async def wait_for_events(self, timeout_seconds: float) -> bool:
        """Wait until a source has something, or the log something that is not folded.

        Returns whether that is so. It is also if it was already.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self._has_work():
                    self._stirred.clear()
                    await self._stirred.wait()
        except TimeoutError:
            return False
        return True

    def ingest(self, kind: SourceKind, raw_events: Sequence[Any]) -> list[Outcome]:
        """Take observations, each on its own: as JSON, as what that was decoded to, or as such.

        Raises:
            RpcError: there are too many at once.
        """
        if len(raw_events) > MAX_BATCH:
            raise RpcError(INVALID_PARAMS, f"Invalid params: more than {MAX_BATCH} events at once")
        now = self._now()
        self._registry.sweep(now)
        outcomes = [self._ingest_one(kind, raw, now) for raw in raw_events]
        if any(each.reason is None for each in outcomes):
            self._registry.heartbeat(kind, now)
        return outcomes

    async def deliver(self, kind: SourceKind, request: DeliverRaw) -> None:
        """Hand a source what a program has pushed.

        Raises:
            ApiError: there is no such source, or it makes nothing of it.
        """
        await self._feeds.deliver(kind, request)

    # ------------------------------------------------------------------------------ giving it out

    def unfolded(self, limit: int = 500) -> tuple[Ingested, ...]:
        """Give what was not folded yet, once."""
        delivery = self._consumers.deliver(FOLD, None, limit)
        if delivery.token is not None:
            self._log.ack(FOLD, delivery.token, self._now())
        return delivery.events

    def note_dropped(self, kind: SourceKind, reason: Reason) -> None:
        """Count an observation that made no difference when it was folded."""
        self._record(kind).dropped[reason.word] += 1

    def take(self, limit: int = 500) -> Delivery:
        """Give the projection its next batch, with the numbers of the observations.

        Raises:
            ApiError: it has not acknowledged, or is too far behind. Either is said once; taken
                again, it goes on.
        """
        return self._consumers.deliver(PROJECTION, None, limit)

    def pull(self, consumer: str, cursor: str | None = None, limit: int = 500) -> GatewayReply:
        """Give a consumer its next batch.

        Raises:
            ApiError: there is no such cursor, or it has not acknowledged however often.
        """
        return self._consumers.pull(consumer, cursor, limit)

    def ack(self, token: str, consumer: str = PROJECTION) -> AckResult:
        """Take an acknowledgement; twice is the same as once.

        Raises:
            ApiError: the consumer was given no such token.
        """
        acknowledged = self._consumers.ack(token, consumer)
        if consumer == PROJECTION:
            self._checkpoints.note(acknowledged.events)
            self._feeds.commit(acknowledged.committed_seq)
        return AckResult(
            "already_committed" if acknowledged.is_repeated else "committed",
            str(acknowledged.committed_seq),
        )

    def rewind(
        self, consumer: str, *, events: int | None = None, seconds: float | None = None
    ) -> RewindReply:
        """Have a consumer read again, from so many observations or so long ago.

        Raises:
            ApiError: that is too far.
        """
        reply = self._consumers.rewind(consumer, events=events, seconds=seconds)
        self._stirred.set()
        return reply

    def cursors(self) -> tuple[CursorState, ...]:
        """Return how far each source was read, to be written after what was read from it."""
        return self._feeds.cursors()

    @property
    def is_checkpoint_due(self) -> bool:
        """Whether it is time to write the cursors."""
        return self._checkpoints.is_due(self._now())

    def checkpoint(self) -> tuple[CursorState, ...]:
        """Return the cursors if it is time to write them, and nothing otherwise."""
        if not self.is_checkpoint_due:
            return ()
        self._checkpoints.take(self._now())
        return self.cursors()

    def buffers(self) -> dict[str, int]:
        """Return how much is kept, for whoever wants to see that it is bounded."""
        return {
            "gateway.log": len(self._log),
            "gateway.log_bytes": self._log.bytes,
            "gateway.lost": self._log.lost,
            "gateway.dedup": len(self._dedup),
            "gateway.consumers": self._log.consumers,
        }

    async def aclose(self) -> None:
        """Stop pulling, and close what was opened for it. Idempotent."""
        await self._feeds.aclose()

    # ------------------------------------------------------------------------------------- within

    def _record(self, kind: SourceKind) -> Standing:
        if kind not in self._records:
            self._records[kind] = Standing(self._now())
        return self._records[kind]

    def _has_work(self) -> bool:
        now = self._now()
        if self._log.room(FOLD) and self._feeds.has_news(now):
            return True
        return self._log.fetched_seq(FOLD) < self._log.last_seq

    def _sweep(self, now: datetime) -> None:
        self._log.trim(now)
        for kind in self._registry.sweep(now):
            logger.warning("%s was not heard of for %s", kind, HEARTBEAT_TIMEOUT)

    def _take_pulled(self, kind: SourceKind, pulled: Pulled) -> None:
        now = self._now()
        self._registry.pulled(kind, now)
        self._record(kind).note_report(pulled.source_health, now)
        for raw in pulled.events:
            self._ingest_one(kind, raw, now)

    def _note_unreachable(self, kind: SourceKind, reason: str) -> None:
        record = self._record(kind)
        before = record.status
        record.note_unreachable(reason, self._now())
        if record.status is not before:
            logger.warning("%s is %s (%s)", kind, record.status, reason)

    def _ingest_one(self, kind: SourceKind, raw: object, now: datetime) -> Outcome:
        outcome = self._admit(kind, raw, now)
        if outcome.is_accepted:
            record = self._record(kind)
            record.accepted += 1
            record.last_event_at = now
            self._stirred.set()
        elif kind in self._records:  # a stranger is not counted: kinds are no stranger's to make
            word = outcome.reason.word if outcome.reason else "duplicate"
            self._records[kind].dropped[word] += 1
        if outcome.reason is not None:
            self._refusals.note(kind, "", outcome.reason, outcome.message)
        return outcome

    def _admit(self, kind: SourceKind, raw: object, now: datetime) -> Outcome:
        try:
            self._registry.check(kind)
            record = self._record(kind)
            if record.status is HealthStatus.DOWN and not self._registry.is_local(kind):
                raise Refused(Reason.SOURCE_INADMISSIBLE, f"{kind} is down: {record.reason}")
            observation = decode_observation(raw, kind)
            better = suppressor(observation, self._is_healthy)
            if better is not None:
                raise Refused(Reason.SOURCE_RANK_SUPPRESSED, f"{better} is healthy, and better")
            if self._dedup.has(observation, now):
                return Outcome(event_id=observation.event_id, is_duplicate=True)
            encoded = encode_observation(observation)
        except Refused as error:
            return Outcome(event_id=event_id_of(raw), reason=error.reason, message=str(error))
        self._dedup.add(observation, now)
        ingest_seq = self._log.append(observation, encoded, now)
        return Outcome(event_id=observation.event_id, ingest_seq=ingest_seq)

    def _is_healthy(self, kind: SourceKind) -> bool:
        registration = self._registry.get(kind)
        is_active = registration is not None and registration.state is RegistryState.ACTIVE
        return is_active and self._own_status(kind) is HealthStatus.HEALTHY

    def _own_status(self, kind: SourceKind) -> HealthStatus:
        registration = self._registry.get(kind)
        if registration is not None and registration.state is RegistryState.REVOKED:
            return HealthStatus.DOWN
        record = self._records.get(kind)
        return record.status if record else HealthStatus.DEGRADED

    def _health(self, kind: SourceKind) -> SourceHealth:
        record, registration = self._records[kind], self._registry.get(kind)
        now = self._now()
        status, reason = self._own_status(kind), record.reason
        if registration is not None and registration.state is RegistryState.REVOKED:
            reason = "it has been revoked"
        elif registration is not None and registration.state is RegistryState.STALE:
            status = worst(status, HealthStatus.DEGRADED)
            silent = now - registration.last_heartbeat_at
            reason = reason or f"it was not heard of for {silent.total_seconds():.0f} s"
        if consumer := self._consumers.deaf_to(kind):
            status = worst(status, HealthStatus.DEGRADED)
            reason = reason or f"{consumer!r} does not acknowledge what it says"
        return SourceHealth(
            status=status,
            checked_at=record.checked_at,
            reason=reason,
            is_absent=record.is_absent,
            last_event_at=record.last_event_at,
            accepted=record.accepted,
            dropped=dict(record.dropped + record.dropped_there),
            version=record.version,
        )


def ingest_reply(outcomes: Sequence[Outcome]) -> IngestReply:
    """Return what to answer to whoever delivered.

    Raises:
        ApiError: there were observations, and every one of them was refused.
    """
    refused = tuple(
        Refusal(each.event_id, each.reason.word, each.message)
        for each in outcomes
        if each.reason is not None
    )
    if refused and len(refused) == len(outcomes):
        first = outcomes[0]
        assert first.reason is not None
        raise ApiError(first.reason, first.message, refused=msgspec.to_builtins(refused))
    return IngestReply(
        accepted=sum(each.is_accepted for each in outcomes),
        duplicates=sum(each.is_duplicate for each in outcomes),
        refused=refused,
    )
