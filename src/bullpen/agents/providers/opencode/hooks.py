"""What our plugin in opencode tells, in our words.

A session is `busy`, in a `retry`, or `idle`; how a turn has failed comes just before it is idle,
and that comes twice. A subagent is a session of its own with a parent: that it works says nothing;
what it asks is asked in its parent's terminal.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from bullpen.agents.providers.values import clip, mapping, parse_time, text

__all__ = ["EVERY_SESSION", "OpencodeFact", "translate"]

EVERY_SESSION: Final = "*"
LONGEST_SESSION_ID: Final = 128

_ABORTED: Final = "MessageAbortedError"
_TOO_MANY: Final = 429
_STATUSES: Final = {"busy": "turn.started", "retry": "turn.started", "idle": "turn.completed"}
_PLAIN: Final = {
    "session.created": "session.started",
    "session.updated": "session.updated",
    "permission.asked": "approval.requested",
    "question.asked": "question.asked",
    "question.replied": "question.answered",
    "question.rejected": "question.answered",
    "disposed": "session.ended",
}


class OpencodeFact(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened in a session of opencode."""

    event_type: str
    """A word of `bullpen.model.events`, or another, which then asserts no activity."""
    session_id: str
    """`EVERY_SESSION`, if it is about all of the process."""
    source_event_id: str
    at: datetime | None = None
    parent_id: str = ""
    request_id: str = ""
    title: str = ""
    version: str = ""
    cwd: str = ""
    payload: dict[str, Any] = {}


def translate(payload: object) -> OpencodeFact | None:
    """Return what the plugin says; None if it means nothing to us.

    Raises:
        ValueError: it is not from the plugin.
    """
    said = mapping(payload)
    name, session_id = text(said.get("hook_event_name")), text(said.get("session_id"))
    if not name or not 0 < len(session_id) <= LONGEST_SESSION_ID:
        raise ValueError("this is not from the plugin in opencode")
    event_type = _meaning(name, said)
    if not event_type:
        return None
    details = {key: clip(said.get(key)) for key in ("tool", "what", "status", "error", "message")}
    request_id = clip(said.get("request_id"))
    return OpencodeFact(
        event_type=event_type,
        session_id=session_id,
        source_event_id=request_id or f"{name}:{session_id}:{said.get('timestamp')}",
        at=parse_time(said.get("timestamp")),
        parent_id=text(said.get("parent_id")),
        request_id=request_id,
        title=text(said.get("title")).strip(),
        version=clip(said.get("version")),
        cwd=text(said.get("cwd")),
        payload={"hook": name} | {key: value for key, value in details.items() if value},
    )


def _meaning(name: str, said: dict[str, Any]) -> str:
    match name:
        case "session.status":
            return _STATUSES.get(text(said.get("status")), "")
        case "session.error" if said.get("error") == _ABORTED:
            return "turn.interrupted"
        case "session.error":
            is_limit = said.get("status_code") == _TOO_MANY
            return "turn.rate_limited" if is_limit else "turn.failed"
        case "permission.replied":
            return "tool.failed" if said.get("reply") == "reject" else "approval.granted"
    return _PLAIN.get(name, "")
