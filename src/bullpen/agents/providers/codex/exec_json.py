"""The lines that `codex exec --json` prints.

Only the first names the thread. Such a run never asks for anything, so all that is to be told is
when turns and tools begin and end. "Reconnecting…" is an error by name only: Codex goes on.
"""

from typing import Any, Final, NamedTuple

from bullpen.agents.providers.codex.facts import clip, mapping, parse_object, text
from bullpen.agents.providers.codex.failures import failed_turn

__all__ = ["ExecEvent", "translate"]

_TOOLS: Final = (
    "collab_tool_call",
    "command_execution",
    "file_change",
    "mcp_tool_call",
    "web_search",
)
_FAILED: Final = ("declined", "failed")


class ExecEvent(NamedTuple):
    """What one line says."""

    event_type: str
    """A word of `bullpen.model.events`, or another, which then asserts no activity."""
    session_id: str | None
    """The thread, which only the first line names."""
    payload: dict[str, Any]


def translate(line: str) -> ExecEvent | None:
    """Return what a line says; None if it is no such line, or says nothing to us."""
    if not line.lstrip().startswith("{"):
        return None  # most of what is on a screen
    event = parse_object(line.encode(errors="replace"))
    if event is None:
        return None
    match event.get("type"):
        case "thread.started":
            thread_id = text(event.get("thread_id"))
            return ExecEvent("thread.started", thread_id or None, {})
        case "turn.started" | "turn.completed" as event_type:
            return ExecEvent(event_type, None, {})
        case "turn.failed":
            event_type, message = failed_turn(mapping(event.get("error")).get("message"))
            return ExecEvent(event_type, None, {"error": message})
        case "error":  # if it is the last word, `turn.failed` follows
            return ExecEvent("exec.error", None, {"error": clip(event.get("message"))})
        case "item.started" | "item.completed" as what:
            return _item(mapping(event.get("item")), has_ended=what == "item.completed")
        case _:
            return None


def _item(item: dict[str, Any], *, has_ended: bool) -> ExecEvent | None:
    kind = text(item.get("type"))
    if kind not in _TOOLS:
        return None
    if not has_ended:
        event_type = "tool.started"
    else:
        event_type = "tool.failed" if item.get("status") in _FAILED else "tool.completed"
    payload: dict[str, Any] = {"tool": kind, "item_id": text(item.get("id"))}
    if command := clip(item.get("command") or item.get("tool")):
        payload["command"] = command
    if isinstance(item.get("exit_code"), int):
        payload["exit_code"] = item["exit_code"]
    return ExecEvent(event_type, None, payload)
