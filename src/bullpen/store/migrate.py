"""Bringing a database to the schema of this version.

The steps are the files of `migrations/`, in the order of their numbers; `PRAGMA user_version` is
the number of the last one taken. A step and its number are one transaction: a database is always
of some version, never between two. A file that has been released is never edited.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib import resources

from bullpen.store.errors import StoreTooNew

__all__ = ["check_version", "migrate", "shipped_steps"]

Steps = Sequence[str]


@lru_cache(maxsize=1)
def shipped_steps() -> tuple[str, ...]:
    """Return the steps that come with bullpen; the first leads to version 1."""
    files = (resources.files("bullpen.store") / "migrations").iterdir()
    named = sorted((file.name, file) for file in files if file.name.endswith(".sql"))
    numbers = [int(name.partition("_")[0]) for name, _ in named]
    assert numbers == list(range(1, len(named) + 1)), "migrations are numbered without gaps"
    return tuple(file.read_text(encoding="utf-8") for _, file in named)


def check_version(connection: sqlite3.Connection, path: str, steps: Steps | None = None) -> int:
    """Return the version of a database, without changing it.

    Raises:
        StoreTooNew: it is later than any we know.
    """
    known = len(shipped_steps() if steps is None else steps)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > known:
        raise StoreTooNew(path, version, known)
    return int(version)


def migrate(connection: sqlite3.Connection, path: str, steps: Steps | None = None) -> None:
    """Take the steps that a database lacks, each wholly or not at all.

    Raises:
        StoreTooNew: it is of a later version than any we know.
    """
    steps = shipped_steps() if steps is None else steps
    while check_version(connection, path, steps) < len(steps):
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = check_version(connection, path, steps)  # nobody else can take a step now
            for statement in _statements("".join(steps[version : version + 1])):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {min(version + 1, len(steps))}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _statements(script: str) -> Iterator[str]:
    """Yield the statements of a script, each of which ends with a line.

    `executescript` would commit before the first.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        yield statement
