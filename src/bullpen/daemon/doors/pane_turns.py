"""The turn that a message began, watched on the screen of a pane until it is over."""

import asyncio
import logging

from bullpen.daemon.doors.pane import BY, Look, Paces, PaneGone, PaneTerminal
from bullpen.daemon.doors.pane_typing import BEGUN
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd
from bullpen.terminal.injection import Sight, sight_of
from bullpen.terminal.replies import (
    FailureKind,
    end_of_reply_on_screen,
    failure_on_screen,
    reply_on_screen,
)
from bullpen.terminal.tmux.errors import TmuxError

__all__ = ["PaneTurn"]

logger = logging.getLogger("bullpen.daemon.doors")

_AT_PROMPT = (Activity.IDLE, Activity.ERROR, Activity.RATE_LIMITED)
_FAILED = {Activity.ERROR: TurnEnd.FAILED, Activity.RATE_LIMITED: TurnEnd.RATE_LIMITED}


class PaneTurn:
    """The turn that a message began, watched until it is over."""

    def __init__(
        self, terminal: PaneTerminal, message: str, paces: Paces, *, has_begun: bool
    ) -> None:
        self._terminal = terminal
        self._message = message
        self._paces = paces
        self._has_begun = has_begun
        self._loop = asyncio.get_running_loop()

    async def run(self) -> Turn | None:
        """Return how the turn ended; None if nobody will know here."""
        began = self._loop.time()
        at_prompt: float | None = None
        while self._loop.time() < began + self._paces.longest_turn:
            await asyncio.sleep(self._paces.follow)
            try:
                look = await self._terminal.look()
                self._has_begun |= look.verdict.activity in BEGUN
                if look.verdict.activity not in _AT_PROMPT:
                    at_prompt = None
                    continue
                now = self._loop.time()
                at_prompt = now if at_prompt is None else at_prompt
                if now < at_prompt + self._paces.hold:
                    continue
                turn = self._end(look, await self._terminal.history())
            except PaneGone as gone:
                logger.info("a turn is not followed any more: %s", gone)
                return None  # that an agent is gone is told by who watches agents
            except TmuxError as error:
                logger.info("a turn is not seen at the moment: %s", error)
                continue
            if turn is not None:
                return turn
            if not self._has_begun and now >= began + self._paces.unseen:
                return _turn(TurnEnd.FAILED, "nothing shows that it took the message up")
        return None

    def _end(self, look: Look, lines: list[str]) -> Turn | None:
        """Say how it ended, if it has, now that the agent stands at its prompt."""
        provider, message = self._terminal.provider, self._message
        if sight_of(look.verdict, look.box, message) is Sight.OURS:
            return _turn(TurnEnd.INTERRUPTED, "the message was put back into the prompt box")
        failed = self._failed(look, lines)
        said = reply_on_screen(
            lines, message, provider, width=look.width, is_error_free=failed is None
        )
        if not self._has_begun and not said and (said is None or failed is None):
            return None  # it may be about to begin
        if failed is not None:
            return failed
        if said is None:
            said = end_of_reply_on_screen(lines, provider, width=look.width)
        return _turn(TurnEnd.DONE, said or "")

    def _failed(self, look: Look, lines: list[str]) -> Turn | None:
        verdict = look.verdict
        failure = failure_on_screen(lines, self._terminal.provider, message=self._message)
        is_interrupted = failure is not None and failure.kind is FailureKind.INTERRUPTED
        if verdict.activity is Activity.IDLE and verdict.prompt == "empty" and not is_interrupted:
            return None  # the rules see colours too: a text that begins like an error is none
        if failure is not None:
            return _turn(failure.end, failure.line)
        if (end := _FAILED.get(verdict.activity)) is None:
            return None
        return _turn(end, " ".join(each.text for each in verdict.evidence) or verdict.reason)


def _turn(end: TurnEnd, text: str) -> Turn:
    return Turn(by=BY, end=end, text=text)
