"""How one family of JSON-RPC programs says what the specification leaves open."""

from typing import Any

import msgspec

from bullpen.jsonrpc.wire import Id, Notification, decode_value

__all__ = ["ACP", "LSP", "MCP", "PLAIN", "Dialect"]


class Dialect(msgspec.Struct, frozen=True):
    """The way a request is given up.

    Attributes:
        cancel_method: the notification that cancels a request, or "" where there is none.
        cancel_key: the member of its params that holds the request's id.
        answers_cancelled: whether a cancelled request is still answered (with -32800) or dropped.
    """

    cancel_method: str = ""
    cancel_key: str = "requestId"
    answers_cancelled: bool = True

    def cancel(self, request_id: Id) -> Notification | None:
        """Return what tells the peer to give up a request, if the dialect has a word for it."""
        if not self.cancel_method:
            return None
        return Notification(self.cancel_method, {self.cancel_key: request_id})

    def cancelled_id(self, notification: Notification) -> Id:
        """Return which request the peer gives up, or None when its words make no sense."""
        try:
            params: Any = decode_value(notification.params)
        except (ValueError, RecursionError):
            return None
        value = params.get(self.cancel_key) if isinstance(params, dict) else None
        return value if type(value) in (int, str) else None


PLAIN = Dialect()
ACP = Dialect("$/cancel_request")
LSP = Dialect("$/cancelRequest", cancel_key="id")
MCP = Dialect("notifications/cancelled", answers_cancelled=False)
