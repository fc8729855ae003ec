"""Whoever reads the log: what folds it, what keeps it, and who else wants to.

Each is given a batch and a token, and again until it acknowledges. One that never does is an
operator's business, and that of the sources whose words it leaves lying.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from bullpen.api.errors import ApiError
from bullpen.api.methods import GatewayReply, RewindReply
from bullpen.connection import RpcError
from bullpen.jsonrpc.errors import INVALID_PARAMS
from bullpen.model.reasons import Reason
from bullpen.model.states import SourceKind
from bullpen.observe.deliveries import Acknowledged, Delivery, DeliveryLog
from bullpen.observe.errors import AckRetryExhausted, Refused
from bullpen.observe.sources.port import Now

__all__ = ["FOLD", "MAX_BATCH", "OURS", "PROJECTION", "Consumers", "Trouble", "as_api_errors"]

PROJECTION = "projection"
"""The consumer that keeps what the log was folded to. Only what it acknowledged is committed."""
FOLD = "fold"
"""The consumer that folds the log, which does not wait until that is kept."""
OURS = frozenset([PROJECTION, FOLD])
"""Nobody else may pull or acknowledge for these."""

MAX_BATCH = 5_000
MAX_CONSUMER_LENGTH = 128
CONSUMER_GONE = timedelta(seconds=60)  # one that does not even pull any more is no trouble

Trouble = Callable[[Reason, str, SourceKind | None], None]
"""Told of what an operator should know. It must not raise."""


class Consumers:
    """Gives the log out, and remembers who does not acknowledge."""

    def __init__(
        self, log: DeliveryLog, now: Now, on_trouble: Trouble, *, ack_seconds: float
    ) -> None:
        self._log = log
        self._now = now
        self._on_trouble = on_trouble
        self._ack_seconds = ack_seconds
        self._defaults: dict[str, _Default] = {}  # those that do not acknowledge

    def deliver(self, consumer: str, cursor: str | None, limit: int) -> Delivery:
        """Give one of ours its next batch, with the numbers of the observations.

        Raises:
            ApiError: there is no such cursor, or it has not acknowledged however often.
        """
        now = self._now()
        default = self._defaults.get(consumer)
        if default is not None:
            default.pulled_at = now
        try:
            with as_api_errors():
                return self._log.pull(consumer, cursor, limit, now)
        except ApiError as error:
            if isinstance(error.__cause__, AckRetryExhausted):
                kinds = error.__cause__.kinds
                self._note_default(consumer, kinds, now)
                for kind in sorted(kinds):
                    self._on_trouble(Reason.ACK_RETRY_EXHAUSTED, error.message, kind)
            raise

    def pull(self, consumer: str, cursor: str | None, limit: int) -> GatewayReply:
        """Give anybody the next batch.

        Raises:
            ApiError: there is no such cursor, or it has not acknowledged however often.
        """
        _check_consumer(consumer)
        if not 1 <= limit <= MAX_BATCH:
            raise RpcError(INVALID_PARAMS, f"Invalid params: limit is not from 1 to {MAX_BATCH}")
        delivery = self.deliver(consumer, cursor, limit)
        return GatewayReply(
            events=tuple(each.observation for each in delivery.events),
            next_cursor=delivery.next_cursor,
            delivery_token=delivery.token,
            attempt=delivery.attempt,
        )

    def ack(self, token: str, consumer: str) -> Acknowledged:
        """Take an acknowledgement; twice is the same as once.

        Raises:
            ApiError: the consumer was given no such token.
        """
        with as_api_errors():
            acknowledged = self._log.ack(consumer, token, self._now())
        if not acknowledged.is_repeated:
            self._defaults.pop(consumer, None)
        if acknowledged.is_late:
            message = f"{consumer!r} did not acknowledge within {self._ack_seconds:g} s"
            for kind in sorted(acknowledged.kinds):
                self._on_trouble(Reason.ACK_TIMEOUT, message, kind)
        return acknowledged

    def rewind(self, consumer: str, *, events: int | None, seconds: float | None) -> RewindReply:
        """Have a consumer read again, from so many observations or so long ago.

        Raises:
            ApiError: that is too far.
        """
        _check_consumer(consumer)
        if (events is None) == (seconds is None) or (events or 0) < 0 or not (seconds or 0) >= 0:
            raise RpcError(INVALID_PARAMS, "Invalid params: give events or seconds, from 0 up")
        with as_api_errors():
            place, gone_back = self._log.rewind(
                consumer, self._now(), events=events, seconds=seconds
            )
        return RewindReply(str(place), gone_back)

    def deaf_to(self, kind: SourceKind) -> str:
        """Return who reads and does not acknowledge what a source says; often nobody."""
        now = self._now()
        for consumer, default in self._defaults.items():
            if kind in default.kinds and now - default.pulled_at <= CONSUMER_GONE:
                return consumer
        return ""

    def _note_default(self, consumer: str, kinds: frozenset[SourceKind], now: datetime) -> None:
        for name, known in tuple(self._defaults.items()):
            if now - known.pulled_at > CONSUMER_GONE:
                del self._defaults[name]
        self._defaults[consumer] = _Default(kinds, now)


class _Default:
    """A consumer that did not acknowledge, and the sources that concerns."""

    def __init__(self, kinds: frozenset[SourceKind], now: datetime) -> None:
        self.kinds = kinds
        self.pulled_at = now


@contextmanager
def as_api_errors() -> Iterator[None]:
    """Have what a block refuses raised as an error of the one table."""
    try:
        yield
    except Refused as error:
        raise ApiError(error.reason, str(error), **error.facts) from error


def _check_consumer(name: str) -> None:
    if not 0 < len(name) <= MAX_CONSUMER_LENGTH:
        raise RpcError(INVALID_PARAMS, "Invalid params: consumer is empty or too long")
