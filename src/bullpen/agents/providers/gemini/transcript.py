"""The record Gemini CLI keeps of a conversation: one JSON object on each line.

It is blind to approvals: a tool call is written down when it is over. So it says too little to go
by alone, but it tells what no hook does: that a turn was cancelled, and that it failed.
"""

from typing import Any, Final

from bullpen.agents.providers.gemini.facts import GeminiFact
from bullpen.agents.providers.lenient import decode_leniently
from bullpen.agents.providers.values import clip, mapping, parse_time, text

__all__ = ["read_line"]

_CANCELLED: Final = "Request cancelled"
_REFUSED_FOR_USAGE: Final = ('"code":429', "RESOURCE_EXHAUSTED", "rate limit", "quota")


def read_line(line: bytes, session_id: str) -> GeminiFact | None:
    """Return what a line says; None if it says nothing about how a turn has ended."""
    try:
        said = mapping(decode_leniently(line))
    except ValueError:
        return None
    content = _content(said.get("content"))
    match said.get("type"):
        case "error":
            event_type = "turn.rate_limited" if _is_refused(content) else "turn.failed"
        case "info" if content.startswith(_CANCELLED):
            event_type = "turn.interrupted"
        case _:
            return None
    own_id = text(said.get("id"))
    return GeminiFact(
        event_type=event_type,
        session_id=session_id,
        source_event_id=own_id or f"{event_type}:{text(said.get('timestamp'))}",
        at=parse_time(said.get("timestamp")),
        payload={"message": clip(content)},
    )


def _content(value: Any) -> str:
    if isinstance(value, list):
        return "".join(text(mapping(each).get("text")) for each in value)
    return text(value)


def _is_refused(message: str) -> bool:
    compact = message.replace(" ", "")
    return any(word.replace(" ", "") in compact for word in _REFUSED_FOR_USAGE)
