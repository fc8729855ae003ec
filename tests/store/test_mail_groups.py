"""Writes asked at the same time share a commit, and nothing else."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.store.database import Database
from bullpen.store.errors import StoreBusy, StoreClosed, StoreError
from bullpen.store.groups import GroupedWrites


def make_table(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE t (a INTEGER UNIQUE)")


def insert(value: int) -> Any:
    def work(connection: sqlite3.Connection) -> int:
        connection.execute("INSERT INTO t VALUES (?)", [value])
        return value

    return work


def insert_and_fail(value: int) -> Any:
    def work(connection: sqlite3.Connection) -> None:
        insert(value)(connection)
        raise LookupError(value)

    return work


def select(connection: sqlite3.Connection) -> list[int]:
    return [a for (a,) in connection.execute("SELECT a FROM t ORDER BY a")]


class CountingDatabase:
    """A database that counts its transactions."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.transactions = 0

    async def write(self, work: Any) -> Any:
        self.transactions += 1
        return await self.database.write(work)


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "state.db", prepare=make_table)
    yield database
    await database.aclose()


@pytest.fixture
async def writes(database: Database) -> AsyncIterator[GroupedWrites]:
    writes = GroupedWrites(database)
    yield writes
    await writes.aclose()


async def test_what_is_asked_together_is_committed_together(database: Database) -> None:
    counting = CountingDatabase(database)
    writes = GroupedWrites(counting)  # type: ignore[arg-type]
    results = await asyncio.gather(*(writes.write(insert(value)) for value in range(50)))
    assert results == list(range(50))
    assert await database.read(select) == list(range(50))
    assert counting.transactions <= 2
    await writes.aclose()


async def test_what_one_raises_undoes_that_one_alone(
    writes: GroupedWrites, database: Database
) -> None:
    results = await asyncio.gather(
        writes.write(insert(1)),
        writes.write(insert_and_fail(2)),
        writes.write(insert(3)),
        return_exceptions=True,
    )
    assert results[0] == 1
    assert isinstance(results[1], LookupError)
    assert results[2] == 3
    assert await database.read(select) == [1, 3]


async def test_an_error_of_sqlite_is_told_to_who_caused_it(
    writes: GroupedWrites, database: Database
) -> None:
    await writes.write(insert(1))
    results = await asyncio.gather(
        *(writes.write(insert(value)) for value in (2, 1, 3)), return_exceptions=True
    )
    assert results[0] == 2
    assert isinstance(results[1], StoreError)
    assert results[2] == 3
    assert await database.read(select) == [1, 2, 3]


async def test_one_alone_that_fails_is_told(writes: GroupedWrites, database: Database) -> None:
    with pytest.raises(LookupError):
        await writes.write(insert_and_fail(1))
    assert await database.read(select) == []


async def test_who_is_cancelled_before_his_turn_writes_nothing(
    writes: GroupedWrites, database: Database
) -> None:
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(writes.write(insert(1)))
        await asyncio.sleep(0)
        group.create_task(writes.write(insert(2)))
        gone.cancel()
    assert await database.read(select) == [2]


async def test_who_finds_no_place_is_told(database: Database) -> None:
    writes = GroupedWrites(database, limit=1, patience_seconds=0.0)
    results = await asyncio.gather(
        *(writes.write(insert(value)) for value in (1, 2)), return_exceptions=True
    )
    assert results[0] == 1
    assert isinstance(results[1], StoreBusy)
    await writes.aclose()


async def test_closing_waits_for_what_was_asked(writes: GroupedWrites, database: Database) -> None:
    entered, release = threading.Event(), threading.Event()

    def held(connection: sqlite3.Connection) -> None:
        entered.set()
        assert release.wait(10)
        insert(1)(connection)

    async with asyncio.TaskGroup() as group:
        group.create_task(writes.write(held))
        assert await asyncio.to_thread(entered.wait, 10)
        closing = group.create_task(writes.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        release.set()
    assert await database.read(select) == [1]


async def test_a_closed_one_takes_nothing(writes: GroupedWrites) -> None:
    await writes.aclose()
    with pytest.raises(StoreClosed):
        await writes.write(insert(1))
