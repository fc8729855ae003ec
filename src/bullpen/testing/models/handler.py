"""One connection to the fake model server: reads requests, performs turns, minds who leaves.

This is where the pure modules meet the socket. A handler runs in a thread of its own for as long as
its connection lasts; what it shares with others is in the `Stage`.
"""

import contextlib
import itertools
import json
import logging
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol, cast
from urllib.parse import unquote

from bullpen.testing.models.answer import Fitted, fit, improvise
from bullpen.testing.models.body import decode_json, read_body, unpack
from bullpen.testing.models.conversation import Conversation, Incoming, Json
from bullpen.testing.models.dialect import Dialect, openai_error
from bullpen.testing.models.errors import RequestRefused
from bullpen.testing.models.gates import Gates, Held
from bullpen.testing.models.record import Outcome, Record
from bullpen.testing.models.routes import dialect_of, fixed_answer, gate_of
from bullpen.testing.models.rules import Rules
from bullpen.testing.models.script import (
    LONGEST_SLEEP_SECONDS,
    Control,
    Fail,
    FailStream,
    Hang,
    Sleep,
    Turn,
    Wait,
)

__all__ = ["Handler", "Stage"]

IDLE_SECONDS = 600.0  # longer than any program keeps an unused connection

logger = logging.getLogger(__name__)


@dataclass
class Stage:
    """What the connections of one server share."""

    record: Record
    gate_timeout_seconds: float
    rules: Rules = field(default_factory=Rules)
    gates: Gates = field(default_factory=Gates)
    is_closing: threading.Event = field(default_factory=threading.Event)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    # a session may be resumed with another server, whose identifiers must not repeat ours
    series: str = field(default_factory=lambda: secrets.token_hex(4))

    def mint(self, prefix: str) -> str:
        """Return a new identifier."""
        return f"{prefix}_{self.series}{next(self.numbers):06}"


class _Staged(Protocol):
    stage: Stage


class _Dropped(Exception):
    """The connection is to be dropped, with this to be said of the request."""

    def __init__(self, outcome: Outcome, note: str = "") -> None:
        super().__init__(note)
        self.outcome = outcome
        self.note = note


