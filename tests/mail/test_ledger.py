"""Whatever happens to mailboxes, rows in memory and in SQLite tell the same. No receipt lies."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.mail.errors import MailError
from bullpen.mail.ledger import Ledger, Rules
from bullpen.mail.memory import MemoryRows
from bullpen.mail.receipts import TRANSITIONS
from bullpen.mail.retries import ReconnectPolicy
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import Message, MessageType, Priority
from bullpen.store.mail import MailRows
from bullpen.store.migrate import migrate
from tests.mail.samples import T0, message

S = ReceiptState
AGENTS = ["a", "b"]
RULES = Rules(ReconnectPolicy(max_retries=1), mailbox_limit=2)
EVIDENCE = Evidence("test", "it was so")

agents = st.sampled_from(AGENTS)
ids = st.integers(1, 5)
states = st.sampled_from(S)
held = st.integers(0, 30)  # which of the deliveries that were ever leased, or the next one
sent = st.builds(
    message,
    ids,
    sender=agents,
    to=agents | st.just("#topic"),
    type=st.sampled_from(
        [
            *(MessageType.INFO, MessageType.TASK_REQUEST),
            *(MessageType.TASK_FAILED, MessageType.PROGRESS),
        ]
    ),
    priority=st.sampled_from(Priority),
    ttl=st.none() | st.integers(0, 20),
    reply_to=st.none() | ids.map("m{}".format),
    idempotency_key=st.none() | st.sampled_from(["k", "l"]),
    content=st.sampled_from(["same", "other"]),
)
appends = st.tuples(st.just("append"), sent)
operations = st.one_of(
    appends,
    st.tuples(st.just("lease"), agents, st.integers(1, 2), st.sampled_from(["", "pty"])),
    st.tuples(st.just("record"), held, states),
    st.tuples(st.just("acknowledge"), held),
    st.tuples(st.just("take"), agents, st.integers(1, 2)),
    st.tuples(st.just("release"), held),
    st.tuples(st.just("settle"), ids, agents, states),
    st.tuples(st.just("requeue"), ids, agents),
    st.tuples(st.just("expire")),
    st.tuples(st.just("recover")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("subscribe"), agents),
)
steps = st.builds(
    list.__add__,
    st.lists(st.tuples(st.just(0), appends), min_size=2, max_size=5),
    st.lists(st.tuples(st.integers(-5, 10), operations), min_size=10, max_size=30),
)


class Played:
    """A ledger, and what was leased from it."""

    def __init__(self, rows: MemoryRows | MailRows) -> None:
        self.rows = rows
        self.ledger = Ledger(rows, RULES)
        self.leased: list[Delivery] = []

    def play(self, operation: tuple[Any, ...], now: datetime) -> object:
        """Return what comes of an operation, be it a refusal."""
        name, *arguments = operation
        action: Callable[..., object] = getattr(self, f"_{name}")
        try:
            return action(now, *arguments)
        except MailError as error:
            return type(error), str(error)

    def view(self) -> object:
        """Return all that can be asked."""
        numbers = range(1, 6)
        return [
            [self.rows.deliveries(f"m{number}") for number in numbers],
            [self.rows.receipts(f"m{number}") for number in numbers],
            [self.rows.thread(f"m{number}", 100) for number in numbers],
            [self.rows.waiting(agent, 100) for agent in AGENTS],
            [self._places(agent) for agent in AGENTS],
            self.ledger.dead_letters(None, 100),
            self.ledger.in_flight(100),
            self.rows.logs(0, 100),
            self.rows.subscribers("topic"),
        ]

    def _places(self, agent: str) -> list[int | None]:
        waiting = self.rows.waiting(agent, 100)
        return [self._place(each) for each in waiting]

    def _place(self, delivery: Delivery) -> int | None:
        """Return a place in the queue, which is part of a story that is the same told in pieces."""
        message_id, agent = delivery.message.id, delivery.recipient
        story = self.ledger.story(message_id, agent)
        position = self.ledger.position(message_id, agent)
        receipts, thread = self.ledger.receipts(message_id), self.ledger.thread(message_id, 100)
        assert story == (delivery, receipts, thread, position)
        return position

    def _append(self, now: datetime, message: Message) -> object:
        return self.ledger.append(message, now, None)

    def _lease(self, now: datetime, agent: str, limit: int, by: str = "") -> object:
        leased = self.ledger.lease(agent, now, 5, limit, by)
        self.leased += leased
        return leased

    def _take(self, now: datetime, agent: str, limit: int) -> object:
        return self.ledger.take(agent, now, EVIDENCE, limit)

    def _record(self, now: datetime, index: int, state: S) -> object:
        return self._on_held(now, index, lambda it: self.ledger.record(it, state, now, EVIDENCE))

    def _acknowledge(self, now: datetime, index: int) -> object:
        return self._on_held(now, index, lambda it: self.ledger.acknowledge(it, now, EVIDENCE))

    def _release(self, now: datetime, index: int) -> object:
        return self._on_held(now, index, lambda it: self.ledger.release(it, now, EVIDENCE))

    def _on_held(self, now: datetime, index: int, action: Callable[[Delivery], object]) -> object:
        if index < 20:
            self._lease(now, AGENTS[index % 2], 1)
            index = -1
        return action(self.leased[index % len(self.leased)]) if self.leased else None

    def _settle(self, now: datetime, number: int, agent: str, state: S) -> object:
        return self.ledger.settle(f"m{number}", agent, state, now, EVIDENCE)

    def _requeue(self, now: datetime, number: int, agent: str) -> object:
        return self.ledger.requeue(f"m{number}", agent, now, EVIDENCE)

    def _expire(self, now: datetime) -> object:
        return self.ledger.expire(now, 100)

    def _recover(self, now: datetime) -> object:
        return self.ledger.recover()

    def _forget(self, now: datetime) -> object:
        return self.rows.forget(now, 2)

    def _subscribe(self, now: datetime, agent: str) -> object:
        return self.rows.subscribe("topic", agent)


@settings(max_examples=150)
@given(steps)
def test_rows_in_memory_and_in_sqlite_tell_the_same(
    steps: list[tuple[int, tuple[Any, ...]]],
) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, "memory")
        in_memory, in_sqlite = Played(MemoryRows()), Played(MailRows(connection))
        now = T0
        for seconds, operation in steps:
            now += timedelta(seconds=seconds)
            assert in_memory.play(operation, now) == in_sqlite.play(operation, now)
        assert in_memory.view() == in_sqlite.view()


@settings(max_examples=150)
@given(steps)
def test_whatever_happens_no_receipt_lies(steps: list[tuple[int, tuple[Any, ...]]]) -> None:
    played = Played(MemoryRows())
    now = T0
    for seconds, operation in steps:
        now += timedelta(seconds=seconds)
        played.play(operation, now)
    for number in range(1, 6):
        for delivery in played.rows.deliveries(f"m{number}"):
            told = [
                each.state
                for each in played.rows.receipts(f"m{number}")
                if each.recipient == delivery.recipient
            ]
            assert told[0] is S.ACCEPTED
            assert told[-1] is delivery.state
            assert told.count(S.ANSWERED) <= 1
            for before, after in pairwise(told):
                is_another_attempt = before is after is S.QUEUED
                assert is_another_attempt or after in TRANSITIONS[before]
