"""How far a source has been read, and how far what was read is kept; without I/O.

A source's cursor is opaque. `fetched` is where the next pull begins. `committed` follows it: it is
the last cursor before which everything has been folded and written, so that a restart may begin
there and lose nothing. Between the two lie marks: a cursor, and the ingest sequence that has to be
committed before the cursor may be.
"""

from collections import deque
from datetime import datetime, timedelta
from enum import StrEnum

__all__ = ["Checkpoints", "Recovery", "SourceCursor"]

STREAK = 3
STREAK_WINDOW = timedelta(seconds=60)
MOST_MARKS = 1_000
CHECKPOINT_INTERVAL = timedelta(seconds=30)
CHECKPOINT_EVENTS = 500


class Recovery(StrEnum):
    """From where a source is read after it refused a cursor."""

    REWIND = "rewind"
    """From the committed cursor."""
    RESTART = "restart"
    """From its start: it is the committed cursor that was refused, as after a restart of its."""
    RESYNC = "resync"
    """From its start: it refuses so often that something is wrong, and somebody should know."""


class SourceCursor:
    """The two watermarks of one source. `fetched` never lies before `committed`."""

    def __init__(self, committed: str | None = None) -> None:
        self.fetched = committed
        self.committed = committed
        self._marks: deque[tuple[int, str]] = deque()
        self._refusals: deque[datetime] = deque()

    def fetch(self, cursor: str, ingest_seq: int, committed_seq: int) -> None:
        """Note that all up to a cursor has been read, and has got numbers up to `ingest_seq`.

        The cursor is taken as it is, always: also when there was nothing to read.
        """
        self.fetched = cursor
        if self._marks and (self._marks[-1][0] == ingest_seq or len(self._marks) >= MOST_MARKS):
            self._marks.pop()  # committed a little later, never too early
        self._marks.append((ingest_seq, cursor))
        self.commit(committed_seq)

    def commit(self, committed_seq: int) -> None:
        """Note that everything up to a number has been folded and written."""
        while self._marks and self._marks[0][0] <= committed_seq:
            self.committed = self._marks.popleft()[1]

    def refuse(self, now: datetime) -> Recovery:
        """Go back, because the source does not know the fetched cursor."""
        self._refusals.append(now)
        while now - self._refusals[0] > STREAK_WINDOW:
            self._refusals.popleft()
        self._marks.clear()
        if len(self._refusals) >= STREAK:
            self._refusals.clear()
            recovery = Recovery.RESYNC
        elif self.fetched == self.committed:
            recovery = Recovery.RESTART
        else:
            recovery = Recovery.REWIND
        if recovery is not Recovery.REWIND:
            self.committed = None
        self.fetched = self.committed
        return recovery


class Checkpoints:
    """When cursors are to be written: every 30 seconds, or every 500 observations."""

    def __init__(self, now: datetime) -> None:
        self._taken_at = now
        self._events = 0

    def note(self, events: int) -> None:
        """Count what has been committed."""
        self._events += events

    def is_due(self, now: datetime) -> bool:
        """Whether it is time."""
        is_recent = timedelta(0) <= now - self._taken_at < CHECKPOINT_INTERVAL
        return self._events >= CHECKPOINT_EVENTS or not is_recent

    def take(self, now: datetime) -> None:
        """Begin to count anew."""
        self._taken_at = now
        self._events = 0
