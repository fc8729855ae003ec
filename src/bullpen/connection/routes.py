"""Which session a message belongs to, decided in the reader for every message there is.

A route leads to a session's queue. What comes for a session nobody knows is held for a moment while
a session is in the making, for it may be that one's; otherwise events are counted and requests are
answered: no peer waits for a session that is gone.
"""

from collections import OrderedDict

from bullpen.connection.channel import SessionQueue
from bullpen.connection.connection import Connection
from bullpen.connection.context import Context
from bullpen.connection.errors import RouterStopped, SlowConsumer
from bullpen.connection.parking import Parking
from bullpen.connection.routed import (
    DELTA,
    SESSION_EVENT,
    RoutedMessage,
    SessionEvent,
    read_event,
    read_head,
    read_request,
    read_session_id,
)
from bullpen.jsonrpc.errors import INVALID_PARAMS, RpcError
from bullpen.jsonrpc.wire import Message, Notification, Request

__all__ = ["UNKNOWN_SESSION", "Routes"]

UNKNOWN_SESSION = -32003
HELD_SESSIONS = 256  # sessions a server may speak of while it has not told us their ids
HELD_MESSAGES = 1000  # of each
HELD_BYTES = 32 * 2**20  # of all of them, as much as one session may queue


class _Held:
    """What came for a session that is not known here, and may be known in a moment."""

    def __init__(self) -> None:
        self.messages: list[RoutedMessage] = []
        self.bytes = 0
        self.is_cut = False  # whether it was more than can be held


class Routes:
    """The routes of one connection. The connection holds these, and never the router.

    So a router nobody holds any more can be noticed, and its server ended.
    """

    def __init__(self) -> None:
        self.queues: dict[str, SessionQueue] = {}
        self.held: OrderedDict[str, _Held] = OrderedDict()
        self.held_bytes = 0
        self.creates = 0  # how many are in flight; only then may unknown sessions be ours
        self.orphans: dict[int, None] = {}
        self.paused: set[SessionQueue] = set()
        self.ended_events = 0
        self.unknown_events = 0
        self.refused_requests = 0
        self.connection: Connection | None = None
        self.end: RouterStopped | None = None

    def route(self, message: Message, context: Context | None, size: int) -> bool:
        """Take what belongs to a session. Runs in the reader, for every message."""
        if context is None and message.method == SESSION_EVENT:  # type: ignore[union-attr]
            params = message.params  # type: ignore[union-attr]
            if params.__class__ is tuple:  # as `decode_session_frame` has it
                head, params = params
            elif (head := read_head(params)) is None:
                self.unknown_events += 1
                return True
            event = head.event
            data = event.data
            if data and event.type == DELTA:
                routed: RoutedMessage = SessionEvent(
                    DELTA, params, data.deltaContent, data.messageId, size
                )
            else:
                routed = read_event(head, params, size)
            queue = self.queues.get(head.sessionId)
            if queue is not None:
                queue.put(routed)
            else:
                self._hold(head.sessionId, routed)
            return True
        if context is None:
            return self._route_notification(message, size)  # type: ignore[arg-type]
        return self._route_request(message, context, size)  # type: ignore[arg-type]

    def wake(self, parked: Parking) -> None:
        if self.connection is not None:
            self.connection.wake(parked)

    def set_paused(self, queue: SessionQueue, is_paused: bool) -> None:
        if self.connection is None:
            return
        if is_paused:
            self.paused.add(queue)
            self.connection.pause_reading()
        else:
            self.paused.discard(queue)
            if not self.paused:
                self.connection.resume_reading()

    def stop(self, cause: BaseException | None) -> None:
        """Tell every session that nothing more will come."""
        if self.end is None:
            self.end = RouterStopped(cause)
            self.end.__cause__ = cause
            for queue in list(self.queues.values()):
                queue.finish(self.end)
                self.forget(queue)
            self.held.clear()
            self.held_bytes = 0
            self.orphans.clear()

    def adopt(self, queue: SessionQueue) -> None:
        """Give a session its route, and what had come for it before."""
        self.queues[queue.session_id] = queue
        held = self.held.pop(queue.session_id, None)
        if held is not None:
            self.held_bytes -= held.bytes
            for routed in held.messages:
                queue.put(routed)
            if held.is_cut:  # what comes now does not follow on what there is
                queue.finish(SlowConsumer(queue.session_id, len(queue.items), queue.bytes))

    def forget(self, queue: SessionQueue) -> bool:
        """Take a session's route away; return whether it had one."""
        if self.queues.get(queue.session_id) is not queue:
            return False
        del self.queues[queue.session_id]
        self.ended_events += queue.read + len(queue.items)
        return True

    def creating(self, by: int) -> None:
        """Count the creates in flight; when the last is over, what is held belongs to nobody."""
        self.creates += by
        if not self.creates:
            while self.held:
                self._release_oldest()

    def _hold(self, session_id: str, routed: RoutedMessage) -> None:
        """Keep a message for a session that may be in the making; the oldest have to yield."""
        if not self.creates:
            self.unknown_events += 1
            return
        held = self.held.get(session_id)
        if held is None:
            held = self.held[session_id] = _Held()
        if held.is_cut or len(held.messages) >= HELD_MESSAGES or held.bytes > HELD_BYTES:
            held.is_cut = True
            self.unknown_events += 1
            return
        held.messages.append(routed)
        held.bytes += routed.size
        self.held_bytes += routed.size
        while len(self.held) > 1 and (
            len(self.held) > HELD_SESSIONS or self.held_bytes > HELD_BYTES
        ):
            self._release_oldest()

    def _release_oldest(self) -> None:
        _, held = self.held.popitem(last=False)
        self.held_bytes -= held.bytes
        self.unknown_events += len(held.messages)

    def _route_notification(self, message: Notification, size: int) -> bool:
        session_id = read_session_id(message)
        queue = self.queues.get(session_id) if session_id is not None else None
        if queue is None:
            return False
        queue.put(SessionEvent(message.method, message.params, size=size))
        return True

    def _route_request(self, message: Request, context: Context, size: int) -> bool:
        session_id = read_session_id(message)
        if session_id is None:
            return False
        queue = self.queues.get(session_id)
        if queue is None and not self.creates:
            self.refused_requests += 1
            text = f"no session {session_id!r} is open here"
            context.fail(RpcError(UNKNOWN_SESSION, text, {"sessionId": session_id}))
            return True
        try:
            routed = read_request(message, context.detach(), size)
        except (ValueError, RecursionError) as error:  # of which ValidationError is one
            self.refused_requests += 1
            context.fail(RpcError(INVALID_PARAMS, f"Invalid params: {error}"))
            return True
        if queue is not None:
            queue.put(routed)
        else:
            self._hold(session_id, routed)
        return True
