"""Who is to be told by post what becomes of tasks, as rows. They go with the task's message."""

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any

from bullpen.model.push import PushAddress
from bullpen.store.database import Database
from bullpen.store.encoding import decode_json, encode_json

__all__ = ["PushAddresses"]

_SELECT = "SELECT task_id, push_id, agent, owner, is_local, config FROM push_v1"
_SAVE = """
    INSERT INTO push_v1 (task_id, push_id, agent, owner, is_local, config)
    VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (task_id, push_id) DO UPDATE
    SET owner = excluded.owner, is_local = excluded.is_local, config = excluded.config, is_over = 0
"""
_OLDEST_OVER = """
    DELETE FROM push_v1 WHERE number IN
    (SELECT number FROM push_v1 WHERE is_over = 1 ORDER BY number LIMIT ?)
"""


class PushAddresses:
    """The addresses in a database that is of the newest schema.

    Every call raises `StoreError` if it could not be done; then nothing was changed.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, address: PushAddress, *, most_of_task: int, most: int) -> bool:
        """Keep one, new or changed; return whether there was room, in its task and in all.

        The oldest whose task is over give room to others.
        """

        def work(connection: Connection) -> bool:
            known = {each.id for each in _of_task(connection, address.task_id)}
            if address.id not in known and not _has_room(
                connection, len(known), most_of_task, most
            ):
                return False
            row = (
                address.task_id,
                address.id,
                address.agent,
                address.owner,
                address.is_local,
                encode_json(address.config),
            )
            connection.execute(_SAVE, row)
            return True

        return await self._database.write(work)

    async def of_task(self, task_id: str) -> tuple[PushAddress, ...]:
        """Return those of a task, in the order they were first given."""
        return await self._database.read(
            lambda connection: tuple(_of_task(connection, task_id)),
        )

    async def unfinished(self) -> tuple[PushAddress, ...]:
        """Return all that have not been told how their task ended."""
        query = f"{_SELECT} WHERE is_over = 0 ORDER BY number"
        return await self._database.read(
            lambda connection: tuple(_address(row) for row in connection.execute(query))
        )

    async def end(self, task_id: str, push_id: str) -> None:
        """Note that nothing more is to be told."""
        query = "UPDATE push_v1 SET is_over = 1 WHERE task_id = ? AND push_id = ?"
        await self._database.write(
            lambda connection: connection.execute(query, (task_id, push_id)),
        )

    async def remove(self, task_id: str, push_id: str) -> None:
        """Forget one; it need not be there."""
        query = "DELETE FROM push_v1 WHERE task_id = ? AND push_id = ?"
        await self._database.write(
            lambda connection: connection.execute(query, (task_id, push_id)),
        )


def _has_room(connection: Connection, of_task: int, most_of_task: int, most: int) -> bool:
    if of_task >= most_of_task:
        return False
    (count,) = connection.execute("SELECT count(*) FROM push_v1").fetchone()
    excess = int(count) + 1 - most
    return excess <= 0 or connection.execute(_OLDEST_OVER, (excess,)).rowcount == excess


def _of_task(connection: Connection, task_id: str) -> list[PushAddress]:
    rows = connection.execute(f"{_SELECT} WHERE task_id = ? ORDER BY number", (task_id,))
    return [_address(row) for row in rows]


def _address(row: Sequence[Any]) -> PushAddress:
    return PushAddress(
        task_id=row[0],
        id=row[1],
        agent=row[2],
        owner=row[3],
        is_local=bool(row[4]),
        config=decode_json(row[5], dict[str, Any]),
    )
