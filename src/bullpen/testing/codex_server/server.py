"""What a fake app server does, as text: one command per line.

    thread {JSON}              list this thread, in place of one with the same id
    forget ID                  list it no more
    send {JSON}                send this message before the next answer, or when woken
    print TEXT                 the same with a line that is no message
    swallow METHOD             answer METHOD no more
    refuse METHOD CODE TEXT    answer it with an error
    exit STATUS                end, here and now
    stubborn                   do not end with stdin, nor by SIGTERM
    child                      start a child that outlives its parent, unless it is ended too

Lines that are added to the script while it runs are done before the next answer. Like the real one,
it says nothing of JSON-RPC's version, wants to be initialized first, and answers what it does not
know with an error.
"""

import json
from collections.abc import Callable
from typing import Any

from bullpen.errors import BullpenError

__all__ = ["CodexScriptError", "CodexServer", "Exit"]

INVALID_REQUEST = -32600


class CodexScriptError(BullpenError):
    """A script cannot be understood."""

    def __init__(self, line: str, reason: object) -> None:
        super().__init__(f"{line!r}: {reason}")
        self.line = line


class Exit(BullpenError):
    """The script says to end."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit with status {status}")
        self.status = status


class CodexServer:
    """The state of one server. It moves no bytes: `write` is called with each line to send."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._threads: dict[str, dict[str, Any]] = {}
        self._swallowed: set[str] = set()
        self._refused: dict[str, tuple[int, str]] = {}
        self._is_initialized = False
        self.is_stubborn = False
        self.has_child = False

    def do(self, line: str) -> None:
        """Do what a line of the script says.

        Raises:
            CodexScriptError: it says nothing that is known.
            Exit: it says to end.
        """
        name, _, rest = line.strip().partition(" ")
        if not name:
            return
        try:
            self._do(name, rest.strip())
        except (ValueError, KeyError, TypeError) as error:
            raise CodexScriptError(line, error) from error

    def _do(self, name: str, rest: str) -> None:
        match name:
            case "thread":
                thread = json.loads(rest)
                self._threads[thread["id"]] = thread
            case "forget":
                self._threads.pop(rest, None)
            case "send":
                self._send(json.loads(rest))
            case "print":
                self._write(rest)
            case "swallow":
                self._swallowed.add(rest)
            case "refuse":
                method, code, message = rest.split(" ", 2)
                self._refused[method] = (int(code), message)
            case "exit":
                raise Exit(int(rest))
            case "stubborn":
                self.is_stubborn = True
            case "child":
                self.has_child = True
            case _:
                raise ValueError("there is no such command")

    def receive(self, message: dict[str, Any]) -> None:
        """Answer a message, if it is to be answered."""
        method, message_id = message.get("method"), message.get("id")
        if message_id is None or not isinstance(method, str) or method in self._swallowed:
            return
        try:
            self._send({"id": message_id, "result": self._answer(method, message)})
        except _Refused as refused:
            error = {"code": refused.code, "message": str(refused)}
            self._send({"error": error, "id": message_id})

    def _answer(self, method: str, message: dict[str, Any]) -> dict[str, Any]:
        if method in self._refused:
            raise _Refused(*self._refused[method])
        params = message.get("params")
        if not isinstance(params, dict):
            raise _Refused(INVALID_REQUEST, "Invalid request: missing field `params`")
        if method == "initialize":
            if self._is_initialized:
                raise _Refused(INVALID_REQUEST, "Already initialized")
            self._is_initialized = True
            client = params["clientInfo"]
            return {"userAgent": f"{client['name']}/0.0.0 (fake)", "codexHome": "/fake"}
        if not self._is_initialized:
            raise _Refused(INVALID_REQUEST, "Not initialized")
        if method == "thread/list":
            return {"data": self._list(params), "nextCursor": None}
        if method == "thread/loaded/list":
            return {"data": list(self._threads), "nextCursor": None}
        if method == "thread/read" and params.get("threadId") in self._threads:
            return {"thread": self._threads[params["threadId"]]}
        raise _Refused(INVALID_REQUEST, f"Invalid request: unknown variant `{method}`")

    def _list(self, params: dict[str, Any]) -> list[dict[str, Any]]:
        cwds = params.get("cwd")
        wanted = [cwds] if isinstance(cwds, str) else cwds
        listed = [
            thread
            for thread in self._threads.values()
            if (wanted is None or thread.get("cwd") in wanted) and not thread.get("ephemeral")
        ]
        listed.sort(key=lambda thread: -thread.get("updatedAt", 0))
        return listed[: params.get("limit", 25)]

    def _send(self, message: dict[str, Any]) -> None:
        self._write(json.dumps(message))


class _Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
