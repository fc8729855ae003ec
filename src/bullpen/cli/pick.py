"""`bullpen pick`: go to the next agent that waits for somebody."""

import os
import shlex
import subprocess

import click

from bullpen.api.methods import ListAgents
from bullpen.api.places import is_same_socket, next_agent, server_of
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.errors import BullpenError
from bullpen.model.appearance import one_line
from bullpen.model.places import jump_words
from bullpen.model.views import AgentState

__all__ = ["TmuxFailedError", "command"]

TMUX_SECONDS = 5.0


class TmuxFailedError(BullpenError):
    """Tmux could not go there. The message is its own."""


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
    server = server_of(os.environ)
    agents = ask(ListAgents())
    if waiting:
        agents = tuple(agent for agent in agents if agent.activity.is_waiting)
    chosen = next_agent(agents, server, os.environ.get("TMUX_PANE", ""))
    assert chosen.pane is not None  # who is next has a pane
    assert chosen.place is not None
    if as_json:
        print_json(agent=chosen)
    elif only_print:
        click.echo(chosen.pane.pane_id)
    elif server and is_same_socket(chosen.place.tmux_socket, server):
        _jump(chosen)
    else:
        click.echo(shlex.join(jump_words(chosen.pane.pane_id, chosen.place, attach=True)))


def _jump(agent: AgentState) -> None:
    assert agent.pane is not None
    assert agent.place is not None
    words = jump_words(agent.pane.pane_id, agent.place, attach=False)
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=TMUX_SECONDS)
    except FileNotFoundError as error:
        raise TmuxFailedError("there is no tmux on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise TmuxFailedError(f"tmux did not answer in {TMUX_SECONDS:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise TmuxFailedError(one_line(f"tmux could not go there: {said}")) from error
