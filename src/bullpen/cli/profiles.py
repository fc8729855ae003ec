"""`bullpen profiles`: which programs can be run as agents."""

import shutil
from typing import TYPE_CHECKING, Any

import click

from bullpen.cli.calls import daemon_paths
from bullpen.cli.options import json_option
from bullpen.cli.output import Cell, columns, home_relative, print_json, terminal_width, text

if TYPE_CHECKING:
    from bullpen.agents.profiles import Listed

__all__ = ["command"]

HEADINGS = ("PROFILE", "PROGRAM", "PORT", "FROM", "DESCRIPTION")
MISSING = 1


@click.command(name="profiles")
@json_option
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the profiles: which programs can be run as agents, and whether they are here.

    Your own go into ~/.config/bullpen/profiles, one TOML file each; one of the name of a profile
    that comes with bullpen changes the keys it has.

    \b
    Examples:
      bullpen profiles
      bullpen profiles --json | jq -r '.profiles[] | select(.program) | .name'

    \b
    Exit codes:
      0  listed
      1  a file is no profile; the others are listed
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    from bullpen.agents.profiles import ProfileFileError, listed

    troubles: list[ProfileFileError] = []
    found = listed(daemon_paths().profiles, on_trouble=troubles.append)
    if as_json:
        print_json(
            profiles=[_record(each) for each in found],
            troubles=[{"file": each.file, "message": str(each)} for each in troubles],
        )
    else:
        rows = [[Cell(each) for each in HEADINGS], *(_row(each) for each in found)]
        click.echo("\n".join(columns(rows, width=terminal_width(), shrink=(4, 1, 3))))
        for trouble in troubles:
            click.echo(f"bullpen: {trouble}", err=True)
    if troubles:
        context.exit(MISSING)


def _row(listed: "Listed") -> list[Cell]:
    profile, program = listed.profile, _program(listed)
    return [
        Cell(profile.name),
        text(home_relative(program)) if program else Cell(f"- {profile.command[0]} not found"),
        Cell(str(profile.port or "-")),
        Cell("bullpen" if listed.is_shipped else home_relative(str(listed.file))),
        text(profile.description),
    ]


def _record(listed: "Listed") -> dict[str, Any]:
    return {
        "name": listed.profile.name,
        "command": listed.profile.command,
        "args": listed.profile.args,
        "program": _program(listed) or None,
        "provider": listed.profile.provider,
        "port": listed.profile.port,
        "file": str(listed.file),
        "is_shipped": listed.is_shipped,
        "description": listed.profile.description,
    }


def _program(listed: "Listed") -> str:
    return shutil.which(listed.profile.command[0]) or ""
