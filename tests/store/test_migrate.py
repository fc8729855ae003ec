"""A database is always of some version, and of the newest once we have opened it."""

import contextlib
import sqlite3
from collections.abc import Iterator
from importlib import resources

import pytest

from bullpen.store.errors import StoreTooNew
from bullpen.store.migrate import check_version, migrate, shipped_steps

STEPS = (
    "CREATE TABLE a (x); -- one; two\nINSERT INTO a VALUES (';');\n",
    "CREATE TABLE b (x);\nCREATE TRIGGER t AFTER INSERT ON a BEGIN\n  DELETE FROM b;\nEND;\n",
    "ALTER TABLE a ADD COLUMN y",
)
KEYS = {
    "events_raw_v2": ["provider", "source_kind", "event_id"],
    "session_state_v2": ["session_key"],
    "pane_state_v2": ["pane_id", "generation", "birth_ts", "server"],
    "binding_link_v2": ["pane_id", "generation", "birth_ts", "server", "bound_at"],
    "cursor_state_v2": ["source_kind"],
    "source_health_v2": ["source_kind"],
    "alert_ledger_v1": ["alert_id"],
    "state_snapshot_v2": ["snapshot_id"],
}


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield connection


def schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def fresh(steps: tuple[str, ...]) -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate(connection, "fresh", steps)
        return schema(connection)


@pytest.mark.requirement("DB-1", "DB-2", "DB-3", "DB-4", "DB-5", "DB-6", "A6-3", "A7-3")
@pytest.mark.parametrize("table", KEYS)
def test_each_table_has_its_name_and_key(connection: sqlite3.Connection, table: str) -> None:
    migrate(connection, "here")
    columns = connection.execute(f"PRAGMA table_info({table})").fetchall()
    key = sorted((place, name) for _, name, _, _, _, place in columns if place)
    assert [name for _, name in key] == KEYS[table]


@pytest.mark.requirement("A1-1")
def test_a_cursor_has_two_watermarks(connection: sqlite3.Connection) -> None:
    migrate(connection, "here")
    columns = {row[1] for row in connection.execute("PRAGMA table_info(cursor_state_v2)")}
    assert columns == {"source_kind", "fetched_cursor", "committed_cursor", "checkpoint_ts"}


@pytest.mark.parametrize("steps", [shipped_steps(), STEPS], ids=["shipped", "made up"])
def test_an_upgrade_from_every_past_version_leads_to_the_same_schema(
    steps: tuple[str, ...],
) -> None:
    for past in range(len(steps)):
        with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            migrate(connection, "past", steps[:past])
            assert version(connection) == past
            migrate(connection, "past", steps)
            assert version(connection) == len(steps)
            assert schema(connection) == fresh(steps)


def test_statements_are_told_apart_by_more_than_their_semicolons(
    connection: sqlite3.Connection,
) -> None:
    migrate(connection, "here", STEPS)
    assert connection.execute("SELECT x, y FROM a").fetchall() == [(";", None)]
    assert [name for _, name, _ in schema(connection)] == ["a", "b", "t"]


def test_a_step_that_fails_leaves_the_version_before_it(connection: sqlite3.Connection) -> None:
    broken = (STEPS[0], "CREATE TABLE c (x);\nINSERT INTO missing VALUES (1);")
    with pytest.raises(sqlite3.OperationalError, match="missing"):
        migrate(connection, "here", broken)
    assert not connection.in_transaction
    assert version(connection) == 1
    assert schema(connection) == fresh(STEPS[:1])
    migrate(connection, "here", STEPS)
    assert schema(connection) == fresh(STEPS)


def test_a_database_of_this_version_is_left_alone(connection: sqlite3.Connection) -> None:
    migrate(connection, "here", STEPS)
    before = connection.total_changes
    migrate(connection, "here", STEPS)
    assert connection.total_changes == before
    assert version(connection) == len(STEPS)


def test_a_later_version_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA user_version = 4")
    with pytest.raises(StoreTooNew, match="has schema version 4; this bullpen knows up to 3"):
        migrate(connection, "here", STEPS)
    with pytest.raises(StoreTooNew) as caught:
        check_version(connection, "here", STEPS)
    assert (caught.value.path, caught.value.version, caught.value.known) == ("here", 4, 3)
    assert schema(connection) == []


def test_the_shipped_steps_are_in_the_package() -> None:
    files = [file.name for file in (resources.files("bullpen.store") / "migrations").iterdir()]
    assert min(files) == "0001_observation.sql"
    assert len(shipped_steps()) == len(files)
