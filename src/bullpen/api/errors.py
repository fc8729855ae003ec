"""What the daemon refuses, each with a number and a reason.

BullpenError
└── RpcError                 any error that goes over the wire
    └── ApiError             one of the table; `data.reason` is its name
DaemonUnavailable            there is no daemon and none could be started
"""

from typing import Any

from bullpen.connection import RpcError
from bullpen.errors import BullpenError
from bullpen.model.reasons import Reason

__all__ = ["ApiError", "DaemonUnavailable", "reason_of"]


class ApiError(RpcError):
    """The daemon refused. `reason` says why; nothing has been changed."""

    def __init__(self, reason: Reason, message: str, **facts: Any) -> None:
        super().__init__(int(reason), message, {"reason": reason.word, **facts})
        self.reason = reason


class DaemonUnavailable(BullpenError):
    """There is no daemon, and none could be started. The message says what was tried."""


def reason_of(error: RpcError) -> str:
    """Return the name of a refusal that came over the wire; empty if it is none of the table."""
    data = error.data if isinstance(error.data, dict) else {}
    word = data.get("reason", "")
    return word if isinstance(word, str) else ""
