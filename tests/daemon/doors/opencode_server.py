"""A server that does for a door what opencode's does, as the test says."""

import asyncio
import base64
import itertools
import json
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

BUSY = {"type": "busy"}
IDLE = {"type": "idle"}


class FakeOpencode:
    """opencode's server, listening inside of a block."""

    def __init__(self, password: str = "") -> None:
        self.asked: list[tuple[str, Any]] = []
        """What was asked for, each as `POST /path` with its body."""
        self.selected: list[str] = []
        self.sessions: dict[str, dict[str, Any]] = {}
        self.statuses: dict[str, Any] = {}
        self.permissions: list[Any] = []
        self.messages: list[dict[str, Any]] = []
        self.status_of_prompts = 204
        self.is_holding = False
        """Whether prompts are taken and not answered."""
        self.is_working = True
        """Whether a prompt is taken up at once."""
        self._secret = base64.b64encode(f"opencode:{password}".encode()) if password else b""
        self._streams: list[asyncio.StreamWriter] = []
        self._writers: list[asyncio.StreamWriter] = []
        self._serving: list[asyncio.Task[Any]] = []
        self._numbers = itertools.count(1)
        self._server: asyncio.Server

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        serving = [*self._serving]
        self.drop()
        await asyncio.gather(*serving, return_exceptions=True)

    def drop(self) -> None:
        """End all connections, as when the program dies."""
        for writer, handler in zip(self._writers, self._serving, strict=True):
            writer.close()
            handler.cancel()
        self._writers.clear()
        self._serving.clear()
        self._streams.clear()

    def tell(self, kind: str, session_id: str, **more: Any) -> None:
        event = {"id": "e", "type": kind, "properties": {"sessionID": session_id, **more}}
        data = f"data: {json.dumps(event)}\n\n".encode()
        for stream in self._streams:
            stream.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def add_session(self, title: str = "", **more: Any) -> str:
        session_id = f"ses_{next(self._numbers)}"
        info = {"id": session_id, "title": title or "New session - now", **more}
        self.sessions = {session_id: info, **self.sessions}
        self.tell("session.created", session_id, info=info)
        return session_id

    def say_as_user(self, session_id: str, text: str, mark: str = "") -> str:
        """Say something in a session; return the message."""
        mark = mark or f"msg_{next(self._numbers)}"
        self._message(session_id, {"id": mark, "role": "user"})
        self._part(session_id, mark, type="text", text=text)
        self._message(session_id, {"id": mark, "role": "user"})  # it is told more than once
        return mark

    def work(self, session_id: str, mark: str) -> str:
        """Have the model begin to answer a message; return the answer."""
        self.statuses[session_id] = BUSY
        self.tell("session.status", session_id, status=BUSY)
        answer = f"msg_{next(self._numbers)}"
        self._message(session_id, {"id": answer, "role": "assistant", "parentID": mark})
        return answer

    def answer(self, session_id: str, mark: str, *parts: str, finish: str = "stop") -> None:
        """Have the model answer a message, in parts of the text."""
        spoken = self.work(session_id, mark)
        for each in parts:
            part_id = f"prt_{next(self._numbers)}"
            self._part(session_id, spoken, type="text", text="", id=part_id)
            self._part(session_id, spoken, type="text", text=each, id=part_id)
        info = {"id": spoken, "role": "assistant", "parentID": mark, "finish": finish}
        self._message(session_id, info)

    def say(self, session_id: str, spoken: str, *pieces: str, kind: str = "text") -> None:
        """Have the model say a part of an answer in pieces, and then have it whole."""
        part_id = f"prt_{next(self._numbers)}"
        self._part(session_id, spoken, type=kind, text="", id=part_id)
        for each in pieces:
            piece = {"messageID": spoken, "partID": part_id, "field": "text", "delta": each}
            self.tell("message.part.delta", session_id, **piece)
        self._part(session_id, spoken, type=kind, text="".join(pieces), id=part_id)

    def idle(self, session_id: str) -> None:
        self.statuses.pop(session_id, None)
        for _ in range(2):  # it is told more than once
            self.tell("session.status", session_id, status=IDLE)
            self.tell("session.idle", session_id)

    def _message(self, session_id: str, info: dict[str, Any]) -> None:
        info = {**info, "sessionID": session_id}
        known = next((each for each in self.messages if each["info"]["id"] == info["id"]), None)
        if known is None:
            self.messages.append({"info": info, "parts": []})
        else:
            known["info"] = info
        self.tell("message.updated", session_id, info=info)

    def _part(self, session_id: str, message_id: str, **part: Any) -> None:
        part = {"id": f"prt_{next(self._numbers)}", "messageID": message_id, **part}
        for each in self.messages:
            if each["info"]["id"] == message_id:
                kept = [one for one in each["parts"] if one["id"] != part["id"]]
                each["parts"] = [*kept, part]
        self.tell("message.part.updated", session_id, part=part)

    # ------------------------------------------------------------------------------- serving

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._writers.append(writer)
        self._serving.append(handler)
        with suppress(asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            lines = head.split(b"\r\n")
            method, target, _ = lines[0].decode().split(" ")
            headers = dict(each.lower().split(b": ", 1) for each in lines[1:] if each)
            body = await reader.readexactly(int(headers[b"content-length"]))
            if self._secret.lower() not in headers.get(b"authorization", b""):
                writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
            elif target == "/event":
                chunked = b"Transfer-Encoding: chunked\r\n\r\n"
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + chunked)
                self._streams.append(writer)
                self.tell("server.connected", "")
                return
            else:
                await self._answer(writer, f"{method} {target}", json.loads(body or b"null"))
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, what: str, body: Any) -> None:
        self.asked.append((what, body))
        status, value = 200, self._value(what, body)
        if what.endswith("/prompt_async"):
            if self.is_holding:
                await asyncio.Event().wait()
            status = self.status_of_prompts
        content = b"" if status == 204 else json.dumps(value).encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode())
        writer.write(content)

    def _value(self, what: str, body: Any) -> Any:
        match what.partition("?")[0].split("/"):
            case ["GET ", "session"]:
                return list(self.sessions.values())
            case ["GET ", "session", "status"]:
                return self.statuses
            case ["GET ", "permission"]:
                return self.permissions
            case ["GET ", "session", session_id, "message"]:
                return [x for x in self.messages if x["info"]["sessionID"] == session_id]
            case ["POST ", "session"]:
                made = self.add_session()
                return self.sessions[made]
            case ["POST ", "tui", "select-session"]:
                self.selected.append(body["sessionID"])
            case ["POST ", "session", session_id, "prompt_async"] if self.status_of_prompts == 204:
                self.say_as_user(session_id, body["parts"][0]["text"], body["messageID"])
                if self.is_working:
                    self.work(session_id, body["messageID"])
            case ["POST ", "session", session_id, "abort"]:
                self.idle(session_id)
        return True if what.startswith("POST") else []
