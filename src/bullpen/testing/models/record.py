"""What arrived at the server, kept for the test to look at and to wait for.

The record is bounded, and a `Request` in it is a snapshot: when something becomes of a request, the
record holds a new one in its place. One lock guards it; predicates of tests run outside of it.
"""

import re
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Any

from bullpen.testing.models.conversation import Conversation, strings
from bullpen.testing.models.errors import RequestNotSeen

__all__ = ["Outcome", "Record", "Request", "without_secrets"]


class Outcome(Enum):
    """What became of a request."""

    PENDING = "pending"
    ANSWERED = "answered"
    FAILED = "failed"  # as the script says, at once or in the middle
    CUT = "cut"  # by the script
    REFUSED = "refused"  # not a request to a model, or one that cannot be read
    GATE_TIMEOUT = "gate timeout"
    CLIENT_LEFT = "client left"
    SERVER_CLOSED = "server closed"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and what has become of it so far.

    `conversation` is None unless a model was asked. `gate` is the one the answer is held at now.
    """

    number: int
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)  # lower case, secrets blotted out
    body: Any = None
    dialect: str = ""  # anthropic, openai-responses, openai-chat or gemini
    conversation: Conversation | None = None
    outcome: Outcome = Outcome.PENDING
    gate: str = ""
    note: str = ""  # why it was refused

    @property
    def is_prompt(self) -> bool:
        """Whether the model was asked on behalf of the user, not for a title or the like."""
        return self.conversation is not None and not self.conversation.is_side_request

    @property
    def prompt(self) -> str:
        """The last thing the user said, as typed."""
        return self.conversation.prompt if self.conversation else ""

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return self.conversation.model if self.conversation else ""

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the tools offered."""
        return tuple(tool.name for tool in self.conversation.tools) if self.conversation else ()

    @property
    def tool_results(self) -> tuple[str, ...]:
        """What the tools the model called last have answered."""
        return self.conversation.tool_results if self.conversation else ()

    def mentions(self, text: str) -> bool:
        """Tell whether a text occurs anywhere in the body, be it in a reminder or a tool's name."""
        return any(text in string for string in strings(self.body))

    def __str__(self) -> str:
        what = f"{self.dialect} {self.prompt[:80]!r}" if self.conversation else self.path
        held = f" at gate {self.gate}" if self.gate else ""
        return (
            f"#{self.number} {self.method} {what}: {self.outcome.value}{held} {self.note}".strip()
        )


class Record:
    """The last requests, and a way to wait for one."""

    def __init__(self, limit: int, observer: Callable[[Request], None] | None) -> None:
        self._changed = threading.Condition()
        self._requests: deque[Request] = deque(maxlen=limit)
        self._observer = observer
        self._count = 0
        self._version = 0

    def add(self, method: str, path: str, headers: Mapping[str, str]) -> Request:
        """Record a request that has just arrived."""
        with self._changed:
            self._count += 1
            request = Request(self._count, method, _without_key(path), without_secrets(headers))
            self._requests.append(request)
            self._tell(request)
        return request

    def update(self, request: Request, **changes: Any) -> Request:
        """Record what is now known of a request; return it so."""
        request = replace(request, **changes)
        with self._changed:
            # no longer in the record when many others came since
            for index, known in enumerate(self._requests):
                if known.number == request.number:
                    self._requests[index] = request
            self._tell(request)
        return request

    def _tell(self, request: Request) -> None:
        self._version += 1
        self._changed.notify_all()
        if self._observer:
            self._observer(request)

    def snapshot(self) -> tuple[Request, ...]:
        """Return what is recorded now, oldest first."""
        with self._changed:
            return tuple(self._requests)

    def wait_for(self, predicate: Callable[[Request], bool], timeout_seconds: float) -> Request:
        """Return the oldest request that satisfies the predicate, once there is one.

        Raises:
            RequestNotSeen: there was none in time.
        """
        deadline = time.monotonic() + timeout_seconds
        while True:
            with self._changed:
                requests, version = tuple(self._requests), self._version
            for request in requests:
                if predicate(request):
                    return request
            with self._changed:
                if self._version == version and not self._changed.wait(deadline - time.monotonic()):
                    raise RequestNotSeen(timeout_seconds, requests)


_SECRET = re.compile(r"auth|cookie|key|secret|token", re.IGNORECASE)
_KEY_PARAMETER = re.compile(r"(?<=[?&]key=)[^&]*")


def without_secrets(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return headers with lower-case names, those that may carry a secret blotted out."""
    return MappingProxyType(
        {name.lower(): "***" if _SECRET.search(name) else value for name, value in headers.items()}
    )


def _without_key(path: str) -> str:
    return _KEY_PARAMETER.sub("***", path)
