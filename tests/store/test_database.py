"""One writer, some readers, whole transactions; whoever asks may go away at any time."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bullpen.store.database import Database
from bullpen.store.errors import StoreBusy, StoreClosed, StoreError, StoreLocked
from tests.store.samples import sql


class Gate:
    """Work that holds its thread until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self, connection: sqlite3.Connection) -> str:
        self.entered.set()
        assert self.release.wait(10)
        return threading.current_thread().name

    async def wait_entered(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 10)


def make_table(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS t (a INTEGER)")


def insert(value: object) -> Any:
    return lambda connection: connection.execute("INSERT INTO t VALUES (?)", [value])


def select(connection: sqlite3.Connection) -> list[int]:
    return [a for (a,) in connection.execute("SELECT a FROM t ORDER BY rowid")]


def store_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name.startswith("store-")]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


@pytest.fixture(params=["file", "memory"])
async def database(request: pytest.FixtureRequest, file: Path) -> AsyncIterator[Database]:
    path = file if request.param == "file" else None
    database = await Database.open(path, prepare=make_table)
    yield database
    await database.aclose()


async def test_what_is_written_can_be_read(database: Database) -> None:
    await database.write(insert(1))
    assert await database.read(select) == [1]


async def test_a_write_gives_back_what_the_work_returns(database: Database) -> None:
    assert await database.write(lambda connection: "a result") == "a result"


async def test_whatever_a_write_raises_nothing_of_it_is_kept(database: Database) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        insert(1)(connection)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        await database.write(fail)
    assert await database.read(select) == []
    await database.write(insert(2))
    assert await database.read(select) == [2]


async def test_what_sqlite_refuses_is_an_error_of_ours(database: Database) -> None:
    with pytest.raises(StoreError, match="no such table") as caught:
        await database.write(lambda connection: connection.execute("SELECT * FROM missing"))
    assert isinstance(caught.value.__cause__, sqlite3.OperationalError)


async def test_a_read_cannot_write(database: Database) -> None:
    with pytest.raises(StoreError, match="readonly"):
        await database.read(insert(1))
    assert await database.read(select) == []
    await database.write(insert(2))
    assert await database.read(select) == [2]


async def test_a_stopped_iteration_reaches_the_caller_too(database: Database) -> None:
    def stop(connection: sqlite3.Connection) -> None:
        next(iter(()))

    with pytest.raises(RuntimeError, match="StopIteration"):
        await database.write(stop)


async def test_all_writes_are_in_one_thread_in_the_order_they_were_asked(
    database: Database,
) -> None:
    threads: set[int] = set()

    def write(value: int) -> Any:
        def work(connection: sqlite3.Connection) -> None:
            threads.add(threading.get_ident())
            insert(value)(connection)

        return work

    await asyncio.gather(*(database.write(write(value)) for value in range(50)))
    assert await database.read(select) == list(range(50))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


async def test_readers_do_not_wait_for_the_writer_and_see_the_last_commit(file: Path) -> None:
    gate = Gate()

    def write(connection: sqlite3.Connection) -> None:
        insert(2)(connection)
        gate(connection)

    async with contextlib.aclosing(await Database.open(file, prepare=make_table)) as database:
        await database.write(insert(1))
        writing = asyncio.create_task(database.write(write))
        await gate.wait_entered()
        async with asyncio.timeout(5):
            assert await database.read(select) == [1]
        gate.release.set()
        await writing
        assert await database.read(select) == [1, 2]


async def test_all_that_one_read_reads_is_of_one_moment(file: Path) -> None:
    gate = Gate()

    def read(connection: sqlite3.Connection) -> tuple[list[int], list[int]]:
        before = select(connection)
        gate(connection)
        return before, select(connection)

    async with contextlib.aclosing(await Database.open(file, prepare=make_table)) as database:
        reading = asyncio.create_task(database.read(read))
        await gate.wait_entered()
        await database.write(insert(1))
        gate.release.set()
        assert await reading == ([], [])


