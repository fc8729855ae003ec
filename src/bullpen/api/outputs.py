"""What one who watches a task has heard of what its agent says: each of it once, and in order."""

import msgspec

from bullpen.api.talk import TaskOutput

__all__ = ["Hearing", "Output"]


class Output(msgspec.Struct, frozen=True):
    """What an agent has said since the last time, before its answer is whole."""

    text: str
    is_new: bool = False
    """It begins anew: what was said before is not its answer."""


class Hearing:
    """What was heard of one task."""

    def __init__(self) -> None:
        self._number = 0
        self._length = 0  # of what was heard of this number

    def hear(self, told: TaskOutput) -> Output | None:
        """Return what is new of what is told; None if that is nothing, or stands behind a gap."""
        is_new = told.number > self._number
        if told.number < self._number or told.at > (0 if is_new else self._length):
            return None
        text = told.text if is_new else told.text[self._length - told.at :]
        if not text:
            return None
        self._length = len(text) + (0 if is_new else self._length)
        self._number = told.number
        return Output(text, is_new)
