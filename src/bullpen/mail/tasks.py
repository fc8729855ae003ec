"""Tasks, made from what is kept anyway: a message, its receipt, and what answered it."""

from collections.abc import Sequence

from bullpen.mail.policy import USER, is_guest
from bullpen.mail.receipts import outcome_of_reply
from bullpen.model.deliveries import Delivery, Receipt, ReceiptState
from bullpen.model.dialogs import Dialog
from bullpen.model.messages import Message, MessageType
from bullpen.model.states import Activity
from bullpen.model.tasks import Task, TaskState

__all__ = ["ANSWERS", "STATES", "asks", "states_of", "task_of", "turns_of"]

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


ANSWERS = "answers"
"""In the metadata of a message: the task whose question it answers."""


def turns_of(message: Message, thread: Sequence[Message]) -> tuple[Message, ...]:
    """Return a message and those it went on with: each answers what the agent asked before it."""
    turns = [message]
    while True:
        said = _answers(turns[-1], thread)
        if not said or not asks(said[-1]):
            return tuple(turns)
        answered = [
            each
            for each in thread
            if _may_answer(each.from_agent, message.from_agent)
            and each.id not in {turn.id for turn in turns}
            and (each.reply_to == said[-1].id or each.metadata.extra.get(ANSWERS) == turns[-1].id)
        ]
        if not answered:
            return tuple(turns)
        turns.append(answered[-1])


def _may_answer(sender: str, asked: str) -> bool:
    """Whether who sent a message answers what somebody was asked: himself, or a person for him."""
    return sender in (asked, USER) or (is_guest(sender) and is_guest(asked))


def _answers(message: Message, thread: Sequence[Message]) -> tuple[Message, ...]:
    """Return what an agent replied to a message."""
    return tuple(
        each
        for each in thread
        if each.reply_to == message.id and each.from_agent == message.to_agent
    )


def asks(message: Message) -> bool:
    """Whether an agent asks something by a message, and is free until somebody has answered it."""
    return message.type is MessageType.PROGRESS and bool(message.metadata.extra.get("asks"))


def task_of(
    delivery: Delivery,
    receipts: Sequence[Receipt],
    thread: Sequence[Message],
    *,
    activity: Activity = Activity.UNKNOWN,
    dialog: Dialog | None = None,
    position: int | None = None,
    holding: str = "",
) -> Task:
    """Return the task that a delivery is.

    `receipts` are those of its message, `thread` the conversation; `activity` is what its agent is
    doing if it works on this one, and `dialog` what it asks its user then.
    """
    message = delivery.message
    own = [each for each in receipts if each.recipient == delivery.recipient]
    answers = tuple(
        each
        for each in thread
        if each.reply_to == message.id and each.from_agent == delivery.recipient
    )
    later = turns_of(message, thread)[1:]
    went_on = tuple(word for turn in later for word in (turn, *_answers(turn, thread)))
    said = went_on or answers
    state = STATES[delivery.state]
    last = own[-1] if own else None
    reason = last.evidence.what if last is not None and state is TaskState.FAILED else ""
    if state is TaskState.FAILED:
        failed = [each.content for each in answers if each.type is MessageType.TASK_FAILED]
        reason = failed[-1] if failed else reason
        if any(each.evidence.data.get("canceled") for each in own):
            state = TaskState.CANCELED
    elif state is TaskState.WORKING and (end := _end(went_on, delivery.recipient)) is not None:
        state = STATES[end]
        reason = went_on[-1].content if state is TaskState.FAILED else ""
    elif state is TaskState.WORKING and said and asks(said[-1]):
        state, reason = TaskState.INPUT_REQUIRED, said[-1].content
    elif state is TaskState.WORKING and activity.is_waiting:
        state = TaskState.INPUT_REQUIRED
        reason = "the agent waits for an approval"
        if activity is Activity.WAITING_INPUT:
            reason = "the agent waits for an answer"
        reason += _asked(dialog) if dialog is not None else ""
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
        went_on=went_on,
        reason=reason,
        dialog=dialog if state is TaskState.INPUT_REQUIRED else None,
        position=position,
    )


def _asked(dialog: Dialog) -> str:
    can = f"\n(answer: {', '.join(dialog.answers)})" if dialog.answers else ""
    return f":\n{dialog.text}{can}"


def _end(went_on: Sequence[Message], agent: str) -> ReceiptState | None:
    """Return how a task has ended that went on; None if it has not, or did not go on."""
    is_its = bool(went_on) and went_on[-1].from_agent == agent
    return outcome_of_reply(went_on[-1].type) if is_its else None
