"""One connection to one peer: requests out, handlers in, over any transport.

The reader (`receive`) runs inside the transport's callback. It classifies, correlates and routes
every message in wire order and never waits: responses go to their waiters, the rest to a route or
to the dispatcher's queue. See `docs/concepts/` for what is promised about order, bounds,
cancelling and closing.
"""

import asyncio
import contextlib
import contextvars
import logging
import secrets
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from msgspec import UNSET

from bullpen.connection.context import Context
from bullpen.connection.dispatch import Dispatcher
from bullpen.connection.errors import (
    ConnectionClosed,
    RequestTimeout,
    SendBufferFull,
    SlowConsumer,
    TransportClosed,
    TransportReused,
)
from bullpen.connection.handlers import error_for
from bullpen.connection.options import ConnectionStats, Options, Stage, Trace
from bullpen.connection.parking import Parking, resume_all
from bullpen.connection.transport import Clock, Timer, Transport
from bullpen.connection.typed import TypedNotification, TypedRequest, result_type
from bullpen.connection.waiters import Deliver, OnResult, RichWaiter, Waiter
from bullpen.jsonrpc.errors import RemoteError, RemoteProtocolError, UnserializableError
from bullpen.jsonrpc.peer import BatchReply, Peer
from bullpen.jsonrpc.wire import (
    Batch,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decode_value,
)

if TYPE_CHECKING:
    from bullpen.connection.builder import Builder

__all__ = ["Connection", "Route"]

logger = logging.getLogger("bullpen.connection")

TRANSPORT_SECONDS = 10.0  # for a transport to close; ending a stubborn program takes most of it
CLOSE_SECONDS = 1.0  # for tasks to take their cancellation; one that refuses is reported

T = TypeVar("T")
R = TypeVar("R")

Route = Callable[[Message, "Context | None", int], bool]
"""Sees every inbound request (with its context) and notification first; True takes it.

It runs in the reader: it must not wait, and it must not raise.
"""

DEFAULT: Any = object()


