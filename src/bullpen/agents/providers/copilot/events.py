"""The record Copilot CLI keeps of a session: its events, one JSON object on each line.

Everything that decides what the agent is doing is in it, about a tenth of a second after it
happened: prompts, turns, tools, who is asked for permission and what came of it, questions, errors,
interruptions, the end. Events of a subagent carry an `agentId` and say nothing about the session,
except that somebody is asked: that is on the session's own screen.
"""

from typing import Any, Final

from bullpen.agents.providers.copilot.facts import CopilotFact, subject
from bullpen.agents.providers.lenient import decode_leniently
from bullpen.agents.providers.values import clip, mapping, parse_time, text
from bullpen.model.events import SESSION_ENDED

__all__ = ["SessionRecord"]

_QUESTION: Final = "ask_user"
_APPROVED: Final = "approve"
_CANCELLED: Final = "cancelled"
_RATE_LIMIT: Final = "rate_limit"
_TOO_MANY: Final = 429


_Meaning = tuple[str, dict[str, Any]] | None


class SessionRecord:
    """Reads the lines of one session's record, in their order."""

    def __init__(self) -> None:
        self.version = ""  # of the program, once it is known
        self.cwd = ""
        self._asked: set[str] = set()  # the requests that wait for an answer
        self._questions: set[str] = set()  # the uses of a tool that ask the user
        self._is_in_turn = False
        self._wants_tools = True  # whether the last message does, and the turn goes on after it

    @property
    def is_waiting(self) -> bool:
        """Whether somebody is asked, for permission or for an answer."""
        return bool(self._asked or self._questions)

    def read(self, line: bytes) -> CopilotFact | None:
        """Return what a line says; None if it says nothing about the session."""
        try:
            event = mapping(decode_leniently(line))
        except ValueError:
            return None
        kind, data = text(event.get("type")), mapping(event.get("data"))
        meaning = self._asking(kind, data)
        if meaning is None and not event.get("agentId"):
            meaning = self._of_session(kind, data)
        if meaning is None:
            return None
        event_type, details = meaning
        event_id = clip(event.get("id")) or f"{clip(kind)}:{clip(event.get('timestamp'))}"
        return CopilotFact(
            event_type=event_type,
            event_id=event_id,
            source_event_id=clip(data.get("requestId")) or clip(data.get("toolCallId")) or event_id,
            at=parse_time(event.get("timestamp")),
            payload={"event": clip(kind)} | {key: value for key, value in details.items() if value},
        )

    def _asking(self, kind: str, data: dict[str, Any]) -> _Meaning:
        """Return what is said about who is asked, be it by a subagent."""
        request, use = clip(data.get("requestId")), clip(data.get("toolCallId"))
        match kind:
            case "permission.requested":
                self._asked.add(request)
                what = mapping(data.get("permissionRequest"))
                return "approval.requested", {"tool": clip(what.get("kind")), "what": subject(what)}
            case "permission.completed":
                self._asked.discard(request)
                return self._answered(clip(mapping(data.get("result")).get("kind")))
            case "tool.execution_start" if data.get("toolName") == _QUESTION:
                self._questions.add(use)
                return "question.asked", _tool(data)
            case "tool.execution_complete" if use in self._questions:
                self._questions.discard(use)
                return self._unless_waiting("tool.completed"), {}
        return None

    def _answered(self, answer: str) -> _Meaning:
        if answer == _CANCELLED:
            return "approval.cancelled", {}  # with the turn, which says so itself
        granted = "approval.granted" if answer.startswith(_APPROVED) else "tool.failed"
        return self._unless_waiting(granted), {"answer": answer}

    def _of_session(self, kind: str, data: dict[str, Any]) -> _Meaning:
        match kind:
            case "session.start" | "session.resume":
                self.version = text(data.get("copilotVersion")) or self.version
                self.cwd = text(mapping(data.get("context")).get("cwd")) or self.cwd
                return self._over("session.started")
            case "session.error":
                return self._over(_failure(data), message=clip(data.get("message")))
            case "session.shutdown":
                return self._over(SESSION_ENDED, reason=clip(data.get("shutdownType")))
            case "session.compaction_start":
                return self._unless_waiting("compaction.started"), {}
            case "session.compaction_complete":
                return "turn.started" if self._is_in_turn else "turn.completed", {}
        return self._of_turn(kind, data)

    def _of_turn(self, kind: str, data: dict[str, Any]) -> _Meaning:
        match kind:
            case "user.message":
                self._is_in_turn = True
                return self._unless_waiting("prompt.submitted"), {}
            case "assistant.turn_start":
                self._is_in_turn, self._wants_tools = True, True
                return self._unless_waiting("turn.started"), {}
            case "assistant.message":
                self._wants_tools = bool(data.get("toolRequests"))
            case "assistant.turn_end" if not self._wants_tools:
                return self._over("turn.completed")
            case "abort":  # after the end of a turn that wanted more
                return self._over("turn.interrupted", reason=clip(data.get("reason")))
            case "tool.execution_start":
                return self._unless_waiting("tool.started"), _tool(data)
            case "tool.execution_complete":
                event_type = "tool.completed" if data.get("success") else "tool.failed"
                return self._unless_waiting(event_type), {}
        return None

    def _over(self, event_type: str, **details: str) -> _Meaning:
        """Forget who was asked: nobody is, any more."""
        self._asked.clear()
        self._questions.clear()
        self._is_in_turn, self._wants_tools = False, True
        return event_type, dict(details)

    def _unless_waiting(self, event_type: str) -> str:
        """Return a type of event as it is told: beside somebody who is asked, it says nothing."""
        return f"parallel.{event_type}" if self.is_waiting else event_type


def _failure(data: dict[str, Any]) -> str:
    is_limit = data.get("errorType") == _RATE_LIMIT or data.get("statusCode") == _TOO_MANY
    return "turn.rate_limited" if is_limit else "turn.failed"


def _tool(data: dict[str, Any]) -> dict[str, Any]:
    return {"tool": clip(data.get("toolName")), "what": subject(mapping(data.get("arguments")))}
