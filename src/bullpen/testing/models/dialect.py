"""What every model API has in common: a request is read, a turn is put into its words.

A dialect is pure. `frames` yields the bytes of a streamed response one event at a time and, between
them, the control steps of the script for its caller to perform: it is the caller who sleeps, waits
at gates and cuts the connection. `document` is the same turn as one JSON object, for a request that
did not ask for a stream.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, TypeAlias

from bullpen.testing.models.answer import Fitted, in_pieces
from bullpen.testing.models.conversation import Conversation, Incoming, Json
from bullpen.testing.models.script import CallFreeform, CallTool, Control, Say, Sleep

__all__ = [
    "CREATED",
    "INPUT_TOKENS",
    "Dialect",
    "Mint",
    "flat_name",
    "openai_error",
    "output_tokens",
    "paced",
    "sse",
]

CREATED = 1_767_225_600  # answers are the same on every run, so their date is too
INPUT_TOKENS = 100

Mint: TypeAlias = Callable[[str], str]
"""Makes identifiers that are unique in one server: `mint("call")` is `call_000001`."""


class Dialect(Protocol):
    """One model API."""

    @property
    def name(self) -> str:
        """The name it goes by in the record of requests."""

    def read(self, incoming: Incoming) -> Conversation:
        """Return what a request says. Parts of an unexpected form count as absent."""

    def frames(
        self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint
    ) -> Iterator[bytes | Control]:
        """Yield a streamed response, event by event, with the control steps between them."""

    def document(self, steps: Sequence[Fitted], conversation: Conversation, mint: Mint) -> Json:
        """Return a response in one piece. Control steps and errors are not its business."""

    def error(self, status: int, message: str, kind: str = "") -> Json:
        """Return the body of an HTTP error."""


def sse(data: Json | str, event: str = "", end: str = "\n") -> bytes:
    """Return one server-sent event."""
    # JSON in ASCII: a prompt may hold halves of characters, and an echo must carry them
    text = data if isinstance(data, str) else json.dumps(data)
    head = f"event: {event}{end}" if event else ""
    return f"{head}data: {text}{end}{end}".encode()


def paced(say: Say, frame: Callable[[str], bytes]) -> Iterator[bytes | Control]:
    """Yield the frames of a text, pausing between its pieces as the script says."""
    for number, piece in enumerate(in_pieces(say)):
        if number and say.delay_seconds:
            yield Sleep(say.delay_seconds)
        yield frame(piece)


def output_tokens(steps: Sequence[Fitted]) -> int:
    """Return how many output tokens to report for a response: about one for each piece."""
    return 1 + sum(len(in_pieces(step)) for step in steps if isinstance(step, Say))


def flat_name(step: CallTool | CallFreeform) -> str:
    """Return the name of a tool where there are no namespaces: `mcp__server__tool`."""
    namespace = step.namespace if isinstance(step, CallTool) else None
    return step.name if namespace is None else f"{namespace}__{step.name}"


def openai_error(status: int, message: str, kind: str = "") -> Json:
    """Return the body of an error of either OpenAI API."""
    usual = _OPENAI_ERRORS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    code = kind or usual
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


_OPENAI_ERRORS = {
    401: "invalid_api_key",
    403: "permission_denied",
    404: "not_found",
    429: "rate_limit_exceeded",
}
