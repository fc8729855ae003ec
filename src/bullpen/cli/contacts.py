"""`bullpen list`: everybody a message can be sent to."""

from collections.abc import Iterable, Iterator

import click

from bullpen.api.talk import Contact, ListContacts
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import Cell, columns, home_relative, print_json, text
from bullpen.model.appearance import one_line
from bullpen.model.explaining import state_words

__all__ = ["command", "contact_lines", "listing"]

HEADINGS = ("NAME", "TYPE", "PORT", "STATUS", "PID", "ENDPOINT", "DOORS", "WAITING")


@click.command(name="list")
@json_option
@no_start_option
def command(*, as_json: bool) -> None:
    """List everybody a message can be sent to, and through which doors.

    The status is STARTING, BUSY, IDLE or NOT_STARTED; bullpen ls says more of what each is doing.
    What is sent to an agent that has ended waits for its return.

    \b
    Examples:
      bullpen list
      bullpen list --json | jq -r '.contacts[] | select(.waiting > 0) | .name'

    \b
    Exit codes:
      0  listed, also if there is nobody
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    contacts = ask(ListContacts())
    if as_json:
        print_json(contacts=contacts)
    else:
        click.echo("\n".join(listing(contacts)))


def listing(contacts: Iterable[Contact]) -> list[str]:
    """Return the lines that show some contacts."""
    rows = [
        [
            text(each.name),
            text(each.profile or each.provider),
            Cell(str(each.port or "-")),
            Cell(each.status),
            Cell(str(each.pid or "-")),
            text(each.endpoint or "-"),
            text(" ".join(each.doors) or "-"),
            Cell(str(each.waiting)),
        ]
        for each in contacts
    ]
    return columns([[Cell(each) for each in HEADINGS], *rows]) if rows else ["no agents"]


def contact_lines(contact: Contact) -> Iterator[str]:
    """Return the lines that say how one agent is."""
    yield f"{one_line(contact.name)} is {contact.status} ({state_words(contact.activity)})"
    if not contact.is_present:
        yield "  ended     what is sent to it waits for its return"
    yield f"  type      {one_line(contact.profile or contact.provider)}"
    yield f"  doors     {one_line(', '.join(contact.doors)) or 'none'}"
    holding = f": {one_line(contact.holding)}" if contact.holding else ""
    yield f"  waiting   {contact.waiting} messages{holding}"
    if contact.working_on:
        yield f"  works on  {one_line(contact.working_on)}"
    if contact.cwd:
        yield f"  in        {one_line(home_relative(contact.cwd))}"