async def test_readers_run_beside_each_other(file: Path) -> None:
    async with contextlib.aclosing(
        await Database.open(file, prepare=make_table, readers=2)
    ) as database:
        gates = [Gate(), Gate()]
        reading = [asyncio.create_task(database.read(gate)) for gate in gates]
        for gate in gates:
            await gate.wait_entered()
        for gate in gates:
            gate.release.set()
        assert len(set(await asyncio.gather(*reading))) == 2


async def test_a_write_whose_caller_left_before_its_turn_is_skipped(database: Database) -> None:
    gate = Gate()
    first = asyncio.create_task(database.write(gate))
    await gate.wait_entered()
    second = asyncio.create_task(database.write(insert(2)))
    third = asyncio.create_task(database.write(insert(3)))
    await asyncio.sleep(0)  # let them take their places
    second.cancel()
    await asyncio.wait([second])
    gate.release.set()
    await asyncio.gather(first, third)
    assert second.cancelled()
    assert await database.read(select) == [3]


async def test_a_write_whose_caller_left_midway_is_finished(database: Database) -> None:
    gate = Gate()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))

    def write(connection: sqlite3.Connection) -> None:
        gate(connection)
        insert(1)(connection)

    writing = asyncio.create_task(database.write(write))
    await gate.wait_entered()
    writing.cancel()
    await asyncio.wait([writing])
    gate.release.set()
    await database.write(insert(2))
    assert writing.cancelled()
    assert await database.read(select) == [1, 2]
    assert complaints == []


async def test_only_so_many_writes_wait_and_the_next_is_refused_after_a_while(file: Path) -> None:
    gate = Gate()
    async with contextlib.aclosing(
        await Database.open(file, prepare=make_table, limit=2, patience_seconds=0.05)
    ) as database:
        first = asyncio.create_task(database.write(gate))
        second = asyncio.create_task(database.write(insert(2)))
        await gate.wait_entered()
        with pytest.raises(StoreBusy, match="2 reads or writes have been waiting"):
            await database.write(insert(3))
        gate.release.set()
        await asyncio.gather(first, second)
        await database.write(insert(4))
        assert await database.read(select) == [2, 4]


