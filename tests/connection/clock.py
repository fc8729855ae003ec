"""A clock that goes on when the test says so."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any

__all__ = ["ManualClock"]


class ManualClock:
    def __init__(self) -> None:
        self._now = 1000.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, _Timer]] = []

    def time(self) -> float:
        return self._now

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> "_Timer":
        timer = _Timer(callback, args)
        heapq.heappush(self._due, (self._now + delay, next(self._order), timer))
        return timer

    def advance(self, seconds: float) -> None:
        end = self._now + seconds
        while self._due and self._due[0][0] <= end:
            self._now, _, timer = heapq.heappop(self._due)
            timer.fire()
        self._now = end


class _Timer:
    def __init__(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._callback: Callable[..., object] | None = callback
        self._args = args

    def cancel(self) -> None:
        self._callback = None

    def fire(self) -> None:
        if self._callback is not None:
            self._callback(*self._args)
