"""What Copilot CLI tells its hooks, in our words.

The same events are in the record of the session (`events`), and more of them, a little later. Hooks
are told at once and know the terminal. A project's hooks for Claude Code are run as well, and then
told in Claude's words.

`permissionRequest` is told for every tool, also where nobody is asked; that somebody is, is a
`notification`. `errorOccurred` is told for every attempt; what comes of it is in the record.
"""

from typing import Any, Final

import msgspec

from bullpen.agents.providers.copilot.facts import CopilotFact, subject
from bullpen.agents.providers.values import clip, mapping, parse_time, text
from bullpen.model.events import SESSION_ENDED

__all__ = ["HOOK_EVENTS", "CopilotHook", "own_name", "translate"]

LONGEST_SESSION_ID: Final = 128

_MEANINGS: Final = {
    "sessionStart": "session.opened",
    "sessionEnd": SESSION_ENDED,
    "userPromptSubmitted": "prompt.submitted",
    "preToolUse": "tool.started",
    "postToolUse": "tool.completed",
    "postToolUseFailure": "tool.failed",
    "notification": "notification",
    "agentStop": "turn.completed",
    "errorOccurred": "error.occurred",
}
_CLAUDES: Final = {
    "SessionStart": "sessionStart",
    "SessionEnd": "sessionEnd",
    "UserPromptSubmit": "userPromptSubmitted",
    "PreToolUse": "preToolUse",
    "PostToolUse": "postToolUse",
    "PostToolUseFailure": "postToolUseFailure",
    "Notification": "notification",
    "Stop": "agentStop",
    "StopFailure": "errorOccurred",
}
HOOK_EVENTS: Final = tuple(_MEANINGS)
"""The events that say anything to us, as the program names them."""

_NOTIFIED: Final = {
    "permission_prompt": "approval.requested",
    "elicitation_dialog": "question.asked",
}
_QUESTION: Final = "ask_user"


class CopilotHook(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's payload, as far as it says anything to us."""

    session_id: str
    fact: CopilotFact
    cwd: str = ""


def translate(payload: object) -> CopilotHook | None:
    """Return what a hook's payload says; None if it is of an event that means nothing to us.

    Raises:
        ValueError: it is no payload of a hook.
    """
    said = mapping(payload)
    name = text(said.get("hook_event_name")) or text(said.get("hookName"))
    session_id = text(said.get("sessionId")) or text(said.get("session_id"))
    if not name or not 0 < len(session_id) <= LONGEST_SESSION_ID:
        raise ValueError("this is none of copilot's hooks")
    name = own_name(name)
    if name not in _MEANINGS:
        return None
    event_type, details = _meaning(name, said)
    return CopilotHook(
        session_id=session_id,
        cwd=text(said.get("cwd")),
        fact=CopilotFact(
            event_type=event_type,
            source_event_id=f"{name}:{said.get('timestamp')}",
            at=parse_time(said.get("timestamp")),
            payload={"hook": name} | {key: value for key, value in details.items() if value},
            is_answer=name.startswith("postToolUse") and details.get("tool") == _QUESTION,
        ),
    )


def own_name(event: str) -> str:
    """Return what the program itself calls an event that may be told in Claude's words."""
    return _CLAUDES.get(event, event)


def _meaning(name: str, said: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    match name:
        case "notification":
            kind = text(said.get("notification_type"))
            event_type = _NOTIFIED.get(kind, f"notification.{clip(kind) or 'unknown'}")
            return event_type, {"what": clip(said.get("message"))}
        case "preToolUse":
            tool = _tool(said)
            is_question = tool["tool"] == _QUESTION
            return "question.asked" if is_question else _MEANINGS[name], tool
        case "postToolUse":
            result = mapping(said.get("toolResult")) or mapping(said.get("tool_result"))
            kind = text(result.get("resultType")) or text(result.get("result_type"))
            return _MEANINGS[name] if kind in ("", "success") else "tool.failed", _tool(said)
        case "postToolUseFailure":
            return _MEANINGS[name], _tool(said)
        case "errorOccurred":
            error = mapping(said.get("error"))
            return _MEANINGS[name], {"message": clip(error.get("message"))}
        case "sessionStart":
            return _MEANINGS[name], {"source": clip(said.get("source"))}
        case "sessionEnd":
            return _MEANINGS[name], {"reason": clip(said.get("reason"))}
    return _MEANINGS[name], {}


def _tool(said: dict[str, Any]) -> dict[str, Any]:
    arguments = said.get("toolArgs", said.get("tool_input"))
    return {
        "tool": clip(said.get("toolName")) or clip(said.get("tool_name")),
        "what": subject(mapping(arguments)),
    }
