"""The log between the gateway and its consumers, without I/O.

Observations have contiguous numbers, in the order they were taken; a number never means another
place, whatever comes later (they are put in the order of their times only when they are folded).
Each consumer has two watermarks: `committed`, up to where it has acknowledged, and `fetched`, up to
where it was given. What was given and not acknowledged is one batch under one token, which is given
again until it is acknowledged or given up.

The log keeps what may be rewound. One consumer is its *holder*: what that has not acknowledged
does not grow too old to be kept. Number and bytes are bounded in any case.
"""

from collections import deque
from datetime import datetime, timedelta

import msgspec

from bullpen.model.observations import Observation
from bullpen.model.reasons import Reason
from bullpen.model.records import Ingested
from bullpen.model.states import SourceKind
from bullpen.observe.errors import AckRetryExhausted, InvalidCursor, Refused

__all__ = ["Acknowledged", "Delivery", "DeliveryLimits", "DeliveryLog"]

TOKENS_REMEMBERED = 256  # per consumer: an acknowledgement may be repeated for so long
LONGEST_SEQUENCE = 18  # digits


class DeliveryLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of acknowledging and rewinding, and the bounds of the log."""

    ack_timeout: timedelta = timedelta(seconds=2)
    max_attempts: int = 5
    rewind_time: timedelta = timedelta(minutes=10)
    rewind_events: int = 10_000
    max_bytes: int = 16 * 2**20
    max_consumers: int = 64


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, given to a consumer for the `attempt`-th time."""

    events: tuple[Ingested, ...] = ()
    token: str | None = None
    """None if there was nothing to deliver."""
    next_seq: int
    """The number of the last observation in it."""
    attempt: int = 1

    @property
    def next_cursor(self) -> str:
        return str(self.next_seq)


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """A batch was acknowledged."""

    is_repeated: bool
    """It had been already."""
    committed_seq: int
    is_late: bool = False
    """It had to be delivered again, or should have been."""
    events: int = 0
    kinds: frozenset[SourceKind] = frozenset()


class _Entry:
    """An observation in the log; once it is folded, only as JSON, which is a fraction of it."""

    __slots__ = ("at", "encoded", "observation")

    def __init__(self, observation: Observation, encoded: bytes, at: datetime) -> None:
        self.observation: Observation | None = observation
        self.encoded = encoded
        self.at = at

    def read(self) -> Observation:
        return self.observation or msgspec.json.decode(self.encoded, type=Observation)


class _Consumer:
    __slots__ = ("acknowledged", "committed", "delivered_at", "outstanding", "pulled_at")

    def __init__(self, committed: int, now: datetime) -> None:
        self.committed = committed
        self.outstanding: Delivery | None = None
        self.delivered_at = now
        self.pulled_at = now
        self.acknowledged: deque[str] = deque(maxlen=TOKENS_REMEMBERED)

    @property
    def fetched(self) -> int:
        return self.outstanding.next_seq if self.outstanding else self.committed


