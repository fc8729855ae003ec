"""`bullpen hooks`: let agent programs tell us what they do, and no longer."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from bullpen.agents import hooks
from bullpen.cli.installing import ALL, act, dry_run_option, look, where, with_target
from bullpen.cli.options import json_option
from bullpen.model.states import Provider

__all__ = ["command"]

_with_target = with_target(hooks.PROGRAMS)


@click.group(name="hooks")
def command() -> None:
    """Let agent programs tell us what they do, by hooks in their own settings.

    Nothing is written unless you ask for it here, and uninstall leaves a settings file as it was
    before, to the byte. Without hooks agents are watched by their screens and records.

    \b
    Examples:
      bullpen hooks install claude --dry-run
      bullpen hooks install all
      bullpen hooks check all
      bullpen hooks uninstall claude

    \b
    Exit codes:
      0  done, or nothing had to be done
      1  hooks are missing or outdated, or a settings file cannot be read or written
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name


@command.command()
@_with_target
@dry_run_option
@json_option
def install(
    program: str, *, scope: str | None, project: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Put our hooks into the settings of PROGRAM, or of all programs that are here.

    What else is in the settings stays as it is. To install again renews what an older version has
    installed, and changes nothing otherwise.

    \b
    Examples:
      bullpen hooks install claude
      bullpen hooks install all --dry-run
      bullpen hooks install codex --scope project

    \b
    Exit codes:
      0  installed, or nothing had to be done
      1  a settings file cannot be read or written; it was left as it is
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    whose = where(scope, project)
    act(
        _chosen(program, whose),
        lambda provider: hooks.install(provider, dry_run=dry_run, **whose),
        ("would be installed" if dry_run else "installed", "installed already"),
        as_json=as_json,
        dry_run=dry_run,
    )


@command.command()
@_with_target
@json_option
def check(program: str, *, scope: str | None, project: Path | None, as_json: bool) -> None:
    """Say which of our hooks are in the settings of PROGRAM, event by event.

    \b
    Examples:
      bullpen hooks check claude
      bullpen hooks check all --json

    \b
    Exit codes:
      0  all are installed as they should be
      1  one is missing or outdated, or a settings file cannot be read
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    whose = where(scope, project)
    look(_chosen(program, whose), lambda each: hooks.check(each, **whose), as_json=as_json)


@command.command()
@_with_target
@dry_run_option
@json_option
def uninstall(
    program: str, *, scope: str | None, project: Path | None, dry_run: bool, as_json: bool
) -> None:
    """Take our hooks out of the settings of PROGRAM, and leave them as they were.

    \b
    Examples:
      bullpen hooks uninstall claude
      bullpen hooks uninstall all --dry-run

    \b
    Exit codes:
      0  taken out, or there were none
      1  a settings file cannot be read or written; it was left as it is
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    whose = where(scope, project)
    act(
        _chosen(program, whose),
        lambda provider: hooks.uninstall(provider, dry_run=dry_run, **whose),
        ("would be taken out" if dry_run else "taken out", "not installed"),
        as_json=as_json,
        dry_run=dry_run,
    )


def _chosen(program: str, where: dict[str, Any]) -> "Iterator[Provider]":
    if program == ALL:
        yield from _present(where)
    else:
        yield Provider(program)


def _present(where: dict[str, Any]) -> Iterator[Provider]:
    for provider, program in hooks.PROGRAMS.items():
        path = hooks.settings_path(program, where["scope"], where["project"], os.environ)
        if program.by_name_only and not path.exists():
            continue
        if hooks.is_present(provider):
            yield provider
        else:
            click.echo(f"{provider}: not found here, left out", err=True)
