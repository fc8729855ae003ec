"""`bullpen ls`: every agent, wherever it runs."""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import cache

import click

from bullpen.api.branches import branch_of
from bullpen.api.methods import ListAgents
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import (
    Cell,
    columns,
    home_relative,
    print_json,
    state_cell,
    terminal_width,
    text,
)
from bullpen.model.appearance import EVIDENCE, age_words, counted
from bullpen.model.places import place_of, place_order, session_heading
from bullpen.model.states import Provider
from bullpen.model.views import AgentState

__all__ = ["command", "listing", "show"]

GIVE_WAY = (5, 7, 8)  # title, directory, branch


@click.command(name="ls")
@click.option("--waiting", is_flag=True, help="Only agents that wait for somebody.")
@click.option(
    "--provider",
    "providers",
    multiple=True,
    type=click.Choice([each.value for each in Provider]),
    help="Only agents of this family; can be said more than once.",
)
@click.option(
    "--group",
    type=click.Choice(["session", "provider", "none"]),
    default="session",
    show_default=True,
    help="Under which headings they are listed: the tmux session they are in, or the family.",
)
@json_option
@no_start_option
def command(*, waiting: bool, providers: tuple[str, ...], group: str, as_json: bool) -> None:
    """List every agent: what it is doing, for how long, and where.

    The mark behind the state says how it is known: = the program said so itself, ~ it was read off
    its screen or its process.

    \b
    Examples:
      bullpen ls
      bullpen ls --waiting
      bullpen ls --json | jq -r '.agents[] | select(.activity == "idle") | .name'

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    show(waiting=waiting, providers=providers, group=group, as_json=as_json)


def show(
    *,
    waiting: bool = False,
    providers: Sequence[str] = (),
    group: str = "session",
    as_json: bool = False,
) -> None:
    """Ask for the agents and print those that are wanted."""
    agents = [
        agent
        for agent in ask(ListAgents())
        if (not providers or agent.provider in providers)
        and (not waiting or agent.activity.is_waiting)
    ]
    find_branch = cache(branch_of)
    if as_json:
        print_json(
            agents=agents, branches={each: find_branch(each) for each in {a.cwd for a in agents}}
        )
        return
    lines = listing(
        agents, datetime.now(UTC), find_branch=find_branch, group=group, width=terminal_width()
    )
    click.echo("\n".join(lines))


def listing(
    agents: Iterable[AgentState],
    now: datetime,
    *,
    find_branch: Callable[[str], str],
    group: str = "session",
    width: int | None = None,
) -> list[str]:
    """Return the lines that show some agents."""
    ordered = sorted(agents, key=lambda agent: (_heading_order(agent, group), place_order(agent)))
    sockets = {agent.place.tmux_socket for agent in ordered if agent.place}
    indent = "" if group == "none" else "  "
    rows = [_row(agent, now, find_branch(agent.cwd)) for agent in ordered]
    shown = columns(rows, width=width and width - len(indent), shrink=GIVE_WAY)
    lines: list[str] = []
    last = None
    for agent, line in zip(ordered, shown, strict=True):
        heading = _heading(agent, group, several_servers=len(sockets) > 1)
        if heading != last and group != "none":
            lines.append(click.style(heading, bold=True))
        last = heading
        lines.append(f"{indent}{line}")
    waiting = sum(agent.activity.is_waiting for agent in ordered)
    return [
        *lines,
        f"{counted(len(ordered), 'agent')}, {waiting} waiting" if ordered else "no agents",
    ]


def _heading_order(agent: AgentState, group: str) -> tuple[object, ...]:
    if group == "provider":
        return (agent.provider.value,)
    if group == "none":
        return ()
    if agent.place is None:
        return (1,)
    return 0, agent.place.session_name, agent.place.tmux_socket


def _heading(agent: AgentState, group: str, *, several_servers: bool) -> str:
    if group == "provider":
        return agent.provider.value
    return session_heading(agent.place, several_servers=several_servers)


def _row(agent: AgentState, now: datetime, branch: str) -> list[Cell]:
    return [
        text(agent.name),
        Cell(agent.provider),
        state_cell(agent.activity),
        Cell(EVIDENCE[agent.evidence_mode]),
        Cell(age_words((now - agent.since).total_seconds()).rjust(3)),
        text(agent.title),
        text(place_of(agent)),
        text(home_relative(agent.cwd)),
        text(branch),
    ]
