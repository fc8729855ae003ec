"""What Gemini CLI tells its hooks, in our words.

A tool is announced (`BeforeTool`) before anybody is asked whether it may run; that somebody is
asked is a `Notification`. No hook tells of an answer, nor of Esc while somebody is asked: the
record of the conversation does (`transcript`). The end of a turn (`AfterAgent`) comes also when the
turn has failed or was interrupted.
"""

from typing import Any, Final

from bullpen.agents.providers.gemini.facts import GeminiFact
from bullpen.agents.providers.values import clip, mapping, parse_time, text
from bullpen.model.events import SESSION_ENDED

__all__ = ["HOOK_EVENTS", "translate"]

_PLAIN: Final = {
    "SessionStart": "session.started",
    "SessionEnd": SESSION_ENDED,
    "BeforeAgent": "prompt.submitted",
    "AfterAgent": "turn.completed",
    "BeforeTool": "tool.started",
    "AfterTool": "tool.completed",
}
HOOK_EVENTS: Final = (*_PLAIN, "Notification")
"""The events that say anything to us, as the program names them."""

LONGEST_SESSION_ID: Final = 128


def translate(payload: object) -> GeminiFact | None:
    """Return what a hook's payload says; None if it is of an event that means nothing to us.

    Raises:
        ValueError: it is no payload of a hook.
    """
    said = mapping(payload)
    name, session_id = text(said.get("hook_event_name")), text(said.get("session_id"))
    if not name or not 0 < len(session_id) <= LONGEST_SESSION_ID:
        raise ValueError("this is none of gemini's hooks")
    if name not in HOOK_EVENTS:
        return None
    event_type, details = _meaning(name, said)
    return GeminiFact(
        event_type=event_type,
        session_id=session_id,
        source_event_id=f"{name}:{text(said.get('timestamp'))}",
        at=parse_time(said.get("timestamp")),
        cwd=text(said.get("cwd")),
        transcript_path=text(said.get("transcript_path")),
        payload={"hook": name} | {key: value for key, value in details.items() if value},
    )


def _meaning(name: str, said: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    match name:
        case "SessionStart":
            return _PLAIN[name], {"source": clip(said.get("source"))}
        case "SessionEnd":
            return _PLAIN[name], {"reason": clip(said.get("reason"))}
        case "BeforeTool":
            return _PLAIN[name], _tool(said)
        case "AfterTool":
            has_failed = bool(mapping(said.get("tool_response")).get("error"))
            return "tool.failed" if has_failed else _PLAIN[name], _tool(said)
        case "Notification":
            return _notified(said)
    return _PLAIN[name], {}


def _notified(said: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    kind = text(said.get("notification_type"))
    details = mapping(said.get("details"))
    if kind != "ToolPermission":
        return f"notification.{clip(kind) or 'unknown'}", {"message": clip(said.get("message"))}
    what = {"tool": clip(details.get("title")), "what": _subject(details)}
    is_question = text(details.get("type")) == "ask_user"
    return "question.asked" if is_question else "approval.requested", what


def _tool(said: dict[str, Any]) -> dict[str, Any]:
    return {
        "tool": clip(said.get("tool_name")),
        "what": _subject(mapping(said.get("tool_input"))),
    }


def _subject(details: dict[str, Any]) -> str:
    """Return what a tool is to be used on, in a few words."""
    for key in ("command", "file_path", "filePath", "fileName", "path", "query", "prompt", "url"):
        if found := clip(details.get(key)):
            return found
    return ""
