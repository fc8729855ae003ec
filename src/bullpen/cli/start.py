"""`bullpen start`: an agent without a terminal, which goes on when everybody is gone."""

import asyncio

import click

from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import SECONDS, json_option, may_start, no_start_option
from bullpen.cli.output import home_relative, print_json
from bullpen.cli.run import prepared
from bullpen.cli.speaking import TIMEOUT
from bullpen.cli.wrapped import (
    arguments_argument,
    complete_profiles,
    name_option,
    port_option,
)

__all__ = ["command"]


@click.command(name="start")
@click.argument("profile", shell_complete=complete_profiles)
@arguments_argument
@name_option
@port_option
@click.option(
    "-f",
    "--foreground",
    is_flag=True,
    help="Stay, as a service manager wants it, and end the agent when ended; no terminal is used.",
)
@click.option("--wait-ready", is_flag=True, help="Return when the agent can be talked to.")
@click.option(
    "--timeout",
    type=SECONDS,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for that.",
)
@json_option
@no_start_option
@click.pass_context
def command(
    context: click.Context,
    *,
    profile: str,
    arguments: tuple[str, ...],
    name: str,
    port: int | None,
    foreground: bool,
    wait_ready: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Start the program of PROFILE as an agent on a terminal nobody looks at.

    It goes on when this terminal is closed. bullpen attach shows it, bullpen logs prints what it
    wrote, bullpen stop ends it. What stands behind -- is given to the program.

    \b
    Examples:
      bullpen start codex --name reviewer
      bullpen start claude --wait-ready -- --model opus
      bullpen start dummy -f

    \b
    Exit codes:
      0  it is started; with --wait-ready: and ready
      1  it could not be started; the message says what it said last
      2  wrong usage
      3  it is started, and not ready within the time
    """  # noqa: D301 - click wants the character, not its name
    options = prepared(profile, name, port, arguments, is_detached=True)
    if foreground:
        from bullpen.wrapper.main import run

        context.exit(run(options))
    from bullpen.wrapper import detached

    started = asyncio.run(
        detached.start(
            daemon_paths(),
            profile,
            name=name,
            port=port,
            arguments=arguments,
            starts_daemon=may_start(),
            ready_seconds=timeout if wait_ready else None,
        )
    )
    agent, is_ready = started.instance, started.is_ready
    if as_json:
        print_json(
            name=agent.name, pid=agent.pid, port=agent.port, log=agent.log, is_ready=is_ready
        )
    else:
        click.echo(f"Started {agent.name} (PID: {agent.pid})")
        click.echo(f"  log: {home_relative(agent.log)}; show it: bullpen attach {agent.name}")
    if started.said:
        click.echo(started.said, err=True, nl=False)
    if is_ready is False:
        click.echo(f"bullpen: {agent.name} is not ready within {timeout:g} s", err=True)
        context.exit(TIMEOUT)
