"""One session's end of a shared connection: a private, bounded queue and the ways to read it."""

import asyncio
import contextlib
import inspect
import weakref
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from bullpen.connection.closable import Closable
from bullpen.connection.errors import (
    SessionBusy,
    SessionEnded,
    SessionFailed,
    SlowConsumer,
    WouldDeadlock,
)
from bullpen.connection.parking import Parking
from bullpen.connection.routed import (
    ERROR,
    Cancelled,
    Idle,
    PendingToolCall,
    PermissionRequest,
    RoutedMessage,
    SessionEvent,
    SessionRequest,
    StreamingOutcome,
    ToolCall,
    Turn,
    is_turn_end,
)
from bullpen.errors import BullpenError
from bullpen.jsonrpc.errors import METHOD_NOT_FOUND, RpcError

if TYPE_CHECKING:
    from bullpen.connection.router import MessageRouter

__all__ = ["Overflow", "SessionChannel", "SessionLimits", "SessionQueue", "SessionStats"]

DRAIN_SECONDS = 5.0  # an aborted turn ends within milliseconds, or something is wrong
ERROR_DRAIN_SECONDS = 1.0  # after an error a server says that it is idle, but it need not

OnChunk = Callable[[str], object]
Permit = Callable[[PermissionRequest], "bool | Awaitable[bool]"]
"""Decides on what a session asks leave for. Without one, everything is refused."""


class Overflow(StrEnum):
    """What happens to a session whose reader does not keep up."""

    FAIL = "fail"  # it ends with SlowConsumer, after what was queued
    COALESCE = "coalesce"  # adjacent pieces of text are joined; then as FAIL
    PAUSE = "pause"  # the whole connection stops reading: every other session waits too


class SessionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How far a session's reader may fall behind."""

    events: int = 100_000
    bytes: int = 32 * 2**20
    grace_seconds: float = 5.0
    """How long it may be over the limit; at twice the limit its patience ends at once."""
    overflow: Overflow = Overflow.FAIL


class SessionStats(msgspec.Struct, frozen=True, kw_only=True):
    """A session's figures at one moment."""

    queued_events: int
    queued_bytes: int
    most_queued_events: int
    delivered: int
    dropped: int
    """What came after the session had ended here."""


