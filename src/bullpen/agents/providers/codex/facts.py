"""What Codex has told, whichever way it did, and how to read JSON that may hold anything."""

from datetime import datetime
from typing import Any, Final

import msgspec

from bullpen.agents.providers.lenient import decode_leniently

__all__ = ["CodexFact", "clip", "mapping", "parse_object", "parse_time", "text"]

LONGEST_TEXT: Final = 500  # characters of an error or a title; what is more is said elsewhere


class CodexFact(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened in a thread of Codex."""

    event_type: str
    """A word of `bullpen.model.events`, or another, which then asserts no activity."""
    thread_id: str
    at: datetime | None = None
    """When, if Codex said so."""
    source_event_id: str | None = None
    """The turn, the tool call or the like."""
    payload: dict[str, Any] = {}


def parse_object(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a text; None if it is anything else."""
    try:
        value = decode_leniently(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def parse_time(value: object) -> datetime | None:
    """Return a time in ISO 8601 with its zone; None if it is none."""
    if not isinstance(value, str):
        return None
    try:
        time = datetime.fromisoformat(value)
    except ValueError:
        return None
    return time if time.tzinfo is not None else None


def text(value: object) -> str:
    """Return a value if it is a text that can be written down, else an empty one."""
    if not isinstance(value, str):
        return ""
    return value if value.isascii() else value.encode(errors="replace").decode()


def mapping(value: object) -> dict[str, Any]:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def clip(value: object) -> str:
    """Return a text, cut where it is too long to be kept with an observation."""
    whole = text(value)
    return whole if len(whole) <= LONGEST_TEXT else whole[: LONGEST_TEXT - 1] + "…"
