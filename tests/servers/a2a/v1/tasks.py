"""Tasks as the daemon tells of them, for tests of what only decides."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bullpen.model.deliveries import ReceiptState
from bullpen.model.messages import Message, MessageMetadata, MessageType
from bullpen.model.tasks import Task, TaskState

__all__ = ["NOW", "answer", "task"]

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


def task(
    state: TaskState = TaskState.SUBMITTED,
    *answers: Message,
    id: str = "m-1",
    content: str = "hello",
    a2a: dict[str, Any] | None = None,
    reason: str = "",
    seconds: float = 0.0,
) -> Task:
    extra = {"a2a": a2a} if a2a is not None else {}
    message = Message(
        id=id,
        from_agent="a2a",
        to_agent="codex",
        type=MessageType.TASK_REQUEST,
        content=content,
        metadata=MessageMetadata(extra=extra),
        timestamp=NOW,
    )
    at = NOW + timedelta(seconds=seconds)
    return Task(
        id=id,
        context_id="m-1",
        state=state,
        receipt=ReceiptState.SEEN,
        sender="a2a",
        recipient="codex",
        message=message,
        created_at=at,
        updated_at=at,
        answers=answers,
        reason=reason,
    )


def answer(
    content: str,
    kind: MessageType = MessageType.TASK_RESPONSE,
    *,
    to: str = "m-1",
    id: str = "r-1",
    asks: bool = False,
    **a2a: Any,
) -> Message:
    extra: dict[str, Any] = {"a2a": a2a} if a2a else {}
    if asks:
        extra["asks"] = True
    return Message(
        id=id,
        from_agent="codex",
        to_agent="a2a",
        type=kind,
        content=content,
        metadata=MessageMetadata(extra=extra),
        timestamp=NOW,
        reply_to=to,
    )
