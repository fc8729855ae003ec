"""`bullpen hooks`: let agent programs tell us what they do, and no longer."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import click

from bullpen.agents import hooks
from bullpen.agents.hooks import EventState, HookOutcome, HooksError, Scope
from bullpen.cli.options import json_option
from bullpen.cli.output import Cell, columns, home_relative, print_json
from bullpen.model.states import Provider

__all__ = ["command"]

ALL = "all"
F = TypeVar("F")

STATES = {
    EventState.INSTALLED: Cell("✓ installed", "green"),
    EventState.OUTDATED: Cell("! outdated", "yellow"),
    EventState.MISSING: Cell("- missing", None),
}

Act = Callable[[Provider], HookOutcome]


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


def _with_target(command: F) -> F:
    """Give a command the program and the scope it is about."""
    for decorate in (
        click.option(
            "--project",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="The project's directory, if not this one; implies --scope project.",
        ),
        click.option(
            "--scope",
            type=click.Choice([each.value for each in Scope]),
            help="Whose settings: yours for every project (the default), or one project's.",
        ),
        click.argument("program", type=click.Choice([*map(str, hooks.PROGRAMS), ALL])),
    ):
        command = decorate(command)  # type: ignore[type-var]  # click wants a callable, which it is
    return command


def _dry_run_option(command: F) -> F:
    option = click.option(
        "--dry-run", is_flag=True, help="Print what would change, and change nothing."
    )
    return option(command)  # type: ignore[type-var]


@command.command()
@_with_target
@_dry_run_option
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
    where = _where(scope, project)
    _act(
        program,
        where,
        lambda provider: hooks.install(provider, dry_run=dry_run, **where),
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
    where = _where(scope, project)
    outcomes, has_failed = _collect(program, lambda each: hooks.check(each, **where), where)
    if as_json:
        print_json(programs=[_record(each) for each in outcomes])
    else:
        for each in outcomes:
            click.echo(f"{each.provider}  {home_relative(str(each.path))}")
            rows = [(Cell(f"  {name}"), STATES[state]) for name, state in each.events.items()]
            for line in columns(rows):
                click.echo(line)
    if has_failed or not all(each.is_complete for each in outcomes):
        raise click.exceptions.Exit(1)


@command.command()
@_with_target
@_dry_run_option
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
    where = _where(scope, project)
    _act(
        program,
        where,
        lambda provider: hooks.uninstall(provider, dry_run=dry_run, **where),
        ("would be taken out" if dry_run else "taken out", "not installed"),
        as_json=as_json,
        dry_run=dry_run,
    )


def _where(scope: str | None, project: Path | None) -> dict[str, Any]:
    chosen = Scope(scope) if scope else (Scope.PROJECT if project else Scope.USER)
    if project is not None and chosen is Scope.USER:
        raise click.UsageError("--project and --scope user contradict each other")
    return {"scope": chosen, "project": project}


def _act(
    program: str,
    where: dict[str, Any],
    act: Act,
    words: tuple[str, str],
    *,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Do something with one program or with all of them, and say what came of it.

    `words` are for something that has changed, and for something that has not.
    """
    outcomes, has_failed = _collect(program, act, where)
    if as_json:
        print_json(dry_run=dry_run, programs=[_record(each) for each in outcomes])
    else:
        for each in outcomes:
            said = words[0] if each.has_changed else words[1]
            click.echo(f"{each.provider}  {home_relative(str(each.path))}  {said}")
            if each.note and each.has_changed and not dry_run:
                click.echo(f"  {each.note}")
            if dry_run:
                click.echo(each.diff, nl=False)
    if has_failed:
        raise click.exceptions.Exit(1)


def _collect(program: str, act: Act, where: dict[str, Any]) -> tuple[list[HookOutcome], bool]:
    """Do something with each program; what is wrong with one does not keep it from the others."""
    outcomes: list[HookOutcome] = []
    has_failed = False
    for provider in [Provider(program)] if program != ALL else _present(where):
        try:
            outcomes.append(act(provider))
        except HooksError as error:
            has_failed = True
            click.echo(f"bullpen: {error}", err=True)
    return outcomes, has_failed


def _present(where: dict[str, Any]) -> Iterator[Provider]:
    for provider, program in hooks.PROGRAMS.items():
        path = hooks.settings_path(program, where["scope"], where["project"], os.environ)
        if program.by_name_only and not path.exists():
            continue
        if hooks.is_present(provider):
            yield provider
        else:
            click.echo(f"{provider}: not found here, left out", err=True)


def _record(outcome: HookOutcome) -> dict[str, Any]:
    return {
        "provider": outcome.provider,
        "scope": outcome.scope,
        "path": str(outcome.path),
        "events": outcome.events,
        "is_complete": outcome.is_complete,
        "has_changed": outcome.has_changed,
        "diff": outcome.diff,
        "note": outcome.note,
    }
