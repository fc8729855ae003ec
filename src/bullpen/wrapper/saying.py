"""Telling what a program says while it is still at it, piece by piece. Pure.

Nobody knows what of it is the answer before the turn is over: then all of it is told once more, as
it should be. So a piece is left out where it is not sure that the answer will begin like this.
"""

import msgspec

__all__ = ["Piece", "Saying"]

SAY_SECONDS = 0.1  # between two looks
COST = 20  # times what a look took: a long answer is looked at less often


class Piece(msgspec.Struct, frozen=True):
    """What was said since the last time."""

    at: int
    """How many characters stand before it; at 0 something new begins."""
    text: str


class Saying:
    """What was told of one answer, and when there may be more to tell."""

    def __init__(self, now: float) -> None:
        self._told = ""
        self._end = 0
        self._due = now + SAY_SECONDS

    def due_in(self, end: int, now: float) -> float | None:
        """After how many seconds to look; None: not before more was written than up to `end`."""
        return None if end == self._end else max(self._due - now, 0.0)

    def see(self, text: str, end: int, begun: float, now: float) -> Piece | None:
        """Take what was said so far, by output up to `end`; return what to tell.

        `begun` and `now` are when the look at it began and ended.
        """
        self._end = end
        self._due = now + max(SAY_SECONDS, COST * (now - begun))
        told, self._told = self._told, text
        if text.startswith(told):
            return Piece(len(told), text[len(told) :]) if text != told else None
        if told.startswith(text):
            self._told = told  # of what is painted anew, a part is not there for a moment
            return None
        return Piece(0, text)
