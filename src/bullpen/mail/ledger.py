"""What happens to mailboxes and receipts, decided in one place for every implementation.

A ledger works on `Rows`, which only keep. Everything that can be refused is refused before the
first row is written, so that rows in memory need no undoing; rows in a database are in a
transaction anyway. It reads no clock.
"""

import contextlib
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from bullpen.mail.errors import (
    IdempotencyConflict,
    ImpossibleReceipt,
    LeaseLost,
    MailboxFull,
    MessageNotFound,
    NobodyListens,
)
from bullpen.mail.mailboxes import MAILBOX, Appended, Recovered, Settling, Story, Tell, nobody
from bullpen.mail.receipts import DEAD_LETTERS, IN_FLIGHT, outcome_of_reply, steps
from bullpen.mail.retries import LEASE_SECONDS, LONGEST_LEASE_SECONDS, ReconnectPolicy
from bullpen.mail.rows import Rows
from bullpen.model.deliveries import (
    CommunicationLog,
    Delivery,
    Evidence,
    Receipt,
    ReceiptState,
)
from bullpen.model.messages import Message, encode_message

__all__ = ["MAILBOX_LIMIT", "Ledger", "Rules"]

THREAD_LIMIT = 500  # of messages that are told with one of them
MAILBOX_LIMIT = 1000  # an agent that takes an hour for each message is months behind by then

_S = ReceiptState
_KEPT = Evidence(MAILBOX, "it is kept in the mailbox")


class Rules(msgspec.Struct, frozen=True):
    """What can be set."""

    retries: ReconnectPolicy = ReconnectPolicy()
    mailbox_limit: int = MAILBOX_LIMIT


