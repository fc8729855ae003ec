"""The receipt machine: which step of a message may follow which, and what counts as delivered.

The table is all there is to it. A receipt only moves along its arrows, each step with the evidence
for it; what is not an arrow did not happen. An answer proves that the message was seen, and sending
it off that it was put in: a step that is missing before one of these is put in. The picture in
`docs/concepts/receipts.md` is made from it.
"""

from types import MappingProxyType
from typing import Final

from bullpen.mail.errors import ImpossibleReceipt
from bullpen.model.deliveries import ReceiptState
from bullpen.model.messages import MessageType

__all__ = [
    "DEAD_LETTERS",
    "IN_FLIGHT",
    "OPEN",
    "OPEN_TASK",
    "TRANSITIONS",
    "diagram",
    "outcome_of_reply",
    "steps",
]

_S = ReceiptState

TRANSITIONS: Final = MappingProxyType(
    {
        _S.ACCEPTED: (_S.QUEUED,),
        # An agent that fetches its messages by itself has seen them without anybody's injecting.
        _S.QUEUED: (_S.INJECTED, _S.SEEN, _S.FAILED, _S.EXPIRED, _S.DEAD),
        # Back to the queue only by who knows that it did not arrive.
        _S.INJECTED: (_S.SUBMITTED, _S.SEEN, _S.QUEUED, _S.FAILED, _S.DEAD),
        _S.SUBMITTED: (_S.SEEN, _S.QUEUED, _S.FAILED, _S.DEAD),
        _S.SEEN: (_S.ANSWERED, _S.FAILED),
        _S.ANSWERED: (),
        _S.FAILED: (_S.ANSWERED,),  # after all: a reply that comes late is still a reply
        # Sent again by a person; and what was given up may turn out to have arrived.
        _S.EXPIRED: (_S.QUEUED,),
        _S.DEAD: (_S.QUEUED, _S.SEEN),
    }
)
"""What may follow each state."""

DEAD_LETTERS: Final = (_S.EXPIRED, _S.DEAD)
"""What ended before it was delivered, and can be sent again."""
IN_FLIGHT: Final = (_S.INJECTED, _S.SUBMITTED)
"""What the agent may have had or not. It is never injected again without a look."""
OPEN: Final = (_S.QUEUED,)
"""Where something is still to become of any message."""
OPEN_TASK: Final = (_S.QUEUED, *IN_FLIGHT, _S.SEEN)
"""Where something is still to become of one that asks for an answer."""

_OUTCOMES: Final = MappingProxyType(
    {
        MessageType.TASK_RESPONSE: _S.ANSWERED,
        MessageType.TASK_COMPLETE: _S.ANSWERED,
        MessageType.INFO: _S.ANSWERED,
        MessageType.PONG: _S.ANSWERED,
        MessageType.TASK_FAILED: _S.FAILED,
        MessageType.ERROR: _S.FAILED,
    }
)


def steps(state: ReceiptState, target: ReceiptState) -> tuple[ReceiptState, ...]:
    """Return the steps that lead from a state to another, the last of which is the target.

    Raises:
        ImpossibleReceipt: none do.
    """
    if target in TRANSITIONS[state]:
        return (target,)
    if target is _S.ANSWERED and _S.SEEN in TRANSITIONS[state]:
        return (_S.SEEN, _S.ANSWERED)
    if target is _S.SUBMITTED and _S.INJECTED in TRANSITIONS[state]:
        return (_S.INJECTED, _S.SUBMITTED)
    raise ImpossibleReceipt(state, target)


def outcome_of_reply(kind: MessageType) -> ReceiptState | None:
    """Return what a reply of a type makes of the message it answers.

    Progress, and what asks back, answers nothing.
    """
    return _OUTCOMES.get(kind)


def diagram() -> str:
    """Return the machine as a Mermaid state diagram."""
    arrows = [f"{state} --> {after}" for state, each in TRANSITIONS.items() for after in each]
    ends = [f"{state} --> [*]" for state in (_S.ANSWERED, _S.FAILED, *DEAD_LETTERS)]
    lines = ["[*] --> accepted", *arrows, *ends]
    return "".join(["stateDiagram-v2\n", *(f"    {line}\n" for line in lines)])
