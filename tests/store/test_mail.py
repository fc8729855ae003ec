"""The rows of mail are found by their indexes, and receipts are never edited."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.store.mail import MailRows
from bullpen.store.migrate import migrate
from tests.mail.samples import T0, message

S = ReceiptState


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, "memory")
        yield connection


def plans(connection: sqlite3.Connection, rows: MailRows, name: str, *arguments: object) -> str:
    """Return how SQLite finds what a method asks for."""
    asked: list[str] = []
    connection.set_trace_callback(asked.append)
    getattr(rows, name)(*arguments)
    connection.set_trace_callback(None)
    steps = (each for query in asked for each in connection.execute(f"EXPLAIN QUERY PLAN {query}"))
    return "\n".join(step[-1] for step in steps)


@pytest.mark.parametrize(
    ("name", "arguments", "index"),
    [
        ("next_deliveries", ("coder", T0, T0, T0, 1), "delivery_v1_queue"),
        ("waiting", ("coder", 10), "delivery_v1_queue"),
        ("has_waiting", ("coder", 10), "delivery_v1_queue"),
        ("expired", (T0, T0, 10), "delivery_v1_expiring"),
        ("early", (T0, 10), "delivery_v1_expiring"),
        ("forget", (T0, 10), "message_v1_by_time"),
        ("in_states", ((S.EXPIRED, S.DEAD), None, 10), "delivery_v1_dead"),
        ("in_states", ((S.INJECTED, S.SUBMITTED), None, 10), "delivery_v1_in_flight"),
        ("find_key", ("boss", "k"), "message_v1_by_key"),
        ("thread", ("m1", 10), "message_v1_by_thread"),
        ("receipts", ("m1",), "receipt_v1_by_delivery"),
    ],
)
def test_what_is_asked_often_has_its_index(
    connection: sqlite3.Connection, name: str, arguments: tuple[object, ...], index: str
) -> None:
    plan = plans(connection, MailRows(connection), name, *arguments)
    assert index in plan
    assert "SCAN m" not in plan
    if name in ("next_deliveries", "waiting"):
        assert "TEMP B-TREE" not in plan, "the order is that of the index"


def test_receipts_are_not_edited(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO receipt_v1 VALUES (1, 1, 'queued', '', 0, '{}')")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute("UPDATE receipt_v1 SET state = 'seen'")


def test_a_delivery_belongs_to_a_message(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    delivery = Delivery(
        number=0,
        message=message(),
        recipient="coder",
        state=S.QUEUED,
        accepted_at=T0,
        available_at=T0,
    )
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"):
        MailRows(connection).add_delivery(delivery)