class Ledger:
    """The mailboxes of all agents, over some rows."""

    def __init__(self, rows: Rows, rules: Rules) -> None:
        self._rows = rows
        self._rules = rules

    # ------------------------------------------------------------------------------- appending

    def append(
        self,
        message: Message,
        now: datetime,
        recipients: Iterable[str] | None,
        settling: Settling | None = None,
        seen: Evidence | None = None,
    ) -> Appended:
        """Keep a message. See `Mailboxes.append`."""
        encoded = encode_message(message)
        answered: Delivery | None = None
        if settling is not None:
            answered = self._find(message.reply_to or "", message.from_agent)
            steps(answered.state, settling.state)
        is_awaited = settling is not None or self._is_awaited(message)
        try:
            names = self._admit(message, recipients, is_awaited=is_awaited)
        except (MailboxFull, NobodyListens):
            if (known := self._find_same(message)) is None:
                raise
            return known
        if not self._rows.add_message(message, encoded, self._thread_id(message), now):
            known = self._find_same(message)
            assert known is not None, "there is one with its id or key"
            return known
        deliveries = tuple(self._deliver(message, name, now, len(encoded)) for name in names)
        if seen is not None:
            deliveries = tuple(
                self._advance(each, _S.SEEN, now, seen) if each.state is _S.QUEUED else each
                for each in deliveries
            )
        if settling is not None and answered is not None:
            self._advance(answered, settling.state, now, settling.evidence)
        else:
            self._settle_answered(message, names, now)
        return Appended(message, deliveries)

    def _find_same(self, message: Message) -> Appended | None:
        """Return what became of the message when it was appended before."""
        known = self._rows.find_message(message.id)
        if known is None and message.idempotency_key is not None:
            known = self._rows.find_key(message.from_agent, message.idempotency_key)
        if known is None:
            return None
        if _substance(known) != _substance(message):
            raise IdempotencyConflict(known.id)
        return Appended(known, tuple(self._rows.deliveries(known.id)), is_new=False)

    def _admit(
        self, message: Message, recipients: Iterable[str] | None, *, is_awaited: bool
    ) -> tuple[str, ...]:
        """Return who gets a message, if all of them can."""
        names = self._recipients(message, recipients)
        for name in () if is_awaited else names:
            if self._rows.has_waiting(name, self._rules.mailbox_limit):
                raise MailboxFull(name, self._rules.mailbox_limit)
        return names

    def _is_awaited(self, reply: Message) -> bool:
        """Whether a reply settles what it answers: there are no more of these than were asked."""
        outcome = outcome_of_reply(reply.type)
        if reply.reply_to is None or outcome is None:
            return False
        answered = self._rows.find_delivery(reply.reply_to, reply.from_agent)
        if answered is None or answered.message.from_agent != reply.to_agent:
            return False
        try:
            steps(answered.state, outcome)
        except ImpossibleReceipt:
            return False
        return True

    def _recipients(self, message: Message, given: Iterable[str] | None) -> tuple[str, ...]:
        if given is not None:
            names = tuple(dict.fromkeys(given))
        elif message.topic is not None:
            listeners = self._rows.subscribers(message.topic)
            names = tuple(each for each in listeners if each != message.from_agent)
        else:
            return (message.to_agent,)
        if not names:
            raise NobodyListens(message.topic or message.to_agent)
        return names

    def _thread_id(self, message: Message) -> str:
        if message.reply_to is None:
            return message.id
        return self._rows.find_thread(message.reply_to) or message.reply_to

    def _deliver(self, message: Message, recipient: str, now: datetime, size: int) -> Delivery:
        delivery = self._rows.add_delivery(
            Delivery(
                number=0,
                message=message,
                recipient=recipient,
                state=_S.QUEUED,
                accepted_at=now,
                available_at=now,
                expires_at=message.expires_at,
                size=size,
            )
        )
        self._add_receipts(delivery, (_S.ACCEPTED, _S.QUEUED), now, _KEPT)
        return self._expire(delivery, now) if _has_expired(delivery, now) else delivery

    def _settle_answered(self, reply: Message, recipients: Sequence[str], now: datetime) -> None:
        outcome = outcome_of_reply(reply.type)
        if reply.reply_to is None or outcome is None:
            return
        answered = self._rows.find_delivery(reply.reply_to, reply.from_agent)
        if answered is None or answered.message.from_agent not in recipients:
            return
        evidence = Evidence(reply.from_agent, f"replied: {reply.type}", {"reply": reply.id})
        with contextlib.suppress(ImpossibleReceipt):  # it has its outcome already, and keeps it
            self._advance(answered, outcome, now, evidence)

    # ------------------------------------------------------------------------------- delivering

    def lease(
        self, recipient: str, now: datetime, seconds: float, limit: int, by: str = ""
    ) -> tuple[Delivery, ...]:
        """Hand out what is next. See `Mailboxes.lease`."""
        until = now + timedelta(seconds=seconds)
        latest = now + timedelta(seconds=self._rules.retries.max_delay)
        found = self._rows.next_deliveries(recipient, now, latest, _longest(now), limit)
        return tuple(self._hand_out(each, until, by) for each in found)

    def _hand_out(self, delivery: Delivery, until: datetime, by: str) -> Delivery:
        attempt = delivery.attempt + 1
        leased = msgspec.structs.replace(
            delivery, attempt=attempt, leased_until=until, leased_by=by
        )
        self._rows.save_delivery(leased)
        retries = delivery.message.metadata.retry_count + attempt - 1
        return msgspec.structs.replace(leased, message=delivery.message.retried(retries))

    def record(
        self, held: Delivery, state: ReceiptState, now: datetime, evidence: Evidence
    ) -> Delivery:
        """Add a step. See `Mailboxes.record`."""
        return self._advance(self._held(held), state, now, evidence)

    def acknowledge(self, held: Delivery, now: datetime, evidence: Evidence) -> Delivery:
        """Mark it as seen. See `Mailboxes.acknowledge`."""
        delivery = self._held(held)
        if delivery.state.is_delivered:
            return delivery  # a reply was faster
        return self._advance(delivery, _S.SEEN, now, evidence)

    def take(
        self, recipient: str, now: datetime, evidence: Evidence, limit: int
    ) -> tuple[Delivery, ...]:
        """Hand out what is next, and mark it as seen. See `Mailboxes.take`."""
        leased = self.lease(recipient, now, LEASE_SECONDS, limit)
        return tuple(self._advance(each, _S.SEEN, now, evidence) for each in leased)

    def release(
        self, held: Delivery, now: datetime, evidence: Evidence, tell: Tell = nobody
    ) -> Delivery:
        """Try again later, or not at all. See `Mailboxes.release`."""
        delivery = self._held(held)
        if delivery.state not in (_S.QUEUED, *IN_FLIGHT):
            raise ImpossibleReceipt(delivery.state, _S.QUEUED)
        attempts = delivery.attempt - delivery.attempts_before
        again_at = self._rules.retries.next_attempt(attempts, now)
        if again_at is None:
            dead = self._advance(delivery, _S.DEAD, now, evidence)
            self._keep(tell(dead), now)
            return dead
        self._add_receipts(delivery, (_S.QUEUED,), now, evidence)
        return self._save(delivery, state=_S.QUEUED, available_at=again_at, leased_until=None)

    def put_back(self, held: Delivery, now: datetime) -> Delivery:
        """Let go of what was not tried. See `Mailboxes.put_back`."""
        delivery = self._held(held)
        if delivery.state is not _S.QUEUED:
            raise ImpossibleReceipt(delivery.state, _S.QUEUED)
        return self._save(
            delivery, attempts_before=delivery.attempt, available_at=now, leased_until=None
        )

    def settle(
        self,
        message_id: str,
        recipient: str,
        state: ReceiptState,
        now: datetime,
        evidence: Evidence,
    ) -> Delivery:
        """Add a step from outside. See `Mailboxes.settle`."""
        return self._advance(self._find(message_id, recipient), state, now, evidence)

    def expire(self, now: datetime, limit: int, tell: Tell = nobody) -> tuple[Delivery, ...]:
        """End what is too old. See `Mailboxes.expire`."""
        for early in self._rows.early(now, limit):
            until = now + timedelta(seconds=early.message.metadata.ttl or 0)
            if early.expires_at is not None and early.expires_at > until:
                self._save(early, expires_at=until)
        ended = []
        for delivery in self._rows.expired(now, _longest(now), limit):
            ended.append(self._expire(delivery, now))
            self._keep(tell(ended[-1]), now)
        return tuple(ended)

    def _keep(self, word: Message | None, now: datetime) -> None:
        """Keep a message that somebody is to get in any case."""
        if word is None:
            return
        encoded = encode_message(word)
        if self._rows.add_message(word, encoded, self._thread_id(word), now):
            self._deliver(word, word.to_agent, now, len(encoded))

    def recover(self) -> Recovered:
        """Free what was held. See `Mailboxes.recover`."""
        leased = self._rows.leased()
        free = [each for each in leased if not each.leased_by]
        for delivery in free:
            self._save(delivery, leased_until=None)
        in_flight = self._rows.in_states(IN_FLIGHT, None, -1)
        in_doubt = tuple(each for each in leased if each.leased_by)
        return Recovered(len(free), tuple(in_flight), in_doubt)

    def requeue(
        self, message_id: str, recipient: str, now: datetime, evidence: Evidence
    ) -> Delivery:
        """Send a dead letter again. See `Mailboxes.requeue`."""
        delivery = self._find(message_id, recipient)
        if delivery.state not in DEAD_LETTERS:
            raise ImpossibleReceipt(delivery.state, _S.QUEUED)
        if self._rows.has_waiting(recipient, self._rules.mailbox_limit):
            raise MailboxFull(recipient, self._rules.mailbox_limit)
        again = msgspec.structs.replace(delivery.message, timestamp=now)
        self._add_receipts(delivery, (_S.QUEUED,), now, evidence)
        return self._save(
            delivery,
            state=_S.QUEUED,
            attempts_before=delivery.attempt,
            available_at=now,
            expires_at=again.expires_at,
            leased_until=None,
        )

    # ---------------------------------------------------------------------------------- asking

    def dead_letters(self, recipient: str | None, limit: int) -> tuple[Delivery, ...]:
        """Return what was not delivered. See `Mailboxes.dead_letters`."""
        return tuple(self._rows.in_states(DEAD_LETTERS, recipient, limit))

    def in_flight(self, limit: int) -> tuple[Delivery, ...]:
        """Return what may have arrived. See `Mailboxes.in_flight`."""
        return tuple(self._rows.in_states(IN_FLIGHT, None, limit))

    def position(self, message_id: str, recipient: str) -> int | None:
        """Return the place in the queue. See `Mailboxes.position`."""
        return self._place(self._find(message_id, recipient))

    def deliveries(self, message_id: str) -> tuple[Delivery, ...]:
        """Return how far it has come. See `Mailboxes.deliveries`."""
        found = tuple(self._rows.deliveries(message_id))
        if not found:
            raise MessageNotFound(message_id)
        return found

    def receipts(self, message_id: str) -> tuple[Receipt, ...]:
        """Return every step. See `Mailboxes.receipts`."""
        found = tuple(self._rows.receipts(message_id))
        if not found:
            raise MessageNotFound(message_id)
        return found

    def find(self, message_id: str) -> Message:
        """Return a message. See `Mailboxes.find`."""
        found = self._rows.find_message(message_id)
        if found is None and message_id:
            ids = self._rows.find_beginning(message_id, 2)
            found = self._rows.find_message(ids[0]) if len(ids) == 1 else None
        if found is None:
            raise MessageNotFound(message_id)
        return found

    def thread(self, message_id: str, limit: int) -> tuple[Message, ...]:
        """Return what belongs together. See `Mailboxes.thread`."""
        thread_id = self._rows.find_thread(message_id)
        if thread_id is None:
            raise MessageNotFound(message_id)
        return tuple(self._rows.thread(thread_id, limit))

    def story(self, message_id: str, recipient: str | None) -> Story:
        """Return all of that at once. See `Mailboxes.story`."""
        if recipient is None:
            delivery = self.deliveries(message_id)[0]
        else:
            delivery = self._find(message_id, recipient)
        thread = self.thread(message_id, THREAD_LIMIT)
        return Story(delivery, self.receipts(message_id), thread, self._place(delivery))

    def log_refusal(self, message: Message, error: str, now: datetime) -> None:
        """Note a refusal. See `Mailboxes.log_refusal`."""
        try:
            size = len(encode_message(message))
        except (UnicodeEncodeError, TypeError, ValueError, RecursionError):
            size = 0  # it has no bytes to count
        self._rows.add_log(_entry(message, message.to_agent, size, now, None, error), None)

    # --------------------------------------------------------------------------------- helpers

    def _place(self, delivery: Delivery) -> int | None:
        if delivery.state is not _S.QUEUED:
            return None
        return self._rows.count_before(delivery) + 1

    def _find(self, message_id: str, recipient: str) -> Delivery:
        delivery = self._rows.find_delivery(message_id, recipient)
        if delivery is None:
            raise MessageNotFound(message_id, recipient)
        return delivery

    def _held(self, held: Delivery) -> Delivery:
        delivery = self._rows.refresh(held)
        if delivery is None:
            raise MessageNotFound(held.message.id, held.recipient)
        is_free = delivery.state is _S.QUEUED and delivery.leased_until is None
        if is_free or delivery.attempt != held.attempt:
            raise LeaseLost(held.message.id, held.recipient, held.attempt, delivery.attempt)
        return delivery

    def _expire(self, delivery: Delivery, now: datetime) -> Delivery:
        what = f"it was not delivered within {delivery.message.metadata.ttl} s"
        return self._advance(delivery, _S.EXPIRED, now, Evidence(MAILBOX, what))

    def _advance(
        self, delivery: Delivery, state: ReceiptState, now: datetime, evidence: Evidence
    ) -> Delivery:
        if state is _S.QUEUED:  # which takes more than a word: see `release` and `requeue`
            raise ImpossibleReceipt(delivery.state, state)
        self._add_receipts(delivery, steps(delivery.state, state), now, evidence)
        if delivery.state is not _S.SEEN or state is _S.FAILED:
            self._log(delivery, state, now, evidence)
        leased_until = delivery.leased_until if state in IN_FLIGHT else None
        return self._save(delivery, state=state, leased_until=leased_until)

    def _log(
        self, delivery: Delivery, state: ReceiptState, now: datetime, evidence: Evidence
    ) -> None:
        if state in IN_FLIGHT or state is _S.QUEUED:
            return  # it has not ended
        message, recipient = delivery.message, delivery.recipient
        if state.is_delivered:
            seconds = max(0.0, (now - delivery.accepted_at).total_seconds())
            entry = _entry(message, recipient, delivery.size, now, seconds * 1000, None)
        else:
            error = f"{state}: {evidence.what}" if evidence.what else str(state)
            entry = _entry(message, recipient, delivery.size, now, None, error)
        self._rows.add_log(entry, delivery.number)

    def _add_receipts(
        self,
        delivery: Delivery,
        states: Sequence[ReceiptState],
        now: datetime,
        evidence: Evidence,
    ) -> None:
        self._rows.add_receipts(
            delivery.number,
            [
                Receipt(
                    message_id=delivery.message.id,
                    recipient=delivery.recipient,
                    state=state,
                    at=now,
                    evidence=evidence,
                    attempt=delivery.attempt,
                )
                for state in states
            ],
        )

    def _save(self, delivery: Delivery, **changes: object) -> Delivery:
        saved = msgspec.structs.replace(delivery, **changes)
        self._rows.save_delivery(saved)
        return saved


def _substance(message: Message) -> tuple[object, ...]:
    """What makes two messages with the same key the same. Times and ids may differ."""
    return (
        message.from_agent,
        message.to_agent,
        message.type,
        message.content,
        message.reply_to,
    )


def _has_expired(delivery: Delivery, now: datetime) -> bool:
    return delivery.expires_at is not None and delivery.expires_at <= now


def _longest(now: datetime) -> datetime:
    """Return after which time no lease that is true ends."""
    return now + timedelta(seconds=LONGEST_LEASE_SECONDS)


def _entry(
    message: Message,
    recipient: str,
    size: int,
    now: datetime,
    duration_ms: float | None,
    error: str | None,
) -> CommunicationLog:
    return CommunicationLog(
        timestamp=now,
        from_agent=message.from_agent,
        to_agent=recipient,
        message_type=message.type,
        message_size=size,
        duration_ms=duration_ms,
        success=error is None,
        error=error,
    )
