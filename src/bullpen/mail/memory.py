"""Mailboxes that end with the process: for tests, and where nothing can be written."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

import msgspec

from bullpen.mail.ledger import Ledger, Rules
from bullpen.mail.mailboxes import Appended, Mailboxes, Recovered, Settling, Story, Tell, nobody
from bullpen.mail.receipts import OPEN, OPEN_TASK
from bullpen.mail.retries import LEASE_SECONDS
from bullpen.model.deliveries import (
    CommunicationLog,
    Delivery,
    Evidence,
    Receipt,
    ReceiptState,
    TaskQuery,
)
from bullpen.model.messages import Message, MessageType

__all__ = ["MemoryMailboxes", "MemoryRows"]


class MemoryMailboxes(Mailboxes):
    """Mailboxes in memory."""

    def __init__(self, rules: Rules | None = None) -> None:
        self._rows = MemoryRows()
        self._ledger = Ledger(self._rows, rules or Rules())

    async def append(
        self,
        message: Message,
        *,
        now: datetime,
        recipients: Iterable[str] | None = None,
        settling: Settling | None = None,
        seen: Evidence | None = None,
    ) -> Appended:
        return self._ledger.append(message, now, recipients, settling, seen)

    async def lease(
        self,
        recipient: str,
        *,
        now: datetime,
        seconds: float = LEASE_SECONDS,
        limit: int = 1,
        by: str = "",
    ) -> tuple[Delivery, ...]:
        return self._ledger.lease(recipient, now, seconds, limit, by)

    async def record(
        self, delivery: Delivery, state: ReceiptState, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        return self._ledger.record(delivery, state, now, evidence)

    async def acknowledge(
        self, delivery: Delivery, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        return self._ledger.acknowledge(delivery, now, evidence)

    async def take(
        self, recipient: str, *, now: datetime, evidence: Evidence, limit: int = 1
    ) -> tuple[Delivery, ...]:
        return self._ledger.take(recipient, now, evidence, limit)

    async def release(
        self, delivery: Delivery, *, now: datetime, evidence: Evidence, tell: Tell = nobody
    ) -> Delivery:
        return self._ledger.release(delivery, now, evidence, tell)

    async def put_back(self, delivery: Delivery, *, now: datetime) -> Delivery:
        return self._ledger.put_back(delivery, now)

    async def reject(self, delivery: Delivery, *, now: datetime, evidence: Evidence) -> Delivery:
        return self._ledger.record(delivery, ReceiptState.DEAD, now, evidence)

    async def settle(
        self,
        message_id: str,
        recipient: str,
        state: ReceiptState,
        *,
        now: datetime,
        evidence: Evidence,
    ) -> Delivery:
        return self._ledger.settle(message_id, recipient, state, now, evidence)

    async def expire(
        self, *, now: datetime, limit: int = 500, tell: Tell = nobody
    ) -> tuple[Delivery, ...]:
        return self._ledger.expire(now, limit, tell)

    async def recover(self) -> Recovered:
        return self._ledger.recover()

    async def requeue(
        self, message_id: str, recipient: str, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        return self._ledger.requeue(message_id, recipient, now, evidence)

    async def dead_letters(
        self, recipient: str | None = None, *, limit: int = 500
    ) -> tuple[Delivery, ...]:
        return self._ledger.dead_letters(recipient, limit)

    async def in_flight(self, *, limit: int = 500) -> tuple[Delivery, ...]:
        return self._ledger.in_flight(limit)

    async def waiting(self, recipient: str, *, limit: int = 500) -> tuple[Delivery, ...]:
        return tuple(self._rows.waiting(recipient, limit))

    async def position(self, message_id: str, recipient: str) -> int | None:
        return self._ledger.position(message_id, recipient)

    async def deliveries(self, message_id: str) -> tuple[Delivery, ...]:
        return self._ledger.deliveries(message_id)

    async def receipts(self, message_id: str) -> tuple[Receipt, ...]:
        return self._ledger.receipts(message_id)

    async def thread(self, message_id: str, *, limit: int = 500) -> tuple[Message, ...]:
        return self._ledger.thread(message_id, limit)

    async def story(self, message_id: str, recipient: str | None = None) -> Story:
        return self._ledger.story(message_id, recipient)

    async def subscribe(self, topic: str, agent: str) -> None:
        self._rows.subscribe(topic, agent)

    async def unsubscribe(self, topic: str, agent: str) -> None:
        self._rows.unsubscribe(topic, agent)

    async def subscribers(self, topic: str) -> tuple[str, ...]:
        return tuple(self._rows.subscribers(topic))

    async def topics(self) -> dict[str, tuple[str, ...]]:
        return self._rows.topics()

    async def find(self, message_id: str) -> Message:
        return self._ledger.find(message_id)

    async def tasks(self, wanted: TaskQuery, *, limit: int = 500) -> tuple[Delivery, ...]:
        return tuple(self._rows.tasks(wanted, limit))

    async def backlog(self, recipient: str | None = None) -> dict[str, int]:
        return self._rows.backlog(recipient)

    async def log_refusal(self, message: Message, error: str, *, now: datetime) -> None:
        self._ledger.log_refusal(message, error, now)

    async def communication(
        self, *, after: int = 0, limit: int = 500
    ) -> tuple[tuple[int, CommunicationLog], ...]:
        return tuple(self._rows.logs(after, limit))

    async def forget(self, *, before: datetime, limit: int = 500) -> int:
        return self._rows.forget(before, limit)


class MemoryRows:
    """The rows of all mailboxes in dictionaries. Every list is found by looking at everything."""

    def __init__(self) -> None:
        self._messages: dict[str, tuple[Message, str]] = {}  # each with its thread
        self._accepted: dict[str, datetime] = {}
        self._deliveries: dict[int, Delivery] = {}
        self._delivered = 0
        self._receipts: list[Receipt] = []
        self._topics: dict[str, set[str]] = {}
        self._logs: dict[int, tuple[int | None, CommunicationLog]] = {}
        self._logged = 0

    def find_message(self, message_id: str) -> Message | None:
        found = self._messages.get(message_id)
        return None if found is None else found[0]

    def find_key(self, sender: str, key: str) -> Message | None:
        for message, _ in self._messages.values():
            if (message.from_agent, message.idempotency_key) == (sender, key):
                return message
        return None

    def find_thread(self, message_id: str) -> str | None:
        found = self._messages.get(message_id)
        return None if found is None else found[1]

    def add_message(
        self,
        message: Message,
        encoded: bytes,  # noqa: ARG002 - of the port
        thread_id: str,
        accepted_at: datetime,
    ) -> bool:
        key = message.idempotency_key
        if message.id in self._messages:
            return False
        if key is not None and self.find_key(message.from_agent, key) is not None:
            return False
        self._messages[message.id] = (message, thread_id)
        self._accepted[message.id] = accepted_at
        return True

    def find_beginning(self, beginning: str, limit: int) -> Sequence[str]:
        return sorted(each for each in self._messages if each.startswith(beginning))[:limit]

    def thread(self, thread_id: str, limit: int) -> Sequence[Message]:
        return [each for each, of in self._messages.values() if of == thread_id][:limit]

    def add_delivery(self, delivery: Delivery) -> Delivery:
        self._delivered += 1
        numbered = msgspec.structs.replace(delivery, number=self._delivered)
        self._deliveries[numbered.number] = numbered
        return numbered

    def save_delivery(self, delivery: Delivery) -> None:
        message = self._deliveries[delivery.number].message
        self._deliveries[delivery.number] = msgspec.structs.replace(delivery, message=message)

    def refresh(self, delivery: Delivery) -> Delivery | None:
        found = self._deliveries.get(delivery.number)
        return found and msgspec.structs.replace(found, message=delivery.message)

    def find_delivery(self, message_id: str, recipient: str) -> Delivery | None:
        found = [each for each in self.deliveries(message_id) if each.recipient == recipient]
        return found[0] if found else None

    def deliveries(self, message_id: str) -> Sequence[Delivery]:
        return self._select(lambda each: each.message.id == message_id)

    def next_deliveries(
        self, recipient: str, now: datetime, latest: datetime, longest: datetime, limit: int
    ) -> Sequence[Delivery]:
        def is_due(each: Delivery) -> bool:
            was_tried = each.attempt > each.attempts_before
            is_time = not was_tried or not now < each.available_at <= latest
            return is_time and (each.expires_at is None or each.expires_at > now)

        waiting = self.waiting(recipient, len(self._deliveries))
        free = [each for each in waiting if is_due(each) and not _is_leased(each, now, longest)]
        return free[:limit]

    def waiting(self, recipient: str, limit: int) -> Sequence[Delivery]:
        queued = self._select(lambda each: _is_queued(each) and each.recipient == recipient)
        return sorted(queued, key=_place)[:limit]

    def count_before(self, delivery: Delivery) -> int:
        waiting = self.waiting(delivery.recipient, len(self._deliveries))
        return sum(_place(each) < _place(delivery) for each in waiting)

    def has_waiting(self, recipient: str, count: int) -> bool:
        return len(self.waiting(recipient, count)) >= count

    def expired(self, now: datetime, longest: datetime, limit: int) -> Sequence[Delivery]:
        found = self._select(
            lambda each: (
                _is_queued(each)
                and not _is_leased(each, now, longest)
                and each.expires_at is not None
                and each.expires_at <= now
            )
        )
        return sorted(found, key=lambda each: each.expires_at or now)[:limit]

    def early(self, now: datetime, limit: int) -> Sequence[Delivery]:
        found = self._select(
            lambda each: _is_queued(each) and each.expires_at is not None and each.accepted_at > now
        )
        return sorted(found, key=lambda each: each.expires_at or now, reverse=True)[:limit]

    def leased(self) -> Sequence[Delivery]:
        return self._select(lambda each: _is_queued(each) and each.leased_until is not None)

    def in_states(
        self, states: Sequence[ReceiptState], recipient: str | None, limit: int
    ) -> Sequence[Delivery]:
        found = self._select(
            lambda each: each.state in states and recipient in (None, each.recipient)
        )
        return found if limit < 0 else found[:limit]

    def tasks(self, wanted: TaskQuery, limit: int) -> Sequence[Delivery]:
        def is_wanted(each: Delivery) -> bool:
            return (
                each.message.type is MessageType.TASK_REQUEST
                and wanted.recipient in (None, each.recipient)
                and wanted.sender in (None, each.message.from_agent)
                and wanted.thread_id in (None, self._messages[each.message.id][1])
                and (wanted.states is None or each.state in wanted.states)
                and (wanted.before is None or each.accepted_at < wanted.before)
            )

        return self._select(is_wanted)[::-1][:limit]

    def backlog(self, recipient: str | None) -> dict[str, int]:
        queued = self._select(_is_queued)
        return dict(
            Counter(each.recipient for each in queued if recipient in (None, each.recipient))
        )

    def _select(self, condition: Callable[[Delivery], bool]) -> list[Delivery]:
        return [each for each in self._deliveries.values() if condition(each)]

    def add_receipts(
        self,
        number: int,  # noqa: ARG002 - of the port
        receipts: Sequence[Receipt],
    ) -> None:
        self._receipts += receipts

    def receipts(self, message_id: str) -> Sequence[Receipt]:
        return [each for each in self._receipts if each.message_id == message_id]

    def subscribe(self, topic: str, agent: str) -> None:
        self._topics.setdefault(topic, set()).add(agent)

    def unsubscribe(self, topic: str, agent: str) -> None:
        self._topics.get(topic, set()).discard(agent)

    def subscribers(self, topic: str) -> Sequence[str]:
        return sorted(self._topics.get(topic, set()))

    def topics(self) -> dict[str, tuple[str, ...]]:
        return {topic: tuple(sorted(agents)) for topic, agents in self._topics.items() if agents}

    def add_log(self, entry: CommunicationLog, number: int | None) -> None:
        if number is not None:
            kept = self._logs.items()
            self._logs = {key: each for key, each in kept if each[0] != number}
        self._logged += 1
        self._logs[self._logged] = (number, entry)

    def logs(self, after: int, limit: int) -> Sequence[tuple[int, CommunicationLog]]:
        found = [(key, entry) for key, (_, entry) in self._logs.items() if key > after]
        return found[:limit]

    def forget(self, before: datetime, limit: int) -> int:
        still_open = self._select(_is_open)
        threads = {self._messages[each.message.id][1] for each in still_open}
        old = [
            key
            for key, (_, thread) in self._messages.items()
            if self._accepted[key] < before and thread not in threads
        ]
        gone = set(sorted(old, key=lambda key: self._accepted[key])[:limit])
        for key in gone:
            del self._messages[key], self._accepted[key]
        self._receipts = [each for each in self._receipts if each.message_id not in gone]
        for number, each in tuple(self._deliveries.items()):
            if each.message.id in gone:
                del self._deliveries[number]
        for number, (_, entry) in tuple(self._logs.items())[:limit]:
            if entry.timestamp < before:
                del self._logs[number]
        return len(gone)


def _is_queued(delivery: Delivery) -> bool:
    return delivery.state is ReceiptState.QUEUED


def _is_leased(delivery: Delivery, now: datetime, longest: datetime) -> bool:
    until = delivery.leased_until
    return until is not None and now < until <= longest


def _is_open(delivery: Delivery) -> bool:
    is_task = delivery.message.type is MessageType.TASK_REQUEST
    return delivery.state in (OPEN_TASK if is_task else OPEN)


def _place(delivery: Delivery) -> tuple[int, int]:
    """What a mailbox is ordered by."""
    return -delivery.message.priority.rank, delivery.number
