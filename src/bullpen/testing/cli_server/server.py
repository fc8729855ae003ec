"""The fake CLI server itself: what it was asked, what it answers, and what it holds back."""

import asyncio
import contextlib
import os
import random
import signal
import sys
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from bullpen.connection.connection import Connection
from bullpen.connection.context import Context
from bullpen.connection.errors import ConnectionClosed
from bullpen.connection.options import Limits
from bullpen.connection.transport import Transport
from bullpen.connection.transports.channel import channel_pair
from bullpen.jsonrpc.errors import INTERNAL_ERROR, METHOD_NOT_FOUND, RpcError
from bullpen.jsonrpc.wire import Notification, Request, decode_value
from bullpen.testing.cli_server.script import Script, ScriptError, Step, parse_script
from bullpen.testing.cli_server.session import COPILOT_VERSIONS, TIME, FakeSession

__all__ = ["Asked", "FakeCliServer", "Gate"]

WAIT_SECONDS = 5.0  # a test that waits this long for a request waits for ever
LIMITS = Limits(waiting_requests=1_000_000)  # it is the client that is tested

TransportPair = Callable[[], tuple[Transport, Transport]]


class Asked:
    """One request of the client's, to be answered once."""

    def __init__(
        self, server: "FakeCliServer", method: str, params: dict[str, Any], context: Context
    ) -> None:
        self.method = method
        self.params = params
        self.connection = context.connection
        self._server = server
        self._responder = context.detach()

    def __repr__(self) -> str:
        return f"<Asked {self.method} {self.params}>"

    @property
    def is_answered(self) -> bool:
        return self._responder.is_answered

    def respond(self, result: Any) -> None:
        """Answer with a result."""
        self._responder.respond(result)

    def fail(self, code: int, message: str) -> None:
        """Answer with an error."""
        self._responder.fail(RpcError(code, message))

    def proceed(self) -> None:
        """Do what the server does with such a request by itself."""
        self._server.perform(self)

    def open_session(self, session_id: str | None = None) -> FakeSession:
        """Make the session that a `session.create` asks for, without a word to the client."""
        return self._server.open_session(self, session_id)


class Gate:
    """Where the requests of one method wait for the test. Made by `FakeCliServer.hold`."""

    def __init__(self) -> None:
        self.waiting: deque[Asked] = deque()
        self.is_open = False
        self._changed = asyncio.Event()

    async def next(self) -> Asked:
        """Wait for the next request and take it; it is for the test to answer."""
        return (await self.take(1))[0]

    async def take(self, count: int) -> list[Asked]:
        """Wait until so many wait, and take them all."""
        async with asyncio.timeout(WAIT_SECONDS):
            while len(self.waiting) < count:
                self._changed.clear()
                await self._changed.wait()
        return [self.waiting.popleft() for _ in range(count)]

    def open(self) -> None:
        """Let those who wait proceed, and those who come."""
        self.is_open = True
        while self.waiting:
            self.waiting.popleft().proceed()

    def add(self, asked: Asked) -> None:
        self.waiting.append(asked)
        self._changed.set()


