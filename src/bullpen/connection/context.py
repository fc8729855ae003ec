"""What a handler is given beside the params: who asked, over what, and how to answer."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from bullpen.connection.handlers import Link
from bullpen.jsonrpc.errors import INTERNAL_ERROR, AlreadyAnsweredError, RpcError
from bullpen.jsonrpc.peer import BatchReply
from bullpen.jsonrpc.wire import Error, Id, Notification, Request, Response

if TYPE_CHECKING:
    import asyncio

    from bullpen.connection.connection import Connection
    from bullpen.connection.dispatch import Dispatcher

__all__ = ["Context", "Responder"]


class Context(msgspec.Struct, eq=False):
    """One inbound request or notification while it is being handled.

    A handler answers by returning or raising. It may answer earlier with `respond` or `fail`, or
    take the duty to answer away with `detach`.
    """

    dispatcher: "Dispatcher"
    message: Request | Notification
    size: int
    link: Link | None = None  # the first handler it reaches
    is_answered: bool = False
    batch: BatchReply | None = None
    slot: int = 0
    task: "asyncio.Task[None] | None" = None  # the one that runs the handler
    is_detached: bool = False
    cancel_requested: bool = False
    on_cancel: Callable[[], None] | None = None  # instead of an answer, once it is detached

    @property
    def connection(self) -> "Connection":
        """The connection it came over; a handler may send requests on it and wait for them."""
        return self.dispatcher.connection

    @property
    def method(self) -> str:
        return self.message.method

    @property
    def id(self) -> Id:
        """The request's id, as the peer wrote it. A notification has none."""
        return self.message.id if isinstance(self.message, Request) else None

    def respond(self, result: Any) -> None:
        """Answer now; the handler may go on working."""
        self.answer(Response(self.id, None if result is None else result))

    def fail(self, error: RpcError) -> None:
        """Answer now, with an error."""
        self.answer(Response(self.id, error=Error(error.code, error.message, error.data)))

    def detach(self, on_cancel: Callable[[], None] | None = None) -> "Responder":
        """Take the duty to answer out of the handler, which may then return.

        Should the peer cancel the request, `on_cancel` is called and the request is still to be
        answered; without it, the request is answered as cancelled.
        """
        self.is_detached = True
        self.on_cancel = on_cancel
        return Responder(self)

    def answer(self, response: Response) -> None:
        """Send the one response.

        Raises:
            AlreadyAnsweredError: there has been one, or a notification was to be answered.
        """
        if self.is_answered:
            raise AlreadyAnsweredError(self.id)
        self.dispatcher.answer(self, response)


class Responder:
    """The duty to answer one request, which can be kept and handed on.

    Forgotten without an answer, it answers itself with an internal error: no peer waits for ever.
    """

    __slots__ = ("__weakref__", "_context")

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def id(self) -> Id:
        return self._context.id

    @property
    def is_answered(self) -> bool:
        return self._context.is_answered

    def respond(self, result: Any) -> None:
        self._context.respond(result)

    def fail(self, error: RpcError) -> None:
        self._context.fail(error)

    def answer(self, response: Response) -> None:
        self._context.answer(response)

    def __del__(self) -> None:
        context = self._context
        if not context.is_answered:
            dropped = Response(context.id, error=Error(INTERNAL_ERROR, "the request was dropped"))
            # The last reference may go in any thread; the answer is given in the loop's.
            context.connection.call_soon(_answer_if_open, context, dropped)


def _answer_if_open(context: Context, response: Response) -> None:
    if not context.is_answered:
        context.answer(response)
