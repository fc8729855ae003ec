"""What Claude Code tells its hooks, in our words.

`translate` takes one payload. A hook is an edge: it says that something happened, and nothing says
that it is over. What happens inside a subagent says nothing about the session, except that somebody
is asked for permission: the dialog is on the session's own screen. `Approvals` remembers who has
been asked, for tools run side by side: that another one is done does not mean that nobody waits.

No hook tells of Esc, nor of an answer to a dialog. Other sources do.
"""

from collections import Counter
from typing import Any, Final

import msgspec

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.model.events import SESSION_ENDED, activity_event, activity_of
from bullpen.model.states import Activity

__all__ = ["ANSWERS", "HOOK_EVENTS", "Approvals", "HookEvent", "translate"]

HOOK_EVENTS: Final = (
    "SessionStart",
    "SessionEnd",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PermissionDenied",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Elicitation",
    "ElicitationResult",
    "Notification",
    "SubagentStart",
    "SubagentStop",
    "PreCompact",
    "PostCompact",
    "Stop",
    "StopFailure",
)
"""The events that say anything to us, as the program names them."""

ANSWERS: Final = ("PostToolUse", "PostToolUseFailure", "PermissionDenied", "ElicitationResult")
"""Those that show that whoever asked for one thing has been answered."""

LONGEST_DETAIL: Final = 200
LONGEST_SESSION_ID: Final = 128
SESSIONS_REMEMBERED: Final = 1000

_RUNNING = activity_event(Activity.RUNNING)
# Work of theirs keeps the session busy; shells and monitors run beside an idle one.
_WORKERS = ("subagent", "workflow", "teammate", "cloud session")
_IN_FLIGHT = ("running", "pending")
# The program goes on with another session.
_GOES_ON = ("clear", "resume")
_CONFIRMS = {"permission_prompt": "waiting", "idle_prompt": "idle"}
_PLAIN = {
    "UserPromptSubmit": "prompt.submitted",
    "PreToolUse": "tool.started",
    "PermissionDenied": "tool.failed",
    "PostToolUse": "tool.completed",
    "PostToolBatch": "model.requested",
    "Elicitation": "question.asked",
    "ElicitationResult": _RUNNING,
    "SubagentStart": "subagent.started",
    "SubagentStop": "subagent.stopped",
    "PreCompact": "compaction.started",
}
_ASKING = ("approval.requested", "question.asked")
_ALL_ANSWERED = ("PostToolBatch", "SubagentStop")
_ALL_OVER = ("UserPromptSubmit", "Stop", "StopFailure", "SessionStart", "SessionEnd")


class HookEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One hook's payload, as far as it says anything to us."""

    name: str
    """The program's name of the event."""
    event_type: str
    """Ours, of `bullpen.model.events`, or one that says nothing about what the agent is doing."""
    session_id: str
    source_event_id: str
    cwd: str = ""
    transcript_path: str = ""
    agent_id: str = ""
    """The subagent it is about, if it is about one."""
    tool: str = ""
    title: str = ""
    """What the session is called, if the payload tells."""
    details: dict[str, Any] = {}


def translate(payload: object) -> HookEvent | None:
    """Return what a payload says; None if it is of an event that means nothing to us.

    Raises:
        NotUnderstood: it is no payload of a hook.
    """
    if not isinstance(payload, dict):
        raise NotUnderstood("a hook's payload", f"a {type(payload).__name__} is no object")
    name, session_id = _text(payload, "hook_event_name"), _text(payload, "session_id")
    if not name or not session_id:
        missing = "session_id" if name else "hook_event_name"
        raise NotUnderstood("a hook's payload", f"it has no {missing}")
    if len(session_id) > LONGEST_SESSION_ID or not session_id.isprintable():
        raise NotUnderstood("a hook's payload", "its session_id is none")
    if name not in HOOK_EVENTS:
        return None
    agent_id = _text(payload, "agent_id")
    event_type, details = _meaning(name, payload)
    if agent_id and event_type not in _ASKING:
        event_type = f"subagent.{event_type.removeprefix('subagent.')}"
    return HookEvent(
        name=name,
        event_type=event_type,
        session_id=session_id,
        source_event_id=_own_id(name, payload, session_id),
        cwd=_text(payload, "cwd"),
        transcript_path=_text(payload, "transcript_path"),
        agent_id=agent_id,
        tool=_text(payload, "tool_name"),
        title=_text(payload, "session_title").strip(),
        details={"hook": name} | {key: value for key, value in details.items() if value},
    )


