"""An agent elsewhere that does what a test says, in each dialect of A2A.

    async with FakeA2AAgent("1.0") as agent:
        …                                   # any client, at agent.url
        agent.work(agent.last)
        agent.complete(agent.last, "done")

It is written by hand on the standard library, from what the dialects say, and shares no code with
the client it tests. What it was asked is in `asked`. By default it answers by itself: a message is
echoed at the second look at its task.
"""

import asyncio
import itertools
import json
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, Self

__all__ = ["Asked", "FakeA2AAgent"]

CARD = "/.well-known/agent-card.json"
OLD_CARD = "/.well-known/agent.json"
OVER = ("completed", "failed", "canceled", "rejected")


class Asked(NamedTuple):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class FakeA2AAgent:
    """An agent at `url`, inside of a block. The dialect is `seed`, `0.3` or `1.0`."""

    def __init__(
        self,
        dialect: str = "seed",
        *,
        binding: str = "JSONRPC",
        streams: bool = False,
        is_automatic: bool = True,
        port: int = 0,
    ) -> None:
        self.dialect = dialect
        self.binding = binding
        self.streams = streams
        self.is_automatic = is_automatic
        """Whether it echoes what it is told, without being told to."""
        self.name = "Echo Agent"
        self.asked: list[Asked] = []
        self.tasks: dict[str, dict[str, Any]] = {}
        self.refuses: tuple[int, Any] | None = None
        """The status and the body of the answer to each message, instead of a task."""
        self.moves: dict[str, str] = {}
        """Where requests for a path are sent to instead."""
        self.answers_directly = False
        """Whether a message is answered by a message, without a task."""
        self.is_silent = False
        """Whether messages are taken and never answered."""
        self.lets_wait: asyncio.Event | None = None
        """Messages are taken at once, and answered only when this is set."""
        self.has_card = True
        self.card_more: dict[str, Any] = {}
        """What else stands in the card, or stands there instead."""
        self._port = port
        self._numbers = itertools.count(1)
        self._streams: dict[str, list[asyncio.StreamWriter]] = {}
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._server: asyncio.Server

    # ------------------------------------------------------------------------------ for the test

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        serving = list(self._serving)
        for task, writer in list(self._serving.items()):
            writer.close()
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._port

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def last(self) -> str:
        """The id of its newest task."""
        return next(reversed(self.tasks))

    @property
    def sent(self) -> list[Asked]:
        """The messages among what it was asked."""
        return [each for each in self.asked if self._what(each) == "send"]

    @property
    def texts(self) -> list[str]:
        """What it was told."""
        bodies = (each.body.get("params", each.body)["message"] for each in self.sent)
        return [(each.get("parts") or each.get("content"))[0]["text"] for each in bodies]

    def work(self, task_id: str, says: str = "") -> None:
        """Begin to work on a task."""
        self._become(task_id, "working", says)

    def say(self, task_id: str, text: str) -> None:
        """Add words to the answer, to whoever follows the task."""
        task = self.tasks[task_id]
        is_more = bool(task["artifacts"])
        task["artifacts"] = ["".join([*task["artifacts"], text])]
        artifact = {"artifactId": "a-1", "parts": [self._part(text)]}
        told: dict[str, Any] = {"taskId": task_id, "contextId": task["context"]}
        self._tell(task_id, "artifact", {**told, "artifact": artifact, "append": is_more})

    def complete(self, task_id: str, *texts: str) -> None:
        """End a task well, with these artifacts."""
        self.tasks[task_id]["artifacts"] += texts
        self._become(task_id, "completed")

    def fail(self, task_id: str, why: str) -> None:
        """End a task badly."""
        self._become(task_id, "failed", why)

    def require(self, task_id: str, question: str) -> None:
        """Want to know something before going on."""
        self._become(task_id, "input_required", question)

    def forget(self, task_id: str) -> None:
        """Know a task no more."""
        del self.tasks[task_id]

    def drop_streams(self) -> None:
        """Break off all that is followed."""
        for writers in self._streams.values():
            for writer in writers:
                writer.close()
            writers.clear()

    # ------------------------------------------------------------------------------------ shapes

    def card(self) -> dict[str, Any]:
        """Return what it says of itself."""
        card: dict[str, Any] = {
            "name": self.name,
            "description": "says what it is told",
            "version": "1.2.3",
            "capabilities": {"streaming": self.streams},
            "skills": [{"id": "echo", "name": "Echo", "description": "echoes", "tags": []}],
        }
        where = f"{self.url}/a2a"
        if self.dialect == "seed":
            card |= {"url": self.url, "securitySchemes": {}}
        else:
            card |= {"defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"]}
        if self.dialect == "0.3":
            card |= {"protocolVersion": "0.3.0", "url": where, "preferredTransport": self.binding}
        if self.dialect == "1.0":
            spoken = {"url": where, "protocolBinding": self.binding, "protocolVersion": "1.0"}
            grpc = {"url": "127.0.0.1:1", "protocolBinding": "GRPC", "protocolVersion": "1.0"}
            card |= {"supportedInterfaces": [grpc, spoken]}
        return card | self.card_more

    def _part(self, text: str) -> dict[str, Any]:
        return {"text": text} if self.dialect == "1.0" else {"kind": "text", "text": text}

    def _state(self, word: str) -> str:
        if self.dialect == "1.0":
            return f"TASK_STATE_{word.upper()}"
        return word.replace("_", "-") if self.dialect == "0.3" else word

    def _shape(self, task: dict[str, Any]) -> dict[str, Any]:
        if self.dialect == "seed":
            return {
                "id": task["id"],
                "context_id": task["context"],
                "status": task["state"],
                "message": task["message"],
                "artifacts": [{"type": "text", "data": each} for each in task["artifacts"]],
                "created_at": "2026-01-01T00:00:00Z",
                "updated_at": "2026-01-01T00:00:01Z",
                **({"error": {"code": "X", "message": task["says"]}} if task["says"] else {}),
            }
        artifacts = [
            {"artifactId": f"a-{number}", "parts": [self._part(each)]}
            for number, each in enumerate(task["artifacts"], 1)
        ]
        shape = {"id": task["id"], "contextId": task["context"], "artifacts": artifacts}
        shape["status"] = self._status(task)
        return shape | ({"kind": "task"} if self.dialect == "0.3" else {})

    def _status(self, task: dict[str, Any]) -> dict[str, Any]:
        status: dict[str, Any] = {"state": self._state(task["state"])}
        status["timestamp"] = "2026-01-01T00:00:01Z"
        if task["says"]:
            role = "ROLE_AGENT" if self.dialect == "1.0" else "agent"
            said = {"messageId": "s-1", "role": role, "parts": [self._part(task["says"])]}
            status["message"] = said
        return status

    # ----------------------------------------------------------------------------------- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        me = asyncio.current_task()
        assert me is not None
        self._serving[me] = writer
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                await self._answer(await _read(reader), reader, writer)
        finally:
            del self._serving[me]
            writer.close()

    async def _answer(
        self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.asked.append(asked)
        path = asked.path.partition("?")[0]
        if path in self.moves:
            return _write(writer, 307, None, f"Location: {self.moves[path]}\r\n")
        if path == (OLD_CARD if self.dialect == "seed" else CARD) and self.has_card:
            return _write(writer, 200, self.card())
        what = self._what(asked)
        if what == "send" and self.is_silent:
            await reader.read()
        elif what == "send" and self.refuses is not None:
            _write(writer, *self.refuses)
        elif what == "subscribe" and self.streams:
            await self._stream(self._id_of(asked), reader, writer)
        else:
            status, value = self._do(what, asked)
            if what == "send" and self.lets_wait is not None:
                await self.lets_wait.wait()
            _write(writer, status, value)
        return None

    def _what(self, asked: Asked) -> str:
        """Return what is asked for: `send`, `get`, `cancel`, `subscribe`; or nothing."""
        path = asked.path.partition("?")[0]
        if self._is_rpc:
            method = asked.body.get("method", "") if isinstance(asked.body, dict) else ""
            known = {
                "0.3": ("message/send", "tasks/get", "tasks/cancel", "tasks/resubscribe"),
                "1.0": ("SendMessage", "GetTask", "CancelTask", "SubscribeToTask"),
            }[self.dialect]
            words = dict(zip(known, ("send", "get", "cancel", "subscribe"), strict=True))
            return words.get(method, "") if path == "/a2a" else ""
        if path in ("/tasks/send", "/tasks/send-priority") or path.endswith("/message:send"):
            return "send"
        if "/tasks/" not in path:
            return ""
        ending = path.rpartition("/")[2] if self.dialect == "seed" else path.rpartition(":")[2]
        return ending if ending in ("cancel", "subscribe") else "get"

    @property
    def _is_rpc(self) -> bool:
        return self.dialect != "seed" and self.binding == "JSONRPC"

    def _id_of(self, asked: Asked) -> str:
        if self._is_rpc:
            return str(asked.body["params"].get("id", ""))
        path = asked.path.partition("?")[0].partition("/tasks/")[2]
        return path.partition("/")[0].partition(":")[0]

    def _do(self, what: str, asked: Asked) -> tuple[int, Any]:
        if what == "send":
            return self._take(asked)
        if not what:
            return 404, {"detail": "Not Found"}
        task = self.tasks.get(self._id_of(asked))
        if task is None or what == "subscribe":
            return self._refusal(404, -32001, "Task not found")
        if what == "cancel":
            if task["state"] in OVER:
                return self._refusal(409, -32002, "it is over")
            self._become(task["id"], "canceled")
        elif self.is_automatic and task["state"] not in OVER:
            task["looks"] += 1
            if task["looks"] > 1:
                self.complete(task["id"], f"echo: {task['text']}")
        return self._result(self._shape(task), is_answer=False)

    def _take(self, asked: Asked) -> tuple[int, Any]:
        body = asked.body.get("params", asked.body)
        message = body["message"]
        text = (message.get("parts") or message.get("content"))[0]["text"]
        if self.answers_directly:
            parts = [self._part(f"echo: {text}")]
            role = "ROLE_AGENT" if self.dialect == "1.0" else "agent"
            said = {"messageId": "d-1", "role": role, "parts": parts, "kind": "message"}
            return self._result(said, is_answer=True, word="message")
        known = self.tasks.get(str(message.get("taskId", "")))
        if known is not None:  # the answer to a question
            known |= {"state": "working", "says": "", "text": text}
            return self._result(self._shape(known), is_answer=True)
        number = next(self._numbers)
        context = message.get("contextId") or body.get("context_id") or f"context-{number}"
        self.tasks[f"task-{number}"] = {
            "id": f"task-{number}",
            "context": context,
            "state": "working" if self.dialect == "seed" else "submitted",
            "says": "",
            "message": message,
            "text": text,
            "artifacts": [],
            "looks": 0,
        }
        return self._result(self._shape(self.tasks[f"task-{number}"]), is_answer=True)

    def _result(self, value: Any, *, is_answer: bool, word: str = "task") -> tuple[int, Any]:
        if is_answer and (self.dialect != "0.3" or not self._is_rpc):
            value = {word: value}
        return 200, {"jsonrpc": "2.0", "id": "1", "result": value} if self._is_rpc else value

    def _refusal(self, status: int, code: int, words: str) -> tuple[int, Any]:
        if self._is_rpc:
            return 200, {"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": words}}
        if self.dialect == "seed":
            return status, {"detail": words}
        return status, {"error": {"code": status, "status": "X", "message": words}}

    def _become(self, task_id: str, state: str, says: str = "") -> None:
        task = self.tasks[task_id]
        task |= {"state": state, "says": says}
        told = {"taskId": task_id, "contextId": task["context"], "status": self._status(task)}
        self._tell(task_id, "status", told)
        if state in OVER or state == "input_required":
            for writer in self._streams.pop(task_id, []):
                writer.close()

    # ----------------------------------------------------------------------------------- streams

    async def _stream(
        self, task_id: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = self.tasks.get(task_id)
        if task is None or task["state"] in OVER:
            return _write(writer, *self._refusal(404, -32004, "it is over"))
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        writer.write(head.encode())
        self._streams.setdefault(task_id, []).append(writer)
        if self.dialect != "0.3":  # where only what happens from now on is told
            writer.write(self._event({"task": self._shape(task)}))
        await reader.read()  # until somebody hangs up
        return None

    def _tell(self, task_id: str, what: str, told: dict[str, Any]) -> None:
        event = {**told, "kind": f"{what}-update"}
        if self.dialect == "1.0":
            event = {f"{what}Update": told}
        for writer in self._streams.get(task_id, []):
            writer.write(self._event(event))

    def _event(self, value: Any) -> bytes:
        if self._is_rpc:
            value = {"jsonrpc": "2.0", "id": "1", "result": value}
        return b"data: " + json.dumps(value).encode() + b"\r\n\r\n"


async def _read(reader: asyncio.StreamReader) -> Asked:
    method, path, _ = (await reader.readline()).decode().split(" ", 2)
    headers = {}
    while (line := await reader.readline()).strip():
        name, _, value = line.decode().partition(":")
        headers[name.strip().lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, json.loads(body) if body else None)


def _write(writer: asyncio.StreamWriter, status: int, value: Any, more: str = "") -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{more}"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
