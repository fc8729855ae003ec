"""What a source has said and nobody is known to have kept yet, without I/O.

Observations are numbered as they come. A cursor names the last one that was read, and the run of
the source it belongs to: `<epoch>.<sequence>`. To whoever pulls it is opaque. There always is one,
also when there was nothing to read, so that nothing is ever read twice for want of a place to go on
from.
"""

from collections import deque
from itertools import islice

from bullpen.model.observations import Observation
from bullpen.observe.errors import InvalidCursor

__all__ = ["EventBuffer"]

CAPACITY = 10_000  # what may be rewound at most
MAX_BYTES = 32 * 2**20
REPLY_BYTES = 4 * 2**20  # of one pull, which has to fit in a frame
LONGEST_SEQUENCE = 18  # digits


class EventBuffer:
    """The observations of one run of a source, the oldest first, bounded in number and bytes.

    When it is full the oldest make room. Those that nobody has ever pulled are counted as `lost`.
    """

    def __init__(self, epoch: str, *, capacity: int = CAPACITY, max_bytes: int = MAX_BYTES) -> None:
        self.lost = 0
        self.bytes = 0
        self._epoch = epoch
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._entries: deque[tuple[Observation, int]] = deque()
        self._last = 0  # the number of the newest there ever was
        self._pulled = 0  # the highest number that was ever handed out

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def cursor(self) -> str:
        """The end: where somebody goes on who has read everything."""
        return self._cursor(self._last)

    def append(self, observation: Observation, size: int = 0) -> int:
        """Add an observation of so many bytes; return how many others were lost by it."""
        self._entries.append((observation, size))
        self._last += 1
        self.bytes += size
        lost_before = self.lost
        while len(self._entries) > self._capacity or (
            self.bytes > self._max_bytes and len(self._entries) > 1
        ):
            self.lost += self._dropped + 1 > self._pulled
            self._drop()
        return self.lost - lost_before

    def pull(
        self, cursor: str | None, limit: int, *, max_bytes: int = REPLY_BYTES
    ) -> tuple[tuple[Observation, ...], str]:
        """Return what follows a cursor, or all there is without one, and where to go on.

        There are at most `limit`, and beyond the first no more than fit into `max_bytes`.

        Raises:
            InvalidCursor: it is garbage, of another run, or of what has been dropped.
        """
        after = self._dropped
        if cursor is not None:
            after = self._sequence(cursor)
            if not self._dropped <= after <= self._last:
                raise InvalidCursor(cursor)
        begin = after - self._dropped
        events: list[Observation] = []
        total = 0
        for observation, size in islice(self._entries, begin, begin + limit):
            total += size
            if events and total > max_bytes:
                break
            events.append(observation)
        after += len(events)
        self._pulled = max(self._pulled, after)
        return tuple(events), self._cursor(after)

    def compact(self, cursor: str) -> int:
        """Drop what lies up to a cursor; return how many that were.

        The cursor is a place, not a number of entries: what was dropped before is not counted
        again, and nothing beyond the end is dropped in advance.

        Raises:
            InvalidCursor: it is garbage, or of another run.
        """
        up_to = min(self._sequence(cursor), self._last)
        before = len(self._entries)
        while self._dropped < up_to:
            self._drop()
        return before - len(self._entries)

    @property
    def _dropped(self) -> int:
        """The number of the newest that is no longer here."""
        return self._last - len(self._entries)

    def _drop(self) -> None:
        _, size = self._entries.popleft()
        self.bytes -= size

    def _cursor(self, sequence: int) -> str:
        return f"{self._epoch}.{sequence}"

    def _sequence(self, cursor: str) -> int:
        epoch, _, digits = cursor.rpartition(".")
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= LONGEST_SEQUENCE
        if epoch != self._epoch or not is_number or str(int(digits)) != digits:
            raise InvalidCursor(cursor)
        return int(digits)
