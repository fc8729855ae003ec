"""`bullpen attach`: show a wrapped agent in this terminal, and type to it."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bullpen.cli.calls import daemon_paths
from bullpen.cli.speaking import NOBODY
from bullpen.cli.wrapped import complete_wrapped

if TYPE_CHECKING:
    from bullpen.wrapper.reach import Instance

__all__ = ["command"]


@click.command(name="attach")
@click.argument("agent", shell_complete=complete_wrapped)
@click.option(
    "-r", "--read-only", is_flag=True, help="Only look; q or Ctrl-C detaches as well then."
)
@click.pass_context
def command(context: click.Context, *, agent: str, read_only: bool) -> None:
    """Show the terminal of a wrapped agent here, and type to it. Ctrl-\\ Ctrl-\\ detaches.

    The agent goes on when you detach. Several may be attached to one; the size of its terminal is
    that of the last who came or changed theirs, unless somebody runs it in a terminal of their own.

    \b
    Examples:
      bullpen attach reviewer
      bullpen attach claude --read-only

    \b
    Exit codes:
      0  detached, or the agent has ended
      1  this is no terminal, or the agent cannot be attached to
      2  wrong usage
      4  there is no such agent in a wrapper
    """  # noqa: D301 - click wants the character, not its name
    from bullpen.wrapper import reach

    try:
        found = reach.find(daemon_paths(), agent)
    except reach.NotWrapped as error:
        click.echo(f"bullpen: {error}", err=True)
        context.exit(NOBODY)
    outcome = asyncio.run(_attach(found, is_read_only=read_only))
    click.echo(f"[{found.name}: {outcome}]")


async def _attach(agent: "Instance", *, is_read_only: bool) -> str:
    from bullpen.wrapper.user_terminal import UserTerminal
    from bullpen.wrapper.viewer import attach

    terminal = UserTerminal.open()
    try:
        return await attach(agent.name, Path(agent.socket), terminal, is_read_only=is_read_only)
    finally:
        terminal.close()
