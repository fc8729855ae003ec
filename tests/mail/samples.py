"""Plain messages for tests that do not care what is in them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bullpen.model.deliveries import Evidence
from bullpen.model.messages import Message, MessageMetadata, Priority

__all__ = ["SECOND", "SEEN_BY_HOOK", "T0", "message"]

T0 = datetime(2026, 2, 1, 14, 32, 10, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SEEN_BY_HOOK = Evidence("hook", "UserPromptSubmit", {"turn": "t-1"})


def message(
    number: int = 1,
    *,
    sender: str = "boss",
    to: str = "coder",
    priority: Priority = Priority.NORMAL,
    ttl: float | None = None,
    **fields: Any,
) -> Message:
    return Message(
        id=f"m{number}",
        from_agent=sender,
        to_agent=to,
        metadata=MessageMetadata(priority=priority, ttl=ttl),
        **{"content": f"text {number}", "timestamp": T0, **fields},
    )