class Handler(BaseHTTPRequestHandler):
    """Serves one connection."""

    protocol_version = "HTTP/1.1"
    server_version = "bullpen"
    disable_nagle_algorithm = True  # an event is small, and wanted at once
    timeout = IDLE_SECONDS

    def setup(self) -> None:
        """Prepare the connection."""
        super().setup()
        self._stage = cast("_Staged", self.server).stage
        self._dialect: Dialect | None = None

    def handle(self) -> None:
        """Serve requests until the connection ends."""
        with contextlib.suppress(ConnectionError, TimeoutError):  # between two requests
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - http.server's name
        """Print nothing; the record has it all."""

    def do_HEAD(self) -> None:
        """Answer as to GET, without the body."""
        self._serve()

    def do_GET(self) -> None:
        """Answer what needs no model."""
        self._serve()

    def do_POST(self) -> None:
        """Answer as a model."""
        self._serve()

    # -- one request

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._dialect = None
        self._has_begun = False  # to stream: too late for an error of HTTP
        self._request = self._stage.record.add(self.command, self.path, headers)
        try:
            self._answer(headers)
        except RequestRefused as refusal:
            self.close_connection = True  # what is left of the body may follow
            self._note(outcome=Outcome.REFUSED, note=refusal.reason)
            self._send_error(refusal.status, refusal.reason)
        except _Dropped as dropped:
            self._note(outcome=dropped.outcome, note=dropped.note, gate="")
            self._drop()
        except (ConnectionError, TimeoutError):
            self._note(outcome=self._departure())
            self._drop()
        except Exception as error:  # a predicate of a test raised, or we did: tell both sides
            logger.exception("cannot answer %s %s", self.command, self.path)
            self._note(outcome=Outcome.REFUSED, note=repr(error))
            if self._has_begun:
                self._drop()
            else:
                self.close_connection = True
                self._send_error(500, f"the fake model server failed: {error!r}")

    def _answer(self, headers: dict[str, str]) -> None:
        data = read_body(self.rfile, headers)  # before all else, or it would follow the answer
        self._dialect = dialect_of(self.path) if self.command == "POST" else None
        body = decode_json(unpack(data, headers.get("content-encoding", "")))
        if self._dialect is None:
            self._note(body=body)
            self._answer_without_model(headers)
            return
        conversation = self._dialect.read(Incoming(self.path.partition("?")[0], headers, body))
        self._note(body=body, dialect=self._dialect.name, conversation=conversation)
        turn = self._stage.rules.turn_for(self._request) or improvise(conversation)
        self._perform_turn(turn, self._dialect, conversation)

    def _answer_without_model(self, headers: dict[str, str]) -> None:
        gate = gate_of(self.path) if self.command == "POST" else None
        if gate is not None:
            self._stage.gates.release(unquote(gate))
            answer: Json | None = {"released": unquote(gate)}
        else:
            answer = fixed_answer(self.command, self.path, headers)
        if answer is None:
            raise RequestRefused(404, f"this server has no {self.command} {self.path}")
        self._note(outcome=Outcome.ANSWERED)
        self._send_json(200, answer)

    # -- one turn

    def _perform_turn(self, turn: Turn, dialect: Dialect, conversation: Conversation) -> None:
        failure = turn.steps[-1] if turn.steps and isinstance(turn.steps[-1], Fail) else None
        for step in turn.steps:
            if isinstance(step, Sleep | Wait) and (step.before_headers or failure):
                self._perform(step)
        if failure:
            self._fail(failure.status, failure.message or f"scripted error {failure.status}")
        elif conversation.is_streaming:
            self._stream(fit(turn, conversation), dialect, conversation)
        else:
            self._answer_at_once(fit(turn, conversation), dialect, conversation)

    def _stream(
        self, steps: Sequence[Fitted], dialect: Dialect, conversation: Conversation
    ) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("cache-control", "no-cache")
        self.send_header("request-id", self._stage.mint("req"))
        is_chunked = self.request_version != "HTTP/1.0"
        if is_chunked:
            self.send_header("transfer-encoding", "chunked")
        else:
            self.close_connection = True
        self.end_headers()
        self._has_begun = True
        # One frame is kept back: the outcome is on record before the client can have seen the end.
        kept = b""
        for item in dialect.frames(steps, conversation, self._stage.mint):
            if isinstance(item, bytes):
                self.wfile.write(kept)
                kept = b"%x\r\n%b\r\n" % (len(item), item) if is_chunked else item
            else:
                self.wfile.write(kept)
                kept = b""
                self._perform(item)
        self._note(outcome=Outcome.FAILED if _breakage(steps) else Outcome.ANSWERED)
        self.wfile.write(kept + (b"0\r\n\r\n" if is_chunked else b""))

    def _answer_at_once(
        self, steps: Sequence[Fitted], dialect: Dialect, conversation: Conversation
    ) -> None:
        for item in dialect.frames(steps, conversation, self._stage.mint):
            if not isinstance(item, bytes):
                self._perform(item)  # it takes as long as the stream would
        if breakage := _breakage(steps):
            self._fail(500, "scripted stream error", breakage.kind)
            return
        document = dialect.document(steps, conversation, self._stage.mint)
        self._note(outcome=Outcome.ANSWERED)
        self._send_json(200, document)

    def _perform(self, control: Control) -> None:
        match control:
            case Sleep(seconds):
                self._hold(seconds)
            case Wait(gate):
                self._wait_at(gate)
            case Hang():
                self._hold(LONGEST_SLEEP_SECONDS)
                raise _Dropped(Outcome.CUT, "it hung for too long")
            case _:
                raise _Dropped(Outcome.CUT)

    def _wait_at(self, gate: str) -> None:
        self._note(gate=gate)
        held = self._hold(self._stage.gate_timeout_seconds, gate)
        self._note(gate="")
        if held is Held.TIME_PASSED:
            reason = f"gate {gate!r} was not released in {self._stage.gate_timeout_seconds:g} s"
            logger.warning("%s, the connection is dropped", reason)
            raise _Dropped(Outcome.GATE_TIMEOUT, reason)

    def _hold(self, seconds: float, gate: str | None = None) -> Held:
        held = self._stage.gates.hold(self.connection, seconds, gate)
        if held is Held.CLIENT_LEFT:
            raise _Dropped(self._departure())
        return held

    # -- what goes out

    def _fail(self, status: int, message: str, kind: str = "") -> None:
        self._note(outcome=Outcome.FAILED)
        self._send_error(status, message, kind)

    def _send_error(self, status: int, message: str, kind: str = "") -> None:
        describe = self._dialect.error if self._dialect else openai_error
        with contextlib.suppress(ConnectionError, TimeoutError):
            self._send_json(status, describe(status, message, kind))

    def _send_json(self, status: int, value: Json) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.send_header("request-id", self._stage.mint("req"))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _drop(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    # -- what is remembered

    def _note(self, **changes: Any) -> None:
        self._request = self._stage.record.update(self._request, **changes)

    def _departure(self) -> Outcome:
        closing = self._stage.is_closing.is_set()
        return Outcome.SERVER_CLOSED if closing else Outcome.CLIENT_LEFT


def _breakage(steps: Sequence[Fitted]) -> FailStream | None:
    return next((step for step in steps if isinstance(step, FailStream)), None)
