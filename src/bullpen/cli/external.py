"""`bullpen external`: agents elsewhere, which are then written to like any other."""

from collections.abc import Iterable, Iterator
from typing import Any

import click

from bullpen.api.external import DISCOVER_SECONDS, DiscoverAgent, ListExternal, RemoveExternal
from bullpen.api.talk import ListContacts
from bullpen.cli.calls import ask, ask_all
from bullpen.cli.options import SECONDS, json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text
from bullpen.cli.send import message_of, record, show, stay_with
from bullpen.cli.speaking import (
    NOBODY,
    REFUSED,
    priority_option,
    read_text,
    refusals,
    secret,
    text_option,
)
from bullpen.model.appearance import one_line
from bullpen.model.external import ExternalAgent
from bullpen.model.messages import MessageType

__all__ = ["command", "details", "listing"]

HEADINGS = ("ALIAS", "NAME", "URL", "LAST SEEN", "DESCRIPTION")
GIVE_WAY = (4, 1)  # the description first, then the name
WAIT_SECONDS = 60.0


@click.group(name="external")
def command() -> None:
    """Add agents elsewhere that speak A2A, and talk to them.

    What an agent speaks is said by its card: A2A 1.0, 0.3, or as Synapse agents do. Once added, its
    alias is an address like any other: for bullpen send and ask, for @alias, and for agents.

    \b
    Examples:
      bullpen external add https://agents.example.com --alias reviewer
      bullpen ask reviewer "what does A2A say about cards?"
      bullpen external remove reviewer

    \b
    Exit codes:
      0  done
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name


@command.command(name="add")
@click.argument("url")
@click.option("--alias", metavar="NAME", help="What to call it, if not its own name in lower case.")
@json_option
@no_start_option
@click.pass_context
def add(context: click.Context, *, url: str, alias: str | None, as_json: bool) -> None:
    """Add the agent whose card is found at URL. Added again, it is kept as it describes itself now.

    \b
    Examples:
      bullpen external add http://localhost:9999
      bullpen external add agents.example.com --alias reviewer

    \b
    Exit codes:
      0  added
      1  there is no daemon
      2  wrong usage
      5  refused: no answer, a card that makes no sense, or an alias that is another's
    """  # noqa: D301 - click wants the character, not its name
    with refusals(context, as_json=as_json):
        agent = ask(DiscoverAgent(url, alias, secret()), timeout=DISCOVER_SECONDS)
    if as_json:
        print_json(agent=agent)
    else:
        click.echo(f"added {one_line(agent.alias)}: {one_line(agent.name)} at {agent.url}")


@command.command(name="list")
@json_option
@no_start_option
def list_(*, as_json: bool) -> None:
    """List the agents that were added.

    \b
    Examples:
      bullpen external list
      bullpen external list --json | jq -r '.agents[].alias'

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    agents = ask(ListExternal())
    if as_json:
        print_json(agents=agents)
    else:
        click.echo("\n".join(listing(agents, width=terminal_width())))


@command.command(name="info")
@click.argument("alias")
@json_option
@no_start_option
@click.pass_context
def info(context: click.Context, *, alias: str, as_json: bool) -> None:
    """Say what is known of an agent that was added.

    \b
    Examples:
      bullpen external info reviewer

    \b
    Exit codes:
      0  said
      1  there is no daemon
      2  wrong usage
      4  there is no such agent
    """  # noqa: D301 - click wants the character, not its name
    agents = ask(ListExternal())
    agent = _known(context, agents, alias)
    if as_json:
        print_json(agent=agent)
    else:
        click.echo("\n".join(details(agent)))


