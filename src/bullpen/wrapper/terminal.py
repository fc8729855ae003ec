"""The agent's terminal: what the program writes goes on at once, and is then kept and painted.

The order is the promise: first the user's terminal gets the bytes, unchanged, then those who are
attached, and only then are they looked at, in pieces between which keys are passed on. A program
that writes faster than the user's terminal shows or the emulator paints waits, as it would in any
terminal; an attached one that does not read is dropped.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

from bullpen.errors import BullpenError
from bullpen.terminal.context import OutputContext
from bullpen.terminal.pty import PtyClosed, PtyProcess

if TYPE_CHECKING:
    from bullpen.terminal.emulator import Emulator
    from bullpen.terminal.rules.screen import Screen

__all__ = ["AgentTerminal", "Glass", "Subscription"]

logger = logging.getLogger("bullpen.wrapper")

PIECE_BYTES = 4096  # painted at once: a tenth of a millisecond, or a few where it is done in Python
MOST_UNPAINTED = 4 * 2**20  # bytes while the emulator is still being loaded; then the program waits
MOST_BEHIND = 2 * 2**20  # bytes that somebody attached has not read
ANSWER_SECONDS = 1.0
HISTORY_LINES = 2000  # that left the screen: replies are longer than a screen


class Glass(Protocol):
    """The user's terminal."""

    def write_now(self, data: bytes) -> int:
        """Show bytes as far as that needs no waiting; return how many."""

    async def write(self, data: bytes) -> None:
        """Show bytes, however long that takes."""


class Watcher(Protocol):
    """Whoever looks at what was written."""

    def note_output(self) -> None:
        """Something was written, kept and painted."""


class Subscription:
    """All that is written from now on, for somebody who is attached."""

    def __init__(self, terminal: "AgentTerminal", *, is_viewer: bool = True) -> None:
        self.is_viewer = is_viewer
        """It is shown on a terminal, which answers what the program asks of terminals."""
        self._terminal = terminal
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._is_new = asyncio.Event()
        self._is_open = True
        self.is_dropped = False
        """It was ended because it was not read from."""

    def __aiter__(self) -> "Subscription":
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if not self._is_open:
                raise StopAsyncIteration
            self._is_new.clear()
            await self._is_new.wait()
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        return data

    def close(self) -> None:
        """Want no more. What is there can still be read."""
        self._is_open = False
        self._is_new.set()
        self._terminal.subscriptions.discard(self)

    def put(self, data: bytes) -> None:
        """Take what was written."""
        self._size += len(data)
        if self._size > MOST_BEHIND:
            self.is_dropped = True
            self._pieces.clear()
            self.close()
            return
        self._pieces.append(data)
        self._is_new.set()


