"""What agents ask their users, and answering that for a person who is elsewhere.

What an agent asks is known by its own server, or else by its screen; it is answered the same way,
and only if it is still the same question. Who may answer is not asked here.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from bullpen.api.errors import ApiError
from bullpen.api.wrapping import AnswerDialog
from bullpen.daemon.wrappers import Wrappers
from bullpen.model.dialogs import Answered, Dialog
from bullpen.model.reasons import Reason
from bullpen.model.states import Provider

__all__ = ["Asking", "Dialogs", "ScreenDialogs"]

logger = logging.getLogger("bullpen.daemon")

WORDS_SECONDS = 1.0  # from an agent that is known to ask to what it asks being known
TAKEN_SECONDS = 5.0  # from an answer to everybody having heard that nothing is asked any more
ANSWER_SECONDS = 150.0  # the wrapper bounds each of its steps; this bounds the wrapper
MOST_KEPT = 1000

_OUTCOMES = {
    "answered": Answered.DONE,
    "not_understood": Answered.NOT_UNDERSTOOD,
    "unsure": Answered.UNSURE,
}


class Asking(Protocol):
    """Who knows what agents ask, and answers it."""

    def dialog(self, agent: str) -> Dialog | None:
        """Return what an agent asks; None if that is not known here."""

    def knows(self, agent: str) -> bool:
        """Whether all that an agent asks would be known here: then nobody else need be asked."""

    async def answer_dialog(self, agent: str, dialog_id: str, said: str) -> Answered:
        """Answer it, if it is still the same."""


class ScreenDialogs:
    """What stands on the screens of wrapped agents."""

    def __init__(self, wrappers: Wrappers) -> None:
        self._wrappers = wrappers

    def dialog(self, agent: str) -> Dialog | None:
        wrapper = self._wrappers.find(agent)
        return wrapper.state.dialog if wrapper is not None and wrapper.is_connected else None

    def knows(self, agent: str) -> bool:
        del agent
        return False

    async def answer_dialog(self, agent: str, dialog_id: str, said: str) -> Answered:
        wrapper = self._wrappers.find(agent)
        if wrapper is None or not wrapper.is_connected:
            return Answered.NOT_ASKED
        request = AnswerDialog(dialog_id=dialog_id, text=said)
        reply = await wrapper.ask(request, seconds=ANSWER_SECONDS)
        return _OUTCOMES.get(reply.outcome, Answered.NOT_ASKED)


class Dialogs:
    """What all agents ask. `changed` is told of one of whom something else is to be said now."""

    def __init__(self, wrappers: Wrappers, changed: Callable[[str], None]) -> None:
        self._wrappers = wrappers
        self._changed = changed
        self._known: list[Asking] = [ScreenDialogs(wrappers)]
        self._silent_until: dict[str, float] = {}
        self._answered: dict[str, str] = {}  # by agent: what it asked last and was answered

    def add(self, asking: Asking) -> None:
        """Have one more who knows, and better than those before."""
        self._known.insert(0, asking)

    def of(self, agent: str) -> Dialog | None:
        """Return what an agent asks, as far as that is known; None if it was just answered."""
        found = self._find(agent)
        return found[1] if found is not None else None

    def is_open(self, agent: str) -> bool:
        """Whether somebody is to be told that an agent asks which is known to wait for somebody.

        Not before its words are known, if they can be expected to be soon; and not if it was just
        answered, and not everybody knows.
        """
        if self._find(agent) is not None:
            self._silent_until.pop(agent, None)
            return True
        wrapper = self._wrappers.find(agent)
        if wrapper is None or wrapper.said.provider is Provider.OTHER:
            return True  # nobody would tell more
        loop = asyncio.get_running_loop()
        if agent not in self._silent_until:
            self._be_silent(agent, WORDS_SECONDS)
        return loop.time() >= self._silent_until[agent]

    def note_working(self, agent: str) -> None:
        """Learn that an agent asks nothing."""
        self._silent_until.pop(agent, None)

    async def answer(self, agent: str, said: str, dialog_id: str = "") -> Dialog:
        """Answer what an agent asks, or one thing only; return what that was.

        Raises:
            ApiError: it asks nothing, or something else; or this is no answer to it.
        """
        found = self._find(agent)
        if found is None or dialog_id not in ("", found[1].id):
            raise _not_asked(agent, is_other=found is not None)
        asking, dialog = found
        if not dialog.answers and not dialog.takes_text:
            raise _not_understood(agent, dialog)
        outcome = await asking.answer_dialog(agent, dialog.id, said)
        if outcome is Answered.NOT_UNDERSTOOD:
            raise _not_understood(agent, dialog)
        if outcome is Answered.NOT_ASKED:
            raise _not_asked(agent, is_other=True)
        if outcome is Answered.UNSURE:
            raise ApiError(
                Reason.AGENT_UNREACHABLE,
                f"nothing shows that {agent} has taken the answer; look at its terminal",
                agent_id=agent,
            )
        self._answered[agent] = dialog.id
        while len(self._answered) > MOST_KEPT:
            del self._answered[next(iter(self._answered))]
        self._be_silent(agent, TAKEN_SECONDS)
        self._changed(agent)
        return dialog

    def _find(self, agent: str) -> tuple[Asking, Dialog] | None:
        for asking in self._known:
            dialog = asking.dialog(agent)
            if dialog is not None and self._answered.get(agent) != dialog.id:
                return asking, dialog
            if dialog is not None or asking.knows(agent):
                return None  # it was answered; a screen may take a moment to show that
        return None

    def _be_silent(self, agent: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._silent_until[agent] = loop.time() + seconds
        loop.call_later(seconds + 0.01, self._changed, agent)


def _not_asked(agent: str, *, is_other: bool) -> ApiError:
    what = "asks something else by now" if is_other else "asks nothing that could be answered"
    return ApiError(
        Reason.NOT_ASKED, f"{agent} {what}; nothing was decided, look again", agent_id=agent
    )


def _not_understood(agent: str, dialog: Dialog) -> ApiError:
    can = "; ".join(dialog.answers)
    words = f"it takes one of: {can}" if can else "it takes an answer in its terminal only"
    return ApiError(
        Reason.INVALID_MESSAGE,
        f"that is no answer to what {agent} asks: {words}",
        agent_id=agent,
        answers=list(dialog.answers),
    )
