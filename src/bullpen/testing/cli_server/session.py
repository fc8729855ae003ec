"""One session of a fake CLI server, as the model and its agent would drive it."""

import asyncio
import itertools
from collections import deque
from typing import Any

from msgspec import UNSET

from bullpen.connection.connection import Connection
from bullpen.errors import BullpenError
from bullpen.jsonrpc.errors import RemoteError
from bullpen.jsonrpc.wire import Response, decode_value

__all__ = ["COPILOT_VERSIONS", "FakeSession"]

COPILOT_VERSIONS = {2: "0.0.420", 3: "1.0.102"}
TIME = "2026-01-02T03:04:05.678Z"  # it does not pass
DIRECTORY = "/home/dev/demo"

Answer = asyncio.Future[Any]


class FakeSession:
    """A session. Whatever is called here is on the wire, in this order, when the call returns."""

    def __init__(
        self, connection: Connection, session_id: str, params: dict[str, Any], protocol: int
    ) -> None:
        self.session_id = session_id
        self.params = params  # of its `session.create`
        self.connection = connection
        self.protocol = protocol
        self.prompts: list[str] = []
        self.is_processing = False
        self.turn: asyncio.Task[Any] | None = None  # what answers the prompt, if that is scripted
        self.asked: dict[str, Answer] = {}  # tools and permissions the client owes us
        self._unseen_prompts: deque[str] = deque()
        self._prompted = asyncio.Event()
        self._numbers = itertools.count(1)
        self._last_event: str | None = None
        self._origin = ""

    def __repr__(self) -> str:
        return f"<FakeSession {self.session_id!r}>"

    # Events

    def emit(
        self, event_type: str, data: dict[str, Any] | None = None, *, ephemeral: bool = False
    ) -> None:
        """Send any event."""
        self.connection.send_notification("session.event", self._event(event_type, data, ephemeral))

    async def emit_patiently(self, event_type: str, data: dict[str, Any] | None = None) -> None:
        """Send an event, after the client has read enough of those before."""
        await self.connection.notify("session.event", self._event(event_type, data, True))

    def lifecycle(self, change: str) -> None:
        """Send `session.lifecycle`, as to every client."""
        metadata = {"startTime": TIME, "modifiedTime": TIME}
        params = {"type": f"session.{change}", "sessionId": self.session_id, "metadata": metadata}
        self.connection.send_notification("session.lifecycle", params)

    def start(self) -> None:
        """Send `session.start`."""
        data = {
            "sessionId": self.session_id,
            "version": 1,
            "producer": "copilot-agent",
            "copilotVersion": COPILOT_VERSIONS[self.protocol],
            "startTime": TIME,
            "selectedModel": self.model,
            "context": {
                "cwd": f"{DIRECTORY}/proj",
                "gitRoot": f"{DIRECTORY}/proj",
                "branch": "main",
            },
        }
        if self.protocol > 2:
            data |= {"contextTier": None, "remoteSteerable": False, "alreadyInUse": False}
        self.emit("session.start", data)

    def delta(self, text: str, message_id: str = "") -> None:
        """Send a piece of the answer."""
        data = {"messageId": message_id or self._message_id(), "deltaContent": text}
        self.emit("assistant.message_delta", data, ephemeral=True)

    def message(self, text: str, message_id: str = "") -> None:
        """Send a whole message."""
        data: dict[str, Any] = {
            "messageId": message_id or self._message_id(),
            "content": text,
            "toolRequests": [],
            "interactionId": self._origin,
        }
        if self.protocol > 2:
            data |= {"originatingMessageId": self._origin, "model": self.model, "turnId": "0"}
        self.emit("assistant.message", data)

    def say(self, *pieces: str) -> None:
        """Send a message in pieces, and then as a whole, as the server does."""
        message_id = self._mint("message")
        if self.protocol > 2:
            self.emit("assistant.message_start", {"messageId": message_id}, ephemeral=True)
        for piece in pieces:
            self.delta(piece, message_id)
        self.message("".join(pieces), message_id)

    def begin_turn(self) -> None:
        """Send `assistant.turn_start`."""
        self.emit("assistant.turn_start", {"turnId": "0", "interactionId": self._origin})

    def end_turn(self) -> None:
        """Send `assistant.turn_end`, which is not the end: `session.idle` is."""
        self.emit("assistant.turn_end", {"turnId": "0"})

    def idle(self, *, aborted: bool = False) -> None:
        """Send `session.idle`: nothing more of the turn will come."""
        self.is_processing = False
        data: dict[str, Any] = {"aborted": True} if aborted and self.protocol > 2 else {}
        if self.protocol > 2:
            self.emit("assistant.idle", data, ephemeral=True)
            data = {**data, "mode": "interactive"}
        self.emit("session.idle", data, ephemeral=True)

    def answer(self, *pieces: str) -> None:
        """Send a whole turn: the answer in pieces, and its end."""
        self.begin_turn()
        self.say(*pieces)
        self.end_turn()
        self.idle()

    def error(self, message: str, error_type: str = "query", status: int = 400) -> None:
        """Send `session.error`; the server says that it is idle afterwards."""
        data = {
            "errorType": error_type,
            "message": message,
            "statusCode": status,
            "originatingMessageId": self._origin,
        }
        self.emit("session.error", data)

    def interrupted(self) -> None:
        """Send what follows an abort, down to the end of the turn."""
        if self.protocol > 2:
            self.emit("abort", {"reason": "user_initiated"})
            data = {"activity": "model_call", "turn": 0, "elapsedMs": 1, "model": self.model}
            self.emit("agent.interrupted", data, ephemeral=True)
        else:
            self.emit("abort", {"reason": "user initiated"})
            data = {"infoType": "cancellation", "message": "Operation cancelled by user"}
            self.emit("session.info", data, ephemeral=True)
        self.idle(aborted=True)

    # What the client is asked for

    def call_tool(self, name: str, arguments: Any = None) -> Answer:
        """Call a tool of the client's. Await what is returned for its result.

        An older server asks with a request, a newer one with an event.
        """
        call = {
            "sessionId": self.session_id,
            "toolCallId": self._mint("call"),
            "toolName": name,
            "arguments": {} if arguments is None else arguments,
        }
        if self.protocol > 2:
            call["workingDirectory"] = f"{DIRECTORY}/proj"
            return self._ask_by_event("external_tool.requested", call)
        return self._ask_by_request("tool.call", call)

    def ask_permission(self, kind: str, **details: Any) -> Answer:
        """Ask leave for something. Await what is returned for the decision: `{"kind": …}`."""
        request = {"kind": kind, "toolCallId": self._mint("call"), **details}
        if self.protocol > 2:
            data = {
                "permissionRequest": request,
                "promptRequest": request,
                "agentMode": "interactive",
                "permissionMode": "manual",
                "ownerSessionId": self.session_id,
            }
            return self._ask_by_event("permission.requested", data)
        params = {"sessionId": self.session_id, "permissionRequest": request}
        return self._ask_by_request("permission.request", params)

    def request(self, method: str, **params: Any) -> Answer:
        """Send the client any request of this session's: `hooks.invoke`, `userInput.request`."""
        return self._ask_by_request(method, {"sessionId": self.session_id, **params}, nested=False)

    def settle(self, request_id: Any, outcome: Any) -> bool:
        """Take the client's answer to what was asked by event; return whether it was asked."""
        answer = self.asked.pop(request_id, None) if isinstance(request_id, str) else None
        if answer is None:
            return False
        if not answer.done():
            answer.set_result(outcome)
        return True

    # What the client wants

    def prompt(self, text: str) -> str:
        """Take a prompt; return the id of the user's message."""
        self._origin = self._mint("message")
        self.prompts.append(text)
        self._unseen_prompts.append(text)
        self._prompted.set()
        self.is_processing = True
        return self._origin

    async def prompted(self) -> str:
        """Wait for the next prompt and return it."""
        while not self._unseen_prompts:
            self._prompted.clear()
            await self._prompted.wait()
        return self._unseen_prompts.popleft()

    def echo_prompt(self) -> None:
        """Send the prompt back as `user.message`, as the server does first of all."""
        data = {"content": self.prompts[-1], "transformedContent": self.prompts[-1]}
        if self.protocol > 2:
            data |= {"messageId": self._origin, "delivery": "idle", "turnId": "0"}
        self.emit("user.message", {**data, "interactionId": self._origin})

    def created(self) -> dict[str, Any]:
        """Return the result of the request that created the session."""
        path = f"{DIRECTORY}/.copilot/session-state/{self.session_id}"
        if self.protocol == 2:
            return {"sessionId": self.session_id, "workspacePath": path}
        return {
            "sessionId": self.session_id,
            "nativeSessionId": self.session_id,
            "startTime": TIME,
            "isRemote": False,
            "mode": "interactive",
            "workspacePath": path,
            "capabilities": {
                "ui": {"elicitation": False, "mcpApps": False, "canvases": False},
                "extensions": False,
            },
            "modelState": {"modelId": self.model},
        }

    @property
    def model(self) -> str:
        return str(self.params.get("model", "fake-model"))

    def _event(
        self, event_type: str, data: dict[str, Any] | None, ephemeral: bool
    ) -> dict[str, Any]:
        event_id = self._mint("event")
        event: dict[str, Any] = {
            "type": event_type,
            "data": data if data is not None else {},
            "id": event_id,
            "timestamp": TIME,
            "parentId": self._last_event,
        }
        if ephemeral:
            event["ephemeral"] = True
        else:
            self._last_event = event_id
        return {"sessionId": self.session_id, "event": event}

    def _ask_by_event(self, event_type: str, data: dict[str, Any]) -> Answer:
        request_id = self._mint("request")
        answer = self.asked[request_id] = asyncio.get_running_loop().create_future()
        self.emit(event_type, {"requestId": request_id, **data})
        return answer

    def _ask_by_request(
        self, method: str, params: dict[str, Any], *, nested: bool = True
    ) -> Answer:
        answer: Answer = asyncio.get_running_loop().create_future()

        def deliver(response: Response | BullpenError) -> None:
            if answer.done():
                return
            if isinstance(response, BullpenError):
                answer.set_exception(response)
            elif response.error is not UNSET:
                error = response.error
                answer.set_exception(RemoteError(error.code, error.message, error.data))
            else:
                result = decode_value(response.result)
                answer.set_result(result["result"] if nested else result)

        self.connection.send_request(method, params, deliver)
        return answer

    def _message_id(self) -> str:
        return f"{self.session_id}-answer-{len(self.prompts)}"

    def _mint(self, what: str) -> str:
        return f"{self.session_id}-{what}-{next(self._numbers)}"
