"""`bullpen panes`: every tmux pane, and the agent in it."""

from collections.abc import Iterable
from datetime import UTC, datetime

import click

from bullpen.api.methods import ListPanes
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
from bullpen.model.states import Presence
from bullpen.model.views import PaneState

__all__ = ["command", "listing"]

GIVE_WAY = (5, 6)  # title, directory


@click.command(name="panes")
@click.option("--agents", is_flag=True, help="Only panes with an agent in them.")
@click.option("--waiting", is_flag=True, help="Only agents that wait for somebody.")
@click.option("--once", is_flag=True, help="Look once by ourselves, without a daemon.")
@click.option(
    "--tmux-socket",
    metavar="SOCKET",
    help="With --once: the server's socket, a path or a name as for tmux -L.",
)
@json_option
@no_start_option
def command(
    *, agents: bool, waiting: bool, once: bool, tmux_socket: str | None, as_json: bool
) -> None:
    """List every tmux pane: which agent is in it, and what it is doing.

    The mark behind the state says how it is known: = the program said so itself, ~ it was read off
    its screen or its process.

    With --once no daemon is asked or started: the panes are judged by what they show just now. The
    server is the one of --tmux-socket, else of BULLPEN_TMUX_SOCKET_PATH or
    BULLPEN_TMUX_SOCKET_NAME, else the one you are in, else tmux's default. Nothing is typed,
    started or changed.

    \b
    Examples:
      bullpen panes
      bullpen panes --waiting
      bullpen panes --json | jq '.panes[] | select(.activity_state == "idle")'
      bullpen panes --once --tmux-socket work

    \b
    Exit codes:
      0  listed, also if there is no agent
      1  there is no daemon; with --once: no tmux, no server, or a rule file cannot be read
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    if tmux_socket is not None and not once:
        raise click.UsageError("--tmux-socket is for --once; the daemon watches every server")
    if once:
        _look_once(tmux_socket, agents=agents, waiting=waiting, as_json=as_json)
        return
    panes = [
        pane
        for pane in ask(ListPanes())
        if (not (agents or waiting) or pane.presence is Presence.MANAGED)
        and (not waiting or pane.activity_state.is_waiting)
    ]
    if as_json:
        print_json(panes=panes)
    else:
        click.echo("\n".join(listing(panes, datetime.now(UTC), width=terminal_width())))


def _look_once(tmux_socket: str | None, *, agents: bool, waiting: bool, as_json: bool) -> None:
    from bullpen.cli import look

    seen = look.look(tmux_socket, agents=agents, waiting=waiting)
    if as_json:
        print_json(panes=[look.record(*each) for each in seen])
    else:
        click.echo("\n".join(look.listing(seen)))


def listing(panes: Iterable[PaneState], now: datetime, *, width: int | None = None) -> list[str]:
    """Return the lines that show some panes."""
    ordered = sorted(panes, key=_order)
    managed = [pane for pane in ordered if pane.presence is Presence.MANAGED]
    waiting = sum(pane.activity_state.is_waiting for pane in managed)
    rows = [_row(pane, now) for pane in ordered]
    shown = columns(rows, width=width, shrink=GIVE_WAY)
    return [
        *shown,
        f"{counted(len(ordered), 'pane')}, {counted(len(managed), 'agent')}, {waiting} waiting",
    ]


def _order(pane: PaneState) -> tuple[str, str, int, int]:
    place = pane.place
    return place.tmux_socket, place.session_name, place.window_index, place.pane_index


def _row(pane: PaneState, now: datetime) -> list[Cell]:
    place = pane.place
    where = f"{place.session_name}:{place.window_index}.{place.pane_index}"
    at = text(f"{where} {pane.pane_instance_id.pane_id}")
    path = text(home_relative(place.current_path))
    if pane.presence is Presence.UNMANAGED:
        return [at, Cell("-"), text(place.current_command), Cell(""), Cell(""), Cell(""), path]
    age = age_words((now - (pane.activity_since or pane.updated_at)).total_seconds())
    return [
        at,
        text(pane.agent or pane.provider or "-"),
        state_cell(pane.activity_state),
        Cell(EVIDENCE[pane.evidence_mode]),
        Cell(age.rjust(3)),
        text(pane.title),
        path,
    ]