class AgentTerminal:
    """The terminal of a program, once it is started by `attach`."""

    def __init__(self, columns: int, rows: int, *, shows: Glass | None, paints: bool) -> None:
        self.columns = columns
        self.rows = rows
        self.context = OutputContext()
        self.emulator: Emulator | None = None
        self.subscriptions: set[Subscription] = set()
        self.process: PtyProcess | None = None
        self.watcher: Watcher | None = None
        self.painted_end = 0
        """The offset behind the last byte that the emulator was given."""
        self.last_output = 0.0
        """By the loop's clock."""
        self._loop = asyncio.get_running_loop()
        self._shows = shows
        self._paints = paints
        self._unpainted = bytearray()
        self._painting = asyncio.Lock()
        self._loaded = asyncio.Event()
        if not paints:
            self._loaded.set()

    # ------------------------------------------------------------------------------------ the seam

    def subscribe(self, *, is_viewer: bool = True) -> Subscription:
        """Begin to hear what is written."""
        subscription = Subscription(self, is_viewer=is_viewer)
        self.subscriptions.add(subscription)
        return subscription

    async def write(self, data: bytes) -> None:
        """Type bytes.

        Raises:
            PtyClosed: there is nobody to type to.
        """
        if self.process is None:
            raise PtyClosed("a program that is not started")
        await self.process.write(data)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size."""
        self.columns, self.rows = columns, rows
        if self.process is not None:
            self.process.resize(columns, rows)
        if self.emulator is not None:
            self.emulator.resize(columns, rows)

    def screen(self) -> "Screen | None":
        """What is shown, if it is painted here."""
        return None if self.emulator is None else self.emulator.screen()

    def history(self) -> tuple[str, ...]:
        """What was shown above."""
        return () if self.emulator is None else self.emulator.history()

    # -------------------------------------------------------------------------------------- running

    async def load(self) -> None:
        """Get an emulator, if one is wanted, and paint what was written meanwhile."""
        if not self._paints:
            return
        try:
            self.emulator = await asyncio.to_thread(_open_emulator, self.columns, self.rows)
        except BullpenError as error:
            logger.warning("the screen is not read: %s", error)
        if self.emulator is not None:
            self.emulator.resize(self.columns, self.rows)  # it may have changed meanwhile
        async with self._painting:  # before all that comes later
            early, self._unpainted = bytes(self._unpainted), bytearray()
            self._loaded.set()
            await self._feed(early)
        self._note()

    async def run(self, process: PtyProcess) -> None:
        """Pass on what the program writes, until nobody has its terminal open any more."""
        await process.pump(self._take)

    def _take(self, data: bytes) -> Awaitable[None] | None:
        """Pass on a piece; return what is to be waited for before the next one."""
        self.last_output = self._loop.time()
        shown = len(data) if self._shows is None else self._shows.write_now(data)
        for subscription in tuple(self.subscriptions):
            subscription.put(data)
        self.context.feed(data)
        if shown == len(data) and (not self._paints or self._paint_now(data)):
            self._note()
            return None
        return self._catch_up(data, shown)

    async def _catch_up(self, data: bytes, shown: int) -> None:
        """Do with a piece what could not be done at once."""
        if self._shows is not None and shown < len(data):
            await self._shows.write(data[shown:])
            if self._paints and self._paint_now(data):
                self._note()
                return
        if self._paints:
            await self._paint(data)
        self._note()

    def _note(self) -> None:
        if self.watcher is not None:
            self.watcher.note_output()

    async def show(self, data: bytes) -> None:
        """Show bytes to whoever looks, as they are. The program has nothing to do with it."""
        if self._shows is not None:
            await self._shows.write(data)
        for subscription in tuple(self.subscriptions):
            subscription.put(data)

    def _paint_now(self, data: bytes) -> bool:
        """Paint a piece, if that takes no time; return whether it did."""
        emulator = self.emulator
        is_next = self._loaded.is_set() and not self._painting.locked()
        if emulator is None or not is_next or len(data) > PIECE_BYTES or self._shows is None:
            return False
        self.painted_end += len(data)
        try:
            emulator.feed(data)
            emulator.take_answers()  # the user's terminal gives its own
        except Exception:  # a native library, fed by anybody
            logger.exception("the screen is not read any more")
            self.emulator = None
        return True

    async def _paint(self, data: bytes) -> None:
        if not self._loaded.is_set():
            self._unpainted += data
            if len(self._unpainted) < MOST_UNPAINTED:
                return
            await self._loaded.wait()
            return
        async with self._painting:
            await self._feed(data)

    async def _feed(self, data: bytes) -> None:
        for begin in range(0, len(data), PIECE_BYTES):
            if self.emulator is None:
                return
            if begin:
                await asyncio.sleep(0)
            try:
                piece = data[begin : begin + PIECE_BYTES]
                self.painted_end += len(piece)
                self.emulator.feed(piece)
                await self._answer(self.emulator.take_answers())
            except Exception:  # a native library, fed by anybody
                logger.exception("the screen is not read any more")
                self.emulator = None

    async def _answer(self, answers: bytes) -> None:
        """Give a terminal's answers where there is no terminal that gives its own."""
        is_viewed = self._shows is not None or any(each.is_viewer for each in self.subscriptions)
        if answers and not is_viewed and self.process is not None:
            with contextlib.suppress(PtyClosed, TimeoutError):  # who asks and does not listen
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self.process.write(answers)

    def close(self) -> None:
        """Let go of everything; who is attached has read all of it."""
        for subscription in tuple(self.subscriptions):
            subscription.close()
        if self.emulator is not None:
            self.emulator.close()
            self.emulator = None


def _open_emulator(columns: int, rows: int) -> "Emulator":
    from bullpen.terminal.emulators import open_emulator

    return open_emulator(columns, rows, history=HISTORY_LINES)
