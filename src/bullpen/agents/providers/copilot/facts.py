"""Something happened in a session of Copilot CLI, whichever way it was told."""

from datetime import datetime
from typing import Any

import msgspec

from bullpen.agents.providers.values import clip

__all__ = ["CopilotFact", "subject"]


class CopilotFact(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened in a session of Copilot CLI."""

    event_type: str
    """A word of `bullpen.model.events`, or another, which then asserts no activity."""
    event_id: str = ""
    """The program's own name for the event, if it has one."""
    source_event_id: str
    at: datetime | None = None
    """When, if the program said so."""
    payload: dict[str, Any] = {}
    is_answer: bool = False
    """A question was answered by it."""


def subject(details: dict[str, Any]) -> str:
    """Return what a tool is to be used on, in a few words."""
    for key in (
        "fullCommandText",
        "command",
        "fileName",
        "path",
        "url",
        "query",
        "pattern",
        "message",
        "question",
        "toolName",
    ):
        if found := clip(details.get(key)):
            return found
    return ""
