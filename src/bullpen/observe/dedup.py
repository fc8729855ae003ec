"""Whether an observation has been taken before, without I/O.

The key is `(provider, session_key, event_id)`. It is remembered for longer than anything can be
rewound, so that whatever is read or delivered again makes no difference. An id that is the same
every time, as of a heartbeat, is therefore taken once only: ids have to be unique.
"""

from collections import OrderedDict
from datetime import datetime, timedelta
from hashlib import blake2b

import msgspec

from bullpen.model.observations import Observation

__all__ = ["DedupWindow"]

WINDOW = timedelta(minutes=10, seconds=120)  # what can be rewound, and two minutes
# Some 300 a second for as long as 10,000 observations and two minutes last. An entry has 250 bytes.
CAPACITY = 50_000
KEY_BYTES = 16  # of a hash, since session keys and ids are long


class DedupWindow:
    """The keys that were taken lately, bounded in time and number: the oldest are forgotten."""

    def __init__(self, *, window: timedelta = WINDOW, capacity: int = CAPACITY) -> None:
        self._window = window.total_seconds()
        self._capacity = capacity
        # When each was last met, the oldest first. (Finding the first of a plain dict is slow once
        # many before it have been removed.)
        self._seen: OrderedDict[bytes, float] = OrderedDict()
        self._latest = float("-inf")

    def __len__(self) -> int:
        return len(self._seen)

    def has(self, observation: Observation, now: datetime) -> bool:
        """Whether it was taken before. Meeting it again makes it remembered for longer."""
        at = self._forget(now)
        key = _key(observation)
        if key not in self._seen:
            return False
        self._seen[key] = at
        self._seen.move_to_end(key)
        return True

    def add(self, observation: Observation, now: datetime) -> None:
        """Remember that it was taken."""
        at = self._forget(now)
        key = _key(observation)
        self._seen[key] = at
        self._seen.move_to_end(key)
        if len(self._seen) > self._capacity:
            self._seen.popitem(last=False)

    def _forget(self, now: datetime) -> float:
        """Forget what is too old; return the time, which for us never goes back."""
        self._latest = max(self._latest, now.timestamp())
        limit = self._latest - self._window
        while self._seen and next(iter(self._seen.values())) < limit:
            self._seen.popitem(last=False)
        return self._latest


def _key(observation: Observation) -> bytes:
    parts = (observation.provider, observation.session_key, observation.event_id)
    return blake2b(msgspec.msgpack.encode(parts), digest_size=KEY_BYTES).digest()