class Approvals:
    """Who has been asked for permission and has not been seen to go on since, by session.

    The payload that asks names no use of a tool, so that who asked is known by agent and tool.
    """

    def __init__(self) -> None:
        self._pending: dict[str, Counter[tuple[str, str]]] = {}

    def settle(self, event: HookEvent) -> HookEvent:
        """Return an event as it is to be told, after all that came before it.

        While somebody is being asked, a tool at work beside it says nothing. When a subagent goes
        on that had asked, the session does.
        """
        key = (event.agent_id, event.tool)
        if event.event_type in _ASKING:
            self._remember(event.session_id)[key] += 1
            return event
        pending = self._pending.get(event.session_id)
        if pending is None:
            return event
        if _is_all_over(event):
            del self._pending[event.session_id]
            return event
        was_asked = self._take(pending, event, key)
        if pending:
            if activity_of(event.event_type) is None:
                return event
            return msgspec.structs.replace(event, event_type=f"parallel.{event.event_type}")
        del self._pending[event.session_id]
        if was_asked and event.agent_id:
            return msgspec.structs.replace(event, event_type="approval.granted")
        return event

    def _remember(self, session_id: str) -> Counter[tuple[str, str]]:
        pending = self._pending.pop(session_id, Counter())
        self._pending[session_id] = pending  # the latest one is the last
        if len(self._pending) > SESSIONS_REMEMBERED:
            del self._pending[next(iter(self._pending))]
        return pending

    @staticmethod
    def _take(pending: Counter[tuple[str, str]], event: HookEvent, key: tuple[str, str]) -> bool:
        """Take out whoever has been answered, as the event shows; tell whether there was one."""
        answered: list[tuple[str, str]] = []
        if event.name in ANSWERS and key in pending:
            answered = [key]
            pending[key] -= 1
        elif event.name in _ALL_ANSWERED:
            answered = [each for each in pending if each[0] == event.agent_id]
            for each in answered:
                pending[each] = 0
        for each in answered:
            if pending[each] <= 0:
                del pending[each]
        return bool(answered)


def _is_all_over(event: HookEvent) -> bool:
    """Whether nobody is asked any more after it."""
    is_over = event.name in _ALL_OVER or event.event_type == "turn.interrupted"
    return is_over and not event.agent_id


def _meaning(name: str, payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the type of an event, and what else is worth telling of it."""
    match name:
        case "SessionStart":
            source = _text(payload, "source")
            # In the midst of a turn, or after a command: what follows tells which.
            event_type = "session.compacted" if source == "compact" else "session.started"
            return event_type, {"source": source, "model": _text(payload, "model")}
        case "SessionEnd":
            reason = _text(payload, "reason")
            return "session.left" if reason in _GOES_ON else SESSION_ENDED, {"reason": reason}
        case "UserPromptSubmit":
            # The program wakes itself when something in the background is done.
            is_automatic = _text(payload, "prompt").startswith("<task-notification>")
            return _PLAIN[name], {"is_automatic": is_automatic}
        case "PermissionRequest":
            is_question = _text(payload, "tool_name") == "AskUserQuestion"
            return _ASKING[is_question], _tool_details(payload)
        case "PostToolUseFailure":
            is_interrupt = payload.get("is_interrupt") is True
            return "turn.interrupted" if is_interrupt else "tool.failed", _tool_details(payload)
        case "Notification":
            kind = _text(payload, "notification_type")
            details = {"confirms": _CONFIRMS.get(kind), "message": _short(payload.get("message"))}
            return f"notification.{kind or 'unknown'}", details
        case "Stop":
            return _stopped(payload)
        case "StopFailure":
            error = _text(payload, "error")
            failed = "turn.rate_limited" if error == "rate_limit" else "turn.failed"
            message = _short(payload.get("last_assistant_message"))
            return failed, {"error": error, "message": message}
        case "PostCompact":
            is_manual = _text(payload, "trigger") == "manual"
            return "turn.completed" if is_manual else "model.requested", {}
    return _PLAIN[name], _tool_details(payload)


def _stopped(payload: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    tasks = payload.get("background_tasks")
    running = [
        each
        for each in (tasks if isinstance(tasks, list) else ())
        if isinstance(each, dict) and each.get("status") in _IN_FLIGHT
    ]
    kinds = sorted({_short(each.get("type")) for each in running})
    details = {"background": bool(running), "background_kinds": kinds}
    if any(kind in _WORKERS for kind in kinds):
        return _RUNNING, details
    return "turn.completed", details


def _tool_details(payload: dict[str, Any]) -> dict[str, Any]:
    tool_input = payload.get("tool_input")
    return {
        "tool": _short(payload.get("tool_name")),
        "what": _subject(tool_input) if isinstance(tool_input, dict) else "",
        "error": _short(payload.get("error")),
    }


def _subject(tool_input: dict[str, Any]) -> str:
    """Return what a tool is to be used on, in a few words."""
    questions = tool_input.get("questions")
    if isinstance(questions, list) and questions and isinstance(questions[0], dict):
        return _short(questions[0].get("question"))
    for key in ("command", "file_path", "url", "pattern", "query", "plan", "description"):
        if isinstance(tool_input.get(key), str):
            return _short(tool_input[key])
    return ""


def _own_id(name: str, payload: dict[str, Any], session_id: str) -> str:
    for key in ("tool_use_id", "elicitation_id", "prompt_id", "agent_id"):
        if value := _text(payload, key):
            return value
    return f"{name}:{session_id}"


def _text(payload: dict[str, Any], key: str) -> str:
    value = payload.get(key)
    return value if isinstance(value, str) else ""


def _short(value: object) -> str:
    text = " ".join(value[: 4 * LONGEST_DETAIL].split()) if isinstance(value, str) else ""
    return text if len(text) <= LONGEST_DETAIL else f"{text[: LONGEST_DETAIL - 1]}…"
