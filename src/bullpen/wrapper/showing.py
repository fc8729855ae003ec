"""Showing notices on the terminal when that does no harm."""

import asyncio

from bullpen.wrapper.notices import is_between, line_notice, row_notice, row_restored
from bullpen.wrapper.watching import Watch

__all__ = ["Notices"]

QUIET_SECONDS = 0.05  # without output, after which a notice comes between two paintings
LONGEST_SECONDS = 2.0  # to wait for that; then any place between two sequences will do
SHOWN_SECONDS = 8.0  # on the last row of a screen
TAIL_BYTES = 4096


class Notices:
    """What the user is told on the terminal of the program."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._terminal = watch.terminal
        self._loop = asyncio.get_running_loop()
        self._one = asyncio.Lock()
        self._restoring: asyncio.Task[None] | None = None

    async def show(self, text: str) -> None:
        """Show a notice as soon as it can be."""
        async with self._one:
            await self._until_quiet()
            if not self._watch.is_painted:
                await self._terminal.show(line_notice(text, self._terminal.context.tail()))
                return
            columns, rows = self._terminal.columns, self._terminal.rows
            await self._terminal.show(row_notice(text, columns, rows))
            await self._cancel()
            self._restoring = self._loop.create_task(self._restore(), name="notice")

    async def aclose(self) -> None:
        """Show nothing more, and leave nothing."""
        if self._restoring is not None and not self._restoring.done():
            await self._cancel()
            await self._show_row()

    async def _until_quiet(self) -> None:
        terminal = self._terminal
        deadline = self._loop.time() + LONGEST_SECONDS
        while True:
            quiet = self._loop.time() - terminal.last_output
            is_late = self._loop.time() > deadline
            if (quiet >= QUIET_SECONDS or is_late) and (
                is_between(terminal.context.tail(TAIL_BYTES)) or quiet > LONGEST_SECONDS
            ):
                return
            await self._watch.pulse.wait(QUIET_SECONDS)

    async def _restore(self) -> None:
        await asyncio.sleep(SHOWN_SECONDS)
        await self._until_quiet()
        await self._show_row()

    async def _show_row(self) -> None:
        """Show the last row as the program has it."""
        emulator = self._terminal.emulator
        if emulator is not None:
            row = self._terminal.rows - 1
            await self._terminal.show(row_restored(emulator.painted(row), row + 1))

    async def _cancel(self) -> None:
        if self._restoring is not None:
            self._restoring.cancel()
            await asyncio.wait([self._restoring])
            self._restoring = None
