"""An app server that several clients share, as the terminal interface and a door do, in a test.

It listens with WebSocket on a Unix socket and has threads and turns like the real one: a thread
can be joined by others only once something was said in it; who has not joined hears of its start
and its status alone; what is said into a turn that runs becomes a part of it. What the agent does
is said by the test:

    async with SharedCodex(path) as codex:
        codex.start_thread("t1")        # as the terminal does
        codex.say_as_user("t1", "hi")   # typed there
        codex.answer("t1", "hello")     # the agent says it; `begin`, `say` and `finish` in pieces
        codex.end("t1")                 # ... and is done
"""

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from bullpen.agents.providers.codex.hearing import takes_nothing
from bullpen.connection import Connection, Context, RpcError, listen
from bullpen.errors import BullpenError
from bullpen.jsonrpc.codec import decode_frame
from bullpen.jsonrpc.wire import Message, Notification, Request, Response, decode_value

__all__ = ["SharedCodex"]

INVALID_REQUEST = -32600
ACTIVE = {"type": "active", "activeFlags": []}
IDLE = {"type": "idle"}


class SharedCodex:
    """A shared app server, listening inside of a block."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.received: list[tuple[str, Any]] = []
        """What clients have asked and told, each with its params."""
        self.questions: list[asyncio.Task[Any]] = []
        """What clients were asked; one is done when somebody has answered."""
        self._peers: list[Connection] = []
        self._joined: dict[str, list[Connection]] = {}
        self._threads: dict[str, dict[str, Any]] = {}
        self._turns: dict[str, list[dict[str, Any]]] = {}
        self.misjudges = False
        """Whether it calls a turn that runs interrupted when it is looked up, as the real one does
        with one that is just beginning."""
        self._refused: dict[str, str] = {}
        self._held: set[str] = set()
        self._numbers = itertools.count(1)
        self._listening: Any = None

    @property
    def address(self) -> str:
        """Where it is."""
        return f"unix://{self._path}"

    async def __aenter__(self) -> Self:
        builder = (
            Connection.builder()
            .name("shared-codex")
            .route(takes_nothing, decode=self._decode)
            .on_message(self._take)
        )
        self._listening = listen(f"ws+{self.address}", builder)
        await self._listening.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for question in self.questions:
            question.cancel()
        await asyncio.gather(*self.questions, return_exceptions=True)
        await self._listening.__aexit__(kind, error, traceback)

    # ------------------------------------------------------------------ what the test lets happen

    def drop(self) -> None:
        """End the connections to all clients, as when the server dies."""
        for peer in self._peers:
            peer.close_soon()
        self._peers.clear()
        self._joined.clear()

    def refuse(self, method: str, message: str) -> None:
        """Answer a method with an error from now on."""
        self._refused[method] = message

    def hold(self, method: str) -> None:
        """Answer a method no more."""
        self._held.add(method)

    def asked(self, method: str) -> list[Any]:
        """Return the params of each request of a method."""
        return [params for each, params in self.received if each == method]

    def start_thread(self, thread_id: str, **more: Any) -> None:
        """Begin a thread, as a terminal does at its start, for `/new` and to find a title."""
        thread = {"id": thread_id, "status": IDLE, "preview": "", "ephemeral": False, **more}
        self._threads[thread_id] = {"cwd": "/project", "source": "cli", "turns": [], **thread}
        self._turns[thread_id] = []
        self._tell_all("thread/started", thread=self._threads[thread_id])

    def turn_to(self, thread_id: str) -> None:
        """Have the terminal show a thread again, as `/resume` does."""
        self._tell_all("thread/goal/cleared", threadId=thread_id)

    def set_status(self, thread_id: str, status: dict[str, Any]) -> None:
        """Change what a thread is doing."""
        self._threads[thread_id]["status"] = status
        self._tell_all("thread/status/changed", threadId=thread_id, status=status)

    def say_as_user(self, thread_id: str, message: str) -> str:
        """Say something in a thread; return its turn: a new one, or the one that runs."""
        turn_id = self._next_turn(thread_id)
        self._say(thread_id, turn_id, message, "of-the-terminal")
        return turn_id

    def _say(self, thread_id: str, turn_id: str, message: str, client_id: str | None) -> None:
        if self._running(thread_id) is None:
            turn: dict[str, Any] = {
                "id": turn_id,
                "items": [],
                "status": "inProgress",
                "error": None,
            }
            self._turns[thread_id].append(turn)
            self._threads[thread_id]["preview"] = message
            self.set_status(thread_id, ACTIVE)
            told = {"id": turn_id, "items": [], "status": "inProgress"}
            self._tell("turn/started", thread_id, turn=told)
        content = [{"type": "text", "text": message, "text_elements": []}]
        self._item(thread_id, type="userMessage", clientId=client_id, content=content)

    def answer(self, thread_id: str, message: str, phase: str | None = None) -> None:
        """Have the agent say something."""
        self._item(thread_id, type="agentMessage", text=message, phase=phase)

    def begin(self, thread_id: str, phase: str | None = None) -> None:
        """Have the agent begin to say something."""
        item = {"id": f"item-{next(self._numbers)}", "type": "agentMessage", "phase": phase}
        turn = self._turns[thread_id][-1]
        turn["items"].append(item | {"text": ""})
        self._tell("item/started", thread_id, turnId=turn["id"], item=turn["items"][-1])

    def say(self, thread_id: str, piece: str) -> None:
        """Have the agent go on with what it says."""
        turn = self._turns[thread_id][-1]
        item = turn["items"][-1]
        item["text"] += piece
        told = {"turnId": turn["id"], "itemId": item["id"], "delta": piece}
        self._tell("item/agentMessage/delta", thread_id, **told)

    def finish(self, thread_id: str) -> None:
        """Have the agent end what it says."""
        turn = self._turns[thread_id][-1]
        self._tell("item/completed", thread_id, turnId=turn["id"], item=turn["items"][-1])

    def think(self, thread_id: str, thought: str) -> None:
        """Have the agent think."""
        self._item(thread_id, type="reasoning", summary=[thought], content=[])

    def ask_approval(self, thread_id: str, command: str) -> None:
        """Have the agent ask whether it may run a command; everybody who joined is asked."""
        turn_id = self._turns[thread_id][-1]["id"]
        self.set_status(thread_id, {"type": "active", "activeFlags": ["waitingOnApproval"]})
        params = {"threadId": thread_id, "turnId": turn_id, "command": command}
        self.ask(thread_id, "item/commandExecution/requestApproval", params)

    def ask(self, thread_id: str, method: str, params: dict[str, Any]) -> None:
        """Ask everybody who joined; who answers is told that he was heard."""
        for peer in self._joined.get(thread_id, []):
            asked = {"itemId": f"item-{next(self._numbers)}", **params}
            self.questions.append(asyncio.ensure_future(self._ask(peer, method, asked)))

    async def _ask(self, peer: Connection, method: str, params: dict[str, Any]) -> Any:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Response | BullpenError] = loop.create_future()
        request_id = peer.send_request(method, params, answered.set_result)
        response = await answered
        if isinstance(response, BullpenError):
            raise response
        thread_id = params["threadId"]
        told = {"threadId": thread_id, "requestId": request_id}
        peer.send_notification("serverRequest/resolved", told)
        self.set_status(thread_id, ACTIVE)
        return decode_value(response.result)

    def is_running(self, thread_id: str) -> bool:
        """Whether a turn runs in a thread."""
        return self._running(thread_id) is not None

    def end(self, thread_id: str, status: str = "completed", error: Any = None) -> None:
        """End the turn that runs."""
        turn = self._turns[thread_id][-1]
        turn |= {"status": status, "error": error}
        self.set_status(thread_id, {"type": "systemError"} if status == "failed" else IDLE)
        said = [each for each in turn["items"] if each["type"] == "agentMessage"][-1:]
        summary = {**turn, "items": said if status == "completed" else []}
        self._tell("turn/completed", thread_id, turn=summary)

    # ------------------------------------------------------------------------------- serving

    def _decode(self, frame: bytes) -> Message:
        """What is not to be answered is no request, or it would be, if only at the very end."""
        message = decode_frame(frame)
        if isinstance(message, Request) and message.method in self._held:
            return Notification(message.method, message.params)
        return message

    async def _take(self, message: Request | Notification, context: Context) -> Any:
        method, params = message.method, decode_value(message.params)
        self.received.append((method, params))
        if method in self._refused:
            raise RpcError(INVALID_REQUEST, self._refused[method])
        answer = self._ANSWERS.get(method)
        if answer is None or isinstance(message, Notification):
            return None
        return answer(self, params, context.connection)

    def _initialize(self, params: Any, peer: Connection) -> dict[str, Any]:
        self._peers.append(peer)
        return {"userAgent": f"{params['clientInfo']['name']}/0.0.0 (fake)", "codexHome": "/fake"}

    def _loaded(self, _params: Any, _peer: Connection) -> dict[str, Any]:
        return {"data": list(self._threads), "nextCursor": None}

    def _start(self, _params: Any, peer: Connection) -> dict[str, Any]:
        thread_id = f"thread-{next(self._numbers)}"
        self.start_thread(thread_id)
        self._joined[thread_id] = [peer]
        return {"thread": self._threads[thread_id]}

    def _read(self, params: Any, _peer: Connection) -> dict[str, Any]:
        return {"thread": self._thread(params)}

    def _resume(self, params: Any, peer: Connection) -> dict[str, Any]:
        thread, turns = self._thread(params), self._look_up(params["threadId"])
        if not turns:
            thread_id = params["threadId"]
            raise RpcError(INVALID_REQUEST, f"no rollout found for thread id {thread_id}")
        joined = self._joined.setdefault(params["threadId"], [])
        if peer not in joined:
            joined.append(peer)
        self.turn_to(params["threadId"])
        return {"thread": thread | {"turns": [] if params.get("excludeTurns") else turns}}

    def _list_turns(self, params: Any, _peer: Connection) -> dict[str, Any]:
        self._thread(params)
        if not (turns := self._look_up(params["threadId"])):
            raise RpcError(INVALID_REQUEST, "thread is not materialized yet")
        return {"data": turns[::-1][: params.get("limit", 25)], "nextCursor": None}

    def _start_turn(self, params: Any, _peer: Connection) -> dict[str, Any]:
        self._thread(params)
        message = "\n".join(each["text"] for each in params["input"])
        client_id = params.get("clientUserMessageId")
        turn_id = self._next_turn(params["threadId"])
        # It answers first, and tells then.
        loop = asyncio.get_running_loop()
        loop.call_soon(self._say, params["threadId"], turn_id, message, client_id)
        return {"turn": {"id": turn_id, "items": [], "status": "inProgress"}}

    def _interrupt(self, params: Any, _peer: Connection) -> dict[str, Any]:
        self._thread(params)
        self.end(params["threadId"], "interrupted")
        return {}

    _ANSWERS: ClassVar[dict[str, Callable[["SharedCodex", Any, Connection], dict[str, Any]]]] = {
        "initialize": _initialize,
        "thread/loaded/list": _loaded,
        "thread/start": _start,
        "thread/read": _read,
        "thread/resume": _resume,
        "thread/turns/list": _list_turns,
        "turn/start": _start_turn,
        "turn/interrupt": _interrupt,
    }

    def _thread(self, params: Any) -> dict[str, Any]:
        thread_id = params["threadId"]
        if thread_id not in self._threads:
            raise RpcError(INVALID_REQUEST, f"thread not found: {thread_id}")
        return self._threads[thread_id]

    def _look_up(self, thread_id: str) -> list[dict[str, Any]]:
        wrong = {"status": "interrupted"} if self.misjudges and self._running(thread_id) else {}
        turns = self._turns[thread_id]
        return [*turns[:-1], turns[-1] | wrong] if turns else []

    def _next_turn(self, thread_id: str) -> str:
        running = self._running(thread_id)
        return str(running["id"]) if running is not None else f"turn-{next(self._numbers)}"

    def _running(self, thread_id: str) -> dict[str, Any] | None:
        turns = self._turns[thread_id]
        return turns[-1] if turns and turns[-1]["status"] == "inProgress" else None

    def _item(self, thread_id: str, **item: Any) -> None:
        turn = self._turns[thread_id][-1]
        item["id"] = f"item-{next(self._numbers)}"
        turn["items"].append(item)
        begun = item | ({"text": ""} if item["type"] == "agentMessage" else {})
        self._tell("item/started", thread_id, turnId=turn["id"], item=begun)
        self._tell("item/completed", thread_id, turnId=turn["id"], item=item)

    def _tell(self, method: str, thread_id: str, **params: Any) -> None:
        self._send(self._joined.get(thread_id, []), method, {"threadId": thread_id, **params})

    def _tell_all(self, method: str, **params: Any) -> None:
        self._send(self._peers, method, params)

    @staticmethod
    def _send(peers: list[Connection], method: str, params: dict[str, Any]) -> None:
        for peer in peers:
            if not peer.is_closed:
                peer.send_notification(method, params)
