"""The port that every source implements."""

import abc
from collections.abc import Callable
from datetime import datetime
from typing import Any

from bullpen.errors import BullpenError
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import SourceKind

__all__ = ["Emit", "Now", "Source", "SourceTrouble"]

Emit = Callable[[Observation], None]
Now = Callable[[], datetime]
"""The time, in UTC."""


class SourceTrouble(BullpenError):
    """A source cannot see all it should. It goes on looking; `is_down` says it sees nothing.

    `is_absent` says there is nothing to see: the program it would look at is not installed.
    """

    def __init__(self, message: str, *, is_down: bool = False, is_absent: bool = False) -> None:
        super().__init__(message)
        self.is_down = is_down
        self.is_absent = is_absent


class Source(abc.ABC):
    """One way of seeing one part of the world.

    Whoever serves it calls `open` with the function to emit observations by, then `look` every
    `interval_seconds`, never twice at the same time, and `aclose` in the end. What it sees between
    two looks (a notification, a hook) it emits at once.
    """

    kind: SourceKind
    interval_seconds: float = 1.0

    def __init__(self, now: Now) -> None:
        self._now = now
        self._emit: Emit = _nobody_listens
        self.version = ""  # of the program it hears from, once that is known

    async def open(self, emit: Emit) -> None:
        """Begin. An override calls this first."""
        self._emit = emit

    @property
    def is_calm(self) -> bool:
        """Whether nobody is there whose next word could be missed: then looks are less frequent."""
        return False

    @abc.abstractmethod
    async def look(self) -> None:
        """Look once, and emit what there is to say.

        Raises:
            SourceTrouble: something cannot be seen. What was emitted before stands.
        """

    async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:  # noqa: ARG002
        """Take what a program has pushed, such as a hook's payload.

        Raises:
            SourceTrouble: it makes no sense to this source.
        """
        raise SourceTrouble(f"{self.kind} takes no deliveries")

    async def aclose(self) -> None:
        """Let go of everything. It may be called twice."""


def _nobody_listens(observation: Observation) -> None:
    raise RuntimeError(f"a source that is not open emitted {observation.event_type}")