class FakeCliServer:
    """Speaks the server's side of Copilot CLI's protocol, for any number of connections.

    It answers what the client asks as the real one does, except for what is held, and says
    nothing of its own accord: prompts are answered by the test through `FakeSession`, or, with
    a script, by the script.
    """

    def __init__(self, script: str | None = None, *, protocol: int = 3) -> None:
        self.script = parse_script(script) if script is not None else Script(protocol=protocol)
        self.protocol = self.script.protocol
        self.is_scripted = script is not None
        self.sessions: dict[str, FakeSession] = {}
        self.asked: list[Asked] = []
        self.connections = 0  # that there have ever been
        self.most_sessions = 0
        self._gates: dict[str, Gate] = {}
        self._shuffled: dict[str, list[Asked]] = {}
        self._flooded: list[FakeSession] = []
        self._flood_is_over: asyncio.Event | None = None
        self._changed = asyncio.Event()

    # Serving

    @contextlib.asynccontextmanager
    async def connected(self, pair: TransportPair = channel_pair) -> AsyncIterator[Transport]:
        """Serve one end of a pair of transports for the length of a block; the other is yours."""
        client, own = pair()
        async with self._builder().connect(own) as connection:
            self.connections += 1
            try:
                yield client
            finally:
                self._disconnected(connection)

    async def serve(self, transport: Transport) -> None:
        """Serve one connection until it ends."""
        async with self._builder().connect(transport) as connection:
            self.connections += 1
            try:
                await connection.wait_closed()
            finally:
                self._disconnected(connection)

    # What it was asked

    def count(self, method: str) -> int:
        """How many requests of a method have come."""
        return sum(asked.method == method for asked in self.asked)

    @property
    def methods(self) -> list[str]:
        """The methods of all requests, in the order they came."""
        return [asked.method for asked in self.asked]

    async def wait_for(self, method: str, count: int = 1) -> list[Asked]:
        """Wait until so many requests of a method have come; return all of them."""
        await self._until(lambda: self.count(method) >= count)
        return [asked for asked in self.asked if asked.method == method]

    async def session(self, session_id: str | None = None) -> FakeSession:
        """Wait for a session to be open, the named one or any, and return it."""
        await self._until(
            lambda: session_id in self.sessions if session_id is not None else bool(self.sessions)
        )
        return self.sessions[session_id if session_id is not None else next(iter(self.sessions))]

    async def wait_sessions(self, count: int) -> list[FakeSession]:
        """Wait until exactly so many sessions are open; return them, oldest first."""
        await self._until(lambda: len(self.sessions) == count)
        return list(self.sessions.values())

    # What it holds back, and what it does

    def hold(self, method: str) -> Gate:
        """Have the requests of a method wait for the test from now on."""
        gate = self._gates[method] = Gate()
        return gate

    def open_session(self, asked: Asked, session_id: str | None = None) -> FakeSession:
        """Make the session that a request asks for, without a word to the client."""
        if session_id is None:
            wished = asked.params.get("sessionId")
            keeps = isinstance(wished, str) and not self.script.own_ids
            session_id = str(wished) if keeps else str(uuid.uuid4())
        session = FakeSession(asked.connection, session_id, asked.params, self.protocol)
        self.sessions[session_id] = session
        self.most_sessions = max(self.most_sessions, len(self.sessions))
        self._changed.set()
        return session

    def perform(self, asked: Asked) -> None:
        """Answer a request as the real server does."""
        perform = _METHODS.get(asked.method)
        if perform is None or (asked.method == "connect" and self.protocol == 2):
            asked.fail(METHOD_NOT_FOUND, f"Unhandled method {asked.method}")
            return
        try:
            perform(self, asked)
        except _RequestFailed as failure:
            text = f"Request {asked.method} failed with message: {failure}"
            asked.fail(INTERNAL_ERROR, text)

    def _builder(self) -> Any:
        return Connection.builder().name("cli-server").limits(LIMITS).on_message(self._receive)

    def _receive(self, message: Request | Notification, context: Context) -> None:
        if isinstance(message, Notification):
            return
        params = decode_value(message.params)
        asked = Asked(self, message.method, params if isinstance(params, dict) else {}, context)
        self.asked.append(asked)
        self._changed.set()
        gate = self._gates.get(message.method)
        if gate is not None and not gate.is_open:
            gate.add(asked)
        else:
            self._follow_script(asked)

    def _follow_script(self, asked: Asked) -> None:
        method, script = asked.method, self.script
        if method in script.swallowed:
            self._gates.setdefault(method, Gate()).add(asked)  # kept, or it would answer itself
        elif method in script.refused:
            asked.fail(script.refused[method].code, script.refused[method].message)
        elif method in script.shuffled:
            self._shuffle(asked)
        else:
            self.perform(asked)

    def _shuffle(self, asked: Asked) -> None:
        shuffle = self.script.shuffled[asked.method]
        together = self._shuffled.setdefault(asked.method, [])
        together.append(asked)
        if len(together) == shuffle.count:
            del self._shuffled[asked.method]
            random.Random(shuffle.seed).shuffle(together)  # noqa: S311 - order, not secrecy
            for each in together:
                self.perform(each)

    def _disconnected(self, connection: Connection) -> None:
        for session in [s for s in self.sessions.values() if s.connection is connection]:
            del self.sessions[session.session_id]
        self._changed.set()

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    # The methods

    def _connect(self, asked: Asked) -> None:
        version = COPILOT_VERSIONS[self.protocol]
        result = {"ok": True, "protocolVersion": self.protocol, "version": version}
        asked.respond({**result, "taskKinds": ["agent", "shell"]})

    def _ping(self, asked: Asked) -> None:
        message = f"pong: {asked.params.get('message', '')}"
        timestamp = TIME if self.protocol > 2 else 0
        pong = {"message": message, "timestamp": timestamp, "protocolVersion": self.protocol}
        asked.respond(pong)

    def _status(self, asked: Asked) -> None:
        version = COPILOT_VERSIONS[self.protocol]
        asked.respond({"version": version, "protocolVersion": self.protocol})

    def _create(self, asked: Asked) -> None:
        if not isinstance(asked.params.get("model", ""), str):
            raise _RequestFailed("session construction failed: expected a string")
        session = self.open_session(asked)
        if self.protocol == 2:  # events come before the answer that tells whose they are
            session.start()
            session.lifecycle("created")
            asked.respond(session.created())
        else:
            session.lifecycle("created")
            asked.respond(session.created())
            session.start()
            session.lifecycle("updated")

    def _send(self, asked: Asked) -> None:
        session = self._session_of(asked)
        text = asked.params.get("prompt")
        message_id = session.prompt(text if isinstance(text, str) else "")
        session.emit("pending_messages.modified", ephemeral=True)
        asked.respond({"messageId": message_id})
        session.echo_prompt()
        if self.is_scripted:
            session.turn = session.connection.spawn(self._answer(session), name="turn")

    def _abort(self, asked: Asked) -> None:
        session = self._session_of(asked)
        if session.turn is not None:
            session.turn.cancel()
            session.turn = None
        asked.respond({"success": True})
        if session.is_processing:
            session.interrupted()

    def _destroy(self, asked: Asked) -> None:
        session = self.sessions.pop(str(asked.params.get("sessionId")), None)
        self._changed.set()
        if session is None:
            asked.respond({"success": False})
            return
        if session.turn is not None:
            session.turn.cancel()
        if self.protocol > 2:
            session.emit("session.shutdown", {"shutdownType": "routine"})
        asked.respond({"success": True})

    def _is_processing(self, asked: Asked) -> None:
        asked.respond({"processing": self._session_of(asked).is_processing})

    def _take_tool_result(self, asked: Asked) -> None:
        params = asked.params
        session = self._session_of(asked)
        outcome = params["result"] if "result" in params else {"error": params.get("error")}
        request_id = params.get("requestId")
        is_known = session.settle(request_id, outcome)
        if is_known:
            session.emit("external_tool.completed", {"requestId": request_id})
        asked.respond({"success": is_known})

    def _take_decision(self, asked: Asked) -> None:
        session = self._session_of(asked)
        request_id, decision = asked.params.get("requestId"), asked.params.get("result") or {}
        is_known = session.settle(request_id, decision)
        if is_known:
            kind = "approved"
            if decision.get("kind") == "reject":
                kind = "denied-interactively-by-user"
            data = {"requestId": request_id, "result": {"kind": kind}}
            session.emit("permission.completed", data)
        asked.respond({"success": is_known})

    def _session_of(self, asked: Asked) -> FakeSession:
        session_id = asked.params.get("sessionId")
        if not isinstance(session_id, str):
            raise _RequestFailed(f"Missing sessionId in {asked.method} request")
        if session_id not in self.sessions:
            raise _RequestFailed(f"Session not found for sessionId: {session_id}")
        return self.sessions[session_id]

    # The script's answers to prompts

    async def _answer(self, session: FakeSession) -> None:
        session.begin_turn()
        try:
            for step in self.script.steps_for(session.prompts[-1]):
                await self._take_step(session, step)
        except ScriptError as error:
            session.error(str(error))
        session.end_turn()
        session.idle()
        session.turn = None

    async def _take_step(self, session: FakeSession, step: Step) -> None:
        if step.name == "say":
            session.say(*_words(step.text))
        elif step.name == "stream":
            session.say(*(f"word{number} " for number in range(step.numbers[0])))
        elif step.name == "flood":
            await self._flood(session, *step.numbers)
        elif step.name == "tool":
            result = await session.call_tool(step.text, step.arguments)
            session.say(result["textResultForLlm"] if isinstance(result, dict) else str(result))
        elif step.name == "permission":
            session.say((await session.ask_permission(step.text))["kind"])
        elif step.name == "fail":
            session.error(step.text)
        elif step.name == "hang":
            await asyncio.get_running_loop().create_future()
        elif step.name == "stderr":
            sys.stderr.write(step.text + "\n")
            sys.stderr.flush()
        elif step.name == "crash":
            await _crash(*step.numbers)

    async def _flood(self, session: FakeSession, count: int, sessions: int, seed: int) -> None:
        """Interleave the words of all sessions; the last one to come does so for all."""
        self._flooded.append(session)
        if self._flood_is_over is None:
            self._flood_is_over = asyncio.Event()
        is_over = self._flood_is_over
        if len(self._flooded) < sessions:
            await is_over.wait()
            return
        flooded, self._flooded, self._flood_is_over = self._flooded, [], None
        order = [each for each in flooded for _ in range(count)]
        random.Random(seed).shuffle(order)  # noqa: S311 - order, not secrecy
        said: Counter[str] = Counter()
        for each in order:
            word = {"messageId": "flood", "deltaContent": f"word{said[each.session_id]} "}
            said[each.session_id] += 1
            with contextlib.suppress(ConnectionClosed):
                await each.emit_patiently("assistant.message_delta", word)
        is_over.set()


class _RequestFailed(Exception):
    """The real server says so in these words."""


_METHODS: dict[str, Callable[[FakeCliServer, Asked], None]] = {
    "connect": FakeCliServer._connect,
    "ping": FakeCliServer._ping,
    "status.get": FakeCliServer._status,
    "session.create": FakeCliServer._create,
    "session.send": FakeCliServer._send,
    "session.abort": FakeCliServer._abort,
    "session.destroy": FakeCliServer._destroy,
    "session.detach": FakeCliServer._destroy,
    "session.metadata.isProcessing": FakeCliServer._is_processing,
    "session.tools.handlePendingToolCall": FakeCliServer._take_tool_result,
    "session.permissions.handlePendingPermissionRequest": FakeCliServer._take_decision,
}


async def _crash(status: int | None = None) -> None:
    """End the process without a word; what was said before has left it."""
    await asyncio.sleep(0)  # the transport writes when the loop comes round
    await asyncio.sleep(0)
    if status is None:
        os.kill(os.getpid(), signal.SIGKILL)
    else:
        os._exit(status)


def _words(text: str) -> list[str]:
    return [word + " " for word in text.split(" ")[:-1]] + text.split(" ")[-1:]
