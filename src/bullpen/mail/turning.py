"""What a turn of an agent means for the message it has. Nothing is done here, only decided.

A turn is a message's own if the agent was asked just that. How its end is known matters: what the
program itself tells is believed at once; what a screen shows only if nothing better will come.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from bullpen.model.messages import (
    MAX_MESSAGE_BYTES,
    MAX_THINKING_BYTES,
    Message,
    MessageMetadata,
    MessageType,
    message_size,
)
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["ON_SIGHT", "failure_reply", "fitted", "is_about", "reply_of_turn", "since_asked"]

ON_SIGHT = frozenset({"pty", "screen", "silence"})
"""Who only sees what the program shows."""

_CUT = "\n[{} characters more]"
_COMPARED = 400  # characters; enough to tell two messages apart, and little enough to be quick

_REASONS = {
    TurnEnd.FAILED: "the turn failed",
    TurnEnd.RATE_LIMITED: "the agent has reached its usage limit",
    TurnEnd.INTERRUPTED: "the turn was interrupted",
}


def is_about(prompt: str, message: Message) -> bool:
    """Whether what an agent was asked is this message.

    Programs change the white space of what they are given, and put things around it.
    """
    wanted = _squeezed(message.content)
    asked = _squeezed(prompt)
    return bool(wanted) and wanted[:_COMPARED] in asked and wanted[-_COMPARED:] in asked


def since_asked(turns: Sequence[Turn], message: Message) -> Sequence[Turn]:
    """Return what was told since an agent was last asked this; nothing if it was not.

    What was told before is of other turns, whoever reads it now for the first time.
    """
    asked = [
        index
        for index, turn in enumerate(turns)
        if turn.prompt is not None and is_about(turn.prompt, message)
    ]
    return turns[asked[-1] :] if asked else ()


def reply_of_turn(
    message: Message, agent: str, turn: Turn, *, reply_id: str, now: datetime
) -> Message:
    """Return the answer that the end of a turn is: what the agent said, or why it said nothing."""
    if turn.end is TurnEnd.DONE:
        return _reply(
            message,
            agent,
            MessageType.TASK_RESPONSE,
            turn.text,
            reply_id,
            now,
            thinking=turn.thinking or None,
        )
    assert turn.end is not None
    reason = _REASONS[turn.end]
    detail = " ".join(turn.text.split())
    return failure_reply(
        message, agent, f"{reason}: {detail}" if detail else reason, reply_id=reply_id, now=now
    )


def fitted(
    reply: Message,
    max_bytes: int = MAX_MESSAGE_BYTES,
    max_thinking: int = MAX_THINKING_BYTES,
) -> Message:
    """Return an answer that is text, and no longer than a message may be; what is cut off is told.

    Of what was thought the end is kept, of what was said the beginning.
    """
    said = reply.content.encode(errors="replace").decode()
    reply = msgspec.structs.replace(reply, content=said)
    if reply.thinking is not None:
        thought = reply.thinking.encode(errors="replace")[-max_thinking:].decode(errors="ignore")
        reply = msgspec.structs.replace(reply, thinking=thought)
    length = len(said)
    while (size := message_size(reply)) > max_bytes and length:
        length = min(length - 1, int(length * max_bytes / size) - len(_CUT))
        cut = _CUT.format(len(said) - max(length, 0))
        reply = msgspec.structs.replace(reply, content=said[: max(length, 0)] + cut)
    return reply


def failure_reply(
    message: Message, agent: str, reason: str, *, reply_id: str, now: datetime
) -> Message:
    """Return the word that there will be no answer, and why."""
    return _reply(message, agent, MessageType.TASK_FAILED, reason, reply_id, now)


def _reply(
    message: Message,
    agent: str,
    kind: MessageType,
    content: str,
    reply_id: str,
    now: datetime,
    *,
    thinking: str | None = None,
) -> Message:
    return Message(
        id=reply_id,
        from_agent=agent,
        to_agent=message.from_agent,
        type=kind,
        content=content,
        thinking=thinking,
        metadata=MessageMetadata(
            task_id=message.id, correlation_id=message.metadata.correlation_id
        ),
        timestamp=now,
        reply_to=message.id,
        origin=message.first_sender,
        hops=message.hops + 1,
    )


def _squeezed(text: str) -> str:
    return "".join(text.split())
