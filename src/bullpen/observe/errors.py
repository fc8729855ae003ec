"""What the plane of observation refuses. Each reason is a word of the one table.

BullpenError
└── Refused                  something was not taken; nothing has been changed by it
    ├── InvalidCursor        a position that is not, or no longer, in a log
    └── AckRetryExhausted    a batch was delivered too often without being acknowledged
"""

from typing import Any

from bullpen.errors import BullpenError
from bullpen.model.reasons import Reason
from bullpen.model.states import SourceKind

__all__ = ["AckRetryExhausted", "InvalidCursor", "Refused"]

SHOWN = 80  # characters of what a peer sent


class Refused(BullpenError):
    """Something was not taken. `reason` says why, and nothing has been changed by it."""

    def __init__(self, reason: Reason, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.reason = reason
        self.facts = facts


class InvalidCursor(Refused):
    """There is no such position, or no longer. Read on from an older one, or from the start."""

    def __init__(self, cursor: str) -> None:
        super().__init__(Reason.INVALID_CURSOR, f"no place in the log: {cursor[:SHOWN]!r}")
        self.cursor = cursor


class AckRetryExhausted(Refused):
    """A batch was not acknowledged, however often it was delivered.

    It has been given up: the next pull delivers anew, under another token.
    """

    def __init__(self, consumer: str, attempts: int, kinds: frozenset[SourceKind]) -> None:
        super().__init__(
            Reason.ACK_RETRY_EXHAUSTED,
            f"{consumer!r} acknowledged none of {attempts} deliveries",
            consumer=consumer,
            attempts=attempts,
        )
        self.kinds = kinds
