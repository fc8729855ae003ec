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

import msgspec

from bullpen.agents.providers.codex.facts import CodexFact, clip, mapping, text
from bullpen.agents.providers.codex.failures import failed_turn

__all__ = ["EVENTS", "Approvals", "agent_of", "may_go_on", "translate"]

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
_APPROVAL: Final = "approval.requested"
_TOOLS: Final = ("PreToolUse", "PostToolUse")
_GOES_ON: Final = ("PreModelRequest", "Stop", "SubagentStop", "Interrupt", "UserPromptSubmit")
MOST_SESSIONS: Final = 1000
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
        if event_type != _APPROVAL:
            event_type = f"{_OF_A_SUBAGENT}.{name}"
    details["hook"] = name
    if turn := text(payload.get("turn_id")):
        details["turn_id"] = turn
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


class Approvals:
    """Who waits for permission, so that what others do meanwhile is not taken for the answer.

    Tools may be called side by side, and a subagent works beside its parent. A hook does not tell
    which call is being asked about, but with what; and nothing is told when permission is given,
    only when the tool is done.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, set[tuple[str, str, str]]] = {}  # by session: agent, tool, command

    def settle(self, fact: CodexFact) -> CodexFact:
        """Return a fact as it is to be told, given those before it."""
        thread_id = fact.thread_id
        agent, hook = text(fact.payload.get("agent_id")), text(fact.payload.get("hook"))
        call = (agent, text(fact.payload.get("tool")), text(fact.payload.get("command")))
        if fact.event_type == _APPROVAL:
            self._wait(thread_id, call)
            return fact
        waiting = self._waiting.get(thread_id, set())
        before = len(waiting)
        if hook == "PostToolUse":
            waiting.discard(call)
        elif hook in _GOES_ON:  # its calls are answered, however it was
            waiting -= {each for each in waiting if each[0] == agent}
        elif hook == "SessionEnd":
            waiting.clear()
        if not waiting:
            self._waiting.pop(thread_id, None)
        if waiting and hook in _TOOLS:
            return msgspec.structs.replace(fact, event_type=f"hook.{hook}")
        if agent and before and not waiting:
            return msgspec.structs.replace(fact, event_type="approval.granted")
        return fact

    def _wait(self, thread_id: str, call: tuple[str, str, str]) -> None:
        self._waiting.setdefault(thread_id, set()).add(call)
        if len(self._waiting) > MOST_SESSIONS:
            del self._waiting[next(iter(self._waiting))]


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
    return _APPROVAL, _tool(payload)


def _tool(payload: Payload) -> Payload:
    details: Payload = {"tool": clip(payload.get("tool_name"))}
    asked = mapping(payload.get("tool_input"))
    for key in ("command", "description"):
        if said := clip(asked.get(key)):
            details[key] = said
    return details


def _compacted(payload: Payload) -> tuple[str, Payload]:
    event_type, details = _unsaid(payload)
    # By command it is a turn of its own, whose end nothing else tells; else it is within one.
    return ("turn.completed" if payload.get("trigger") == "manual" else event_type), details


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
    "PostCompact": _compacted,
    "SubagentStart": _unsaid,
    "SubagentStop": _unsaid,
    "Stop": _just("turn.completed"),
    "Interrupt": _just("turn.interrupted"),
    "PreModelRequest": _just("model.requested"),
    "PostModelRequest": _answered,
}
