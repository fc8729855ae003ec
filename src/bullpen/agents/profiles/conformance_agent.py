"""An agent for the official A2A compatibility kit, which says by a message's id what is to happen.

It is typed to like any other, and answers through the daemon's api, as an agent does that wants to
say more than text: see `Shape` of the A2A server. What it was asked is found by what it works on,
for a terminal does not show the id of a message. It needs the standard library only, but for where
the daemon is.
"""

import base64
import json
import os
import signal
import socket
import sys
import time
from typing import Any

from bullpen.api.locations import socket_path

PROMPT = "> "
LOOKS = 250
LOOK_SECONDS = 0.02
ANSWER_SECONDS = 10.0
LONG_SECONDS = 2 * float(os.environ.get("TCK_STREAMING_TIMEOUT", "2")) + 0.5

FILE = {
    "raw": base64.b64encode(b"Generated file content").decode(),
    "filename": "output.txt",
    "mediaType": "text/plain",
}
LINK = {
    "url": "https://example.com/output.txt",
    "filename": "output.txt",
    "mediaType": "text/plain",
}
DATA = {"data": {"key": "value", "count": 42}}

ARTIFACTS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "tck-artifact-text": ("Generated text content", []),
    "tck-artifact-file": ("a file", [FILE]),
    "tck-artifact-file-url": ("a file elsewhere", [LINK]),
    "tck-artifact-data": ("some data", [DATA]),
    "tck-stream-001": ("Stream hello from TCK", []),
    "tck-stream-003": ("Stream task lifecycle", []),
    "tck-stream-ordering-001": ("Ordered output", []),
    "tck-stream-artifact-text": ("Streamed text content", []),
    "tck-stream-artifact-file": ("a file", [FILE]),
}
"""What is answered to ids that begin so, the longest first: a text, or its parts in A2A's form."""


class Agent:
    """Reads lines, each of which tells that there is something to do."""

    def __init__(self, path: str, name: str, secret: str) -> None:
        self._path = path
        self._name = name
        self._secret = secret
        self._is_interrupted = False
        signal.signal(signal.SIGINT, self._interrupt)  # which must not lose a line that was read

    def run(self) -> int:
        """Go on until the end of the input; return the exit status."""
        say("ready\n" + PROMPT)
        while line := sys.stdin.readline():
            if line.strip():
                try:
                    self._work()
                except (OSError, ValueError, KeyError) as error:
                    say(f"{type(error).__name__}: {error}\n")
            say(PROMPT)
        return 0

    def _work(self) -> None:
        task = self._current()
        kept = task["message"]["metadata"]["extra"].get("a2a", {})
        self._behave(task["id"], kept.get("message_id", ""))

    def _current(self) -> dict[str, Any]:
        """Return what we were just asked."""
        for _ in range(LOOKS):
            contacts = self._ask("agent.contacts")
            working_on = [each.get("working_on") for each in contacts if each["name"] == self._name]
            if any(working_on):
                found: dict[str, Any] = self._ask("task.get", task_id=working_on[0])
                return found
            time.sleep(LOOK_SECONDS)
        raise ValueError("there is nothing to do")

    def _behave(self, task: str, wanted: str) -> None:
        for beginning in sorted(ARTIFACTS, key=len, reverse=True):
            if wanted.startswith(beginning):
                text, parts = ARTIFACTS[beginning]
                return self._reply(task, text, parts=parts)
        if wanted.startswith("tck-input-required"):
            return self._reply(task, "more is needed", "progress", asks=True)
        if wanted.startswith("tck-reject-task"):
            return self._reply(task, "rejected", "task_failed", is_refusal=True)
        if wanted.startswith("tck-message-response"):
            return self._reply(task, "Direct message response", is_message=True)
        if wanted.startswith("tck-stream-artifact-chunked"):
            for index, text in enumerate(("chunk-1 ", "chunk-2")):
                chunk = {"artifact_id": f"{task}-chunks", "parts": [{"text": text}]}
                is_last = bool(index)
                self._say(
                    task, text, "progress", {**chunk, "append": is_last, "last_chunk": is_last}
                )
        elif wanted.startswith("test-resubscribe-message-id") and not self._take_long():
            return None
        return self._reply(task, "Hello from TCK", is_artifact=False)

    def _take_long(self) -> bool:
        """Work for long; return whether nobody interrupted that."""
        self._is_interrupted = False
        end = time.monotonic() + LONG_SECONDS
        while time.monotonic() < end and not self._is_interrupted:
            time.sleep(LOOK_SECONDS)
        return not self._is_interrupted

    def _interrupt(self, *_: object) -> None:
        self._is_interrupted = True

    def _reply(
        self,
        task: str,
        text: str,
        kind: str = "task_response",
        *,
        asks: bool = False,
        **shape: Any,
    ) -> None:
        self._say(task, text, kind, shape, {"asks": True} if asks else {})

    def _say(
        self,
        task: str,
        text: str,
        kind: str,
        shape: dict[str, Any],
        more: dict[str, Any] | None = None,
    ) -> None:
        metadata = {"a2a": shape, **(more or {})}
        self._ask("mail.reply", content=text, to_message=task, type=kind, metadata=metadata)
        say(f"{text}\n")

    def _ask(self, method: str, **params: Any) -> Any:
        """Ask the daemon something; return the result."""
        asked = {"jsonrpc": "2.0", "id": 1, "method": method}
        if method.startswith("mail."):
            params["secret"] = self._secret
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(self._path)
            connection.sendall(json.dumps({**asked, "params": params}).encode() + b"\n")
            with connection.makefile("rb") as lines:
                answer = json.loads(lines.readline())
        if "error" in answer:
            raise ValueError(answer["error"]["message"])
        return answer["result"]


def say(text: str) -> None:
    """Write a text at once."""
    os.write(sys.stdout.fileno(), text.encode())


if __name__ == "__main__":
    where = socket_path(os.environ, os.getuid())
    name, secret = os.environ.get("BULLPEN_AGENT", ""), os.environ.get("BULLPEN_SECRET", "")
    sys.exit(Agent(where, name, secret).run())