async def test_callers_who_leave_do_not_make_room_for_more_than_may_wait(file: Path) -> None:
    gate = Gate()
    async with contextlib.aclosing(
        await Database.open(file, prepare=make_table, limit=2, patience_seconds=0.05)
    ) as database:
        first = asyncio.create_task(database.write(gate))
        await gate.wait_entered()
        second = asyncio.create_task(database.write(insert(2)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(StoreBusy):
            await database.write(insert(3))
        gate.release.set()
        await first


async def test_closing_does_first_what_was_asked_before(file: Path) -> None:
    gate = Gate()
    database = await Database.open(file, prepare=make_table)
    first = asyncio.create_task(database.write(gate))
    second = asyncio.create_task(database.write(insert(2)))
    await gate.wait_entered()
    closing = asyncio.create_task(database.aclose())
    await asyncio.sleep(0)
    gate.release.set()
    await asyncio.gather(first, second, closing)
    assert sql(file, "SELECT a FROM t") == [(2,)]


async def test_after_closing_nothing_is_taken_and_nothing_left(database: Database) -> None:
    assert store_threads()
    await asyncio.gather(database.aclose(), database.aclose())
    await database.aclose()
    with pytest.raises(StoreClosed):
        await database.write(insert(1))
    with pytest.raises(StoreClosed):
        await database.read(select)
    for thread in store_threads():
        await asyncio.to_thread(thread.join, 5)
    assert not store_threads()


async def test_who_waits_for_a_place_when_it_closes_is_told_so(file: Path) -> None:
    gate = Gate()
    database = await Database.open(file, limit=1)
    first = asyncio.create_task(database.write(gate))
    await gate.wait_entered()
    second = asyncio.create_task(database.write(gate))
    await asyncio.sleep(0)
    closing = asyncio.create_task(database.aclose())
    await asyncio.sleep(0)
    gate.release.set()
    with pytest.raises(StoreClosed):
        await second
    await asyncio.gather(first, closing)


async def test_closing_leaves_one_file(file: Path) -> None:
    database = await Database.open(file, prepare=make_table)
    await database.write(insert(1))
    assert await database.read(select) == [1]
    assert len(list(file.parent.iterdir())) == 3
    await database.aclose()
    assert list(file.parent.iterdir()) == [file]


async def test_closing_interrupts_what_takes_too_long(file: Path) -> None:
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT COUNT(*) FROM n"
    )
    database = await Database.open(file, prepare=make_table)
    begun = threading.Event()

    def write(connection: sqlite3.Connection) -> None:
        begun.set()
        connection.execute(endless)

    writing = asyncio.create_task(database.write(write))
    assert await asyncio.to_thread(begun.wait, 10)
    async with asyncio.timeout(10):
        await database.aclose(timeout_seconds=0.1)
        with pytest.raises(StoreError, match="interrupted"):
            await writing


async def test_closing_abandons_what_does_not_even_hear_of_it(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    database = await Database.open(file)
    writing = asyncio.create_task(database.write(gate))
    await gate.wait_entered()
    async with asyncio.timeout(10):
        await database.aclose(timeout_seconds=0.05)
    with pytest.raises(StoreClosed):
        await writing
    assert "abandoned" in caplog.text
    gate.release.set()
    await database.aclose()


async def test_closing_goes_on_when_whoever_closes_is_cancelled(file: Path) -> None:
    gate = Gate()
    database = await Database.open(file, prepare=make_table)
    reading = asyncio.create_task(database.read(gate))
    await gate.wait_entered()
    closing = asyncio.create_task(database.aclose())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    gate.release.set()
    await reading
    with pytest.raises(StoreClosed):
        await database.write(insert(1))
    for thread in store_threads():
        await asyncio.to_thread(thread.join, 5)
    assert not store_threads()


async def test_a_database_that_another_process_writes_to_is_locked_after_a_while(
    file: Path,
) -> None:
    async with contextlib.aclosing(
        await Database.open(file, prepare=make_table, lock_timeout_seconds=0.05)
    ) as database:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreLocked, match="another process holds the database"):
            await database.write(insert(1))
        other.execute("ROLLBACK")
        other.close()
        await database.write(insert(2))
        assert await database.read(select) == [2]


async def test_a_preparation_that_fails_leaves_no_thread(file: Path) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE t (")

    with pytest.raises(StoreError, match="incomplete input"):
        await Database.open(file, prepare=fail)
    for thread in store_threads():
        await asyncio.to_thread(thread.join, 5)
    assert not store_threads()


async def test_the_writer_keeps_a_write_ahead_log_and_foreign_keys(file: Path) -> None:
    def pragmas(connection: sqlite3.Connection) -> list[object]:
        names = ["journal_mode", "synchronous", "foreign_keys", "busy_timeout"]
        names.append("checkpoint_fullfsync")  # which does something on macOS only
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    async with contextlib.aclosing(await Database.open(file, lock_timeout_seconds=3)) as database:
        assert await database.write(pragmas) == ["wal", 1, 1, 3000, 1]


async def test_who_comes_behind_one_that_waited_in_vain_for_the_lock_waits_little(
    file: Path,
) -> None:
    async with contextlib.aclosing(
        await Database.open(file, prepare=make_table, lock_timeout_seconds=2.0)
    ) as database:
        other = await asyncio.to_thread(sqlite3.connect, file, check_same_thread=False)
        await asyncio.to_thread(other.execute, "BEGIN IMMEDIATE")
        async with asyncio.timeout(20):  # thirty seconds, if each of them waited
            for _ in range(15):
                with pytest.raises(StoreLocked):
                    await database.write(lambda it: it.execute("SELECT 1"))
        await asyncio.to_thread(other.close)
        await database.write(lambda it: it.execute("SELECT 1"))
