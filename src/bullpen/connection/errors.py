"""What can go wrong with a connection, its transport and the sessions routed over it.

BullpenError
├── ConnectionClosed          the connection is closed; `cause` says why, first cause first
├── RequestTimeout            the peer did not answer in time; the connection is fine
├── SlowConsumer              somebody did not read what was delivered
├── WouldDeadlock             a handler waits for what only its own return could deliver
├── TransportError            messages cannot be moved
│   ├── TransportReused       a transport was to be used a second time
│   ├── TransportClosed       the other end is gone
│   │   └── ProcessExited     ... because its process ended
│   ├── SendBufferFull        the peer does not read
│   ├── AddressError          an address nobody can connect to
│   └── StartError            a server process did not come up
│       ├── CommandNotFound
│       ├── ExitedEarly
│       ├── BadPortLine
│       └── StartTimeout
└── RouterError               a session cannot go on
    ├── RouterStopped         ... because the connection under it ended
    ├── SessionCreateTimeout  ... because it never began
    ├── SessionExists         ... because its id is taken
    ├── SessionEnded          ... because it was closed here
    ├── SessionFailed         ... because the peer reported an error for it
    └── SessionBusy           somebody else is reading it
"""

from bullpen.errors import BullpenError

__all__ = [
    "AddressError",
    "BadPortLine",
    "CommandNotFound",
    "ConnectionClosed",
    "ExitedEarly",
    "ProcessExited",
    "RequestTimeout",
    "RouterError",
    "RouterStopped",
    "SendBufferFull",
    "SessionBusy",
    "SessionCreateTimeout",
    "SessionEnded",
    "SessionExists",
    "SessionFailed",
    "SlowConsumer",
    "StartError",
    "StartTimeout",
    "TransportClosed",
    "TransportError",
    "TransportReused",
    "WouldDeadlock",
]


class ConnectionClosed(BullpenError):
    """The connection is closed. What had arrived before has been delivered; nothing more will.

    `cause` is the first thing that went wrong, or None after a close of our own.
    """

    def __init__(self, cause: BaseException | None = None) -> None:
        super().__init__(f"connection closed: {cause}" if cause else "connection closed")
        self.cause = cause


class RequestTimeout(BullpenError):
    """The peer did not answer in time. A late answer is dropped; other requests go on."""

    def __init__(self, method: str, timeout_seconds: float) -> None:
        super().__init__(f"no answer to {method!r} within {timeout_seconds:g} s")
        self.method = method
        self.timeout_seconds = timeout_seconds


class SlowConsumer(BullpenError):
    """Messages arrived faster than they were read, for longer than allowed.

    What was queued has been delivered first; what came after is lost, and this says so.
    """

    def __init__(self, key: str, queued_events: int, queued_bytes: int) -> None:
        super().__init__(
            f"{key}: {queued_events} messages ({queued_bytes} bytes) were not read in time"
        )
        self.key = key
        self.events = queued_events
        self.bytes = queued_bytes


class WouldDeadlock(BullpenError):
    """A handler waits for a message that is delivered only after the handler returned."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key}: the handler of this session cannot wait for its next message")
        self.key = key


class TransportError(BullpenError):
    """Messages cannot be moved."""


class TransportReused(TransportError):
    """A transport owns its resources and serves one connection. Make a new one."""

    def __init__(self, transport: object) -> None:
        super().__init__(f"{type(transport).__name__} has been used already")


class TransportClosed(TransportError):
    """The other end is gone."""


class ProcessExited(TransportClosed):
    """The process at the other end ended: with which status, and what it said last."""

    def __init__(self, command: str, status: int | None, stderr_tail: str) -> None:
        ended = "has not ended" if status is None else _status_words(status)
        tail = f": {stderr_tail.strip()}" if stderr_tail.strip() else ""
        super().__init__(f"{command} {ended}{tail}")
        self.command = command
        self.status = status
        self.stderr_tail = stderr_tail


class SendBufferFull(TransportError):
    """The peer does not read, and enough waits for it already. Nothing was sent."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"more than {limit} bytes wait to be read by the peer")
        self.limit = limit


class AddressError(TransportError):
    """Nobody can be reached at this address."""

    def __init__(self, address: str, reason: object) -> None:
        super().__init__(f"{address}: {reason}")
        self.address = address


class StartError(TransportError):
    """A server process did not come up. Nothing of it is left running."""


class CommandNotFound(StartError):
    """There is no such program, or it may not be run."""

    def __init__(self, command: str, reason: object) -> None:
        super().__init__(f"cannot run {command!r}: {reason}")
        self.command = command


class ExitedEarly(StartError):
    """The server ended before it was ready."""

    def __init__(self, exited: ProcessExited) -> None:
        super().__init__(f"{exited} before it was ready")
        self.status = exited.status
        self.stderr_tail = exited.stderr_tail


class BadPortLine(StartError):
    """The server's first words did not name a port."""

    def __init__(self, line: str) -> None:
        super().__init__(f"no port in {line!r}")
        self.line = line


class StartTimeout(StartError):
    """The server did not get ready in time."""

    def __init__(self, command: str, timeout_seconds: float) -> None:
        super().__init__(f"{command} was not ready within {timeout_seconds:g} s")
        self.command = command
        self.timeout_seconds = timeout_seconds


class RouterError(BullpenError):
    """A session cannot go on."""


class RouterStopped(RouterError):
    """The connection under all sessions ended; `cause` is the first thing that went wrong."""

    def __init__(self, cause: BaseException | None = None) -> None:
        super().__init__(f"router stopped: {cause}" if cause else "router stopped")
        self.cause = cause


class SessionCreateTimeout(RouterError):
    """The server did not create the session in time. Should it do so later, it is destroyed."""

    def __init__(self, timeout_seconds: float) -> None:
        super().__init__(f"no session within {timeout_seconds:g} s")
        self.timeout_seconds = timeout_seconds


class SessionExists(RouterError):
    """A session of this id is open here already; it is untouched."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} is open already")
        self.session_id = session_id


class SessionEnded(RouterError):
    """The session was closed on this side."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} is closed")
        self.session_id = session_id


class SessionFailed(RouterError):
    """The peer reported an error for this session. Other sessions go on, and so may this one."""

    def __init__(self, session_id: str, message: str) -> None:
        super().__init__(f"session {session_id!r}: {message}")
        self.session_id = session_id
        self.message = message


class SessionBusy(RouterError):
    """Somebody else is reading this session; a message goes to one reader only."""

    def __init__(self, session_id: str) -> None:
        super().__init__(f"session {session_id!r} is being read already")
        self.session_id = session_id


def _status_words(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
