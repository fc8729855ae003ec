"""What a source has said, for the tests of Codex's sources."""

import asyncio
from datetime import UTC, datetime, timedelta

import psutil

from bullpen.model.observations import Observation
from bullpen.testing.tmux import eventually


class Heard:
    """Takes what a source emits."""

    def __init__(self) -> None:
        self.observations: list[Observation] = []

    def __call__(self, observation: Observation) -> None:
        self.observations.append(observation)

    def types(self, thread_id: str = "") -> list[str]:
        """Return the types of the events, of all sessions or of one."""
        return [each.event_type for each in self.about(thread_id)]

    def about(self, thread_id: str) -> list[Observation]:
        """Return what was said about a thread; everything if that is empty."""
        key = f"codex:{thread_id}"
        return [each for each in self.observations if not thread_id or each.session_key == key]

    def last(self, thread_id: str) -> Observation:
        """Return the last of it."""
        return self.about(thread_id)[-1]

    def clear(self) -> None:
        """Forget it."""
        self.observations.clear()

    async def wait_for(self, event_type: str, thread_id: str = "") -> Observation:
        """Wait until something was said."""
        await eventually(lambda: event_type in self.types(thread_id))
        return [each for each in self.about(thread_id) if each.event_type == event_type][-1]


class Time:
    """A wall clock and a stopwatch that go on when a test says so."""

    def __init__(self) -> None:
        self.at = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)
        self._begun = self.at

    def now(self) -> datetime:
        return self.at

    def clock(self) -> float:
        return (self.at - self._begun).total_seconds()

    def advance(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


async def is_gone(pid: int) -> bool:
    """Whether a process has ended, though nobody may have taken notice of it yet."""

    def look() -> bool:
        try:
            return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return await asyncio.to_thread(look)
