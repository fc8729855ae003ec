"""Messages, deliveries, receipts and topics as rows. What happens to them is decided elsewhere.

A `MailRows` belongs to one transaction. Every query that must be fast has its index in
`migrations/`, and repeats that index's condition word for word, else SQLite would not use it.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from sqlite3 import Connection
from typing import Any

import msgspec

from bullpen.model.deliveries import (
    CommunicationLog,
    Delivery,
    Evidence,
    Receipt,
    ReceiptState,
    TaskQuery,
)
from bullpen.model.messages import Message, MessageType, decode_message
from bullpen.store import encoding
from bullpen.store.encoding import TEXT, decode_json, encode_json, encode_text

__all__ = ["MailRows"]

_DELIVERY = """
    SELECT d.number, m.message, d.recipient, d.state, m.accepted_at, d.available_at, d.expires_at,
           d.attempt, d.attempts_before, d.leased_until, d.leased_by, m.size
    FROM delivery_v1 AS d JOIN message_v1 AS m USING (message_id)
"""
# One call writes the same moment into several rows.
encode_time = lru_cache(maxsize=256)(encoding.encode_time)

_QUEUED = "WHERE d.state = 'queued' AND d.recipient = ?"
_IN_ORDER = "ORDER BY d.priority DESC, d.number LIMIT ?"
_FREE = "(d.leased_until IS NULL OR d.leased_until <= ? OR d.leased_until > ?)"
_FORGOTTEN = """
    SELECT m.message_id FROM message_v1 AS m WHERE m.accepted_at < ? AND NOT EXISTS (
        SELECT 1 FROM message_v1 AS o JOIN delivery_v1 AS d USING (message_id)
        WHERE o.thread_id = m.thread_id AND (
            d.state = 'queued'
            OR (o.type = 'task_request' AND d.state IN ('injected', 'submitted', 'seen'))
        )
    )
    ORDER BY m.accepted_at, m.rowid LIMIT ?