@command.command(name="remove")
@click.argument("alias")
@json_option
@no_start_option
@click.pass_context
def remove(context: click.Context, *, alias: str, as_json: bool) -> None:
    """Forget an agent that was added. What waits for it waits for its return.

    \b
    Examples:
      bullpen external remove reviewer

    \b
    Exit codes:
      0  removed
      1  there is no daemon
      2  wrong usage
      4  there is no such agent
      5  refused: only a person or a boss may
    """  # noqa: D301 - click wants the character, not its name
    with refusals(context, as_json=as_json):
        was_there = ask(RemoveExternal(alias, secret()))
    if not was_there:
        _fail(context, f"there is no external agent {alias}", NOBODY)
    if as_json:
        print_json(removed=alias)
    else:
        click.echo(f"removed {one_line(alias)}")


@command.command(name="send")
@click.argument("alias")
@click.argument("content", metavar="TEXT", required=False)
@text_option
@priority_option
@click.option("--wait", "-w", is_flag=True, help="Wait for the answer, and print it.")
@click.option(
    "--timeout",
    type=SECONDS,
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait.",
)
@json_option
@no_start_option
@click.pass_context
def send(
    context: click.Context,
    /,
    *,
    alias: str,
    content: str | None,
    path: str | None,
    wait: bool,
    timeout: float,
    as_json: bool,
    **said: Any,
) -> None:
    """Send TEXT to an agent that was added; bullpen send does the same for all agents.

    \b
    Examples:
      bullpen external send reviewer "look at this" --wait
      git diff | bullpen external send reviewer - --wait --timeout 600

    \b
    Exit codes:
      0  accepted; with --wait: answered
      1  there is no daemon, or the text cannot be read
      2  wrong usage
      3  the time is over and it is not answered; it is still under way
      4  there is no such agent
      5  refused: by a rule, its rate or its size, or the alias is also an agent of ours
      6  it failed, expired or was given up
    """  # noqa: D301 - click wants the character, not its name
    words = read_text(content, path)
    agents, contacts = ask_all(ListExternal(), ListContacts())
    agent = _known(context, agents, alias)
    if not any(each.name == agent.alias and each.endpoint == agent.url for each in contacts):
        _fail(context, f"{agent.alias} is also an agent of ours, which goes first", REFUSED)
    message = message_of(agent.alias, words, MessageType.TASK_REQUEST, **said)
    with refusals(context, as_json=as_json):
        until = "answered" if wait else None
        sent = stay_with(message, until=until, timeout=timeout if wait else None, verbose=False)
    if as_json:
        print_json(**record(sent))
    else:
        show(sent)
    context.exit(sent.exit_code)


def listing(agents: Iterable[ExternalAgent], *, width: int | None = None) -> list[str]:
    """Return the lines that show some agents."""
    rows = [
        [
            text(each.alias),
            text(each.name),
            text(each.url),
            text(each.last_seen[:19].replace("T", " ") or "never"),
            text(each.description),
        ]
        for each in agents
    ]
    if not rows:
        return ["no external agents; add one with `bullpen external add URL`"]
    headings = [Cell(each) for each in HEADINGS]
    return columns([headings, *rows], width=width, shrink=GIVE_WAY)


def details(agent: ExternalAgent) -> Iterator[str]:
    """Return the lines that say what is known of an agent."""
    yield f"{one_line(agent.alias)} is {one_line(agent.name)} at {one_line(agent.url)}"
    if agent.description:
        yield f"  does       {one_line(agent.description)}"
    for each in agent.skills:
        yield f"  skill      {one_line(str(each.get('name') or each.get('id') or '?'))}"
    able = sorted(name for name, is_so in agent.capabilities.items() if is_so is True)
    if able:
        yield f"  can        {one_line(', '.join(able))}"
    yield f"  added      {one_line(agent.added_at)}"
    yield f"  last seen  {one_line(agent.last_seen) or 'never'}"


def _known(context: click.Context, agents: Iterable[ExternalAgent], alias: str) -> ExternalAgent:
    for agent in agents:
        if agent.alias == alias.lower():
            return agent
    _fail(context, f"there is no external agent {alias}", NOBODY)
    raise AssertionError("the command has ended")


def _fail(context: click.Context, message: str, code: int) -> None:
    click.echo(f"bullpen: {one_line(message)}", err=True)
    context.exit(code)
