"""What the daemon refuses, in A2A's errors. All of it goes through `translated`.

The words of a refusal are the daemon's, which name agents and tasks and nothing of the machine.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from a2a.utils.errors import (
    A2AError,
    InternalError,
    InvalidParamsError,
    InvalidRequestError,
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from bullpen.api.errors import DaemonUnavailable, reason_of
from bullpen.connection import RequestTimeout, RpcError
from bullpen.model.reasons import Reason

__all__ = ["translated"]

_ERRORS: dict[Reason, type[A2AError]] = {
    Reason.MESSAGE_NOT_FOUND: TaskNotFoundError,
    Reason.TASK_OVER: TaskNotCancelableError,
    Reason.IMPOSSIBLE_RECEIPT: TaskNotCancelableError,
    Reason.INVALID_MESSAGE: InvalidParamsError,
    Reason.MESSAGE_TOO_LARGE: InvalidParamsError,
    Reason.IDEMPOTENCY_CONFLICT: InvalidParamsError,
    Reason.AGENT_NOT_FOUND: UnsupportedOperationError,
    Reason.AGENT_UNREACHABLE: UnsupportedOperationError,
    Reason.NOT_ASKED: UnsupportedOperationError,
    Reason.MESSAGE_LOOP: UnsupportedOperationError,
    Reason.TOO_MANY_HOPS: UnsupportedOperationError,
}
_REFUSED = {
    Reason.APPROVAL_FORBIDDEN,
    Reason.NOT_PERMITTED,
    Reason.RECIPIENT_NOT_ALLOWED,
    Reason.BOSS_ONLY,
    Reason.IDENTITY_UNKNOWN,
    Reason.IDENTITY_EXPIRED,
    Reason.IDENTITY_FOREIGN,
}
_BUSY = {Reason.RATE_LIMITED, Reason.MAILBOX_FULL}


@contextmanager
def translated() -> Iterator[None]:
    """Have what a block is refused by the daemon raised as an error of A2A.

    An error that A2A has no word for says which it is in its data, as `refusal`.
    """
    try:
        yield
    except RpcError as error:
        raise _translate(error) from error
    except (DaemonUnavailable, RequestTimeout) as error:
        raise InternalError("bullpen does not answer", {"refusal": "UNAVAILABLE"}) from error


def _translate(error: RpcError) -> A2AError:
    word = reason_of(error)
    reason = next((each for each in Reason if each.word == word), None)
    if reason in _REFUSED:
        return InvalidRequestError(error.message, {"refusal": "NOT_PERMITTED"})
    if reason in _BUSY:
        return InternalError(error.message, {"refusal": reason.name})
    kind = _ERRORS.get(reason, InternalError) if reason is not None else InternalError
    return kind(error.message if reason is not None else None)
