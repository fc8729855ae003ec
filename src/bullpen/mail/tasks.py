"""Tasks, made from what is kept anyway: a message, its receipt, and what answered it."""

from collections.abc import Sequence

from bullpen.model.deliveries import Delivery, Receipt, ReceiptState
from bullpen.model.messages import Message, MessageType
from bullpen.model.states import Activity
from bullpen.model.tasks import Task, TaskState

__all__ = ["STATES", "asks", "states_of", "task_of"]

_S = ReceiptState

STATES = {
    _S.ACCEPTED: TaskState.SUBMITTED,
    _S.QUEUED: TaskState.SUBMITTED,
    _S.INJECTED: TaskState.SUBMITTED,
    _S.SUBMITTED: TaskState.WORKING,
    _S.SEEN: TaskState.WORKING,
    _S.ANSWERED: TaskState.COMPLETED,
    _S.FAILED: TaskState.FAILED,
    _S.EXPIRED: TaskState.FAILED,
    _S.DEAD: TaskState.FAILED,
}
"""What a receipt says of a task, as long as nothing else is known of it."""


def states_of(state: TaskState) -> tuple[ReceiptState, ...]:
    """Return the receipts among which tasks of a state are."""
    near = {TaskState.INPUT_REQUIRED: TaskState.WORKING, TaskState.CANCELED: TaskState.FAILED}
    wanted = near.get(state, state)
    return tuple(receipt for receipt, found in STATES.items() if found is wanted)


def asks(message: Message) -> bool:
    """Whether an agent asks something by a message, and is free until somebody has answered it."""
    return message.type is MessageType.PROGRESS and bool(message.metadata.extra.get("asks"))


def task_of(
    delivery: Delivery,
    receipts: Sequence[Receipt],
    thread: Sequence[Message],
    *,
    activity: Activity = Activity.UNKNOWN,
    position: int | None = None,
    holding: str = "",
) -> Task:
    """Return the task that a delivery is.

    `receipts` are those of its message, `thread` the conversation; `activity` is what its agent is
    doing if it works on this one.
    """
    message = delivery.message
    own = [each for each in receipts if each.recipient == delivery.recipient]
    answers = tuple(
        each
        for each in thread
        if each.reply_to == message.id and each.from_agent == delivery.recipient
    )
    state = STATES[delivery.state]
    last = own[-1] if own else None
    reason = last.evidence.what if last is not None and state is TaskState.FAILED else ""
    if state is TaskState.FAILED:
        failed = [each.content for each in answers if each.type is MessageType.TASK_FAILED]
        reason = failed[-1] if failed else reason
        if any(each.evidence.data.get("canceled") for each in own):
            state = TaskState.CANCELED
    elif state is TaskState.WORKING and answers and asks(answers[-1]):
        state, reason = TaskState.INPUT_REQUIRED, answers[-1].content
    elif state is TaskState.WORKING and activity.is_waiting:
        state = TaskState.INPUT_REQUIRED
        reason = "the agent waits for an approval"
        if activity is Activity.WAITING_INPUT:
            reason = "the agent waits for an answer"
    elif position is not None:
        reason = holding
    return Task(
        id=message.id,
        context_id=thread[0].id if thread else message.id,
        state=state,
        receipt=delivery.state,
        sender=message.from_agent,
        recipient=delivery.recipient,
        message=message,
        created_at=delivery.accepted_at,
        updated_at=max([delivery.accepted_at, *(each.at for each in own)]),
        answers=answers,
        reason=reason,
        position=position,
    )
