"""Inbound requests and notifications on their way to the handlers.

The reader only queues. When it has taken in all that came in one read, a *runner* task goes on
with the queue: it calls handler after handler until one of them has to wait. Then the next runner
takes over where it stopped, and the first ends with its handler. So a handler that waits has a
task of its own, while a thousand that need not wait share one.

Requests start in the order they came and run side by side; notifications are handled one after
the other. Each handler finds the context variables of whoever opened the connection: what one
sets, no other sees.
"""

import asyncio
import contextvars
import logging
import secrets
from collections import deque
from operator import is_
from typing import TYPE_CHECKING, Any

from bullpen.connection.context import Context
from bullpen.connection.errors import SlowConsumer
from bullpen.connection.handlers import Chain, Declined, error_for, not_found
from bullpen.connection.options import Options, Stage
from bullpen.connection.parking import Parking, resume_all
from bullpen.jsonrpc.errors import (
    METHOD_NOT_FOUND,
    OVERLOADED,
    REQUEST_CANCELLED,
    SHUTTING_DOWN,
    RpcError,
)
from bullpen.jsonrpc.peer import BatchReply
from bullpen.jsonrpc.wire import Batch, Error, Id, Malformed, Notification, Request, Response

if TYPE_CHECKING:
    from bullpen.connection.connection import Connection, Route

__all__ = ["Dispatcher"]

logger = logging.getLogger("bullpen.connection")


