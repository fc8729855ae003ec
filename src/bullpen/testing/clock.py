"""Time that passes only when a test says so."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

__all__ = ["ManualClock", "ManualTimer"]


class ManualTimer:
    """A callback that a clock will call, unless it is cancelled before."""

    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args

    @property
    def is_due(self) -> bool:
        """Whether it was neither called nor cancelled."""
        return self._callback is not None

    def cancel(self) -> None:
        """Call it off; too late, it does nothing."""
        self._callback = None
        self._args = ()

    def run(self) -> None:
        """Call back, once."""
        callback, args = self._callback, self._args
        self.cancel()
        if callback is not None:
            callback(*args)


class ManualClock:
    """A `Clock` for `Builder.clock`: it stands still until `advance` is called.

    Timers run inside `advance`, in the order they fall due; those that fall due together run in
    the order they were set. A task woken by one goes on in the event loop's next round.
    """

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._timers: list[tuple[float, int, ManualTimer]] = []
        self._order = itertools.count()

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> ManualTimer:
        timer = ManualTimer(callback, args)
        heapq.heappush(self._timers, (self._now + delay, next(self._order), timer))
        return timer

    @property
    def waiting(self) -> int:
        """How many timers are set."""
        return sum(timer.is_due for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Let time pass and run what falls due, also what that itself sets."""
        if seconds < 0:
            raise ValueError("time does not run backwards")
        end = self._now + seconds
        while self._timers and self._timers[0][0] <= end:
            due, _, timer = heapq.heappop(self._timers)
            self._now = max(self._now, due)
            timer.run()
        self._now = end
