"""The fake model server, as a test holds it."""

import asyncio
import contextlib
import logging
import selectors
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from bullpen.testing.models.handler import Handler, Stage
from bullpen.testing.models.record import Record, Request
from bullpen.testing.models.rules import Match, Rule, matches, script_of
from bullpen.testing.models.script import Step, Turn

__all__ = ["ModelServer"]

LOOPBACK = "127.0.0.1"
RECORDED_REQUESTS = 256  # the body of one can be a quarter of a megabyte
GATE_TIMEOUT_SECONDS = 60.0
WAIT_SECONDS = 10.0
CLOSE_SECONDS = 1.0

logger = logging.getLogger(__name__)


class ModelServer:
    """Every model API at once, on one loopback port, answering as it is told.

        with ModelServer() as server:
            server.script("hello", Turn(Shell("ls")), Turn(Say("done")))
            ...                              # start a program with server.url as its model API
            server.wait_for_request("hello")

    It serves from threads of its own, so that blocking tests can use it. In a coroutine write
    `async with`, and `await asyncio.to_thread(server.wait_for_request, …)`; nothing else blocks.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        recorded_requests: int = RECORDED_REQUESTS,
        gate_timeout_seconds: float = GATE_TIMEOUT_SECONDS,
        on_change: Callable[[Request], None] | None = None,
    ) -> None:
        """Prepare a server; `open` it, or use it as a context manager.

        Args:
            port: 0 for any that is free.
            recorded_requests: how many requests are kept, the last ones.
            gate_timeout_seconds: how long an answer is held at a gate nobody releases.
            on_change: called with each request that arrives or changes, one at a time.
        """
        self._port = port
        self._stage = Stage(Record(recorded_requests, on_change), gate_timeout_seconds)
        self._listener: _Listener | None = None

    def open(self) -> Self:
        """Start to serve.

        Raises:
            OSError: the port is taken.
        """
        if self._listener is None:
            self._listener = _Listener(self._port, self._stage)
            self._port = self._listener.server_address[1]
            self._listener.start()
        return self

    def close(self) -> None:
        """Stop to serve: every connection is dropped, whatever it was waiting for."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.open)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.close)

    @property
    def port(self) -> int:
        """The port it listens on, once it is open."""
        return self._port

    @property
    def url(self) -> str:
        """Where it listens, without a path: `http://127.0.0.1:PORT`."""
        return f"http://{LOOPBACK}:{self._port}"

    def script(
        self,
        match: Match,
        *turns: Turn | Step | str,
        times: int | None = None,
        side_requests: bool = False,
    ) -> None:
        """Tell the model what to do when it is asked something.

        The newest rule that applies wins over older ones, and over a script in the prompt.

        Args:
            match: text in the prompt, a pattern to find there, or a predicate on the request.
            turns: what to do, one turn after the other; a lone step is a turn, and so is text
                in the grammar of scripts (`"bash ls ;; say done"` is two).
            times: how many requests it answers before it no longer applies; a program that
                tries again after an error then meets the next rule.
            side_requests: whether it is meant for requests the program makes on its own
                account, such as for a title. Those are otherwise answered without a rule.

        Raises:
            ScriptError: a text is no script.
        """
        rule = Rule(match, script_of(turns), times=times, for_side_requests=side_requests)
        self._stage.rules.add(rule)

    def release(self, gate: str) -> None:
        """Let go what is held by `Wait(gate)`, now and from now on."""
        self._stage.gates.release(gate)

    @property
    def requests(self) -> tuple[Request, ...]:
        """The last requests, oldest first, each as it is at this moment."""
        return self._stage.record.snapshot()

    def wait_for_request(self, match: Match, timeout_seconds: float = WAIT_SECONDS) -> Request:
        """Return the oldest request that matches, once there is one.

        Text and patterns look at prompts only. A predicate sees every request, each time
        something changes about it: `lambda request: request.gate == "here"`.

        Raises:
            RequestNotSeen: there was none in time; it tells what did arrive.
        """

        def is_meant(request: Request) -> bool:
            return (callable(match) or request.is_prompt) and matches(match, request)

        return self._stage.record.wait_for(is_meant, timeout_seconds)


class _Listener(socketserver.TCPServer):
    """Accepts connections, and knows them all so that it can end them."""

    allow_reuse_address = True
    request_queue_size = 128
    timeout = 0  # `handle_request` is called when there is one

    def __init__(self, port: int, stage: Stage) -> None:
        super().__init__((LOOPBACK, port), Handler)
        self.stage = stage
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._wake, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._accept, name="models-listener", daemon=True)

    def start(self) -> None:
        self.stage.is_closing.clear()
        self._thread.start()

    def _accept(self) -> None:
        # `serve_forever` would have to poll for its end
        with selectors.PollSelector() as selector:
            selector.register(self, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self.stage.is_closing.is_set():
                selector.select()
                self.handle_request()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own."""
        thread = threading.Thread(
            target=self._serve,
            args=(request, client_address),
            name="models-connection",
            daemon=True,  # a test that forgets to close must still be able to end
        )
        with self._lock:
            thread.start()
            self._connections[request] = thread

    def _serve(self, connection: socket.socket, client_address: Any) -> None:
        try:
            self.finish_request(connection, client_address)
        except Exception:  # a thread's boundary
            logger.exception("a connection failed")
        finally:
            self.shutdown_request(connection)
            with self._lock:
                self._connections.pop(connection)

    def close(self) -> None:
        self.stage.is_closing.set()
        self._waker.send(b"\0")
        self._thread.join(CLOSE_SECONDS)
        self.server_close()
        self._wake.close()
        self._waker.close()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):  # it has just ended by itself
                connection.shutdown(socket.SHUT_RDWR)
        deadline = time.monotonic() + CLOSE_SECONDS
        for thread in connections.values():
            thread.join(max(0.0, deadline - time.monotonic()))
