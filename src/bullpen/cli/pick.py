"""`bullpen pick`: go to the next agent that waits for somebody."""

import os
import shlex
import subprocess
from collections.abc import Iterable

import click

from bullpen.api.methods import ListAgents
from bullpen.cli.calls import ask
from bullpen.cli.ls import place_of, place_order
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.errors import BullpenError
from bullpen.model.appearance import one_line
from bullpen.model.views import AgentState

__all__ = ["NobodyError", "TmuxFailedError", "command", "jump_words", "next_agent"]

TMUX_SECONDS = 5.0


class NobodyError(BullpenError):
    """There is nobody to go to. The message says whether somebody waits where tmux cannot go."""


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
    server, _, _ = os.environ.get("TMUX", "").rpartition(",")[0].rpartition(",")
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
    elif server and _is_same_socket(chosen.place.tmux_socket, server):
        _jump(chosen)
    else:
        click.echo(shlex.join(jump_words(chosen, attach=True)))


def next_agent(agents: Iterable[AgentState], server: str, pane_id: str) -> AgentState:
    """Return the agent behind a pane, in the order of `bullpen ls`; after the last, the first.

    Raises:
        NobodyError: none of them is in a pane.
    """
    agents = list(agents)
    ordered = sorted((each for each in agents if each.pane and each.place), key=place_order)
    if not ordered:
        raise NobodyError(_nobody(agents))
    for number, agent in enumerate(ordered, start=1):
        assert agent.pane is not None
        assert agent.place is not None
        if agent.pane.pane_id == pane_id and _is_same_socket(agent.place.tmux_socket, server):
            return ordered[number % len(ordered)]
    return ordered[0]


def _nobody(elsewhere: list[AgentState]) -> str:
    if not elsewhere:
        return "nobody waits"
    named = [f"{each.name} ({place_of(each) or 'nobody knows where'})" for each in elsewhere]
    return one_line(f"nobody waits in tmux; outside of it: {', '.join(named)}")


def jump_words(agent: AgentState, *, attach: bool) -> list[str]:
    """Return the command that goes to an agent's pane, from within its server or from outside."""
    assert agent.pane is not None
    assert agent.place is not None
    pane, place = agent.pane.pane_id, agent.place
    session = place.session_id or pane
    window = f"{place.session_id}:{place.window_id}" if place.session_id else pane
    verb = "attach-session" if attach else "switch-client"
    return [
        *("tmux", "-S", place.tmux_socket),
        *(verb, "-t", session),
        *(";", "select-window", "-t", window),
        *(";", "select-pane", "-t", pane),
    ]


def _jump(agent: AgentState) -> None:
    words = jump_words(agent, attach=False)
    try:
        subprocess.run(words, check=True, capture_output=True, timeout=TMUX_SECONDS)
    except FileNotFoundError as error:
        raise TmuxFailedError("there is no tmux on the PATH") from error
    except subprocess.TimeoutExpired as error:
        raise TmuxFailedError(f"tmux did not answer in {TMUX_SECONDS:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()
        raise TmuxFailedError(one_line(f"tmux could not go there: {said}")) from error


def _is_same_socket(one: str, other: str) -> bool:
    return bool(other) and os.path.realpath(one) == os.path.realpath(other)
