"""Something happened in a session of Gemini CLI, whichever way it was told."""

from datetime import datetime
from typing import Any, Final

import msgspec

__all__ = ["GeminiFact", "clip", "mapping", "parse_time", "text"]

LONGEST_TEXT: Final = 200


class GeminiFact(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened in a session of Gemini CLI."""

    event_type: str
    """A word of `bullpen.model.events`, or another, which then asserts no activity."""
    session_id: str
    source_event_id: str
    at: datetime | None = None
    """When, if the program said so."""
    cwd: str = ""
    transcript_path: str = ""
    payload: dict[str, Any] = {}


def parse_time(value: object) -> datetime | None:
    """Return a time in ISO 8601 with its zone; None if it is none."""
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
    return time if time is not None and time.tzinfo is not None else None


def text(value: object) -> str:
    """Return a value if it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    """Return a value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def clip(value: object) -> str:
    """Return a text on one line, cut where it is too long to be kept with an observation."""
    line = " ".join(text(value)[: 4 * LONGEST_TEXT].split())
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"
