"""What became of a message, in words for a person, the same in every face.

Nothing less than seen is called delivered here: a message that was only put into an agent's input
is said to be not seen yet.
"""

from bullpen.model.appearance import Appearance, one_line
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.tasks import TaskState

__all__ = ["RECEIPTS", "TASKS", "delivery_words", "plain_text"]

RECEIPTS: dict[ReceiptState, Appearance] = {
    ReceiptState.ACCEPTED: Appearance("○", "cyan"),
    ReceiptState.QUEUED: Appearance("○", "cyan"),
    ReceiptState.INJECTED: Appearance("→", "yellow"),
    ReceiptState.SUBMITTED: Appearance("→", "yellow"),
    ReceiptState.SEEN: Appearance("●", "green"),
    ReceiptState.ANSWERED: Appearance("✓", "blue"),
    ReceiptState.FAILED: Appearance("✗", "red"),
    ReceiptState.EXPIRED: Appearance("▲", "magenta"),
    ReceiptState.DEAD: Appearance("✗", "red"),
}

TASKS: dict[TaskState, Appearance] = {
    TaskState.SUBMITTED: Appearance("○", "cyan"),
    TaskState.WORKING: Appearance("●", "green"),
    TaskState.INPUT_REQUIRED: Appearance("◆", "yellow"),
    TaskState.COMPLETED: Appearance("✓", "blue"),
    TaskState.FAILED: Appearance("✗", "red"),
    TaskState.CANCELED: Appearance("·", None),
}


def delivery_words(
    delivery: Delivery, *, position: int | None = None, holding: str = "", reason: str = ""
) -> str:
    """Return how far a message has come in one mailbox: `accepted m-1 for codex; …`.

    `position` is its place in the queue, `holding` why nothing is handed over there, and `reason`
    why it ended.
    """
    state, who = delivery.state, one_line(delivery.recipient)
    name = one_line(delivery.message.id)
    if state in (ReceiptState.ACCEPTED, ReceiptState.QUEUED):
        waits = _waiting_words(position, holding)
        return f"{ReceiptState.ACCEPTED} {name} for {who}{waits and f'; {waits}'}"
    if state in (ReceiptState.INJECTED, ReceiptState.SUBMITTED):
        return f"{state} {name} for {who}; not seen yet"
    if state.is_delivered:
        return f"{state} {name} by {who}"
    return f"{state} {name} for {who}{reason and f': {one_line(reason)}'}"


def _waiting_words(position: int | None, holding: str) -> str:
    why = one_line(holding)
    if position is not None and position > 1:
        others = "1 waits" if position == 2 else f"{position - 1} wait"
        return f"{others} before it{why and f': {why}'}"
    return f"it waits: {why}" if why else ""


def plain_text(text: str) -> str:
    """Return a text of several lines that cannot do anything to the terminal it is shown on."""
    return "\n".join(map(one_line, text.expandtabs().split("\n")))
