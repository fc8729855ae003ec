"""`bullpen source`: one source in a process of its own, as the daemon's supervisor starts it."""

import click

from bullpen.cli.options import socket_path
from bullpen.model.states import SourceKind

__all__ = ["command"]


@click.command(name="source", hidden=True)
@click.argument("kind", type=click.Choice([each.value for each in SourceKind]))
@click.pass_context
def command(context: click.Context, *, kind: str) -> None:
    """Run one source, at a socket of its own, until it is told to end.

    \b
    Examples:
      bullpen source poller --socket-path /run/user/1000/bullpen/poller.sock

    \b
    Exit codes:
      0  it was told to end
      1  it could not begin
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    path = socket_path()
    if path is None:
        raise click.UsageError("--socket-path is missing: where is it to serve?")
    from bullpen.daemon.isolated import run_source

    context.exit(run_source(SourceKind(kind), path))
