"""`bullpen dead-letters`: what was never delivered, and the way to send it again."""

from collections.abc import Iterable
from datetime import UTC, datetime

import click

from bullpen.api.talk import ListDeadLetters, RequeueMessage
from bullpen.cli.calls import ask
from bullpen.cli.options import complete_agents, json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text, word_cell
from bullpen.cli.receipts import (
    content_line,
    delivery_line,
    delivery_record,
    message_record,
)
from bullpen.cli.speaking import refusals, secret
from bullpen.model.appearance import age_words
from bullpen.model.deliveries import Delivery
from bullpen.model.mailing import RECEIPTS

__all__ = ["command", "listing"]

GIVE_WAY = (4,)  # the text


@click.group(name="dead-letters", invoke_without_command=True)
@click.option("--to", metavar="AGENT", shell_complete=complete_agents, help="Only those for it.")
@json_option
@no_start_option
@click.pass_context
def command(context: click.Context, *, to: str | None, as_json: bool) -> None:
    """List the messages that ended before they were delivered, the oldest first.

    A message expires with its time to live, and is dead when it did not arrive after six attempts.
    Send one again with `dead-letters resend ID`.

    \b
    Examples:
      bullpen dead-letters
      bullpen dead-letters --to codex
      bullpen dead-letters resend m-7f3a

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    if context.invoked_subcommand is not None:
        return
    show(to, as_json=as_json)


@command.command(name="list")
@click.option("--to", metavar="AGENT", shell_complete=complete_agents, help="Only those for it.")
@json_option
@no_start_option
def list_(*, to: str | None, as_json: bool) -> None:
    """List them; the same as dead-letters alone.

    \b
    Examples:
      bullpen dead-letters list --to codex

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    show(to, as_json=as_json)


@command.command(name="resend")
@click.argument("message_id", metavar="ID")
@click.option(
    "--to",
    metavar="AGENT",
    shell_complete=complete_agents,
    help="Only to it, if it was sent to several.",
)
@json_option
@no_start_option
@click.pass_context
def resend(context: click.Context, *, message_id: str, to: str | None, as_json: bool) -> None:
    """Send a message again that was never delivered: its attempts and its time begin anew.

    \b
    Examples:
      bullpen dead-letters resend m-7f3a

    \b
    Exit codes:
      0  it waits to be delivered again
      1  there is no daemon
      2  wrong usage
      4  there is no such message
      5  refused: it is no dead letter, or too many wait there
    """  # noqa: D301 - click wants the character, not its name
    with refusals(context, as_json=as_json):
        delivery = ask(RequeueMessage(message_id, to, secret()))
    if as_json:
        print_json(delivery=_record(delivery))
    else:
        click.echo(delivery_line(delivery))


def show(to: str | None, *, as_json: bool) -> None:
    """Ask for the dead letters and print them."""
    found = ask(ListDeadLetters(recipient=to))
    if as_json:
        print_json(deliveries=list(map(_record, found)))
    else:
        click.echo("\n".join(listing(found, datetime.now(UTC), width=terminal_width())))


def listing(
    deliveries: Iterable[Delivery], now: datetime, *, width: int | None = None
) -> list[str]:
    """Return the lines that show some dead letters."""
    rows = [
        [
            text(each.message.id),
            word_cell(RECEIPTS[each.state], each.state),
            text(f"{each.message.from_agent} to {each.recipient}"),
            Cell(f"{age_words((now - each.accepted_at).total_seconds())} ago"),
            Cell(content_line(each.message)),
        ]
        for each in deliveries
    ]
    return columns(rows, width=width, shrink=GIVE_WAY) or ["no dead letters"]


def _record(delivery: Delivery) -> dict[str, object]:
    return delivery_record(delivery, message=message_record(delivery.message))
