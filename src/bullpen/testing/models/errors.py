"""What can go wrong with the fake model server.

BullpenError
└── ModelServerError
    ├── ScriptError       a script cannot be read, or asks for something no model can do
    ├── RequestNotSeen    no request was as the test expected it, in time
    └── RequestRefused    a program asked for something the server does not have (kept inside)
"""

from collections.abc import Sequence

from bullpen.errors import BullpenError

__all__ = ["ModelServerError", "RequestNotSeen", "RequestRefused", "ScriptError"]


class ModelServerError(BullpenError):
    """The fake model server was asked for something it cannot do. It goes on serving."""


class ScriptError(ModelServerError, ValueError):
    """A script, or one step of it, makes no sense. `fragment` is the part to look at."""

    def __init__(self, problem: str, fragment: str = "") -> None:
        self.problem = problem
        self.fragment = fragment
        super().__init__(f"{problem}: {fragment!r}" if fragment else problem)


class RequestNotSeen(ModelServerError, TimeoutError):
    """No request satisfied the predicate in time. `seen` says what did arrive."""

    def __init__(self, timeout_seconds: float, seen: Sequence[object]) -> None:
        self.timeout_seconds = timeout_seconds
        self.seen = tuple(seen)
        arrived = "\n".join(f"  {request}" for request in self.seen) or "  nothing"
        super().__init__(f"no such request within {timeout_seconds:g} s, arrived:\n{arrived}")


class RequestRefused(ModelServerError):
    """A request cannot be answered. The program is told so with this HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(reason)
