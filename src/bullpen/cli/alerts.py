"""`bullpen alerts`: what an operator should know."""

from collections.abc import Iterable
from datetime import UTC, datetime

import click

from bullpen.api.methods import AckAlert, ListAlerts
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text, word_cell
from bullpen.model.alerts import Alert
from bullpen.model.appearance import ALERTS, age_words

__all__ = ["command", "listing"]

GIVE_WAY = (5,)  # message


@click.group(name="alerts", invoke_without_command=True)
@click.option("--all", "include_resolved", is_flag=True, help="Also those that are over.")
@json_option
@no_start_option
@click.pass_context
def command(context: click.Context, *, include_resolved: bool, as_json: bool) -> None:
    """List the alerts, newest first; acknowledge one with `alerts ack ID`.

    An alert ends with its condition, or, if it says so, when somebody has acknowledged it.

    \b
    Examples:
      bullpen alerts
      bullpen alerts ack 42
      bullpen alerts --all --json | jq '.alerts[].code'

    \b
    Exit codes:
      0  listed, or acknowledged
      1  there is no daemon, or no such alert
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    if context.invoked_subcommand is not None:
        return
    alerts = ask(ListAlerts(include_resolved=include_resolved))
    if as_json:
        print_json(alerts=alerts)
    else:
        click.echo("\n".join(listing(alerts, datetime.now(UTC), width=terminal_width())))


@command.command(name="ack")
@click.argument("alert_id", metavar="ID")
@json_option
@no_start_option
def acknowledge(*, alert_id: str, as_json: bool) -> None:
    """Acknowledge an alert: somebody knows of it.

    \b
    Examples:
      bullpen alerts ack 42

    \b
    Exit codes:
      0  acknowledged; again is the same as once
      1  there is no daemon, or no such alert
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    alert = ask(AckAlert(alert_id))
    if as_json:
        print_json(alert=alert)
    else:
        click.echo(f"{alert.alert_id} is {_state(alert)}")


def listing(alerts: Iterable[Alert], now: datetime, *, width: int | None = None) -> list[str]:
    """Return the lines that show some alerts."""
    rows = [_row(alert, now) for alert in alerts]
    return columns(rows, width=width, shrink=GIVE_WAY) or ["no alerts"]


def _row(alert: Alert, now: datetime) -> list[Cell]:
    return [
        text(alert.alert_id),
        word_cell(ALERTS[alert.level], alert.level),
        Cell(_state(alert)),
        Cell(age_words((now - alert.raised_at).total_seconds()).rjust(3)),
        text(alert.code + (f" (x{alert.count})" if alert.count > 1 else "")),
        text(alert.message),
    ]


def _state(alert: Alert) -> str:
    if not alert.is_open:
        return "resolved"
    return "acknowledged" if alert.acknowledged_at else "open"
