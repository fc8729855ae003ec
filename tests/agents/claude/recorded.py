"""What the real program wrote, as it is in `tests/recordings/claude`."""

import json
from pathlib import Path
from typing import Any

__all__ = ["by_event", "deliveries", "lines", "recording"]

RECORDINGS = Path(__file__).parents[2] / "recordings" / "claude"


def recording(name: str) -> Path:
    return RECORDINGS / name


def lines(name: str) -> list[bytes]:
    """Return the lines of a recording."""
    return recording(name).read_bytes().splitlines()


def deliveries(name: str) -> list[dict[str, Any]]:
    """Return what the shim would have delivered, in order."""
    return [json.loads(line) for line in lines(name)]


def by_event() -> dict[str, dict[str, Any]]:
    """Return one payload for each variant of an event."""
    payloads: dict[str, dict[str, Any]] = json.loads(recording("hooks.json").read_bytes())
    return payloads
