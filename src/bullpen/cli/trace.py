"""`bullpen trace`: every step of a message, with its evidence."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click
import msgspec

from bullpen.api.talk import MailTrace, TraceMessage
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text, word_cell
from bullpen.cli.receipts import (
    content_line,
    delivery_line,
    delivery_record,
    message_head,
    message_record,
    reasons,
)
from bullpen.cli.speaking import refusals
from bullpen.model.appearance import age_words, one_line
from bullpen.model.deliveries import Evidence, Receipt
from bullpen.model.mailing import RECEIPTS

__all__ = ["command", "trace_lines"]

GIVE_WAY = (5,)  # what was observed
SHORT = 60  # characters of a message that stands for the rest of it


@click.command(name="trace")
@click.argument("message", metavar="MESSAGE")
@json_option
@no_start_option
@click.pass_context
def command(context: click.Context, *, message: str, as_json: bool) -> None:
    """Show all that is known of a message: each step with its time, its evidence and its attempt.

    MESSAGE is an id, or the beginning of one. Below the steps stands what it waits for, and the
    conversation it belongs to.

    \b
    Examples:
      bullpen trace m-7f3a
      bullpen trace m-7f3a --json | jq -r '.receipts[] | [.at, .state, .evidence.what] | @tsv'

    \b
    Exit codes:
      0  shown
      1  there is no daemon
      2  wrong usage
      4  there is no such message, or several begin so
    """  # noqa: D301 - click wants the character, not its name
    with refusals(context, as_json=as_json):
        trace = ask(TraceMessage(message))
    if as_json:
        print_json(**record(trace))
    else:
        click.echo("\n".join(trace_lines(trace, datetime.now(UTC), width=terminal_width())))


def record(trace: MailTrace) -> dict[str, Any]:
    """Return all that is known of a message, for programs."""
    return {
        **msgspec.structs.asdict(trace),
        "message": message_record(trace.message),
        "deliveries": [delivery_record(each) for each in trace.deliveries],
        "thread": [message_record(each) for each in trace.thread],
    }


def trace_lines(trace: MailTrace, now: datetime, *, width: int | None = None) -> list[str]:
    """Return the lines that show a message, its steps in each mailbox, and its thread."""
    lines = [
        click.style(message_head(trace.message, now), bold=True),
        f"  {content_line(trace.message, most=SHORT)}",
    ]
    why = reasons(trace.receipts)
    for delivery in trace.deliveries:
        who = delivery.recipient
        lines.append(
            delivery_line(
                delivery,
                position=trace.positions.get(who),
                holding=trace.holding.get(who, ""),
                reason=why.get(who, ""),
            )
        )
        rows = [_row(each, now) for each in trace.receipts if each.recipient == who]
        lines += [f"  {line}" for line in columns(rows, width=width and width - 2, shrink=GIVE_WAY)]
    return [*lines, *_thread_lines(trace)]


def _row(receipt: Receipt, now: datetime) -> list[Cell]:
    return [
        Cell(receipt.at.astimezone().strftime("%H:%M:%S.%f")[:-3]),
        Cell(f"{age_words((now - receipt.at).total_seconds())} ago"),
        word_cell(RECEIPTS[receipt.state], receipt.state),
        Cell(f"attempt {receipt.attempt}" if receipt.attempt else ""),
        text(f"by {receipt.evidence.by}"),
        text(_evidence_words(receipt.evidence)),
    ]


def _evidence_words(evidence: Evidence) -> str:
    data = ", ".join(f"{key} {value}" for key, value in evidence.data.items())
    return f"{evidence.what}{data and f' ({data})'}".strip()


def _thread_lines(trace: MailTrace) -> Iterator[str]:
    if len(trace.thread) < 2:
        return
    yield "thread"
    for each in trace.thread:
        mark = "*" if each.id == trace.message.id else " "
        who = one_line(f"{each.id}  {each.from_agent} to {each.to_agent}, {each.type}")
        yield f"{mark} {who}: {content_line(each, most=SHORT)}"