"""  # what is open is as `mail.receipts` has it


class MailRows:
    """The rows of all mailboxes, over the connection of a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._execute = connection.execute

    # -------------------------------------------------------------------------------- messages

    def find_message(self, message_id: str) -> Message | None:
        """Return a message."""
        return self._message("message_id = ?", message_id)

    def find_key(self, sender: str, key: str) -> Message | None:
        """Return the message of a sender with a key."""
        return self._message("sender = ? AND idempotency_key = ?", sender, key)

    def _message(self, condition: str, *values: str) -> Message | None:
        found = self._execute(
            f"SELECT message FROM message_v1 WHERE {condition}",  # noqa: S608 - ours
            values,
        ).fetchone()
        return None if found is None else decode_message(found[0])

    def find_thread(self, message_id: str) -> str | None:
        """Return the thread of a message."""
        query = "SELECT thread_id FROM message_v1 WHERE message_id = ?"
        found = self._execute(query, (message_id,)).fetchone()
        return None if found is None else str(found[0])

    def add_message(
        self, message: Message, encoded: bytes, thread_id: str, accepted_at: datetime
    ) -> bool:
        """Keep a message, if there is none with its id or its sender's key."""
        cursor = self._execute(
            "INSERT OR IGNORE INTO message_v1 VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                message.id,
                message.from_agent,
                message.type.value,
                message.idempotency_key,
                thread_id,
                encode_time(accepted_at),
                len(encoded),
                encoded.decode(),
            ),
        )
        return cursor.rowcount == 1

    def find_beginning(self, beginning: str, limit: int) -> Sequence[str]:
        """Return the ids that begin so."""
        query = "SELECT message_id FROM message_v1 WHERE message_id >= ? AND message_id < ? LIMIT ?"
        return [
            each for (each,) in self._execute(query, (beginning, f"{beginning}\U0010ffff", limit))
        ]

    def thread(self, thread_id: str, limit: int) -> Sequence[Message]:
        """Return the messages of a thread, in the order they were accepted."""
        query = "SELECT message FROM message_v1 WHERE thread_id = ? ORDER BY rowid LIMIT ?"
        return [decode_message(each) for (each,) in self._execute(query, (thread_id, limit))]

    # ------------------------------------------------------------------------------ deliveries

    def add_delivery(self, delivery: Delivery) -> Delivery:
        """Keep a delivery and return it with its number."""
        cursor = self._execute(
            "INSERT INTO delivery_v1 VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                delivery.message.id,
                delivery.recipient,
                delivery.message.priority.rank,
                delivery.state.value,
                encode_time(delivery.available_at),
                _time_or_none(delivery.expires_at),
                delivery.attempt,
                delivery.attempts_before,
                _time_or_none(delivery.leased_until),
                delivery.leased_by,
            ),
        )
        assert cursor.lastrowid is not None
        return msgspec.structs.replace(delivery, number=cursor.lastrowid)

    def save_delivery(self, delivery: Delivery) -> None:
        """Keep what changed of a delivery."""
        self._execute(
            "UPDATE delivery_v1 SET state = ?, available_at = ?, expires_at = ?, attempt = ?,"
            " attempts_before = ?, leased_until = ?, leased_by = ? WHERE number = ?",
            (
                delivery.state.value,
                encode_time(delivery.available_at),
                _time_or_none(delivery.expires_at),
                delivery.attempt,
                delivery.attempts_before,
                _time_or_none(delivery.leased_until),
                delivery.leased_by,
                delivery.number,
            ),
        )

    def refresh(self, delivery: Delivery) -> Delivery | None:
        """Return a delivery as it is by now, without reading its message again."""
        row = self._execute(
            "SELECT state, available_at, expires_at, attempt, attempts_before, leased_until,"
            " leased_by FROM delivery_v1 WHERE number = ?",
            (delivery.number,),
        ).fetchone()
        if row is None:
            return None
        return msgspec.structs.replace(
            delivery,
            state=ReceiptState(row[0]),
            available_at=datetime.fromisoformat(row[1]),
            expires_at=_read_time(row[2]),
            attempt=row[3],
            attempts_before=row[4],
            leased_until=_read_time(row[5]),
            leased_by=row[6],
        )

    def find_delivery(self, message_id: str, recipient: str) -> Delivery | None:
        """Return the delivery of a message to an agent."""
        condition = "WHERE d.message_id = ? AND d.recipient = ?"
        found = self._select(condition, message_id, recipient)
        return found[0] if found else None

    def deliveries(self, message_id: str) -> Sequence[Delivery]:
        """Return all deliveries of a message."""
        return self._select("WHERE d.message_id = ? ORDER BY d.number", message_id)

    def next_deliveries(
        self, recipient: str, now: datetime, latest: datetime, longest: datetime, limit: int
    ) -> Sequence[Delivery]:
        """Return what is queued, due, not leased and not too old, by priority, then by number."""
        condition = (
            f"{_QUEUED} AND (d.attempt = d.attempts_before"
            " OR d.available_at <= ? OR d.available_at > ?)"
            f" AND {_FREE} AND (d.expires_at IS NULL OR d.expires_at > ?) {_IN_ORDER}"
        )
        moment = encode_time(now)
        times = (moment, encode_time(latest), moment, encode_time(longest), moment)
        return self._select(condition, recipient, *times, limit)

    def waiting(self, recipient: str, limit: int) -> Sequence[Delivery]:
        """Return what is queued, by priority and then by number."""
        return self._select(f"{_QUEUED} {_IN_ORDER}", recipient, limit)

    def count_before(self, delivery: Delivery) -> int:
        """Return how many are queued before a delivery."""
        rank = delivery.message.priority.rank
        (count,) = self._execute(
            "SELECT count(*) FROM delivery_v1 WHERE state = 'queued' AND recipient = ?"
            " AND (priority > ? OR (priority = ? AND number < ?))",
            (delivery.recipient, rank, rank, delivery.number),
        ).fetchone()
        return int(count)

    def has_waiting(self, recipient: str, count: int) -> bool:
        """Return whether so many are queued."""
        query = (
            "SELECT 1 FROM delivery_v1 WHERE state = 'queued' AND recipient = ? LIMIT 1 OFFSET ?"
        )
        return count < 1 or self._execute(query, (recipient, count - 1)).fetchone() is not None

    def expired(self, now: datetime, longest: datetime, limit: int) -> Sequence[Delivery]:
        """Return what is queued, not leased, and past its time."""
        condition = (
            "WHERE d.state = 'queued' AND d.expires_at IS NOT NULL AND d.expires_at <= ?"
            f" AND {_FREE} ORDER BY d.expires_at LIMIT ?"
        )
        moment = encode_time(now)
        return self._select(condition, moment, moment, encode_time(longest), limit)

    def early(self, now: datetime, limit: int) -> Sequence[Delivery]:
        """Return what is queued, can become too old, and was accepted later than now."""
        condition = (
            "WHERE d.state = 'queued' AND d.expires_at IS NOT NULL AND m.accepted_at > ?"
            " ORDER BY d.expires_at DESC LIMIT ?"
        )
        return self._select(condition, encode_time(now), limit)

    def leased(self) -> Sequence[Delivery]:
        """Return what is queued and was leased, whether still or not."""
        return self._select("WHERE d.state = 'queued' AND d.leased_until IS NOT NULL")

    def in_states(
        self, states: Sequence[ReceiptState], recipient: str | None, limit: int
    ) -> Sequence[Delivery]:
        """Return what is in one of some states, of one agent or of all."""
        names = ", ".join(f"'{each.value}'" for each in states)
        condition = f"WHERE d.state IN ({names}) AND (? IS NULL OR d.recipient = ?)"
        return self._select(f"{condition} ORDER BY d.number LIMIT ?", recipient, recipient, limit)

    def tasks(self, wanted: TaskQuery, limit: int) -> Sequence[Delivery]:
        """Return what asked for an answer, the newest first."""
        conditions, values = ["m.type = 'task_request'"], list[object]()
        for condition, value in (
            ("d.recipient = ?", wanted.recipient),
            ("m.sender = ?", wanted.sender),
            ("m.thread_id = ?", wanted.thread_id),
            ("m.accepted_at < ?", _time_or_none(wanted.before)),
        ):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        if wanted.states is not None:
            conditions.append(f"d.state IN ({', '.join(['?'] * len(wanted.states))})")
            values += [each.value for each in wanted.states]
        where = " AND ".join(conditions)
        return self._select(f"WHERE {where} ORDER BY d.number DESC LIMIT ?", *values, limit)

    def backlog(self, recipient: str | None) -> dict[str, int]:
        """Return how many are queued, by recipient: of all, or of one."""
        one, names = ("", ()) if recipient is None else (" AND recipient = ?", (recipient,))
        query = (
            f"SELECT recipient, count(*) FROM delivery_v1 WHERE state = 'queued'{one}"  # noqa: S608
            " GROUP BY recipient"
        )
        return dict(self._execute(query, names).fetchall())

    def _select(self, rest: str, *values: object) -> list[Delivery]:
        return [_delivery(row) for row in self._execute(_DELIVERY + rest, values)]

    # -------------------------------------------------------------------------------- receipts

    def add_receipts(self, number: int, receipts: Sequence[Receipt]) -> None:
        """Keep some steps of a delivery."""
        rows = ", ".join(["(NULL, ?, ?, ?, ?, ?)"] * len(receipts))
        cells: list[object] = []
        for receipt in receipts:
            cells += (
                number,
                receipt.state.value,
                encode_time(receipt.at),
                receipt.attempt,
                encode_json(receipt.evidence),
            )
        self._execute(f"INSERT INTO receipt_v1 VALUES {rows}", cells)  # noqa: S608 - ours

    def receipts(self, message_id: str) -> Sequence[Receipt]:
        """Return all steps of a message."""
        query = (
            "SELECT d.message_id, d.recipient, r.state, r.at, r.attempt, r.evidence"
            " FROM delivery_v1 AS d JOIN receipt_v1 AS r USING (number)"
            " WHERE d.message_id = ? ORDER BY r.receipt_id"
        )
        return [_receipt(row) for row in self._execute(query, (message_id,))]

    # ---------------------------------------------------------------------------------- topics

    def subscribe(self, topic: str, agent: str) -> None:
        """Keep that an agent listens."""
        self._execute("INSERT OR IGNORE INTO subscription_v1 VALUES (?, ?)", (topic, agent))

    def unsubscribe(self, topic: str, agent: str) -> None:
        """Forget it."""
        self._execute("DELETE FROM subscription_v1 WHERE topic = ? AND agent = ?", (topic, agent))

    def subscribers(self, topic: str) -> Sequence[str]:
        """Return who listens, in the order of their names."""
        query = "SELECT agent FROM subscription_v1 WHERE topic = ? ORDER BY agent"
        return [agent for (agent,) in self._execute(query, (topic,))]

    def topics(self) -> dict[str, tuple[str, ...]]:
        """Return every topic and who listens to it."""
        found: dict[str, tuple[str, ...]] = {}
        query = "SELECT topic, agent FROM subscription_v1 ORDER BY topic, agent"
        for topic, agent in self._execute(query):
            found[topic] = (*found.get(topic, ()), agent)
        return found

    # ------------------------------------------------------------------------------------- log

    def add_log(self, entry: CommunicationLog, number: int | None) -> None:
        """Keep a record; of a delivery only the last."""
        self._execute(
            "INSERT OR REPLACE INTO communication_log_v1 VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                encode_time(entry.timestamp),
                encode_text(entry.from_agent),
                encode_text(entry.to_agent),
                entry.message_type.value,
                entry.message_size,
                entry.duration_ms,
                entry.success,
                None if entry.error is None else encode_text(entry.error),
            ),
        )

    def logs(self, after: int, limit: int) -> Sequence[tuple[int, CommunicationLog]]:
        """Return the records after a number."""
        query = (
            "SELECT log_id, timestamp, from_agent, to_agent, message_type, message_size,"
            " duration_ms, success, error FROM communication_log_v1"
            " WHERE log_id > ? ORDER BY log_id LIMIT ?"
        )
        return [(row[0], _log(row[1:])) for row in self._execute(query, (after, limit))]

    # ------------------------------------------------------------------------------ forgetting

    def forget(self, before: datetime, limit: int) -> int:
        """Remove old messages of threads in which nothing is open, and old records of the log."""
        moment = encode_time(before)
        gone = [each for (each,) in self._execute(_FORGOTTEN, (moment, limit)).fetchall()]
        of_message = "DELETE FROM {} WHERE message_id = ?"
        of_delivery = (
            "DELETE FROM receipt_v1 WHERE number IN"
            " (SELECT number FROM delivery_v1 WHERE message_id = ?)"
        )
        for message_id in gone:
            for statement in (
                of_delivery,
                of_message.format("delivery_v1"),
                of_message.format("message_v1"),
            ):
                self._execute(statement, (message_id,))
        self._execute(
            "DELETE FROM communication_log_v1 WHERE timestamp < ? AND log_id IN"
            " (SELECT log_id FROM communication_log_v1 ORDER BY log_id LIMIT ?)",
            (moment, limit),
        )
        return len(gone)


