"""`bullpen pick`: go to the next agent that waits for somebody."""

import os

import click

from bullpen.api.methods import ListAgents
from bullpen.api.places import go_to_pane, next_agent, pane_of, server_of
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json

__all__ = ["command"]


@click.command(name="pick")
@click.option(
    "--waiting/--any", "waiting", default=True, help="Only who waits for somebody, or anybody."
)
@click.option("--print", "only_print", is_flag=True, help="Print the pane and go nowhere.")
@json_option
@no_start_option
def command(*, waiting: bool, only_print: bool, as_json: bool) -> None:
    """Go to the pane of the next agent that waits: the one behind the pane you are in.

    Outside of tmux, and for an agent on another tmux server, the command that attaches there is
    printed instead.

    \b
    Examples:
      bullpen pick
      bullpen pick --any
      tmux bind-key j run-shell 'bullpen pick'
      tmux switch-client -t "$(bullpen pick --print)"

    \b
    Exit codes:
      0  you are there, or it is printed
      1  nobody waits, or there is no daemon, or tmux could not go there
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    agents = ask(ListAgents())
    if waiting:
        agents = tuple(agent for agent in agents if agent.activity.is_waiting)
    chosen = next_agent(agents, server_of(os.environ), pane_of(os.environ))
    assert chosen.pane is not None  # who is next has a pane
    assert chosen.place is not None
    if as_json:
        print_json(agent=chosen)
    elif only_print:
        click.echo(chosen.pane.pane_id)
    elif attach := go_to_pane(chosen.pane.pane_id, chosen.place, os.environ):
        click.echo(attach)
