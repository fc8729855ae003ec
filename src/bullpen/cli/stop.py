"""`bullpen stop`: end wrapped agents."""

import asyncio
from typing import TYPE_CHECKING

import click

from bullpen.api.client import Client
from bullpen.api.errors import DaemonUnavailable, reason_of
from bullpen.api.runtime import Paths
from bullpen.api.talk import StopAgent
from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import json_option
from bullpen.cli.output import print_json
from bullpen.cli.speaking import NOBODY, refusals, secret
from bullpen.cli.wrapped import complete_wrapped
from bullpen.connection import RemoteError
from bullpen.model.reasons import Reason

if TYPE_CHECKING:
    from bullpen.wrapper.reach import Instance

__all__ = ["command"]

ANSWER_SECONDS = 2.0
_UNKNOWN = {each.word for each in (Reason.AGENT_NOT_FOUND, Reason.AGENT_UNREACHABLE)}


@click.command(name="stop")
@click.argument("agents", nargs=-1, metavar="[AGENT…]", shell_complete=complete_wrapped)
@click.option("--all", "is_all", is_flag=True, help="End every wrapped agent.")
@json_option
@click.pass_context
def command(
    context: click.Context, *, agents: tuple[str, ...], is_all: bool, as_json: bool
) -> None:
    """End wrapped agents, and wait until they are gone.

    It works without a daemon. A wrapper that does not listen is killed, but never another process
    that has its number by now. Messages that wait for an agent wait for its return.

    \b
    Examples:
      bullpen stop reviewer
      bullpen stop --all
      bullpen stop codex claude-2 --json

    \b
    Exit codes:
      0  they are gone; with --all also if there were none
      1  one does not end
      2  wrong usage
      4  there is no such agent in a wrapper
      5  refused: you may not
    """  # noqa: D301 - click wants the character, not its name
    if bool(agents) == is_all:
        raise click.UsageError("name the agents to end, or say --all")
    from bullpen.wrapper import reach

    paths = daemon_paths()
    try:
        found = reach.running(paths) if is_all else [reach.find(paths, each) for each in agents]
    except reach.NotWrapped as error:
        click.echo(f"bullpen: {error}", err=True)
        context.exit(NOBODY)
    with refusals(context, as_json=as_json):
        outcomes = asyncio.run(_stop_all(paths, list(found)))
    if as_json:
        stopped = [
            {"name": each.name, "pid": each.pid, "how": how}
            for each, how in zip(found, outcomes, strict=True)
        ]
        print_json(stopped=stopped)
        return
    for each, how in zip(found, outcomes, strict=True):
        click.echo(f"{how} {each.name} (PID: {each.pid})")
    if not found:
        click.echo("no agent runs in a wrapper")


async def _stop_all(paths: Paths, agents: "list[Instance]") -> list[str]:
    return await asyncio.gather(*(_stop(paths, each) for each in agents))


async def _stop(paths: Paths, agent: "Instance") -> str:
    """End one: by the daemon, which knows who may, or without it."""
    from bullpen.wrapper import reach

    is_asked = False
    try:
        async with Client.connect(paths, start=False) as client:
            await client.request(StopAgent(agent.name, secret()), timeout=ANSWER_SECONDS)
            is_asked = True
    except DaemonUnavailable:
        pass
    except RemoteError as error:
        if reason_of(error) not in _UNKNOWN:
            raise
    return await reach.end(agent, is_asked=is_asked)
