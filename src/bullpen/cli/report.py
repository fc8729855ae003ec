"""`bullpen report`: anybody's own agent says what it is doing."""

import os
from pathlib import Path

import click

from bullpen.api.methods import Report
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.errors import BullpenError
from bullpen.model.states import Activity, Provider

__all__ = ["ReportRefusedError", "command"]


class ReportRefusedError(BullpenError):
    """The daemon took a report for wrong. It can be corrected and sent again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the report was refused: {reason}")
        self.reason = reason


@click.command(name="report")
@click.argument("name")
@click.argument("activity", type=click.Choice([each.value for each in Activity]))
@click.option("--title", default="", help="What it is working on.")
@click.option("--message", default="", help="Why it is so, in a few words.")
@click.option(
    "--provider",
    type=click.Choice([each.value for each in Provider]),
    default=Provider.OTHER.value,
    show_default=True,
    help="The family it belongs to.",
)
@click.option("--session-id", default="", metavar="ID", help="Its own name for its session.")
@click.option("--pid", type=int, help="Its process; else the one that calls this.")
@json_option
@no_start_option
def command(
    *,
    name: str,
    activity: str,
    title: str,
    message: str,
    provider: str,
    session_id: str,
    pid: int | None,
    as_json: bool,
) -> None:
    """Say what the agent NAME is doing, so that it is listed and waited for like any other.

    In a tmux pane it belongs to that pane. Say `exited` in the end.

    \b
    Examples:
      bullpen report nightly running --title "rebuild the index"
      bullpen report nightly waiting_input
      bullpen report nightly exited

    \b
    Exit codes:
      0  taken
      1  there is no daemon, or it refused the report
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    reply = ask(
        Report(
            name=name,
            activity=Activity(activity),
            title=title,
            message=message,
            provider=Provider(provider),
            session_id=session_id,
            pid=os.getppid() if pid is None else pid,
            cwd=str(Path.cwd()),
            tmux=os.environ.get("TMUX", ""),
            tmux_pane=os.environ.get("TMUX_PANE", ""),
        )
    )
    if as_json:
        print_json(reply=reply)
    if reply.refused:
        raise ReportRefusedError(reply.refused[0].message or reply.refused[0].reason)
