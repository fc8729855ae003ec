"""What a real Copilot CLI told its hooks and wrote down, while somebody used it."""

import json
from pathlib import Path
from typing import Any

__all__ = ["SESSION", "deliveries", "lines_of", "payload_of", "time_of"]

RECORDINGS = Path(__file__).parents[2] / "recordings" / "copilot-hooks"


def deliveries() -> list[dict[str, Any]]:
    """Every delivery of a hook, and between them the marks of what was done: `{"mark": …}`."""
    lines = (RECORDINGS / "hooks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def payload_of(event: str) -> dict[str, Any]:
    """The first payload of an event."""
    found: dict[str, Any] = next(
        each["payload"]
        for each in deliveries()
        if each.get("payload", {}).get("hook_event_name") == event
    )
    return found


def lines_of(name: str) -> list[bytes]:
    """The record of a session."""
    return (RECORDINGS / name).read_bytes().splitlines(keepends=True)


def time_of(line: bytes) -> str:
    """When a line was written."""
    return str(json.loads(line)["timestamp"])


SESSION = str(json.loads(lines_of("events.jsonl")[0])["data"]["sessionId"])
"""The session of `events.jsonl`, which the hooks are of."""
