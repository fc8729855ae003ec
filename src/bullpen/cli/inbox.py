"""`bullpen inbox`: the messages in one's own mailbox."""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime

import click

from bullpen.api.client import ANSWER_SECONDS, Client
from bullpen.api.runtime import Paths
from bullpen.api.talk import InboxReply, ReadInbox
from bullpen.cli.calls import ask, daemon_paths
from bullpen.cli.options import complete_agents, json_option, may_start, no_start_option
from bullpen.cli.output import print_json, print_json_line
from bullpen.cli.receipts import delivery_record, message_head, message_record
from bullpen.cli.speaking import refusals, secret
from bullpen.model.deliveries import Delivery
from bullpen.model.mailing import plain_text

__all__ = ["command", "message_lines"]

FOLLOW_SECONDS = 30.0  # how long the daemon waits for one; then it is asked again


@click.command(name="inbox")
@click.option("--take", is_flag=True, help="Take them out: they count as seen from now on.")
@click.option("-f", "--follow", is_flag=True, help="Take them out, and go on as more come.")
@click.option(
    "--agent",
    default="",
    metavar="AGENT",
    shell_complete=complete_agents,
    help="Look into somebody else's mailbox; only a person may.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 500),
    default=50,
    show_default=True,
    metavar="N",
    help="How many at once.",
)
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context, *, take: bool, follow: bool, agent: str, limit: int, as_json: bool
) -> None:
    """Show the messages that wait for you; the most urgent first, and of equals the earlier one.

    You are the agent whose secret is in BULLPEN_SECRET, or else the user. Looking changes nothing:
    who sent them is told that they were seen once they are taken. With --follow each line of JSON
    is one message.

    \b
    Examples:
      bullpen inbox
      bullpen inbox --take
      bullpen inbox --follow --json | jq -r '.message.content'
      bullpen inbox --agent codex

    \b
    Exit codes:
      0  shown, also if there is none
      1  there is no daemon, or it went away
      2  wrong usage
      4  there is no such agent
      5  refused: it is not yours to look at
    """  # noqa: D301 - click wants the character, not its name
    if agent and (take or follow):
        raise click.UsageError("somebody else's messages can be looked at, and not taken")
    request = ReadInbox(agent=agent, take=take or follow, limit=limit, secret=secret())
    with refusals(context, as_json=as_json):
        if follow:
            asyncio.run(_follow(daemon_paths(), request, start=may_start(), as_json=as_json))
            return
        reply = ask(request)
    if as_json:
        print_json(deliveries=list(map(_record, reply.deliveries)), waiting=reply.waiting)
    else:
        click.echo("\n".join(listing(reply, datetime.now(UTC))))


async def _follow(paths: Paths, request: ReadInbox, *, start: bool, as_json: bool) -> None:
    """Print what comes until somebody ends it."""
    patient = ReadInbox(
        take=True, limit=request.limit, secret=request.secret, timeout_seconds=FOLLOW_SECONDS
    )
    async with Client.connect(paths, start=start) as client:
        while True:
            reply = await client.request(patient, timeout=FOLLOW_SECONDS + ANSWER_SECONDS)
            for each in reply.deliveries:
                if as_json:
                    print_json_line(**_record(each))
                else:
                    click.echo("\n".join(message_lines(each, datetime.now(UTC))))


def listing(reply: InboxReply, now: datetime) -> list[str]:
    """Return the lines that show some messages."""
    lines = [line for each in reply.deliveries for line in message_lines(each, now)]
    if reply.waiting:
        lines.append(f"{reply.waiting} more wait")
    return lines or ["no messages"]


def message_lines(delivery: Delivery, now: datetime) -> Iterable[str]:
    """Return the lines that show one message: what it is, and below it what it says."""
    yield click.style(message_head(delivery.message, now), bold=True)
    yield from (f"  {line}".rstrip() for line in plain_text(delivery.message.content).split("\n"))


def _record(delivery: Delivery) -> dict[str, object]:
    return delivery_record(delivery, message=message_record(delivery.message))
