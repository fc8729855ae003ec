"""What the commands share that put something of ours into the settings of agent programs."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from bullpen.agents.hooks import EventState, HookOutcome, HooksError, Scope
from bullpen.cli.output import Cell, columns, home_relative, print_json
from bullpen.model.states import Provider

__all__ = ["ALL", "act", "dry_run_option", "look", "where", "with_target"]

ALL = "all"
F = TypeVar("F")

STATES = {
    EventState.INSTALLED: Cell("✓ installed", "green"),
    EventState.OUTDATED: Cell("! outdated", "yellow"),
    EventState.MISSING: Cell("- missing", None),
}

Act = Callable[[Provider], HookOutcome]
Where = dict[str, Any]


def with_target(programs: Iterable[Provider]) -> Callable[[F], F]:
    """Give a command the program and the scope it is about."""

    def decorate(command: F) -> F:
        for option in (
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
            click.argument("program", type=click.Choice([*map(str, programs), ALL])),
        ):
            command = option(command)  # type: ignore[type-var]  # a callable, as click wants it
        return command

    return decorate


def dry_run_option(command: F) -> F:
    """Let a command be tried."""
    option = click.option(
        "--dry-run", is_flag=True, help="Print what would change, and change nothing."
    )
    return option(command)  # type: ignore[type-var]


def where(scope: str | None, project: Path | None) -> Where:
    """Return whose settings are meant."""
    chosen = Scope(scope) if scope else (Scope.PROJECT if project else Scope.USER)
    if project is not None and chosen is Scope.USER:
        raise click.UsageError("--project and --scope user contradict each other")
    return {"scope": chosen, "project": project}


def act(
    providers: Iterable[Provider],
    work: Act,
    words: tuple[str, str],
    *,
    as_json: bool,
    dry_run: bool,
) -> None:
    """Do something with some programs, and say what came of it.

    `words` are for something that has changed, and for something that has not.
    """
    outcomes, has_failed = _collect(providers, work)
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


def look(providers: Iterable[Provider], work: Act, *, as_json: bool) -> None:
    """Say what is installed, part by part; fail if something is not."""
    outcomes, has_failed = _collect(providers, work)
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


def _collect(providers: Iterable[Provider], work: Act) -> tuple[list[HookOutcome], bool]:
    """Do something with each program; what is wrong with one does not keep it from the others."""
    outcomes: list[HookOutcome] = []
    has_failed = False
    for provider in providers:
        try:
            outcomes.append(work(provider))
        except HooksError as error:
            has_failed = True
            click.echo(f"bullpen: {error}", err=True)
    return outcomes, has_failed


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