class Connection:
    """An open connection. Made by a builder: `Connection.builder()…connect(transport)`."""

    def __init__(self, options: Options, route: Route | None = None) -> None:
        self.name = options.name
        self.is_observed = bool(options.observers)
        self.decode = options.decode
        self._options = options
        self._route = route
        self._peer: Peer[Waiter] = Peer()
        self._woken: list[Parking] = []  # whom the messages of this read wake
        self._dispatcher = Dispatcher(self, options, route)
        self._variables = contextvars.copy_context()  # what handlers find
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._clock: Clock = options.clock or self._loop
        self._now = options.clock.time if options.clock else time.monotonic
        self._timeout = options.timeout_seconds
        self._cancel_method = options.dialect.cancel_method or None
        self._sweep: Timer | None = None
        self._transport: Transport | None = None  # until it is closed
        self._outlet: Transport | None = None  # as long as we may send requests
        self._handlers: set[asyncio.Task[Any]] = set()
        self._spawned: set[asyncio.Task[Any]] = set()
        self._workers: set[asyncio.Task[Any]] = set()  # the transport's
        self._malformed = 0
        self._malformed_in_a_row = 0
        self._closed: ConnectionClosed | None = None
        self._is_clean = False
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        self._on_close: list[Callable[[BaseException | None], None]] = []

    @staticmethod
    def builder() -> "Builder":
        """Begin to describe a connection; the transport comes last."""
        from bullpen.connection.builder import Builder

        return Builder()

    @staticmethod
    def from_streams(outgoing: Any, incoming: Any) -> "Builder":
        """Begin to describe a connection over a stream writer and reader; end with `serve()`."""
        from bullpen.connection.builder import Builder
        from bullpen.connection.transports.stream import StreamTransport

        return Builder(transport=StreamTransport(outgoing, incoming))

    def __repr__(self) -> str:
        state = f"CLOSED: {self._closed.cause}" if self._closed else "OPEN"
        return f"<Connection {self.name!r} {state}, {len(self._peer)} pending>"

    # Sending

    @overload
    async def request(
        self,
        method: TypedRequest[R],
        *,
        timeout: float | None = ...,
        on_result: Callable[[R], None] | None = ...,
    ) -> R: ...

    @overload
    async def request(
        self,
        method: str,
        params: Any = ...,
        *,
        result: type[T],
        timeout: float | None = ...,
        on_result: Callable[[T], None] | None = ...,
    ) -> T: ...

    @overload
    async def request(
        self,
        method: str,
        params: Any = ...,
        *,
        timeout: float | None = ...,
        on_result: OnResult | None = ...,
    ) -> Any: ...

    async def request(
        self,
        method: Any,
        params: Any = UNSET,
        *,
        result: Any = Any,
        timeout: float | None = DEFAULT,
        on_result: OnResult | None = None,
    ) -> Any:
        """Send a request and return its result.

        `on_result` is called with the result inside the reader: what it installs is in effect
        before the next message is looked at. If it raises, the caller gets that error.

        Raises:
            RemoteError: the peer answered with an error.
            RequestTimeout: it did not answer in time; the peer has been told to stop.
            ConnectionClosed: it will not answer any more.
        """
        if method.__class__ is not str:
            method, params, result = method.METHOD, method, result_type(method.__class__)
        transport = self._outlet
        if transport is None:
            raise ConnectionClosed(self.cause) from self.cause
        if transport.is_congested:
            timeout = await self._wait_to_send(transport, method, timeout)
            transport = self._open_outlet()
        if timeout is DEFAULT and on_result is None:
            deadline = None if self._timeout is None else self._deadline(self._timeout)
            waiter = Waiter(self._loop, method, deadline)
            request_id = self._peer.issue(waiter)
        else:
            hooks = {"on_result": on_result, "result_type": result}
            waiter, request_id = self._issue_rich(method, timeout, **hooks)
        try:
            if self.is_observed:
                self._send(transport, Request(request_id, method, params))
            else:
                transport.send(Request(request_id, method, params))
            await waiter
        except BaseException as error:
            self._give_up(request_id, tell_peer=isinstance(error, asyncio.CancelledError))
            raise
        response = waiter.response
        if response.error is not UNSET:
            failure = response.error
            raise RemoteError(failure.code, failure.message, failure.data)
        return decode_value(response.result, result)

    def send_request(
        self,
        method: str,
        params: Any,
        deliver: Deliver | None = None,
        *,
        timeout: float | None = None,
    ) -> int:
        """Send a request and have its response delivered inside the reader. Returns its id.

        For those who pass responses on in wire order. Nothing is delivered for a request that
        was abandoned. Without `deliver`, nobody waits and the response is ignored.
        """
        transport = self._open_outlet()
        _, request_id = self._issue_rich(method, timeout, deliver=deliver)
        if deliver is None:
            self._peer.abandon(request_id)
        try:
            self._send(transport, Request(request_id, method, params))
        except BaseException:
            self._give_up(request_id, tell_peer=False)
            raise
        return request_id

    def abandon(self, request_id: int) -> None:
        """Give up a request sent with `send_request`, and tell the peer in its dialect."""
        self._give_up(request_id, tell_peer=True)

    def cancel(self, request_id: int) -> None:
        """Tell the peer that a request is no longer wanted.

        Its response is still waited for, unless the dialect leaves cancelled requests unanswered.
        """
        self._tell_cancelled(request_id)
        if not self._options.dialect.answers_cancelled:
            self._give_up(request_id, tell_peer=False)

    def is_cancel(self, message: Message) -> bool:
        """Whether a message is this connection's dialect for giving up a request."""
        return isinstance(message, Notification) and message.method == self._cancel_method

    @property
    def is_congested(self) -> bool:
        """Whether the peer does not read; whoever can wait should wait for `drain`."""
        return self._outlet is not None and self._outlet.is_congested

    async def drain(self) -> None:
        """Wait until the peer reads again, or the connection has closed."""
        if self._outlet is not None:
            await self._outlet.drain()

    async def notify(self, method: "str | TypedNotification", params: Any = UNSET) -> None:
        """Send a notification, waiting while the peer does not read.

        Raises:
            ConnectionClosed: nobody will read it.
        """
        if self._open_outlet().is_congested:
            await self._open_outlet().drain()
        self.send_notification(method, params)

    def send_notification(self, method: "str | TypedNotification", params: Any = UNSET) -> None:
        """Send a notification without waiting.

        Raises:
            SendBufferFull: the peer does not read, and too much waits for it.
        """
        if not isinstance(method, str):
            method, params = method.METHOD, method
        self._send(self._open_outlet(), Notification(method, params))

    def send_response(self, response: Response | Batch) -> None:
        """Send a response; one that nobody can receive any more is dropped."""
        transport = self._transport
        if transport is None:
            return
        try:
            if self.is_observed:
                self._send(transport, response)
            else:
                transport.send(response)
        except UnserializableError as error:
            self._send_substitutes(response, error)
        except TransportClosed:
            self.trace(Stage.DROPPED, response, "the transport is closed")
        except SendBufferFull as error:
            self._fail(error)

    def respond(self, response: Response) -> None:
        """Answer the oldest open inbound request that has the response's id.

        Raises:
            KeyError: there is none.
        """
        context = self._dispatcher.find(response.id)
        if context is None:
            raise KeyError(response.id)
        context.answer(response)

    # Receiving: called by the transport, in wire order

    def receive(self, message: Message, size: int) -> None:
        """Take one message from the transport. See `Receiver`."""
        self.receive_burst((message,), (size,))

    def receive_burst(self, messages: Iterable[Message], sizes: Iterable[int]) -> None:
        """Take messages from the transport. See `Receiver`."""
        settle, route = self._peer.settle, self._route
        woken, is_observed = self._woken, self.is_observed
        for message, size in zip(messages, sizes, strict=True):
            kind = message.__class__
            if is_observed:
                self.trace(Stage.RECEIVED, message)
            if kind is Response:
                waiter = settle(message)  # type: ignore[arg-type]
                if waiter is not None and waiter.is_plain and not waiter.is_done:
                    waiter.is_done = True
                    waiter.response = message  # type: ignore[assignment]
                    woken.append(waiter)
                else:
                    self._settle(waiter, message)  # type: ignore[arg-type]
                if is_observed and waiter is not None:
                    self.trace(Stage.ROUTED, message)
            elif kind is Notification:
                if route is None or not route(message, None, size):
                    self._receive_notification(message, size)  # type: ignore[arg-type]
                elif is_observed:
                    self.trace(Stage.ROUTED, message)
            elif kind is Request:
                self._dispatcher.request(message, size)  # type: ignore[arg-type]
            elif kind is Batch:
                self._receive_batch(message, size)  # type: ignore[arg-type]
            else:
                self._receive_malformed(message)  # type: ignore[arg-type]
                continue
            if self._malformed_in_a_row:
                self._malformed_in_a_row = 0
        if self._dispatcher.inbox:
            self._dispatcher.run()
        if woken:
            self._woken = []
            # What came before a response is taken up before the response.
            resume_all(woken, self._loop, soon=self._dispatcher.has_runners_due)

    def receive_end(self, cause: Exception | None) -> None:
        """Learn that nothing more will come. See `Receiver`."""
        self._end(
            cause or TransportClosed("the peer closed the connection"), is_clean=cause is None
        )

    def spawn(
        self, work: Coroutine[Any, Any, Any], *, name: str = "", fatal: bool = False
    ) -> "asyncio.Task[Any]":
        """Run work that lives no longer than the connection.

        If it fails, observers learn so with the place it was spawned at; `fatal` closes the
        connection with that failure as its cause.
        """
        if self._closed is not None:
            work.close()
            raise ConnectionClosed(self._closed.cause)
        caller = sys._getframe(1)
        place = f"{caller.f_code.co_filename}:{caller.f_lineno}"
        name = name or getattr(work, "__qualname__", "work")
        task = self._run(self._spawned, work, name)
        task.add_done_callback(lambda task: self._spawn_ended(task, place, fatal=fatal))
        return task

    def run_handlers(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a runner of the dispatcher."""
        self._run(self._handlers, work, "handlers", self._variables.copy())

    def run_worker(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a worker of the transport. See `Receiver`."""
        self._run(self._workers, work, name)

    # Life

    async def start(self, transport: Transport) -> None:
        """Open the transport. Called once, by the builder."""
        self._transport = self._outlet = transport
        try:
            await transport.start(self)
        except BaseException as error:
            self._transport = self._outlet = None
            self._closed = ConnectionClosed(None)
            self._cancel_sweep()
            if not isinstance(error, TransportReused):  # else it is another connection's
                with contextlib.suppress(Exception):
                    await transport.close()
            raise

    @property
    def transport(self) -> Transport | None:
        """What it goes over, which may know who is at the other end; None once it is closed."""
        return self._transport

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed is not None

    @property
    def cause(self) -> BaseException | None:
        """Why the connection ended: the first thing that went wrong."""
        return self._closed.cause if self._closed else None

    @property
    def is_clean(self) -> bool:
        """Whether the connection ended by a close of either side, not by a failure."""
        return self._is_clean

    def on_close(self, callback: Callable[[BaseException | None], None]) -> None:
        """Have a callback told the first cause when the connection ends; at once if it has.

        Waiting requests have failed by then. All callbacks run, in the order they were given.
        """
        if self._closed is not None:
            callback(self._closed.cause)
        else:
            self._on_close.append(callback)

    async def wait_closed(self) -> None:
        """Wait until the connection has ended and everything of it is released."""
        await asyncio.shield(self._ended)
        if self._closing is not None:
            await asyncio.shield(self._closing)

    async def aclose(self) -> None:
        """Close: answer what is open, send what was accepted, release everything. Idempotent."""
        self._end(None, is_clean=True, is_local=True)
        if self._closing is not None and self._closing is not asyncio.current_task():
            await asyncio.shield(self._closing)

    def close_soon(self) -> None:
        """Begin to close, without waiting for it."""
        self._end(None, is_clean=True, is_local=True)

    def stats(self) -> ConnectionStats:
        """Return the connection's figures."""
        dispatcher = self._dispatcher
        return ConnectionStats(
            requests_sent=self._peer.issued,
            requests_pending=len(self._peer),
            requests_running=dispatcher.running,
            requests_waiting=dispatcher.waiting_requests,
            notifications_waiting=dispatcher.waiting_notifications,
            bytes_waiting=dispatcher.waiting_bytes,
            most_notifications_waiting=dispatcher.most_notifications,
            unknown_responses=self._peer.unknown_responses,
            malformed=self._malformed,
            overloaded=dispatcher.overloaded,
            dropped_notifications=dispatcher.dropped_notifications,
        )

    def pause_reading(self) -> None:
        """Stop taking messages: every session, response and close behind them waits."""
        if self._transport is not None:
            self._transport.pause()

    def resume_reading(self) -> None:
        """Take messages again."""
        if self._transport is not None:
            self._transport.resume()

    def wake(self, parked: Parking) -> None:
        """Let a task go on once everything that came in this read has been routed."""
        self._woken.append(parked)

    def trace(self, stage: Stage, message: Message | None = None, detail: Any = None) -> None:
        """Tell the observers, if there are any."""
        for observe in self._options.observers:
            try:
                observe(Trace(self.name, stage, message, detail))
            except Exception:  # an observer must not change what it observes
                logger.exception("%s: an observer failed", self.name)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        """Call back in the connection's loop, from whatever thread; never after it closed."""
        if self._loop.is_closed():
            return
        if threading.get_ident() == self._thread:
            self._loop.call_soon(callback, *args)
        else:
            self._loop.call_soon_threadsafe(callback, *args)

    def _send_substitutes(self, response: Response | Batch, error: UnserializableError) -> None:
        """Answer with an internal error what cannot be answered as it was meant."""
        if isinstance(response, Batch):  # each on its own, so that the others arrive
            for one in response:
                self.send_response(one)  # type: ignore[arg-type]
            return
        correlation = secrets.token_hex(4)
        logger.error("%s: %s (%s)", self.name, error, correlation)
        substitute = error_for(error, correlation, debug=self._options.debug)
        self.send_response(Response(response.id, error=substitute))

    # Outbound requests

    async def _wait_to_send(
        self, transport: Transport, method: str, timeout: float | None
    ) -> float | None:
        """Wait until the peer reads; return what is left of the timeout.

        Raises:
            RequestTimeout: it did not read in time.
        """
        limit = self._timeout if timeout is DEFAULT else timeout
        begun = self._loop.time()
        try:
            async with asyncio.timeout(limit):
                await transport.drain()
        except TimeoutError:
            raise RequestTimeout(method, limit or 0.0) from None
        return None if limit is None else max(0.0, limit - (self._loop.time() - begun))

    def _open_outlet(self) -> Transport:
        if self._outlet is None:
            raise ConnectionClosed(self.cause) from self.cause
        return self._outlet

    def _send(self, transport: Transport, message: Message) -> None:
        if not self.is_observed:
            transport.send(message)
            return
        if message.__class__ is Request:
            self.trace(Stage.REQUESTED, message)
            self.trace(Stage.ASSIGNED, message)
        transport.send(message)
        self.trace(Stage.SENT, message)

    def _deadline(self, timeout: float) -> float:
        """Return when a request made now is overdue, and see that it is noticed then."""
        if self._sweep is None:
            self._sweep = self._clock.call_later(timeout, self._sweep_expired)
        return self._now() + timeout

    def _issue_rich(
        self, method: str, timeout: float | None, **hooks: Any
    ) -> tuple[RichWaiter, int]:
        has_default = timeout is DEFAULT and self._timeout is not None
        deadline = self._deadline(self._timeout) if has_default else None  # type: ignore[arg-type]
        waiter = RichWaiter(self._loop, method, deadline, **hooks)
        request_id = self._peer.issue(waiter)
        if timeout is not DEFAULT and timeout is not None:
            waiter.timer = self._clock.call_later(timeout, self._expire, request_id, timeout)
        return waiter, request_id

    def _sweep_expired(self) -> None:
        """Expire what is overdue under the default timeout: the oldest come first."""
        self._sweep = None
        now = self._now()
        for request_id, waiter in list(self._peer.oldest()):
            if waiter.deadline is None:
                continue
            if waiter.deadline > now:
                self._sweep = self._clock.call_later(waiter.deadline - now, self._sweep_expired)
                break
            self._expire(request_id, self._timeout or 0.0)

    def _expire(self, request_id: int, timeout: float) -> None:
        waiter = self._peer.abandon(request_id)
        if waiter is None:
            return
        self._tell_cancelled(request_id)
        waiter.end(RequestTimeout(waiter.method, timeout))

    def _give_up(self, request_id: int, *, tell_peer: bool) -> None:
        waiter = self._peer.abandon(request_id)
        if waiter is None:
            return
        waiter.release()
        if tell_peer:
            self._tell_cancelled(request_id)

    def _tell_cancelled(self, request_id: int) -> None:
        cancel = self._options.dialect.cancel(request_id)
        if cancel is not None and self._transport is not None:
            with contextlib.suppress(TransportClosed, SendBufferFull):
                self._send(self._transport, cancel)

    def _settle(self, waiter: Waiter | None, response: Response) -> None:
        """Hand over a response where there is more to do than to wake a task."""
        if waiter is None:
            self.trace(Stage.DROPPED, response, "nobody waits for it")
            return
        if waiter.is_done:  # its task has been cancelled and will soon know
            waiter.release()
        elif waiter.is_plain or waiter.settle(response):  # type: ignore[attr-defined]
            waiter.is_done = True
            waiter.response = response
            self._woken.append(waiter)

    # Inbound

    def _receive_notification(self, message: Notification, size: int) -> None:
        if message.method == self._cancel_method:
            self._dispatcher.cancel(self._options.dialect.cancelled_id(message))
            return
        try:
            self._dispatcher.notification(message, size)
        except SlowConsumer as error:
            self._fail(error)

    def _receive_batch(self, batch: Batch, size: int) -> None:
        owed = [m for m in batch if _is_owed(m)]
        reply = BatchReply(len(owed))
        slot = 0
        share = size // max(len(batch), 1)  # over a channel it may be empty
        for message in batch:
            if message.__class__ is Request:
                self._dispatcher.request(message, share, reply, slot)
                slot += 1
            elif message.__class__ is Malformed:
                self._malformed += 1
                self.trace(Stage.DROPPED, message, message.error.message)
                if _is_owed(message):
                    self._dispatcher.refuse(message, reply, slot)
                    slot += 1
            elif message.__class__ is Response:
                self._settle(self._peer.settle(message), message)
            elif message.__class__ is Notification and (
                self._route is None or not self._route(message, None, share)
            ):
                self._receive_notification(message, share)

    def _receive_malformed(self, message: Malformed) -> None:
        self._malformed += 1
        self._malformed_in_a_row += 1
        self.trace(Stage.DROPPED, message, message.error.message)
        if not message.is_response:
            self.send_response(Response(message.id, error=message.error))
        if self._malformed_in_a_row >= self._options.limits.malformed_in_a_row:
            count = self._malformed_in_a_row
            self._fail(RemoteProtocolError(f"{count} frames in a row were not JSON-RPC"))

    # Ending

    def _fail(self, cause: Exception) -> None:
        self._end(cause, is_clean=False)

    def _end(self, cause: BaseException | None, *, is_clean: bool, is_local: bool = False) -> None:
        if self._closed is not None:
            return
        self._closed = ConnectionClosed(cause)
        self._outlet = None
        self._is_clean = is_clean
        self._dispatcher.finish()
        self._cancel_sweep()
        for waiter in self._peer.abandon_all():
            self._fail_waiter(waiter, cause)
        for callback in self._on_close:
            try:
                callback(cause)
            except Exception:  # every callback runs; none can hold the close
                logger.exception("%s: a close callback failed", self.name)
        self._on_close.clear()
        self._ended.set_result(None)
        # What came before the end is still handled, and answered if the peer still listens.
        grace = 0.0 if is_local else self._options.limits.finish_seconds
        caller = asyncio.current_task() if is_local else None
        self._closing = self._loop.create_task(
            self._close(grace, caller), name=f"{self.name}:close"
        )

    def _fail_waiter(self, waiter: Waiter, cause: BaseException | None) -> None:
        closed = ConnectionClosed(cause)
        closed.__cause__ = cause
        waiter.end(closed)

    def _cancel_sweep(self) -> None:
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    async def _close(self, grace: float, caller: "asyncio.Task[Any] | None") -> None:
        if grace:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await self._dispatcher.wait_answered()
                    while self._handlers:  # they may work on after their answer
                        await asyncio.wait(self._handlers)
        self._dispatcher.close(caller)
        await self._stop([task for task in (*self._handlers, *self._spawned) if task is not caller])
        transport, self._transport = self._transport, None
        if transport is not None:
            try:
                async with asyncio.timeout(TRANSPORT_SECONDS):
                    await transport.close()
            except Exception:  # closing must come to its end
                logger.exception("%s: the transport failed to close", self.name)
        await self._stop([*self._workers])

    async def _stop(self, tasks: "list[asyncio.Task[Any]]") -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            for task in stuck:
                logger.error("%s: %s does not end", self.name, task.get_name())

    def _run(
        self,
        group: "set[asyncio.Task[Any]]",
        work: Coroutine[Any, Any, Any],
        name: str,
        variables: contextvars.Context | None = None,
    ) -> "asyncio.Task[Any]":
        task = self._loop.create_task(work, name=f"{self.name}:{name}", context=variables)
        group.add(task)
        task.add_done_callback(group.discard)
        return task

    def _spawn_ended(self, task: "asyncio.Task[Any]", place: str, *, fatal: bool) -> None:
        if task.cancelled() or (error := task.exception()) is None:
            return
        logger.error(
            "%s: %s, spawned at %s, failed", self.name, task.get_name(), place, exc_info=error
        )
        error.add_note(f"spawned at {place}")
        self.trace(Stage.FAILED, None, error)
        if fatal and isinstance(error, Exception):
            self._fail(error)


def _is_owed(message: Message) -> bool:
    """Whether the peer waits for an answer to this entry of a batch."""
    return isinstance(message, Request) or (
        isinstance(message, Malformed) and not message.is_response
    )
