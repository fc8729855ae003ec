"""`bullpen sessions`: every session of an agent, in a pane or not."""

from collections.abc import Iterable
from datetime import UTC, datetime

import click

from bullpen.api.methods import ListSessions
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
from bullpen.model.appearance import EVIDENCE, age_words
from bullpen.model.views import SessionState

__all__ = ["command", "listing"]

GIVE_WAY = (5, 7, 0)  # title, directory, key


@click.command(name="sessions")
@json_option
@no_start_option
def command(*, as_json: bool) -> None:
    """List every session of an agent that is known, by its key.

    \b
    Examples:
      bullpen sessions
      bullpen sessions --json | jq -r '.sessions[].session_key'

    \b
    Exit codes:
      0  listed, also if there is none
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    sessions = ask(ListSessions())
    if as_json:
        print_json(sessions=sessions)
    else:
        click.echo("\n".join(listing(sessions, datetime.now(UTC), width=terminal_width())))


def listing(
    sessions: Iterable[SessionState], now: datetime, *, width: int | None = None
) -> list[str]:
    """Return the lines that show some sessions."""
    ordered = sorted(sessions, key=lambda session: session.session_key)
    rows = [_row(session, now) for session in ordered]
    shown = columns(rows, width=width, shrink=GIVE_WAY)
    return [*shown, f"{len(ordered)} sessions" if ordered else "no sessions"]


def _row(session: SessionState, now: datetime) -> list[Cell]:
    pane = session.representative_pane_instance_id
    since = session.activity_since or session.updated_at
    return [
        text(session.session_key),
        text(session.agent or "-"),
        state_cell(session.activity_state),
        Cell(EVIDENCE[session.evidence_mode]),
        Cell(age_words((now - since).total_seconds()).rjust(3)),
        text(session.title),
        Cell(pane.pane_id if pane else "-"),
        text(home_relative(session.cwd)),
    ]
