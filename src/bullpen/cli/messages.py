"""`bullpen messages`: the communication log, a record for each message that ended."""

from collections.abc import Iterable

import click
import msgspec

from bullpen.api.talk import CommunicationEntry, ReadCommunication
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text

__all__ = ["command", "listing"]

GIVE_WAY = (7,)  # the error


@click.command(name="messages")
@click.option(
    "--after",
    type=click.IntRange(min=0),
    default=0,
    metavar="NUMBER",
    help="Only records behind this one.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=500,
    show_default=True,
    metavar="N",
    help="How many at most.",
)
@json_option
@no_start_option
def command(*, after: int, limit: int, as_json: bool) -> None:
    """List the messages that were delivered, or were not: size, duration, and what went wrong.

    The duration is from when a message was accepted until it was seen.

    \b
    Examples:
      bullpen messages
      bullpen messages --json | jq '.messages[] | select(.success | not)'

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    found = ask(ReadCommunication(after, limit))
    if as_json:
        print_json(
            messages=[
                {"number": each.number, **msgspec.structs.asdict(each.entry)} for each in found
            ]
        )
    else:
        click.echo("\n".join(listing(found, width=terminal_width())))


def listing(entries: Iterable[CommunicationEntry], *, width: int | None = None) -> list[str]:
    """Return the lines that show some records."""
    return columns([_row(each) for each in entries], width=width, shrink=GIVE_WAY) or [
        "no messages"
    ]


def _row(numbered: CommunicationEntry) -> list[Cell]:
    entry = numbered.entry
    took = "" if entry.duration_ms is None else f"{entry.duration_ms:.0f} ms"
    return [
        Cell(str(numbered.number)),
        Cell(entry.timestamp.astimezone().strftime("%Y-%m-%d %H:%M:%S")),
        text(f"{entry.from_agent} to {entry.to_agent}"),
        Cell(entry.message_type),
        Cell(f"{entry.message_size} bytes"),
        Cell(took),
        Cell("✓ delivered", "green") if entry.success else Cell("✗ not delivered", "red"),
        text(entry.error or ""),
    ]
