"""Taking values out of JSON that may hold anything."""

from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["clip", "mapping", "parse_time", "text"]

LONGEST_TEXT: Final = 200
MILLISECONDS_FROM: Final = 1e11  # as seconds that is the year 5138


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


def parse_time(value: object) -> datetime | None:
    """Return a time in ISO 8601 with its zone, or in milliseconds; None if it is none."""
    try:
        if isinstance(value, str):
            time = datetime.fromisoformat(value)
            return time if time.tzinfo is not None else None
        if isinstance(value, int | float) and value > MILLISECONDS_FROM:
            return datetime.fromtimestamp(value / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return None
