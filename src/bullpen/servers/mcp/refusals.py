"""Which number a refusal has for an MCP peer: the one place where one becomes the other.

The seed has three numbers of its own. What a caller can mend in the arguments is `INVALID_PARAMS`;
a rule that forbids something keeps the daemon's number, and its word in `data.reason`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from bullpen.api.errors import DaemonUnavailable, reason_of
from bullpen.connection import RequestTimeout, RpcError
from bullpen.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS
from bullpen.model.reasons import Reason

__all__ = [
    "AGENT_NOT_FOUND",
    "RATE_LIMITED",
    "TIMED_OUT",
    "CallFailed",
    "UnknownTool",
    "invalid_arguments",
    "refusal_of",
    "timed_out",
]

AGENT_NOT_FOUND = -32000
TIMED_OUT = -32001
RATE_LIMITED = -32002

_CODES: dict[Reason, int] = {
    Reason.AGENT_NOT_FOUND: AGENT_NOT_FOUND,
    Reason.AGENT_AMBIGUOUS: AGENT_NOT_FOUND,
    Reason.AGENT_UNREACHABLE: AGENT_NOT_FOUND,
    Reason.NOBODY_LISTENS: AGENT_NOT_FOUND,
    Reason.RATE_LIMITED: RATE_LIMITED,
    Reason.MAILBOX_FULL: RATE_LIMITED,
    Reason.INVALID_MESSAGE: INVALID_PARAMS,
    Reason.MESSAGE_TOO_LARGE: INVALID_PARAMS,
    Reason.THINKING_TOO_LARGE: INVALID_PARAMS,
    Reason.IDEMPOTENCY_CONFLICT: INVALID_PARAMS,
    Reason.MESSAGE_NOT_FOUND: INVALID_PARAMS,
    Reason.STORE_UNAVAILABLE: INTERNAL_ERROR,
}
_BY_WORD = {reason.word: reason for reason in Reason}


class CallFailed(RpcError):
    """A tool could not do what it was called for. `facts` are what is known beside the error.

    A peer without `initialize` gets the error itself; others a result that says so.
    """

    def __init__(self, code: int, message: str, data: Any = msgspec.UNSET, **facts: Any) -> None:
        super().__init__(code, message, data)
        self.facts = facts


class UnknownTool(RpcError):
    """There is no such tool. For every peer that is an error of the protocol."""

    def __init__(self, name: object) -> None:
        shown = name if isinstance(name, str) else type(name).__name__
        super().__init__(INVALID_PARAMS, f"Unknown tool: {shown}", {"tool": shown})


def refusal_of(error: Exception, agent_id: str = "", **facts: Any) -> RpcError:
    """Return what a peer is told of something that went wrong while it was served."""
    if isinstance(error, CallFailed | UnknownTool):
        return error
    if isinstance(error, RequestTimeout):
        return timed_out(error.timeout_seconds, agent_id, "the daemon does not answer", **facts)
    if isinstance(error, RpcError):
        return CallFailed(_code(error), error.message, _data(error.data, agent_id), **facts)
    if isinstance(error, DaemonUnavailable):
        return CallFailed(INTERNAL_ERROR, f"Internal error: {error}", **facts)
    return CallFailed(INTERNAL_ERROR, "Internal error", **facts)


def timed_out(seconds: float, agent_id: str, why: str = "", **facts: Any) -> CallFailed:
    """Return the refusal for a time that ran out; its data are exactly the seed's two."""
    whole = int(seconds) if seconds == int(seconds) else seconds
    said = f"Timeout: {why or f'no answer from {agent_id}'} within {seconds:g} s"
    return CallFailed(TIMED_OUT, said, {"timeout_seconds": whole, "agent_id": agent_id}, **facts)


def invalid_arguments(error: Exception) -> CallFailed:
    """Return the refusal of arguments that do not fit a tool."""
    return CallFailed(INVALID_PARAMS, f"Invalid params: {error}")


def _code(error: RpcError) -> int:
    reason = _BY_WORD.get(reason_of(error))
    if reason is not None:
        return _CODES.get(reason, error.code)
    # Without a reason it is none of the table: its number means something else to our peers.
    return INVALID_PARAMS if error.code == INVALID_PARAMS else INTERNAL_ERROR


def _data(data: Any, agent_id: str) -> Any:
    if not agent_id or not (data is msgspec.UNSET or isinstance(data, Mapping)):
        return data
    return {"agent_id": agent_id, **(data or {})}