def _time_or_none(value: datetime | None) -> str | None:
    return None if value is None else encode_time(value)


def _read_time(cell: str | None) -> datetime | None:
    return None if cell is None else datetime.fromisoformat(cell)


def _delivery(row: Sequence[Any]) -> Delivery:
    return Delivery(
        number=row[0],
        message=decode_message(row[1]),
        recipient=row[2],
        state=ReceiptState(row[3]),
        accepted_at=datetime.fromisoformat(row[4]),
        available_at=datetime.fromisoformat(row[5]),
        expires_at=_read_time(row[6]),
        attempt=row[7],
        attempts_before=row[8],
        leased_until=_read_time(row[9]),
        leased_by=row[10],
        size=row[11],
    )


def _receipt(row: Sequence[Any]) -> Receipt:
    return Receipt(
        message_id=row[0],
        recipient=row[1],
        state=ReceiptState(row[2]),
        at=datetime.fromisoformat(row[3]),
        attempt=row[4],
        evidence=decode_json(row[5], Evidence),
    )


def _log(row: Sequence[Any]) -> CommunicationLog:
    return CommunicationLog(
        timestamp=datetime.fromisoformat(row[0]),
        from_agent=TEXT.decode(row[1]),
        to_agent=TEXT.decode(row[2]),
        message_type=MessageType(row[3]),
        message_size=row[4],
        duration_ms=row[5],
        success=bool(row[6]),
        error=None if row[7] is None else TEXT.decode(row[7]),
    )
