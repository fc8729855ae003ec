"""Handing a message to a server of an agent program, and finding out how far it came.

The same for every such server: it answers, which is `injected`; what it tells of the turn says the
rest. It is watched for some time, and whatever is not known by then is not claimed.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from bullpen.agents.providers.turn_news import Sign, TurnNews
from bullpen.mail.doors import Handed, Handover, Note
from bullpen.model.deliveries import Evidence, ReceiptState

__all__ = ["CONFIRM_SECONDS", "Handing"]

CONFIRM_SECONDS: Final = 15.0
MOST_NEWS: Final = 64

_STEPS: Final = (ReceiptState.INJECTED, ReceiptState.SUBMITTED, ReceiptState.SEEN)


class Handing:
    """A message that is being handed over, and what was heard since.

    `client_id` is the mark it was given, `turn_id` its turn, once that is known.
    """

    def __init__(self, by: str, client_id: str, turn_id: str = "") -> None:
        self.client_id = client_id
        self.turn_id = turn_id
        self._by = by
        self._news: list[TurnNews] = []
        self._event = asyncio.Event()

    @property
    def signs(self) -> set[Sign]:
        """What is known of its turn."""
        return {each.sign for each in self._news if each.turn_id == self.turn_id}

    @property
    def is_marked(self) -> bool:
        """Whether it stands in the session, by its mark."""
        return any(each.client_id == self.client_id for each in self._news)

    @property
    def is_added(self) -> bool:
        """Whether it went into a turn that somebody else had begun."""
        own = (each for each in self._news if each.turn_id == self.turn_id)
        first = next((each for each in own if each.sign is Sign.ASKED), None)
        return first is not None and first.client_id != self.client_id

    @property
    def reached(self) -> tuple[ReceiptState, str]:
        """How far it has come, and by what that is known."""
        raise NotImplementedError

    def hear(self, news: TurnNews) -> None:
        """Take what is new of a turn, be it this one or not."""
        if len(self._news) < MOST_NEWS or news.sign in (Sign.ASKED, Sign.ENDED):
            self._news.append(news)
            del self._news[: -2 * MOST_NEWS]
        self.stir()

    def stir(self) -> None:
        """Have whoever waits look again."""
        self._event.set()

    async def confirm(
        self, note: Note, is_lost: Callable[[], bool], seconds: float = CONFIRM_SECONDS
    ) -> Handover:
        """Note how far a message comes that the server has taken, for some time."""
        await note(ReceiptState.INJECTED, self._evidence("it was answered with its turn"))
        noted = ReceiptState.INJECTED
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while True:
            self._event.clear()
            reached, what = self.reached
            for state in _STEPS[_STEPS.index(noted) + 1 : _STEPS.index(reached) + 1]:
                await note(state, self._evidence(what))
                noted = state
            if noted is ReceiptState.SEEN:
                return Handover(Handed.TAKEN)
            if Sign.ENDED in self.signs:
                if self.is_added:
                    return Handover(Handed.UNSURE, "the turn ended before it was taken up")
                return Handover(Handed.TAKEN, "its turn ended at once")
            if is_lost():
                return Handover(Handed.UNSURE, "the server was lost before it was seen")
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._event.wait()
            if loop.time() >= deadline:
                return Handover(Handed.TAKEN, "nothing shows so far whether it was seen")

    def _evidence(self, what: str) -> Evidence:
        return Evidence(self._by, what, {"turn_id": self.turn_id})
