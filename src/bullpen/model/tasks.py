"""A task: what was asked of an agent, and what came of it.

It is a message that wants an answer, looked at together with its receipt and its answers. There is
no other store of tasks: whoever asks, through whichever door, sees the same one.
"""

from datetime import datetime
from enum import StrEnum

import msgspec

from bullpen.model.deliveries import ReceiptState
from bullpen.model.dialogs import Dialog
from bullpen.model.messages import Message

__all__ = ["Task", "TaskState"]


class TaskState(StrEnum):
    """Where a task is; the words are those of A2A peers."""

    SUBMITTED = "submitted"
    """It waits, or is on its way."""
    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    """The agent waits for an approval or an answer."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come of it, but perhaps a late answer."""
        return self in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED)


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was asked of one agent."""

    id: str
    """The id of the message that asked."""
    context_id: str
    """The same for all that belongs to one conversation."""
    state: TaskState
    receipt: ReceiptState
    sender: str
    recipient: str
    message: Message
    created_at: datetime
    updated_at: datetime
    answers: tuple[Message, ...] = ()
    """What the agent replied, oldest first: progress too, and the answer last."""
    went_on: tuple[Message, ...] = ()
    """What was said after the agent had asked something: what it was answered, and its replies."""
    reason: str = ""
    """Why it waits, failed or was cancelled, in words."""
    dialog: Dialog | None = None
    """What the agent asks its user meanwhile, if it waits for that."""
    position: int | None = None
    """Its place in the queue, the next being 1; None if it does not wait."""

    @property
    def next_turn(self) -> str:
        """The message that answered what the agent asked; empty if there is none."""
        return next((each.id for each in self.went_on if each.from_agent != self.recipient), "")

    @property
    def text(self) -> str:
        """The answer, without what was said on the way to it."""
        later = [each for each in self.went_on if each.from_agent == self.recipient]
        final = [each for each in (*self.answers, *later) if each.type not in ("progress", "ping")]
        return final[-1].content if final else ""
