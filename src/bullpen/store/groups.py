"""Many small writes in one transaction: what is asked at the same time is committed together.

Each write is still whole or nothing by itself, and is committed before its caller goes on; only the
price of a commit, and of the way to the writer's thread and back, is shared. While one group is
being written the next one gathers, so nobody waits for company.

A group in which something is raised is written again with more care. So a work may run more than
once before it is committed, and must not change anything but the database.
"""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from bullpen.store.database import Database
from bullpen.store.errors import StoreBusy, StoreClosed, StoreError, StoreLocked

__all__ = ["GroupedWrites"]

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], Any]

GROUP_LIMIT = 128  # some milliseconds of writing, then others have their turn


class _Asked(NamedTuple):
    work: Work
    waiter: asyncio.Future[Any]


class _Failed(NamedTuple):
    """What a write raised; nothing of it was kept."""

    error: Exception


class GroupedWrites:
    """Writes to a database in groups. It belongs to one event loop.

    At most `limit` writes wait; who comes then waits for a place, at most `patience_seconds`.
    """

    def __init__(
        self, database: Database, *, limit: int = 1024, patience_seconds: float = 30.0
    ) -> None:
        self._database = database
        self._limit = limit
        self._patience_seconds = patience_seconds
        self._places = asyncio.Semaphore(limit)
        self._asked: deque[_Asked] = deque()  # bounded by the places
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False

    async def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work so that it is committed as a whole or not at all; return its result.

        A caller who is cancelled does not know whether it was written.

        Raises:
            StoreError: it was not written.
        """
        await self._take_place()
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._asked.append(_Asked(work, waiter))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_groups(), name="store:groups")
        return await waiter

    async def aclose(self) -> None:
        """Write what was asked before, and take nothing more. The database stays open."""
        self._is_closed = True
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _take_place(self) -> None:
        if self._places.locked():
            try:
                async with asyncio.timeout(self._patience_seconds):
                    await self._places.acquire()
            except TimeoutError:
                raise StoreBusy(self._limit, self._patience_seconds) from None
        else:
            await self._places.acquire()  # at once
        if self._is_closed:
            self._places.release()
            raise StoreClosed

    async def _write_groups(self) -> None:
        try:
            while self._asked:
                group = [self._asked.popleft() for _ in range(min(len(self._asked), GROUP_LIMIT))]
                try:
                    await self._write_group([each for each in group if not each.waiter.done()])
                finally:
                    for each in group:
                        self._places.release()
                        each.waiter.cancel()  # where there is no result, because we were cancelled
        finally:
            self._writing = None

    async def _write_group(self, group: Sequence[_Asked]) -> None:
        works = [each.work for each in group]
        try:
            results = await self._database.write(lambda it: [work(it) for work in works])
        except StoreLocked as error:  # it is not for any of them to change that
            results = [_Failed(error)] * len(group)
        except Exception as error:  # noqa: BLE001 - the callers' to handle, not this task's
            results = [_Failed(error)] if len(group) == 1 else await self._write_apart(works)
        for each, result in zip(group, results, strict=True):
            if each.waiter.done():
                continue  # its caller is gone
            if isinstance(result, _Failed):
                each.waiter.set_exception(result.error)
            else:
                each.waiter.set_result(result)

    async def _write_apart(self, works: Sequence[Work]) -> list[Any]:
        """Write again what failed together, so that one that raises undoes itself alone."""
        try:
            return await self._database.write(lambda it: [_attempt(it, work) for work in works])
        except StoreError:
            return await self._write_singly(works)

    async def _write_singly(self, works: Sequence[Work]) -> list[Any]:
        """Write one by one what failed together, so that each has its own error, or none."""
        results: list[Any] = []
        for work in works:
            try:
                results.append(await self._database.write(work))
            except Exception as error:  # noqa: BLE001 - its caller's to handle
                results.append(_Failed(error))
        return results


def _attempt(connection: sqlite3.Connection, work: Work) -> Any:
    """Run one work of a group; what it raises undoes it alone.

    SQLite's own errors end the group: they may have undone all of it already.
    """
    connection.execute("SAVEPOINT one")
    try:
        result = work(connection)
    except sqlite3.Error:
        raise
    except Exception as error:  # noqa: BLE001 - its caller's to handle
        connection.execute("ROLLBACK TO one")
        connection.execute("RELEASE one")
        return _Failed(error)
    connection.execute("RELEASE one")
    return result