class DeliveryLog:
    """Observations in the order they were taken, for any number of consumers.

    `after` is the last number that was given before; `prefix` tells our tokens from those of
    another run. The holder and those of `residents` are never forgotten, however many others come.
    """

    def __init__(
        self,
        *,
        after: int = 0,
        prefix: str = "",
        holder: str = "",
        residents: frozenset[str] = frozenset(),
        limits: DeliveryLimits | None = None,
    ) -> None:
        self.lost = 0  # dropped before the holder had acknowledged them
        self.bytes = 0
        self.last_seq = after
        self._limits = limits or DeliveryLimits()
        self._prefix = prefix
        self._tokens = 0
        self._holder = holder
        self._residents = residents | {holder}
        self._dropped = after  # the number of the newest that is no longer here
        self._entries: dict[int, _Entry] = {}
        self._consumers: dict[str, _Consumer] = {}
        self._after = after

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def consumers(self) -> int:
        """How many there are."""
        return len(self._consumers)

    def room(self, consumer: str) -> int:
        """Return how many may be added that push out nothing a consumer has not acknowledged.

        Bytes are not known beforehand, so half of them are left for what is on its way.
        """
        spare = max(self.committed_seq(consumer) - self._dropped, 0)
        if not spare and self.bytes > self._limits.max_bytes // 2:
            return 0
        return max(self._limits.rewind_events - len(self._entries), 0) + spare

    def committed_seq(self, consumer: str) -> int:
        """Return up to where a consumer has acknowledged."""
        known = self._consumers.get(consumer)
        return known.committed if known else self._after

    def fetched_seq(self, consumer: str) -> int:
        """Return up to where a consumer was given; never before what it has acknowledged."""
        known = self._consumers.get(consumer)
        return known.fetched if known else self._after

    def append(self, observation: Observation, encoded: bytes, now: datetime) -> int:
        """Add an observation and its JSON; return its number."""
        self.last_seq += 1
        self._entries[self.last_seq] = _Entry(observation, encoded, now)
        self.bytes += len(encoded)
        self.trim(now)
        return self.last_seq

    def trim(self, now: datetime) -> None:
        """Drop what need not, or cannot, be kept."""
        limits, committed = self._limits, self.committed_seq(self._holder)
        while self._entries:
            oldest = self._dropped + 1
            is_old = now - self._entries[oldest].at > limits.rewind_time
            is_over = len(self._entries) > limits.rewind_events or self.bytes > limits.max_bytes
            if not is_over and not (is_old and oldest <= committed):
                break
            self.lost += oldest > committed
            self.bytes -= len(self._entries.pop(oldest).encoded)
            self._dropped = oldest

    def pull(self, consumer: str, cursor: str | None, limit: int, now: datetime) -> Delivery:
        """Deliver what follows the consumer's place, or a cursor, at most `limit`.

        A batch that waits for its acknowledgement is delivered again as it was, whatever the
        cursor; after the timeout as another attempt.

        Raises:
            InvalidCursor: there is no such place, or what follows it was dropped. Whoever was
                told so and has no cursor goes on with the oldest there is.
            AckRetryExhausted: it has been delivered too often.
        """
        known = self._consumer(consumer, now)
        known.pulled_at = now
        if known.outstanding is not None:
            return self._deliver_again(consumer, known, known.outstanding, now)
        after = known.committed if cursor is None else self._sequence(cursor)
        if after < self._dropped:
            if cursor is None:
                known.committed = self._dropped
            raise InvalidCursor(cursor if cursor is not None else str(after))
        known.committed = min(known.committed, after)
        up_to = min(self.last_seq, after + limit)
        if after == up_to:
            return Delivery(next_seq=after)
        self._tokens += 1
        delivery = Delivery(
            events=tuple(
                Ingested(seq, self._entries[seq].read()) for seq in range(after + 1, up_to + 1)
            ),
            token=f"{self._prefix}{self._tokens}",
            next_seq=up_to,
        )
        known.outstanding, known.delivered_at = delivery, now
        return delivery

    def ack(self, consumer: str, token: str, now: datetime) -> Acknowledged:
        """Take an acknowledgement; twice is the same as once.

        Raises:
            Refused: this consumer was given no such token, or it was given up.
        """
        known = self._consumers.get(consumer)
        if known is not None and token in known.acknowledged:
            return Acknowledged(is_repeated=True, committed_seq=known.committed)
        if known is None or known.outstanding is None or known.outstanding.token != token:
            raise Refused(
                Reason.UNKNOWN_DELIVERY_TOKEN, f"{consumer!r} was given no token {token[:80]!r}"
            )
        delivery, known.outstanding = known.outstanding, None
        known.acknowledged.append(token)
        before, known.committed = known.committed, delivery.next_seq
        if consumer == self._holder:
            self._condense(before, delivery.next_seq)
        self.trim(now)
        return Acknowledged(
            is_repeated=False,
            committed_seq=known.committed,
            is_late=delivery.attempt > 1 or now - known.delivered_at > self._limits.ack_timeout,
            events=len(delivery.events),
            kinds=_kinds(delivery),
        )

    def rewind(
        self,
        consumer: str,
        now: datetime,
        *,
        events: int | None = None,
        seconds: float | None = None,
    ) -> tuple[int, int]:
        """Put a consumer back, by a number of observations or to a time, as far as the log goes.

        Returns its new place and how many observations it went back. What it had been given and
        not acknowledged is given up.

        Raises:
            Refused: that is further than may be rewound.
        """
        limits = self._limits
        if (events is not None and events > limits.rewind_events) or (
            seconds is not None and seconds > limits.rewind_time.total_seconds()
        ):
            raise Refused(
                Reason.REWIND_WINDOW_EXCEEDED,
                f"at most {limits.rewind_events} observations"
                f" or {limits.rewind_time.total_seconds():g} s may be rewound",
                max_events=limits.rewind_events,
                max_seconds=limits.rewind_time.total_seconds(),
            )
        known = self._consumer(consumer, now)
        place = known.committed
        if events is not None:
            place -= events
        if seconds is not None:
            place = min(place, self._place_at(now - timedelta(seconds=seconds)))
        # Whoever is before all that is left stays there, to be told so.
        place = max(place, min(self._dropped, known.committed))
        gone_back = known.committed - place
        known.committed = place
        known.outstanding = None
        return place, gone_back

    def _deliver_again(
        self, consumer: str, known: _Consumer, delivery: Delivery, now: datetime
    ) -> Delivery:
        if timedelta(0) <= now - known.delivered_at < self._limits.ack_timeout:
            return delivery
        if delivery.attempt >= self._limits.max_attempts:
            known.outstanding = None
            raise AckRetryExhausted(consumer, delivery.attempt, _kinds(delivery))
        delivery = msgspec.structs.replace(delivery, attempt=delivery.attempt + 1)
        known.outstanding, known.delivered_at = delivery, now
        return delivery

    def _consumer(self, name: str, now: datetime) -> _Consumer:
        known = self._consumers.get(name)
        if known is not None:
            return known
        if len(self._consumers) >= self._limits.max_consumers:
            others = self._consumers.keys() - self._residents
            if others:
                del self._consumers[min(others, key=lambda each: self._consumers[each].pulled_at)]
        begin = self._after if name in self._residents else self._dropped
        known = self._consumers[name] = _Consumer(begin, now)
        return known

    def _sequence(self, cursor: str) -> int:
        is_number = cursor.isascii() and cursor.isdigit() and len(cursor) <= LONGEST_SEQUENCE
        if not is_number or str(int(cursor)) != cursor or int(cursor) > self.last_seq:
            raise InvalidCursor(cursor)
        return int(cursor)

    def _place_at(self, time: datetime) -> int:
        """Return the last number that was given before a time."""
        place = self.last_seq
        while place > self._dropped and self._entries[place].at >= time:
            place -= 1
        return place

    def _condense(self, after: int, up_to: int) -> None:
        for seq in range(max(after, self._dropped) + 1, up_to + 1):
            self._entries[seq].observation = None


def _kinds(delivery: Delivery) -> frozenset[SourceKind]:
    return frozenset(each.observation.source_kind for each in delivery.events)
