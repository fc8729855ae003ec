"""Something happened in a session of Gemini CLI, whichever way it was told."""

from datetime import datetime
from typing import Any

import msgspec

__all__ = ["GeminiFact"]


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
