"""Threads that own connections to SQLite, and the way to them from an event loop.

A connection is opened, used and closed in its own thread alone. What is asked runs in the order it
was asked. A caller who is cancelled stops waiting; what he asked is skipped if it has not begun,
and otherwise goes on to its end, so that no connection is ever left halfway.
"""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from bullpen.store.errors import StoreBusy, StoreClosed

__all__ = ["ConnectionThreads"]

logger = logging.getLogger("bullpen.store")

T = TypeVar("T")

INTERRUPTED_SECONDS = 1.0  # an interrupted statement ends at the next step of SQLite's machine


class _Job(NamedTuple):
    work: Callable[[sqlite3.Connection], Any]
    waiter: asyncio.Future[Any]


class ConnectionThreads:
    """Some threads with a connection each, which share what there is to do.

    At most `limit` jobs wait or run; who comes then waits for a place, at most `patience_seconds`.
    """

    def __init__(
        self,
        connect: Callable[[], sqlite3.Connection],
        *,
        name: str,
        count: int = 1,
        limit: int = 256,
        patience_seconds: float = 30.0,
    ) -> None:
        self._connect = connect
        self._name = name
        self._count = count
        self._limit = limit
        self._patience_seconds = patience_seconds
        self._loop = asyncio.get_running_loop()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()  # bounded by the places
        self._places = asyncio.Semaphore(limit)
        self._waiters: set[asyncio.Future[Any]] = set()
        self._connections: list[sqlite3.Connection] = []
        self._ended: list[asyncio.Future[None]] = []
        self._is_refusing = False
        self._is_stopping = False

    async def start(self) -> None:
        """Open the connections; if one fails, raise what it failed with and leave nothing."""
        opened = [self._start_thread(f"{self._name}-{index}") for index in range(self._count)]
        try:
            await asyncio.gather(*opened)
        except BaseException:
            await self.aclose(INTERRUPTED_SECONDS)
            raise

    def _start_thread(self, name: str) -> asyncio.Future[None]:
        opened: asyncio.Future[None] = self._loop.create_future()
        ended: asyncio.Future[None] = self._loop.create_future()
        self._ended.append(ended)
        # A daemon: a disk that does not answer must not keep the process from ending.
        Thread(target=self._serve, args=(opened, ended), name=name, daemon=True).start()
        return opened

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run work with a connection and return its result, or raise what it raised.

        Raises:
            StoreBusy: no place became free in time.
            StoreClosed: it is closed, or was before this could run.
        """
        if self._is_refusing:
            raise StoreClosed
        if self._places.locked():
            await self._wait_for_place()
        else:
            await self._places.acquire()  # at once
        waiter: asyncio.Future[T] = self._loop.create_future()
        self._waiters.add(waiter)
        self._queue.put(_Job(work, waiter))
        return await waiter

    async def _wait_for_place(self) -> None:
        try:
            async with asyncio.timeout(self._patience_seconds):
                await self._places.acquire()
        except TimeoutError:
            raise StoreBusy(self._limit, self._patience_seconds) from None
        if self._is_refusing:  # while we waited
            self._places.release()
            raise StoreClosed

    def refuse(self) -> None:
        """Take nothing more. What was asked before is still done."""
        self._is_refusing = True

    def stop(self) -> None:
        """Take nothing more, and let the threads end when what was asked is done."""
        self.refuse()
        if not self._is_stopping:
            self._is_stopping = True
            for _ in self._ended:
                self._queue.put(None)

    async def aclose(self, timeout_seconds: float) -> None:
        """Let what is asked already be done, then close the connections and end the threads.

        What takes longer than the time given is interrupted, and in the end abandoned.
        """
        self.stop()
        if await self._have_ended(timeout_seconds):
            return
        for connection in self._connections:
            with contextlib.suppress(sqlite3.ProgrammingError):  # closed meanwhile
                connection.interrupt()
        if await self._have_ended(INTERRUPTED_SECONDS):
            return
        logger.warning("%s does not answer; its threads are abandoned", self._name)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(StoreClosed())

    async def _have_ended(self, timeout_seconds: float) -> bool:
        if not self._ended:
            return True
        _, pending = await asyncio.wait(self._ended, timeout=timeout_seconds)
        return not pending

    # ------------------------------------------------------------------------ in the event loop

    def _finish(self, waiter: asyncio.Future[Any], result: object, error: object) -> None:
        self._waiters.discard(waiter)
        self._places.release()
        _settle(waiter, result, error)

    # --------------------------------------------------------------------------- in the threads

    def _serve(self, opened: asyncio.Future[None], ended: asyncio.Future[None]) -> None:
        try:
            connection = self._connect()
        except BaseException as error:  # noqa: BLE001 - the thread's end: whoever opens hears of it
            self._tell(_settle, opened, None, error)
            self._tell(_settle, ended, None, None)
            return
        self._connections.append(connection)
        self._tell(_settle, opened, None, None)
        try:
            while (job := self._queue.get()) is not None:
                self._run(job, connection)
        finally:
            connection.close()
            self._tell(_settle, ended, None, None)

    def _run(self, job: _Job, connection: sqlite3.Connection) -> None:
        result: object = None
        error: BaseException | None = None
        if not job.waiter.cancelled():
            try:
                result = job.work(connection)
            except StopIteration as stop:  # which no future may carry
                error = RuntimeError("the work raised StopIteration")
                error.__cause__ = stop
            except BaseException as raised:  # noqa: BLE001 - the asker's to handle, not the thread's
                error = raised
        self._tell(self._finish, job.waiter, result, error)

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(callback, *arguments)


def _settle(waiter: asyncio.Future[Any], result: object, error: object) -> None:
    if waiter.done():  # cancelled
        return
    if isinstance(error, BaseException):
        waiter.set_exception(error)
    else:
        waiter.set_result(result)
