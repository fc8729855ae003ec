"""Installing, checking and removing the hooks of one agent program."""

import difflib
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

from bullpen.agents.hooks import merge, plugin
from bullpen.agents.hooks.errors import MalformedDocumentError, SettingsError, UnsupportedError
from bullpen.agents.hooks.merge import EventState
from bullpen.agents.hooks.programs import PROGRAMS, HookedProgram, Runner
from bullpen.agents.hooks.settings_file import SettingsFile
from bullpen.model.states import Provider

__all__ = [
    "HookOutcome",
    "Scope",
    "check",
    "default_runner",
    "difference",
    "install",
    "is_present",
    "settings_path",
    "uninstall",
]


class Scope(StrEnum):
    """Whose settings: those of the user for every project, or those of one project."""

    USER = "user"
    PROJECT = "project"


class HookOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it stands with the hooks of a program, and what was done about it."""

    provider: Provider
    scope: Scope
    path: Path
    events: dict[str, EventState]
    """As it stands now; in a dry run, as it would."""
    has_changed: bool = False
    diff: str = ""
    note: str = ""
    """What the user still has to know."""

    @property
    def is_complete(self) -> bool:
        """Whether every hook is there as it should be."""
        return all(state is EventState.INSTALLED for state in self.events.values())


def install(
    provider: Provider,
    *,
    scope: Scope = Scope.USER,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    runner: Runner | None = None,
    dry_run: bool = False,
) -> HookOutcome:
    """Put our hooks into a program's settings; those of an older install are renewed.

    Args:
        provider: the program.
        scope: whose settings.
        project: the directory of the project, for that scope; by default the current one.
        environment: where the programs' directories are looked up; by default our own.
        runner: what is to run the shim; by default this interpreter and our own shim.
        dry_run: change nothing, and say what would be.

    Raises:
        UnsupportedError: the program has no hooks.
        SettingsError: its settings cannot be understood or changed; they are as before.
    """
    site = _Site.find(provider, scope, project, environment, runner)
    how = plugin if site.program.is_plugin else merge
    with site.errors():
        text = how.put_in(
            site.file.text, site.program, site.runner, new_flags=site.file.new_flags()
        )
    return site.finish(text, dry_run=dry_run)


def check(
    provider: Provider,
    *,
    scope: Scope = Scope.USER,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    runner: Runner | None = None,
) -> HookOutcome:
    """Say which of our hooks are installed. The arguments and errors are those of `install`."""
    site = _Site.find(provider, scope, project, environment, runner)
    return site.outcome(site.file.text)


def uninstall(
    provider: Provider,
    *,
    scope: Scope = Scope.USER,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> HookOutcome:
    """Take our hooks out of a program's settings, and leave them as they were before.

    The arguments and errors are those of `install`.
    """
    site = _Site.find(provider, scope, project, environment, None)
    text, flags = site.file.text, frozenset[str]()
    if text is not None:
        with site.errors():
            if site.program.is_plugin:
                text, flags = plugin.take_out(text)
            else:
                text, flags = merge.take_out(text, site.program)
    return site.finish(text, dry_run=dry_run, flags=flags)


def is_present(provider: Provider, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a program that has hooks has been used here, or could be."""
    environment = os.environ if environment is None else environment
    program = PROGRAMS.get(provider)
    if program is None:
        return False
    if settings_path(program, Scope.USER, None, environment).parent.exists():
        return True
    return shutil.which(provider.value, path=environment.get("PATH")) is not None


def settings_path(
    program: HookedProgram, scope: Scope, project: Path | None, environment: Mapping[str, str]
) -> Path:
    """Return the file a program reads its hooks from."""
    if scope is Scope.PROJECT:
        return (project or Path.cwd()) / program.project_file
    variable, directory, name = program.user_file
    if variable and (chosen := environment.get(variable)):
        return Path(chosen) / name
    home = environment.get("HOME")
    return (Path(home) if home else Path.home()) / directory / name


def default_runner() -> Runner:
    """Return what runs the shim: this interpreter, and the shim of this installation."""
    return Runner(sys.executable, str(Path(__file__).absolute().with_name("shim.py")))


class _Site(msgspec.Struct, frozen=True):
    """Where hooks are to be put, and what is there."""

    program: HookedProgram
    scope: Scope
    file: SettingsFile
    runner: Runner

    @classmethod
    def find(
        cls,
        provider: Provider,
        scope: Scope,
        project: Path | None,
        environment: Mapping[str, str] | None,
        runner: Runner | None,
    ) -> "_Site":
        program = PROGRAMS.get(provider)
        if program is None:
            raise UnsupportedError(f"{provider} has no hooks that we know; its screen is read")
        path = settings_path(
            program, scope, project, os.environ if environment is None else environment
        )
        return cls(program, scope, SettingsFile.find(path), runner or default_runner())

    def finish(
        self, text: str | None, *, dry_run: bool, flags: frozenset[str] = frozenset()
    ) -> HookOutcome:
        """Write what the text has become, and say what that was."""
        has_changed = self.file.write(text, dry_run=dry_run, flags=flags)
        return self.outcome(text, has_changed=has_changed)

    def outcome(self, text: str | None, *, has_changed: bool = False) -> HookOutcome:
        how = plugin if self.program.is_plugin else merge
        with self.errors():
            events = how.inspect(text, self.program, self.runner)
        return HookOutcome(
            provider=self.program.provider,
            scope=self.scope,
            path=self.file.path,
            events=events,
            has_changed=has_changed,
            diff=difference(self.file.text, text, self.file.path) if has_changed else "",
            note=self.program.note if EventState.INSTALLED in events.values() else "",
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say of a mistake in the text which file it is in."""
        try:
            yield
        except MalformedDocumentError as error:
            raise SettingsError(self.file.path, str(error)) from error


def difference(before: str | None, after: str | None, path: Path) -> str:
    """Return what became of a file's text, as `diff` would print it."""
    lines = difflib.unified_diff(
        (before or "").splitlines(keepends=True),
        (after or "").splitlines(keepends=True),
        "/dev/null" if before is None else str(path),
        "/dev/null" if after is None else str(path),
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
