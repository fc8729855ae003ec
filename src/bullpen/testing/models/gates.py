"""Holding an answer back: for a time, until a gate is released, until the client has left.

A thread that holds an answer must wake at once for three different reasons. So it waits in a
selector on two sockets: the client's, which becomes readable when the client leaves, and one end of
a pair whose other end is written to when a gate is released. Nothing polls, and no test has to
sleep to be sure.
"""

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterator
from enum import Enum

__all__ = ["Gates", "Held"]


class Held(Enum):
    """How a hold came to its end."""

    TIME_PASSED = "time passed"
    RELEASED = "released"
    CLIENT_LEFT = "client left"


class Gates:
    """The gates of one server. A gate once released stays open."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._released: set[str] = set()
        self._wakers: set[socket.socket] = set()

    def release(self, name: str) -> None:
        """Open a gate for those who wait at it and those who will come."""
        with self._lock:
            self._released.add(name)
            for waker in self._wakers:
                with contextlib.suppress(BlockingIOError):  # full of wake-ups not yet noticed
                    waker.send(b"\0")

    def hold(self, client: socket.socket, seconds: float, gate: str | None = None) -> Held:
        """Block until the gate is released, the client has left, or the time has passed."""
        deadline = time.monotonic() + seconds
        # not the default selector: epoll would cost every stream one more descriptor
        with self._waker() as wake, selectors.PollSelector() as selector:
            selector.register(wake, selectors.EVENT_READ)
            selector.register(client, selectors.EVENT_READ)
            while True:
                if gate is not None and self._is_released(gate):
                    return Held.RELEASED
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return Held.TIME_PASSED
                ready = [key.fileobj for key, _ in selector.select(remaining)]
                if client in ready:
                    if _has_left(client):
                        return Held.CLIENT_LEFT
                    selector.unregister(client)  # it has sent more; that is read later
                if wake in ready:
                    wake.recv(4096)

    def _is_released(self, name: str) -> bool:
        with self._lock:
            return name in self._released

    @contextlib.contextmanager
    def _waker(self) -> Iterator[socket.socket]:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.setblocking(False)
            with self._lock:
                self._wakers.add(theirs)
            try:
                yield ours
            finally:
                with self._lock:
                    self._wakers.discard(theirs)


def _has_left(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK) == b""
    except OSError:
        return True
