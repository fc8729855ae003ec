"""`bullpen up`: see to it that there is a daemon."""

import click

from bullpen.api.methods import GetInfo
from bullpen.cli.calls import ask
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import print_json

__all__ = ["command"]


@click.command(name="up")
@json_option
@no_start_option
def command(*, as_json: bool) -> None:
    """Start the daemon, if there is none; say which one there is.

    Nobody needs to: every command that needs it starts it.

    \b
    Examples:
      bullpen up
      bullpen up --json | jq .daemon.pid

    \b
    Exit codes:
      0  it is there
      1  it could not be started; the message has the end of its log
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    info = ask(GetInfo())
    if as_json:
        print_json(daemon=info)
    else:
        click.echo(f"the daemon is up: pid {info.pid}, version {info.version}, {info.socket_path}")
