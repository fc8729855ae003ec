"""Messages and receipts as commands print them: lines for people, records for programs."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec

from bullpen.model.appearance import age_words, one_line
from bullpen.model.deliveries import Delivery, Receipt
from bullpen.model.mailing import RECEIPTS, delivery_words, plain_text
from bullpen.model.messages import Message, Priority, wire_message

__all__ = [
    "content_line",
    "delivery_line",
    "delivery_record",
    "echo_text",
    "message_head",
    "message_record",
    "reasons",
    "step_line",
]

MOST_LISTED = 200  # characters of what a message says, in a list of many


def message_record(message: Message) -> dict[str, Any]:
    """Return a message for programs, as it is on every wire."""
    return wire_message(message)


def delivery_record(delivery: Delivery, **more: Any) -> dict[str, Any]:
    """Return how far a message has come in one mailbox, for programs; without the message."""
    fields = msgspec.structs.asdict(delivery)
    del fields["message"]
    return {"message_id": delivery.message.id, **fields, **more}


def delivery_line(delivery: Delivery, **facts: Any) -> str:
    """Return how far a message has come in one mailbox, with its symbol and colour."""
    look = RECEIPTS[delivery.state]
    words, _, more = delivery_words(delivery, **facts).partition(" ")
    return f"{click.style(f'{look.symbol} {words}', fg=look.colour)} {more}"


def reasons(receipts: Iterable[Receipt]) -> Mapping[str, str]:
    """Return, by recipient, what the last step of each receipt says."""
    return {each.recipient: each.evidence.what for each in receipts}


def message_head(message: Message, now: datetime) -> str:
    """Return one line that says what a message is: `m-1 from claude, task_request, 5m ago`."""
    facts: Sequence[str] = [
        f"{message.id} from {message.from_agent}",
        *([f"to {message.to_agent}"] if message.topic else []),
        message.type,
        *([message.priority] if message.priority is not Priority.NORMAL else []),
        f"{age_words((now - message.timestamp).total_seconds())} ago",
        *([f"answers {message.reply_to}"] if message.reply_to else []),
    ]
    return one_line(", ".join(facts))


def content_line(message: Message, *, most: int = MOST_LISTED) -> str:
    """Return what a message says, in one line and so many characters."""
    said = one_line(message.content.strip())
    return said if len(said) <= most else f"{said[: most - 1]}…"


def echo_text(text: str, *, err: bool = False, ends: bool = True) -> None:
    """Print what an agent wrote: exactly for programs, and on a terminal so that it is harmless.

    If it `ends` not, more of the line is to come.
    """
    stream = sys.stderr if err else sys.stdout
    if stream.isatty():
        click.echo(plain_text(text), err=err, nl=ends)
    else:  # in its colours, or it would be stripped of what looks like one
        click.echo(text, err=err, nl=ends, color=True)


def step_line(receipt: Receipt) -> str:
    """Return one step, for somebody who looks on: `  codex: → injected (it was typed)`."""
    look = RECEIPTS[receipt.state]
    state = click.style(f"{look.symbol} {receipt.state}", fg=look.colour)
    what = one_line(receipt.evidence.what)
    return f"  {one_line(receipt.recipient)}: {state}{what and f' ({what})'}"
