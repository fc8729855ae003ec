"""What became different, numbered without gaps, for those who follow it."""

from collections import deque
from datetime import datetime
from itertools import islice
from typing import Any

from bullpen.model.views import StateChange

__all__ = ["MOST_CHANGES", "ChangeLog"]

MOST_CHANGES = 2_000


class ChangeLog:
    """The latest changes. Whoever asks for older ones is to list everything again."""

    def __init__(self, version: int = 0, *, most: int = MOST_CHANGES) -> None:
        self._version = version
        self._changes: deque[StateChange] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self._changes)

    @property
    def version(self) -> int:
        """The number of the latest change."""
        return self._version

    def add(self, at: datetime, kind: str, key: str, **what: Any) -> StateChange:
        """Append a change and return it with its number."""
        self._version += 1
        change = StateChange(version=self._version, at=at, kind=kind, key=key, **what)
        self._changes.append(change)
        return change

    def since(self, version: int) -> tuple[StateChange, ...] | None:
        """Return the changes after a version; None if some of them are forgotten or not ours."""
        missing = self._version - version
        if missing < 0 or missing > len(self._changes):
            return None
        return tuple(islice(self._changes, len(self._changes) - missing, None))
