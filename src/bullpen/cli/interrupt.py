"""`bullpen interrupt`: make an agent stop what it is doing."""

import asyncio

import click

from bullpen.api.client import Client
from bullpen.api.errors import DaemonUnavailable
from bullpen.api.talk import InterruptAgent
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import complete_agents
from bullpen.cli.speaking import refusals, secret
from bullpen.model.appearance import one_line

__all__ = ["command"]

ANSWER_SECONDS = 10.0


@click.command(name="interrupt")
@click.argument("agent", shell_complete=complete_agents)
@click.pass_context
def command(context: click.Context, *, agent: str) -> None:
    """Interrupt what AGENT is doing, as Esc or Ctrl-C would in its terminal.

    It works without a daemon for agents that run in a wrapper.

    \b
    Examples:
      bullpen interrupt codex
      bullpen interrupt claude-2 && bullpen send claude-2 "leave the tests alone"

    \b
    Exit codes:
      0  interrupted
      1  there is no daemon, and the agent is in no wrapper
      2  wrong usage
      4  there is no such agent
      5  refused: there is no way to interrupt it, or you may not
    """  # noqa: D301 - click wants the character, not its name
    with refusals(context):
        asyncio.run(_interrupt(agent))
    click.echo(f"interrupted {one_line(agent)}")


async def _interrupt(agent: str) -> None:
    paths = daemon_paths()
    try:
        async with Client.connect(paths, start=False) as client:
            await client.request(InterruptAgent(agent, secret()), timeout=ANSWER_SECONDS)
    except DaemonUnavailable:
        from bullpen.wrapper import reach
        from bullpen.wrapper.attaching import AskInterrupt

        found = await asyncio.to_thread(reach.find, paths, agent)
        await reach.ask(found, AskInterrupt(), seconds=ANSWER_SECONDS)
