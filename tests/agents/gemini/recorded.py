"""What a real Gemini CLI told its hooks and wrote down, while somebody used it."""

import json
from pathlib import Path
from typing import Any

__all__ = ["CHAT", "deliveries", "payload_of"]

RECORDINGS = Path(__file__).parents[2] / "recordings" / "gemini"
CHAT = RECORDINGS / "chat.jsonl"


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
