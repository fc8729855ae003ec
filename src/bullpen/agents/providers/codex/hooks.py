"""Codex's hooks: what each of the fourteen says an agent is doing.

Several of them do not mean what their name suggests:

- `SessionStart` comes with the first prompt, not when the program starts, and again after the
  conversation was compacted, which may be in the midst of a turn. It asserts nothing.
- `PostModelRequest` with `failed` is followed by another request while Codex tries again, and by
  nothing at all when it has given up. Whoever delivers it should wait a moment (`may_go_on`).
- `PostModelRequest` with `cancelled` is an interruption, of which `Interrupt` tells, or a message
  the user sent meanwhile, after which the turn goes on.
- Inside a subagent every hook has an `agent_id` and the session of the thread that began it. Its
  turns and tools are not that thread's own; but it is there that somebody is asked for permission.
"""

from collections.abc import Callable
from typing import Any, Final

from bullpen.agents.providers.codex.facts import CodexFact, clip, mapping, text
from bullpen.agents.providers.codex.failures import failed_turn

__all__ = ["EVENTS", "agent_of", "may_go_on", "translate"]

EVENTS: Final = (
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PreCompact",
    "PostCompact",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "Interrupt",
    "PreModelRequest",
    "PostModelRequest",
)
QUESTION_TOOL: Final = "request_user_input"
_OF_A_SUBAGENT: Final = "subagent"
_FAILURES: Final = ("turn.failed", "turn.rate_limited")

Payload = dict[str, Any]


def translate(hook: object) -> CodexFact | None:
    """Return what a hook's payload says; None if it is not one of Codex's."""
    payload = mapping(hook)
    name, thread_id = text(payload.get("hook_event_name")), text(payload.get("session_id"))
    if name not in EVENTS or not thread_id:
        return None
    event_type, details = _TRANSLATIONS[name](payload)
    if agent := agent_of(payload):
        details["agent_id"] = agent
        if event_type != "approval.requested":
            event_type = f"{_OF_A_SUBAGENT}.{name}"
    details["hook"] = name
    if transcript := text(payload.get("transcript_path")):
        details["transcript_path"] = transcript
    return CodexFact(
        event_type=event_type,
        thread_id=thread_id,
        source_event_id=text(payload.get("tool_use_id")) or text(payload.get("turn_id")) or None,
        payload=details,
    )


def agent_of(hook: object) -> str:
    """Return the subagent a hook was called in; empty for the session itself."""
    return text(mapping(hook).get("agent_id"))


def may_go_on(fact: CodexFact) -> bool:
    """Whether the turn that is said to have failed may be tried again by Codex itself."""
    return fact.event_type in _FAILURES


def _unsaid(payload: Payload) -> tuple[str, Payload]:
    """It is worth keeping and asserts no activity."""
    return f"hook.{text(payload.get('hook_event_name'))}", {
        key: payload[key] for key in ("source", "trigger", "status") if payload.get(key)
    }


def _just(event_type: str) -> Callable[[Payload], tuple[str, Payload]]:
    return lambda _: (event_type, {})


def _ended(payload: Payload) -> tuple[str, Payload]:
    return "session.ended", {"reason": clip(payload.get("reason"))}


def _prompt(payload: Payload) -> tuple[str, Payload]:
    return "prompt.submitted", {"prompt": clip(payload.get("prompt"))}


def _tool_begins(payload: Payload) -> tuple[str, Payload]:
    asks = payload.get("tool_name") == QUESTION_TOOL
    return "question.asked" if asks else "tool.started", _tool(payload)


def _tool_ended(payload: Payload) -> tuple[str, Payload]:
    return "tool.completed", _tool(payload)


def _permission(payload: Payload) -> tuple[str, Payload]:
    return "approval.requested", _tool(payload)


def _tool(payload: Payload) -> Payload:
    details: Payload = {"tool": clip(payload.get("tool_name"))}
    asked = mapping(payload.get("tool_input"))
    for key in ("command", "description"):
        if said := clip(asked.get(key)):
            details[key] = said
    return details


def _answered(payload: Payload) -> tuple[str, Payload]:
    if payload.get("status") != "failed":
        return _unsaid(payload)
    event_type, message = failed_turn(payload.get("error"))
    return event_type, {"error": message}


_TRANSLATIONS: Final[dict[str, Callable[[Payload], tuple[str, Payload]]]] = {
    "SessionStart": _unsaid,
    "SessionEnd": _ended,
    "UserPromptSubmit": _prompt,
    "PreToolUse": _tool_begins,
    "PermissionRequest": _permission,
    "PostToolUse": _tool_ended,
    "PreCompact": _just("compaction.started"),
    "PostCompact": _unsaid,
    "SubagentStart": _unsaid,
    "SubagentStop": _unsaid,
    "Stop": _just("turn.completed"),
    "Interrupt": _just("turn.interrupted"),
    "PreModelRequest": _just("model.requested"),
    "PostModelRequest": _answered,
}
