"""`bullpen mcp`: the MCP server on stdio, and putting it into the settings of agent programs.

What pumps is `pump`, which the entry point calls without any of this.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from bullpen.agents import mcp_install
from bullpen.cli.installing import ALL, act, dry_run_option, look, where, with_target
from bullpen.cli.options import json_option
from bullpen.cli.options import socket_path as named_socket
from bullpen.model.states import Provider

__all__ = ["command"]

_with_target = with_target(mcp_install.PROGRAMS)


@click.group(name="mcp", invoke_without_command=True)
@click.option("--installed", hidden=True, help="By this an entry in settings is known as ours.")
@click.pass_context
def command(context: click.Context, *, installed: str | None) -> None:  # noqa: ARG001 - a mark
    """Speak MCP on standard input and output, so that an agent can talk to the others.

    Agent programs start this by themselves. It passes on what they say to the server in the
    daemon, which is started if there is none. Agents that were started through bullpen have it
    already; for others, install adds it to their settings.

    The tools are send_message, reply, inbox, list_agents, task, report and ask_user.

    \b
    Examples:
      bullpen mcp install claude
      bullpen mcp install all --dry-run
      bullpen mcp uninstall claude
      claude mcp add bullpen -- bullpen mcp

    \b
    Exit codes:
      0  the agent is done
      1  something named in the message went wrong
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    if context.invoked_subcommand is not None:
        return
    from bullpen.cli.pump import pump

    given = named_socket()
    raise click.exceptions.Exit(pump(["--socket-path", given] if given else []) or 0)


@command.command()
@_with_target
@dry_run_option
@json_option
def install(
    program: str, *, scope: str | None, project: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Add our MCP server to the settings of PROGRAM, or of all programs that are here.

    What else is in the settings stays as it is. To install again renews what an older version has
    installed, and changes nothing otherwise.

    \b
    Examples:
      bullpen mcp install claude
      bullpen mcp install all --dry-run
      bullpen mcp install claude --scope project

    \b
    Exit codes:
      0  installed, or nothing had to be done
      1  a settings file cannot be read or written, or has another server `bullpen`
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    whose = where(scope, project)
    act(
        _chosen(program),
        lambda provider: mcp_install.install(provider, dry_run=dry_run, **whose),
        ("would be installed" if dry_run else "installed", "installed already"),
        as_json=as_json,
        dry_run=dry_run,
    )


@command.command()
@_with_target
@json_option
def check(program: str, *, scope: str | None, project: Path | None, as_json: bool) -> None:
    """Say whether our MCP server is in the settings of PROGRAM.

    \b
    Examples:
      bullpen mcp check claude
      bullpen mcp check all --json

    \b
    Exit codes:
      0  it is there as it should be
      1  it is missing or outdated, or a settings file cannot be read
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    whose = where(scope, project)
    look(_chosen(program), lambda each: mcp_install.check(each, **whose), as_json=as_json)


@command.command()
@_with_target
@dry_run_option
@json_option
def uninstall(
    program: str, *, scope: str | None, project: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Take our MCP server out of the settings of PROGRAM, and leave them as they were.

    \b
    Examples:
      bullpen mcp uninstall claude
      bullpen mcp uninstall all --dry-run

    \b
    Exit codes:
      0  taken out, or it was not there
      1  a settings file cannot be read or written; it was left as it is
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    whose = where(scope, project)
    act(
        _chosen(program),
        lambda provider: mcp_install.uninstall(provider, dry_run=dry_run, **whose),
        ("would be taken out" if dry_run else "taken out", "not installed"),
        as_json=as_json,
        dry_run=dry_run,
    )


def _chosen(program: str) -> Iterator[Provider]:
    if program != ALL:
        yield Provider(program)
        return
    for provider in mcp_install.PROGRAMS:
        if mcp_install.is_present(provider):
            yield provider
        else:
            click.echo(f"{provider}: not found here, left out", err=True)
