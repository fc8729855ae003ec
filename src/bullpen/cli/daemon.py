"""`bullpen daemon`: the daemon itself, in the foreground."""

import click

from bullpen.api.options import DaemonOptions
from bullpen.cli.options import socket_path

__all__ = ["command"]

LEVELS = ["debug", "info", "warn", "error"]


@click.command(name="daemon")
@click.option(
    "--poll-interval-ms",
    type=click.IntRange(50, 60_000),
    metavar="MS",
    help="How often tmux panes are looked at; 1000 if it is not set.",
)
@click.option(
    "--tmux-socket", metavar="SOCKET", help="The server's socket: a path, or a name as for tmux -L."
)
@click.option(
    "--isolate-sources/--no-isolate-sources",
    default=None,
    help="Give each source a process of its own, or none.",
)
@click.option("--log-level", type=click.Choice(LEVELS), help="From which level on it logs.")
@click.option("--background", is_flag=True, hidden=True, help="Log to the file alone.")
@click.pass_context
def command(
    context: click.Context,
    *,
    poll_interval_ms: int | None,
    tmux_socket: str | None,
    isolate_sources: bool | None,
    log_level: str | None,
    background: bool,
) -> None:
    """Run the daemon until it is told to end: by ctrl-c, SIGTERM or bullpen down.

    Nobody needs to: every command that needs it starts it. There is one at a socket.

    \b
    Examples:
      bullpen daemon
      bullpen daemon --poll-interval-ms 500 --log-level debug
      bullpen daemon --socket-path /tmp/mine.sock --tmux-socket work

    \b
    Exit codes:
      0  it was told to end
      1  it could not begin: a setting or a directory is wrong
      2  wrong usage
      3  there is one already
    """  # noqa: D301 - click wants the character, not its name
    from bullpen.api.start import ALREADY_RUNNING
    from bullpen.daemon.lock import AlreadyRunning
    from bullpen.daemon.main import run
    from bullpen.servers.a2a.serve import serve as serve_a2a
    from bullpen.servers.mcp import serve as serve_mcp

    options = DaemonOptions(
        socket_path=socket_path(),
        poll_interval_ms=poll_interval_ms,
        tmux_socket=tmux_socket,
        isolate_sources=isolate_sources,
        log_level=log_level,
        foreground=not background,
    )
    try:
        code = run(options, [serve_mcp, serve_a2a])
    except AlreadyRunning as error:
        click.echo(f"bullpen: {error}", err=True)
        code = ALREADY_RUNNING
    context.exit(code)
