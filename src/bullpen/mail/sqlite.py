"""Mailboxes in SQLite: what a call changed outlives the process before the call returns.

Calls made at the same time share a commit. Reading never waits for writing.
"""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from sqlite3 import Connection
from typing import TypeVar

from bullpen.mail.ledger import Ledger, Rules
from bullpen.mail.mailboxes import Appended, Mailboxes, Recovered, Settling, Story, Tell, nobody
from bullpen.mail.retries import LEASE_SECONDS
from bullpen.model.deliveries import (
    CommunicationLog,
    Delivery,
    Evidence,
    Receipt,
    ReceiptState,
    TaskQuery,
)
from bullpen.model.messages import Message
from bullpen.store.database import Database
from bullpen.store.groups import GroupedWrites
from bullpen.store.mail import MailRows

__all__ = ["SqliteMailboxes"]

T = TypeVar("T")


class SqliteMailboxes(Mailboxes):
    """Mailboxes over a database that is of the newest schema. Closing it leaves that open.

    Every call raises `StoreError` if it could not be done; then nothing was changed.
    """

    def __init__(self, database: Database, rules: Rules | None = None) -> None:
        self._database = database
        self._writes = GroupedWrites(database)
        self._rules = rules or Rules()

    async def aclose(self) -> None:
        """Write what was asked before, and take nothing more."""
        await self._writes.aclose()

    async def append(
        self,
        message: Message,
        *,
        now: datetime,
        recipients: Iterable[str] | None = None,
        settling: Settling | None = None,
        seen: Evidence | None = None,
    ) -> Appended:
        names = None if recipients is None else tuple(recipients)
        return await self._write(lambda ledger: ledger.append(message, now, names, settling, seen))

    async def lease(
        self,
        recipient: str,
        *,
        now: datetime,
        seconds: float = LEASE_SECONDS,
        limit: int = 1,
        by: str = "",
    ) -> tuple[Delivery, ...]:
        return await self._write(lambda ledger: ledger.lease(recipient, now, seconds, limit, by))

    async def record(
        self, delivery: Delivery, state: ReceiptState, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        return await self._write(lambda ledger: ledger.record(delivery, state, now, evidence))

    async def acknowledge(
        self, delivery: Delivery, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        return await self._write(lambda ledger: ledger.acknowledge(delivery, now, evidence))

    async def take(
        self, recipient: str, *, now: datetime, evidence: Evidence, limit: int = 1
    ) -> tuple[Delivery, ...]:
        return await self._write(lambda ledger: ledger.take(recipient, now, evidence, limit))

    async def release(
        self, delivery: Delivery, *, now: datetime, evidence: Evidence, tell: Tell = nobody
    ) -> Delivery:
        return await self._write(lambda ledger: ledger.release(delivery, now, evidence, tell))

    async def put_back(self, delivery: Delivery, *, now: datetime) -> Delivery:
        return await self._write(lambda ledger: ledger.put_back(delivery, now))

    async def reject(self, delivery: Delivery, *, now: datetime, evidence: Evidence) -> Delivery:
        return await self.record(delivery, ReceiptState.DEAD, now=now, evidence=evidence)

    async def settle(
        self,
        message_id: str,
        recipient: str,
        state: ReceiptState,
        *,
        now: datetime,
        evidence: Evidence,
    ) -> Delivery:
        return await self._write(
            lambda ledger: ledger.settle(message_id, recipient, state, now, evidence)
        )

    async def expire(
        self, *, now: datetime, limit: int = 500, tell: Tell = nobody
    ) -> tuple[Delivery, ...]:
        return await self._write(lambda ledger: ledger.expire(now, limit, tell))

    async def recover(self) -> Recovered:
        return await self._write(lambda ledger: ledger.recover())

    async def requeue(
        self, message_id: str, recipient: str, *, now: datetime, evidence: Evidence
    ) -> Delivery:
        return await self._write(
            lambda ledger: ledger.requeue(message_id, recipient, now, evidence)
        )

    async def dead_letters(
        self, recipient: str | None = None, *, limit: int = 500
    ) -> tuple[Delivery, ...]:
        return await self._read(lambda ledger: ledger.dead_letters(recipient, limit))

    async def in_flight(self, *, limit: int = 500) -> tuple[Delivery, ...]:
        return await self._read(lambda ledger: ledger.in_flight(limit))

    async def waiting(self, recipient: str, *, limit: int = 500) -> tuple[Delivery, ...]:
        return await self._database.read(
            lambda connection: tuple(MailRows(connection).waiting(recipient, limit))
        )

    async def position(self, message_id: str, recipient: str) -> int | None:
        return await self._read(lambda ledger: ledger.position(message_id, recipient))

    async def deliveries(self, message_id: str) -> tuple[Delivery, ...]:
        return await self._read(lambda ledger: ledger.deliveries(message_id))

    async def receipts(self, message_id: str) -> tuple[Receipt, ...]:
        return await self._read(lambda ledger: ledger.receipts(message_id))

    async def thread(self, message_id: str, *, limit: int = 500) -> tuple[Message, ...]:
        return await self._read(lambda ledger: ledger.thread(message_id, limit))

    async def story(self, message_id: str, recipient: str | None = None) -> Story:
        return await self._read(lambda ledger: ledger.story(message_id, recipient))

    async def subscribe(self, topic: str, agent: str) -> None:
        await self._writes.write(lambda connection: MailRows(connection).subscribe(topic, agent))

    async def unsubscribe(self, topic: str, agent: str) -> None:
        await self._writes.write(lambda connection: MailRows(connection).unsubscribe(topic, agent))

    async def subscribers(self, topic: str) -> tuple[str, ...]:
        return await self._database.read(
            lambda connection: tuple(MailRows(connection).subscribers(topic))
        )

    async def topics(self) -> dict[str, tuple[str, ...]]:
        return await self._database.read(lambda connection: MailRows(connection).topics())

    async def find(self, message_id: str) -> Message:
        return await self._read(lambda ledger: ledger.find(message_id))

    async def tasks(self, wanted: TaskQuery, *, limit: int = 500) -> tuple[Delivery, ...]:
        return await self._database.read(
            lambda connection: tuple(MailRows(connection).tasks(wanted, limit))
        )

    async def backlog(self, recipient: str | None = None) -> dict[str, int]:
        return await self._database.read(lambda connection: MailRows(connection).backlog(recipient))

    async def log_refusal(self, message: Message, error: str, *, now: datetime) -> None:
        await self._write(lambda ledger: ledger.log_refusal(message, error, now))

    async def communication(
        self, *, after: int = 0, limit: int = 500
    ) -> tuple[tuple[int, CommunicationLog], ...]:
        return await self._database.read(
            lambda connection: tuple(MailRows(connection).logs(after, limit))
        )

    async def forget(self, *, before: datetime, limit: int = 500) -> int:
        return await self._writes.write(
            lambda connection: MailRows(connection).forget(before, limit)
        )

    async def _write(self, work: Callable[[Ledger], T]) -> T:
        return await self._writes.write(partial(self._run, work))

    async def _read(self, work: Callable[[Ledger], T]) -> T:
        return await self._database.read(partial(self._run, work))

    def _run(self, work: Callable[[Ledger], T], connection: Connection) -> T:
        return work(Ledger(MailRows(connection), self._rules))