class SessionQueue:
    """What has been routed to one session and not been read. The router holds it, not the channel.

    So a channel nobody holds any more is noticed, and its session let go.
    """

    def __init__(
        self,
        session_id: str,
        limits: SessionLimits,
        wake: Callable[[Parking], None],
        set_paused: Callable[["SessionQueue", bool], None],
        call_later: Callable[..., Any],
    ) -> None:
        self.session_id = session_id
        self.limits = limits
        self.items: deque[RoutedMessage] = deque()
        self.bytes = 0
        self.most_events = 0
        self.read = 0
        self.dropped = 0
        self._max_events = limits.events
        self._max_bytes = limits.bytes
        self._mark = 0  # the most there ever were, up to the limit: more than that is news
        self.end: BullpenError | None = None  # why nothing more will come
        self.has_channel = False  # whether there is anybody who could read it
        self.handler_task: asyncio.Task[Any] | None = None
        self._wake = wake
        self._set_paused = set_paused
        self._call_later = call_later
        self._parking = Parking(asyncio.get_running_loop())
        self._reader: Parking | None = None  # the parking, while somebody waits there
        self._grace: Any = None
        self._is_paused = False
        self._join_events = self._join_bytes = 0  # with so much, joining is worth its cost

    def put(self, message: RoutedMessage) -> None:
        """Queue a message. Called in the reader, in wire order."""
        if self.end is not None:
            self.dropped += 1
            return
        items = self.items
        items.append(message)
        self.bytes += message.size
        if len(items) > self._mark:
            self._mark = len(items)
            if len(items) > self.most_events:
                self.most_events = len(items)
            if len(items) > self._max_events:
                self._mark = self._max_events
                self._overflow()
        if self.bytes > self._max_bytes:
            self._overflow()
        if self._reader is not None:
            self._wake(self._reader)
            self._reader = None

    def pop(self) -> RoutedMessage:
        """Take the oldest message; there must be one."""
        message = self.items.popleft()
        self.bytes -= message.size
        self.read += 1
        if self._grace is not None or self._is_paused:
            self._recover()
        return message

    def take(self) -> Iterator[RoutedMessage]:
        """Take all that is queued, to go through it without a call for each."""
        items, self.items = self.items, deque()
        self.read += len(items)
        self.bytes = 0
        if self._grace is not None or self._is_paused:
            self._recover()
        return iter(items)

    def put_back(self, taken: Iterator[RoutedMessage]) -> None:
        """Give back what was taken and not gone through."""
        rest = deque(taken)
        if rest:
            self.read -= len(rest)
            self.bytes += sum(message.size for message in rest)
            rest.extend(self.items)
            self.items = rest

    def check_reader(self) -> None:
        """Refuse a second reader, and the session's handler as a reader of itself.

        Raises:
            WouldDeadlock, SessionBusy
        """
        if self.handler_task is not None:
            if self.handler_task is asyncio.current_task():
                raise WouldDeadlock(self.session_id)
            raise SessionBusy(self.session_id)
        parking = self._parking
        if parking.wake is not None and not parking.is_done:
            raise SessionBusy(self.session_id)

    def next(self) -> Parking:
        """Return where to wait for a message; there must be none now.

        Raises:
            BullpenError: there will be none; what was queued has been read.
        """
        parking = self._parking
        if parking.wake is not None and not parking.is_done:
            raise SessionBusy(self.session_id)  # also when who waits was called and is to come yet
        if self.end is not None:
            raise _again(self.end)
        if parking.is_done:  # the wait there was cancelled
            self._parking = parking = Parking(asyncio.get_running_loop())
        self._reader = parking
        return parking

    def finish(self, error: BullpenError) -> None:
        """Say why nothing more will come; what is queued can still be read."""
        if self.end is None:
            self.end = error
            self._cancel_grace()
            if self._is_paused:
                self._is_paused = False
                self._set_paused(self, False)
            if self._reader is not None:
                self._reader.resume_soon()
                self._reader = None

    def discard(self) -> None:
        """Forget what is queued; requests among it are answered as dropped."""
        self.items.clear()
        self.bytes = 0

    def stats(self) -> SessionStats:
        return SessionStats(
            queued_events=len(self.items),
            queued_bytes=self.bytes,
            most_queued_events=self.most_events,
            delivered=self.read + len(self.items),
            dropped=self.dropped,
        )

    def _overflow(self) -> None:
        limits = self.limits
        if limits.overflow is Overflow.PAUSE and self.has_channel:
            if not self._is_paused:
                self._is_paused = True
                self._set_paused(self, True)
            return
        if limits.overflow is Overflow.COALESCE and (
            len(self.items) >= self._join_events or self.bytes >= self._join_bytes
        ):
            self._coalesce()
            # Not again before there is a good deal more, for it goes through all that is queued.
            self._join_events = len(self.items) + max(limits.events // 8, 1)
            self._join_bytes = self.bytes + max(limits.bytes // 8, 1)
        is_over = len(self.items) > limits.events or self.bytes > limits.bytes
        if len(self.items) > 2 * limits.events or self.bytes > 2 * limits.bytes:
            self._give_up()
        elif is_over and self._grace is None and limits.overflow is not Overflow.PAUSE:
            self._grace = self._call_later(limits.grace_seconds, self._give_up)

    def _give_up(self) -> None:
        self.finish(SlowConsumer(self.session_id, len(self.items), self.bytes))

    def _coalesce(self) -> None:
        """Join the pieces of text that stand side by side: fewer events, the same text."""
        joined: deque[RoutedMessage] = deque()
        run: list[SessionEvent] = []
        for item in self.items:
            is_piece = item.__class__ is SessionEvent and item.text is not UNSET
            if run and not (is_piece and item.message_id == run[0].message_id):  # type: ignore[union-attr]
                joined.append(_join(run))
                run = []
            if is_piece:
                run.append(item)  # type: ignore[arg-type]
            else:
                joined.append(item)
        if run:
            joined.append(_join(run))
        self.items = joined
        self.bytes = sum(item.size for item in joined)

    def _recover(self) -> None:
        limits = self.limits
        if self._is_paused:
            if len(self.items) <= limits.events // 2 and self.bytes <= limits.bytes // 2:
                self._is_paused = False
                self._set_paused(self, False)
        elif len(self.items) <= limits.events and self.bytes <= limits.bytes:
            self._cancel_grace()

    def _cancel_grace(self) -> None:
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None


class SessionChannel(Closable):
    """One session. Use it with `async with`, which ends the session at the other side too.

    A channel nobody refers to any more lets go of its session by itself, as a safety net.
    """

    def __init__(self, router: "MessageRouter", queue: SessionQueue, permit: Permit | None) -> None:
        self.session_id = queue.session_id
        self.router = router
        self._queue = queue
        queue.has_channel = True
        self._permit = permit
        self._turn = Turn()
        self._drain_seconds = 0.0  # how long the end of a turn given up may still take
        self._finalizer = weakref.finalize(self, router.drop, queue)
        self._finalizer.atexit = False

    def __repr__(self) -> str:
        state = "OPEN" if self._queue.end is None else f"ENDED: {self._queue.end}"
        return f"<SessionChannel {self.session_id!r} {state}, {len(self._queue.items)} queued>"

    def stats(self) -> SessionStats:
        """Return the session's figures."""
        return self._queue.stats()

    async def recv(self) -> RoutedMessage:
        """Return the next message of this session.

        Raises:
            RouterStopped: the connection ended; all that had arrived has been returned.
            SlowConsumer: so much was queued for so long that the session was given up.
            SessionEnded: it was closed here.
            SessionBusy: somebody else is reading it.
            WouldDeadlock: called inside the session's own handler.
        """
        queue = self._queue
        queue.check_reader()
        while not queue.items:
            await queue.next()
        return queue.pop()

    async def consume(self, handler: Callable[[RoutedMessage], object]) -> None:
        """Call a handler with one message after the other until the session ends.

        Raises:
            BullpenError: why it ended, unless it was closed here.
        """
        queue = self._queue
        queue.check_reader()
        while True:
            while not queue.items:
                try:
                    await queue.next()
                except SessionEnded:
                    return
            message = queue.pop()
            queue.handler_task = asyncio.current_task()
            try:
                outcome = handler(message)
                if inspect.isawaitable(outcome):
                    await outcome
            finally:
                queue.handler_task = None

    async def read_streaming(self, on_chunk: OnChunk | None = None) -> str:
        """Read until the turn has ended; return its whole text, having called with each piece.

        A tool the model calls meanwhile is answered as not available.

        Raises:
            SessionFailed: the peer reported an error for this session.
        """
        while True:
            outcome = await self._read(on_chunk)
            if isinstance(outcome, Idle):
                return outcome.text
            reason = f"{outcome.params.tool_name} is not available in this session"
            try:
                await self.answer_tool_call(outcome.call, error=reason)
            except BaseException:
                self.leave_turn()
                raise

    async def read_streaming_for_tools(self, on_chunk: OnChunk | None = None) -> StreamingOutcome:
        """Read until the turn has ended or waits for a tool.

        After the tool call is answered, call this again: the turn goes on.
        """
        return await self._read(on_chunk)

    async def read_streaming_with_cancellation(
        self, on_chunk: OnChunk | None, token: asyncio.Event
    ) -> Idle | Cancelled:
        """Read until the turn has ended or the token is set.

        When it is set, the turn is ended at the other side too, and what still comes of it is
        thrown away: the next turn begins clean.

        Raises:
            SessionFailed: the turn could not be ended; the session is of no more use.
        """
        reading = asyncio.ensure_future(self.read_streaming(on_chunk))
        waiting = asyncio.ensure_future(token.wait())
        try:
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                return Idle(reading.result())
            text = self._turn.text
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reading
            await self.settle()
            return Cancelled(text)
        finally:
            for work in (reading, waiting):
                work.cancel()
            await asyncio.gather(reading, waiting, return_exceptions=True)

    async def abort(self) -> None:
        """End the turn that runs, at the other side and here; the next one begins clean."""
        self.leave_turn()
        await self.settle()

    def leave_turn(self) -> None:
        """Give the turn up: tell the other side, without waiting; `settle` sees to what comes."""
        self._turn = Turn()
        if self._queue.end is None:
            self._drain_seconds = DRAIN_SECONDS
            self.router.post("session.abort", {"sessionId": self.session_id})

    async def settle(self) -> None:
        """Throw away what a given-up turn left behind, up to its end.

        Raises:
            SessionFailed: it does not end; the session is of no more use.
        """
        if not self._drain_seconds:
            return
        try:
            async with asyncio.timeout(self._drain_seconds):
                while True:
                    message = await self.recv()
                    await self._refuse(message, "the turn was cancelled")
                    if isinstance(message, SessionEvent) and is_turn_end(message):
                        break
        except TimeoutError:
            if self._drain_seconds != ERROR_DRAIN_SECONDS:
                failure = SessionFailed(self.session_id, "the turn did not end when aborted")
                self._queue.finish(failure)
                self._queue.discard()
                raise failure from None
        self._drain_seconds = 0.0

    async def answer_tool_call(
        self, call: ToolCall, result: Any = None, *, error: str | None = None
    ) -> None:
        """Give the model the result of a tool, or the reason why there is none."""
        await self.router.answer_tool_call(call, result, error=error)

    async def aclose(self) -> None:
        """End the session at both sides. Idempotent; the other side gets a bounded time."""
        if self._finalizer.detach() is not None:
            await self.router.end_session(self._queue)

    async def _read(self, on_chunk: OnChunk | None) -> StreamingOutcome:
        await self.settle()
        queue, turn = self._queue, self._turn
        pieces = turn.pieces
        queue.check_reader()
        try:
            while True:
                while not queue.items:
                    await queue.next()
                taken: Iterator[RoutedMessage] | None = queue.take()
                try:
                    for message in taken:  # type: ignore[union-attr]
                        if message.__class__ is SessionEvent:
                            if (text := message.text) is not UNSET:
                                pieces.append(text)
                                if message.message_id != turn.streaming:
                                    turn.begin_message(message.message_id)
                                if on_chunk is not None:
                                    on_chunk(text)
                            elif self._end_turn(turn, message, on_chunk):
                                return Idle(turn.text)
                        elif isinstance(message, ToolCall):
                            return PendingToolCall(turn.text, message)
                        else:
                            await self._decide(message)
                    taken = None
                finally:
                    if taken is not None:
                        queue.put_back(taken)
        except SessionBusy:
            raise  # the turn is another's to read
        except SessionFailed:
            self._turn = Turn()
            self._drain_seconds = ERROR_DRAIN_SECONDS
            raise
        except BaseException:  # cancelled, most likely
            self.leave_turn()
            raise

    def _end_turn(self, turn: Turn, event: SessionEvent, on_chunk: OnChunk | None) -> bool:
        """Take an event that is no delta; return whether it ends the turn."""
        piece = turn.complete(event)
        if piece and on_chunk is not None:
            on_chunk(piece)
        if event.event_type == ERROR:
            raise self._failure(event)
        if is_turn_end(event):
            self._turn = Turn()
            return True
        return False

    def _failure(self, event: SessionEvent) -> SessionFailed:
        message = event.data.get("message")
        return SessionFailed(self.session_id, message if isinstance(message, str) else "error")

    async def _decide(self, message: RoutedMessage) -> None:
        if isinstance(message, PermissionRequest) and self._permit is not None:
            decision = self._permit(message)
            if inspect.isawaitable(decision):
                decision = await decision
            await self.router.answer_permission(self.session_id, message, allow=bool(decision))
        else:
            await self._refuse(message, "nobody is there to decide")

    async def _refuse(self, message: RoutedMessage, reason: str) -> None:
        if isinstance(message, ToolCall):
            await self.answer_tool_call(message, error=reason)
        elif isinstance(message, PermissionRequest):
            await self.router.answer_permission(
                self.session_id, message, allow=False, feedback=reason
            )
        elif isinstance(message, SessionRequest) and message.responder is not None:
            text = f"Method not found: {message.method}"
            message.responder.fail(RpcError(METHOD_NOT_FOUND, text, {"method": message.method}))


def _join(run: list[SessionEvent]) -> SessionEvent:
    first = run[0]
    if len(run) == 1:
        return first
    text = "".join(event.text for event in run)  # type: ignore[misc]
    # One event's worth of envelope, and the text of all of them.
    size = first.size + len(text.encode(errors="surrogatepass"))
    return msgspec.structs.replace(first, text=text, size=size)


def _again(error: BullpenError) -> BullpenError:
    """Return an error of the same kind and facts: one instance must not be raised twice."""
    copy = error.__class__.__new__(error.__class__)
    copy.args = error.args
    copy.__dict__.update(error.__dict__)
    copy.__cause__ = error.__cause__
    return copy
