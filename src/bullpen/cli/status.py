"""`bullpen status`: the whole room in three lines."""

import click
import msgspec

from bullpen.api.methods import GetInfo, GetSummary
from bullpen.cli.calls import ask_all
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json
from bullpen.model.states import HealthStatus
from bullpen.model.views import Summary

__all__ = ["command", "monitoring", "summary_lines"]

STOPPED = 1


@click.command(name="status")
@json_option
@no_start_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """Say how many panes and agents there are, and whether they are being watched.

    What is wrong with a source is in the log; bullpen doctor says what to do about it.

    \b
    Examples:
      bullpen status
      bullpen status --json | jq .activities

    \b
    Exit codes:
      0  agents are being watched
      1  there is no daemon, or it can watch nothing
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    summary, info = ask_all(GetSummary(), GetInfo())
    word = monitoring(summary)
    if as_json:
        print_json(**msgspec.structs.asdict(summary), monitoring=word, daemon=info)
    else:
        click.echo("\n".join(summary_lines(summary)))
    if word == "stopped":
        context.exit(STOPPED)


def summary_lines(summary: Summary) -> list[str]:
    """Return what is said of it all."""
    in_panes = summary.panes - summary.unmanaged
    sources = ", ".join(
        f"{kind}={'absent' if kind in summary.absent else status}"
        for kind, status in sorted(summary.sources.items())
    )
    lines = [
        f"Panes: {summary.panes} total ({in_panes} agents, {summary.unmanaged} unmanaged)",
        f"Sources: {sources or 'none'}",
        f"Monitoring: {_WORDS[monitoring(summary)]}",
    ]
    if (elsewhere := summary.agents - in_panes) > 0:
        lines.insert(1, f"Outside tmux: {elsewhere} agents")
    return lines


def monitoring(summary: Summary) -> str:
    """Return whether it can go on: `on`, `limited` (some sources see less), or `stopped`."""
    health = {each for kind, each in summary.sources.items() if kind not in summary.absent}
    if not health - {HealthStatus.DOWN}:
        return "stopped"
    return "on" if health == {HealthStatus.HEALTHY} else "limited"


_WORDS = {
    "on": "on",
    "limited": "on, with less to go by; see bullpen doctor",
    "stopped": "stopped; see bullpen doctor",
}
