"""`bullpen subscribe`: get what is sent to a topic."""

import click

from bullpen.api.talk import SubscribeTopic
from bullpen.cli.calls import ask
from bullpen.cli.options import complete_agents, json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.cli.speaking import refusals, secret
from bullpen.model.appearance import one_line

__all__ = ["command"]


@click.command(name="subscribe")
@click.argument("topic")
@click.option("--off", is_flag=True, help="End that; what has come already stays.")
@click.option(
    "--agent",
    default="",
    metavar="AGENT",
    shell_complete=complete_agents,
    help="Let somebody else get it; only a person may.",
)
@json_option
@no_start_option
@click.pass_context
def command(context: click.Context, *, topic: str, off: bool, agent: str, as_json: bool) -> None:
    """Get what is sent to TOPIC from now on, or no longer.

    You are the agent whose secret is in BULLPEN_SECRET, or else the user.

    \b
    Examples:
      bullpen subscribe builds
      bullpen subscribe builds --agent codex
      bullpen subscribe builds --off

    \b
    Exit codes:
      0  it is so
      1  there is no daemon
      2  wrong usage
      4  there is no such agent
      5  refused: it is not yours to say
    """  # noqa: D301 - click wants the character, not its name
    name = topic.removeprefix("#")
    if not name:
        raise click.UsageError("name a topic")
    with refusals(context, as_json=as_json):
        listening = ask(SubscribeTopic(topic=name, subscribe=not off, agent=agent, secret=secret()))
    if as_json:
        print_json(topic=name, subscribers=listening)
    else:
        who = ", ".join(listening) or "nobody"
        click.echo(one_line(f"#{name}: {who}"))
