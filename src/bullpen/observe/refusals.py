"""Saying in the log what was refused: of each subject and reason once, lest they fill it."""

import logging
from collections import OrderedDict

from bullpen.model.reasons import Reason
from bullpen.model.states import SourceKind

__all__ = ["Refusals"]

MOST_REMEMBERED = 1024

logger = logging.getLogger("bullpen.observe")


class Refusals:
    """What was refused already, as far as that is remembered."""

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[SourceKind, str, Reason], None] = OrderedDict()

    def note(self, kind: SourceKind, subject: str, reason: Reason, message: str) -> None:
        """Say that what a source has said of something was refused; repeated, only to debuggers."""
        key = (kind, subject, reason)
        level = logging.DEBUG if key in self._said else logging.INFO
        self._said[key] = None
        self._said.move_to_end(key)
        while len(self._said) > MOST_REMEMBERED:
            self._said.popitem(last=False)
        of_what = f" of {subject}" if subject else ""
        logger.log(level, "%s%s: %s: %s", kind, of_what, reason.word, message)
