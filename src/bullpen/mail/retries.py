"""When what failed is tried again, and when it is given up. Time is passed in.

The numbers are the seed's: five retries, after 1, 2, 4, 8 and 16 seconds. A lease is the time one
attempt has before somebody else may try.
"""

from datetime import datetime, timedelta

import msgspec

__all__ = ["LEASE_SECONDS", "LONGEST_LEASE_SECONDS", "ReconnectPolicy"]

LEASE_SECONDS = 30.0
"""Longer than any door takes to put a text in, or to say that it cannot."""
LONGEST_LEASE_SECONDS = 600.0
"""One that would end later is of a time before the clock was set back, and counts no more."""


class ReconnectPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often something is tried again, and after which pauses."""

    max_retries: int = 5
    initial_delay: float = 1.0
    max_delay: float = 60.0
    backoff_factor: float = 2.0

    def delay(self, attempt: int) -> float | None:
        """Return the pause in seconds after a failed attempt; None to give up.

        The first attempt is number 1, and is no retry.
        """
        if attempt > self.max_retries:
            return None
        try:
            delay = self.initial_delay * self.backoff_factor ** (attempt - 1)
        except OverflowError:
            return self.max_delay
        return min(delay, self.max_delay)

    def next_attempt(self, attempt: int, now: datetime) -> datetime | None:
        """Return when to try again after a failed attempt; None to give up."""
        delay = self.delay(attempt)
        return None if delay is None else now + timedelta(seconds=delay)
