"""How late we say what we know, over the last minutes. Without a clock.

From each observation to what is said of it some time passes; of a hundred such times, ninety-five
should be below the limit of their tier. One bad look at that says little: only several in a row, on
enough samples, are a breach.
"""

from collections import deque
from collections.abc import Mapping
from math import ceil

import msgspec

from bullpen.model.states import EvidenceTier

__all__ = ["LIMIT_SECONDS", "Latencies", "LatencyReading", "LatencyWindow"]

LIMIT_SECONDS = {EvidenceTier.DETERMINISTIC: 2.0, EvidenceTier.HEURISTIC: 5.0}

WINDOW_SECONDS = 600.0
LEAST_SAMPLES = 200
MOST_SAMPLES = 10_000  # later ones take the place of the oldest
BREACHES = 3  # in a row


class LatencyReading(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a window."""

    samples: int
    p50_ms: float
    p95_ms: float
    limit_ms: float
    is_breached: bool
    """The limit was exceeded at this look and the ones before it."""


class LatencyWindow:
    """The times of one tier."""

    def __init__(
        self,
        limit_seconds: float,
        *,
        window_seconds: float = WINDOW_SECONDS,
        least_samples: int = LEAST_SAMPLES,
        most_samples: int = MOST_SAMPLES,
        breaches: int = BREACHES,
    ) -> None:
        self._limit = limit_seconds
        self._window = window_seconds
        self._least_samples = least_samples
        self._breaches = breaches
        self._samples: deque[tuple[float, float]] = deque(maxlen=most_samples)
        self._exceeded = 0  # at how many looks in a row

    def add(self, latency_seconds: float, now: float) -> None:
        """Note one time."""
        self._samples.append((now, max(0.0, latency_seconds)))  # clocks may differ

    def look(self, now: float) -> LatencyReading:
        """Judge the window as it is now. It is this that is counted: look at equal intervals."""
        reading = self._read(now)
        is_judged = reading.samples >= self._least_samples
        is_exceeded = is_judged and reading.p95_ms > reading.limit_ms
        self._exceeded = self._exceeded + 1 if is_exceeded else 0
        return msgspec.structs.replace(reading, is_breached=self._exceeded >= self._breaches)

    def read(self, now: float) -> LatencyReading:
        """Return the figures without counting it as a look."""
        return msgspec.structs.replace(
            self._read(now), is_breached=self._exceeded >= self._breaches
        )

    def _read(self, now: float) -> LatencyReading:
        while self._samples and now - self._samples[0][0] > self._window:
            self._samples.popleft()
        sorted_seconds = sorted(latency for _, latency in self._samples)
        return LatencyReading(
            samples=len(sorted_seconds),
            p50_ms=_percentile(sorted_seconds, 50) * 1000,
            p95_ms=_percentile(sorted_seconds, 95) * 1000,
            limit_ms=self._limit * 1000,
            is_breached=False,
        )


class Latencies:
    """The windows of both tiers."""

    def __init__(self, limit_seconds: Mapping[EvidenceTier, float] = LIMIT_SECONDS) -> None:
        self._windows = {tier: LatencyWindow(limit_seconds[tier]) for tier in EvidenceTier}

    def add(self, tier: EvidenceTier, latency_seconds: float, now: float) -> None:
        """Note one time."""
        self._windows[tier].add(latency_seconds, now)

    def look(self, now: float) -> dict[EvidenceTier, LatencyReading]:
        """Judge both windows; this is counted."""
        return {tier: window.look(now) for tier, window in self._windows.items()}

    def read(self, now: float) -> dict[EvidenceTier, LatencyReading]:
        """Return the figures of both."""
        return {tier: window.read(now) for tier, window in self._windows.items()}


def _percentile(sorted_values: list[float], percent: int) -> float:
    """Return the smallest value that so many of a hundred do not exceed; 0 of nothing."""
    if not sorted_values:
        return 0.0
    return sorted_values[ceil(len(sorted_values) * percent / 100) - 1]