class Dispatcher:
    """Queues what came in, runs the handlers, and sees that every request is answered once."""

    def __init__(
        self, connection: "Connection", options: Options, route: "Route | None" = None
    ) -> None:
        self.connection = connection
        self._route = route
        self._chain = chain = Chain(options.links)
        self._request_links, self._notification_links = chain.requests, chain.notifications
        self._any_link = chain.any
        self._limits = options.limits
        self._dialect = options.dialect
        self._debug = options.debug
        self._values = list(contextvars.copy_context().values())  # what every handler finds
        self.inbox: deque[Context] = deque()
        self._lane: deque[Context] = deque()  # notifications behind one that waits
        self._lane_is_busy = False
        self._open: dict[Context, None] = {}  # requests without an answer, the oldest first
        self._most_open = self._limits.running_handlers + self._limits.waiting_requests
        self._parking: Parking | None = None  # where the next runner waits
        self._runners_due = 0  # made, and starting in the loop's next round
        self._running = 0
        self._turn = 0  # changes whenever a runner begins to take from the inbox
        self._all_answered: asyncio.Event | None = None  # once somebody waits for that
        self._is_finishing = False  # takes on nothing more
        self._is_closed = False  # and starts nothing more
        self._notifications = 0
        self._bytes = 0
        self._request_bytes = 0
        self.most_notifications = 0
        self.overloaded = 0
        self.dropped_notifications = 0

    @property
    def running(self) -> int:
        return self._running

    @property
    def waiting_requests(self) -> int:
        """Requests that no handler has begun with. Looked for, since it is seldom asked."""
        return sum(isinstance(c.message, Request) and not c.is_answered for c in self.inbox)

    @property
    def waiting_notifications(self) -> int:
        return self._notifications

    @property
    def waiting_bytes(self) -> int:
        return self._bytes + self._request_bytes

    def find(self, request_id: Id) -> Context | None:
        """Return the oldest request with this id that has no answer yet."""
        for context in self._open:
            if context.id == request_id and type(context.id) is type(request_id):
                return context
        return None

    def request(
        self, message: Request, size: int, batch: BatchReply | None = None, slot: int = 0
    ) -> None:
        """Take on the duty to answer a request, and queue it for its route or handlers."""
        link = self._request_links.get(message.method, self._any_link)
        context = Context(self, message, size, link, False, batch, slot)
        self._open[context] = None
        if self._route is not None and self._route(message, context, size):
            if self.connection.is_observed:
                self.connection.trace(Stage.ROUTED, message)
            return
        if link is None:
            self._answer(context, error_for(not_found(message.method), "", debug=False))
        elif self._is_finishing:
            self._answer_error(context, SHUTTING_DOWN, "shutting down")
        elif (
            len(self._open) > self._most_open
            or self._request_bytes + size > self._limits.waiting_bytes
        ):
            self.overloaded += 1
            self._answer(context, Error(OVERLOADED, "overloaded, try again", {"retry": True}))
        else:
            self._request_bytes += size
            self.inbox.append(context)
            if self.connection.is_observed:
                self.connection.trace(Stage.ROUTED, message)

    def refuse(self, malformed: Malformed, batch: BatchReply, slot: int) -> None:
        """Answer an entry of a batch that is no request."""
        stand_in = Context(self, Request(malformed.id, ""), 0, None, False, batch, slot)
        self.answer(stand_in, Response(malformed.id, error=malformed.error))

    def notification(self, message: Notification, size: int) -> None:
        """Queue a notification for its handlers; without any it is of no interest.

        Raises:
            SlowConsumer: too many wait already.
        """
        link = self._notification_links.get(message.method, self._any_link)
        if link is None or self._is_finishing:
            self.dropped_notifications += 1
            self.connection.trace(
                Stage.DROPPED, message, "no handler" if link is None else "shutting down"
            )
            return
        limits = self._limits
        if (
            self._notifications >= limits.waiting_notifications
            or self._bytes + size > limits.waiting_bytes
        ):
            self.dropped_notifications += 1
            self.connection.trace(Stage.DROPPED, message, "too many wait")
            raise SlowConsumer(self.connection.name, self._notifications, self._bytes)
        self._notifications += 1
        self._bytes += size
        if self._notifications > self.most_notifications:
            self.most_notifications = self._notifications
        self.inbox.append(Context(self, message, size, link, True))
        if self.connection.is_observed:
            self.connection.trace(Stage.ROUTED, message)

    def cancel(self, request_id: Id) -> None:
        """Give up a request the peer no longer wants: interrupt its handler."""
        context = self.find(request_id)
        if context is None or context.cancel_requested:
            return
        context.cancel_requested = True
        if context.task is not None:
            context.task.cancel()
        elif context.on_cancel is not None:
            try:
                context.on_cancel()
            except Exception:  # what comes behind it in the reader is other people's
                logger.exception("%s: cancelling %r failed", self.connection.name, context.method)
            if not self._dialect.answers_cancelled:
                self._answer_cancelled(context)
        else:  # still queued, or its handler handed the duty to answer to somebody else
            self._answer_cancelled(context)

    def answer(self, context: Context, response: Response) -> None:
        """Send the one response of a request and forget the request."""
        context.is_answered = True
        self._forget(context)
        if context.batch is None:
            self.connection.send_response(response)
        else:
            self._fill(context.batch, context.slot, response)

    def finish(self) -> None:
        """Take on nothing more; what is queued is still handled."""
        self._is_finishing = True
        if self._parking is not None:
            self._parking.resume_soon()
            self._parking = None

    def close(self, caller: "asyncio.Task[Any] | None") -> None:
        """Start nothing any more and answer every open request with an error.

        Those with a running handler answer when it is cancelled; the caller's is not.
        """
        self._is_finishing = self._is_closed = True
        self.inbox.clear()
        self._lane.clear()
        for context in list(self._open):
            if context.task is None or context.task is caller:
                self._answer_error(context, SHUTTING_DOWN, "shutting down")

    @property
    def has_runners_due(self) -> bool:
        """Whether some of what is queued is taken up in the loop's next round."""
        return self._runners_due > 0

    async def wait_answered(self) -> None:
        """Wait until every request has its answer, also those whose handler has returned."""
        self._all_answered = asyncio.Event()
        if self._open:
            await self._all_answered.wait()

    def run(self) -> None:
        """Go on with what is queued: now if a runner waits for work, else in the next round."""
        self._turn += 1
        parking = self._parking
        if parking is not None:
            self._parking = None
            resume_all((parking,), parking.loop)
        if self.inbox:
            self._start_runners()

    def _start_runners(self) -> None:
        """Make runners for what is still queued: one each, since each handler may have to wait."""
        possible = self._limits.running_handlers - self._running - self._runners_due
        for _ in range(min(len(self.inbox) - self._runners_due, possible)):
            self._runners_due += 1
            self.connection.run_handlers(self._be_runner())

    async def _be_runner(self) -> None:
        """Handle what is queued and wait for more; end after a handler that had to wait."""
        self._runners_due -= 1
        self._turn += 1
        task = asyncio.current_task()
        parking = Parking(asyncio.get_running_loop())
        inbox, is_observed = self.inbox, self.connection.is_observed
        turn = self._turn
        most_running, variables = self._limits.running_handlers, len(self._values)
        while True:
            while inbox and self._running < most_running:
                context = inbox.popleft()
                context.task = task
                message = context.message
                if message.__class__ is Notification:
                    if self._lane_is_busy:
                        self._lane.append(context)
                    else:
                        await self._run_lane(context)
                elif context.is_answered:  # cancelled in the queue
                    self._request_bytes -= context.size
                else:
                    self._request_bytes -= context.size
                    self._running += 1
                    try:
                        link = context.link
                        outcome = link.handler(link.argument(message), context)  # type: ignore[union-attr]
                        if link.is_async or hasattr(outcome, "__await__"):  # type: ignore[union-attr]
                            outcome = await outcome
                        if outcome.__class__ is Declined:
                            outcome = await self._chain.pass_on(outcome, link, message, context)  # type: ignore[arg-type]
                        if not (context.is_answered or context.is_detached):  # type: ignore[redundant-expr]  # the handler may have
                            self.answer(context, Response(message.id, outcome))  # type: ignore[union-attr]
                        if is_observed:
                            self.connection.trace(Stage.HANDLED, message)
                    except asyncio.CancelledError as error:
                        self._interrupted(context, error)
                    except Exception as error:  # noqa: BLE001 - whatever it raises is answered
                        self._failed(context, error)
                    finally:
                        self._running -= 1
                        context.task = None
                if (
                    self._turn != turn
                    or context.cancel_requested
                    or len(contextvars.copy_context()) != variables
                    or (variables and self._has_changed())
                ):
                    # Others have gone on since: the handler had to wait. Or it was cancelled, and
                    # perhaps did not notice. Or it set context variables. None of this is for the
                    # next one to see.
                    self._start_runners()
                    return
            if self._parking is not None or self._is_finishing:
                return  # one that waits for work is enough
            self._parking = parking
            await parking
            turn = self._turn

    def _has_changed(self) -> bool:
        """Whether a context variable of this task was set to something else, be it equal."""
        now, values = contextvars.copy_context(), self._values
        return len(now) != len(values) or not all(map(is_, now.values(), values))

    async def _run_lane(self, context: Context) -> None:
        """Handle a notification and those that came while it waited, one after the other."""
        self._lane_is_busy = True
        try:
            await self._run_notification(context)
            while self._lane and not self._has_changed():
                await self._run_notification(self._lane.popleft())
        except BaseException:  # we are being closed
            self._lane_is_busy = False
            raise
        if self._lane:
            self.connection.run_handlers(self._run_lane(self._lane.popleft()))
        else:
            self._lane_is_busy = False

    async def _run_notification(self, context: Context) -> None:
        self._notifications -= 1
        self._bytes -= context.size
        message = context.message
        try:
            link = context.link
            outcome = link.handler(link.argument(message), context)  # type: ignore[union-attr]
            if link.is_async or hasattr(outcome, "__await__"):  # type: ignore[union-attr]
                outcome = await outcome
            if outcome.__class__ is Declined:
                await self._chain.pass_on(outcome, link, message, context)  # type: ignore[arg-type]
            if self.connection.is_observed:
                self.connection.trace(Stage.HANDLED, message)
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            self._notification_failed(message, error)
        except Exception as error:  # noqa: BLE001 - a notification is never answered
            self._notification_failed(message, error)

    def _interrupted(self, context: Context, error: asyncio.CancelledError) -> None:
        if not _is_being_cancelled():
            self._failed(context, error)  # it waited for something that was cancelled elsewhere
        elif context.cancel_requested and not self._is_closed:
            self._answer_cancelled(context)
        else:
            self._answer_error(context, SHUTTING_DOWN, "shutting down")
            raise error

    def _notification_failed(self, message: Request | Notification, error: BaseException) -> None:
        if isinstance(error, RpcError) and error.code == METHOD_NOT_FOUND:
            self.dropped_notifications += 1  # everybody it reached declined it
            return
        logger.warning("%s: %r failed", self.connection.name, message.method, exc_info=error)
        self.connection.trace(Stage.FAILED, message, error)

    def _failed(self, context: Context, error: BaseException) -> None:
        correlation = secrets.token_hex(4)
        answer = error_for(error, correlation, debug=self._debug)
        if not isinstance(error, RpcError):
            logger.error(
                "%s: handler of %r failed (%s)",
                self.connection.name,
                context.method,
                correlation,
                exc_info=error,
            )
        self.connection.trace(Stage.FAILED, context.message, error)
        if not context.is_answered:
            self._answer(context, answer)

    def _forget(self, context: Context) -> None:
        self._open.pop(context, None)
        if self._all_answered is not None and not self._open:
            self._all_answered.set()

    def _answer_cancelled(self, context: Context) -> None:
        if self._dialect.answers_cancelled:
            self._answer_error(context, REQUEST_CANCELLED, "request cancelled")
        else:
            context.is_answered = True
            self._forget(context)
            if context.batch is not None:
                self._fill(context.batch, context.slot, None)

    def _fill(self, batch: BatchReply, slot: int, response: Response | None) -> None:
        if responses := batch.fill(slot, response):
            self.connection.send_response(Batch(responses))

    def _answer_error(self, context: Context, code: int, message: str) -> None:
        if not context.is_answered:
            self._answer(context, Error(code, message))

    @staticmethod
    def _answer(context: Context, error: Error) -> None:
        context.answer(Response(context.id, error=error))


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
