"""Answering a dialog on the program's screen, as somebody would who looks at it.

The mark is moved to the choice that is meant, key by key, and Enter is pressed when it stands
there. Before each key the screen is read again: if the dialog is another one, or gone, nothing more
is pressed. What no choice is meant by is not typed.
"""

import asyncio
from collections.abc import Awaitable, Callable

from bullpen.api.wrapping import AnswerDialog, AnswerDialogReply
from bullpen.model.dialogs import Decision
from bullpen.terminal.dialogs import ScreenDialog, meant
from bullpen.terminal.pty import PtyClosed
from bullpen.wrapper.watching import Watch

__all__ = ["Answering"]

UP, DOWN, ENTER, ESCAPE = b"\x1b[A", b"\x1b[B", b"\r", b"\x1b"
MOVE_SECONDS = 3.0  # for the mark to be where a key has moved it
TAKE_SECONDS = 8.0  # for the dialog to go away
MOST_MOVES = 40


class Answering:
    """Answers dialogs, one at a time. `press` types keys."""

    def __init__(self, watch: Watch, press: Callable[[bytes], Awaitable[None]]) -> None:
        self._watch = watch
        self._press = press
        self._one = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    async def answer(self, request: AnswerDialog) -> AnswerDialogReply:
        """Answer a dialog, if it is still the same."""
        async with self._one:
            try:
                return await self._answer(request)
            except PtyClosed:
                return AnswerDialogReply(outcome="ended")
            except TimeoutError:
                return AnswerDialogReply(outcome="unsure")

    async def _answer(self, request: AnswerDialog) -> AnswerDialogReply:
        dialog = self._look(request.dialog_id)
        if dialog is None:
            return AnswerDialogReply(outcome="not_asked")
        wanted = meant(dialog, request.text)
        if wanted is None:
            return AnswerDialogReply(outcome="not_understood")
        if dialog.no_by_escape and dialog.decisions.get(Decision.NO) == wanted:
            return await self._end(request.dialog_id, ESCAPE, dialog.choices[wanted].label)
        for _ in range(MOST_MOVES):
            place = dialog.marked
            if place is None or place == wanted:
                break
            await self._press(DOWN if place < wanted else UP)
            moved = await self._until_moved(request.dialog_id, place)
            if moved is None:
                return AnswerDialogReply(outcome="not_asked")
            if moved.marked == place:
                return AnswerDialogReply(outcome="unsure")
            dialog = moved
        if dialog.marked != wanted:
            return AnswerDialogReply(outcome="not_understood")
        return await self._end(request.dialog_id, ENTER, dialog.choices[wanted].label)

    async def _end(self, dialog_id: str, key: bytes, label: str) -> AnswerDialogReply:
        await self._press(key)
        outcome = "answered" if await self._is_gone(dialog_id) else "unsure"
        return AnswerDialogReply(outcome=outcome, answered=label)

    def _look(self, dialog_id: str) -> ScreenDialog | None:
        """Return the dialog, if it is still there."""
        self._watch.look()
        asked = self._watch.asked
        return self._watch.dialog if asked is not None and asked.id == dialog_id else None

    async def _until_moved(self, dialog_id: str, place: int) -> ScreenDialog | None:
        """Wait until the mark is elsewhere, or is taken to stay where it is."""
        deadline = self._loop.time() + MOVE_SECONDS
        while (dialog := self._look(dialog_id)) is not None:
            left = deadline - self._loop.time()
            if left <= 0 or dialog.marked not in (place, None):
                return dialog
            await self._watch.pulse.wait(left)
        return None

    async def _is_gone(self, dialog_id: str) -> bool:
        deadline = self._loop.time() + TAKE_SECONDS
        while not self._watch.has_ended and self._look(dialog_id) is not None:
            left = deadline - self._loop.time()
            if left <= 0:
                return False
            await self._watch.pulse.wait(left)
        return True
