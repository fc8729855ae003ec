"""Adding our MCP server to the settings of an agent program, and taking it out again.

One entry is put in, by as little text as there is to change, and taken out to the byte. It is known
by an option that changes nothing, `--installed`, which also notes what would look the same without
the entry: no file, no directory, an empty object. A server `bullpen` of somebody else's is left
alone. Agents started through `bullpen` need none of this: they are given the server for their run.
"""

import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bullpen.agents.hooks.errors import MalformedDocumentError, SettingsError, UnsupportedError
from bullpen.agents.hooks.install import HookOutcome, Scope, difference
from bullpen.agents.hooks.merge import EventState
from bullpen.agents.hooks.settings_file import SettingsFile
from bullpen.agents.launch.ours import SERVER
from bullpen.agents.mcp_install.programs import PROGRAMS, McpProgram
from bullpen.agents.mcp_install.texts import ForeignServer, JsonSettings, TomlSettings
from bullpen.model.states import Provider

__all__ = ["PROGRAMS", "McpProgram", "check", "install", "is_present", "uninstall"]


def install(
    provider: Provider,
    *,
    scope: Scope = Scope.USER,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> HookOutcome:
    """Add our server to a program's settings; that of an older install is renewed.

    Raises:
        UnsupportedError: the program takes no servers, or none of that scope.
        SettingsError: its settings cannot be understood or changed; they are as before.
    """
    site = _Site.find(provider, scope, project, environment)
    with site.errors():
        text = site.kind.put_in(site.file.text, site.program, site.file.new_flags())
    return site.finish(text, dry_run=dry_run)


def check(
    provider: Provider,
    *,
    scope: Scope = Scope.USER,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> HookOutcome:
    """Say whether our server is there. The arguments and errors are those of `install`."""
    site = _Site.find(provider, scope, project, environment)
    return site.outcome(site.file.text)


def uninstall(
    provider: Provider,
    *,
    scope: Scope = Scope.USER,
    project: Path | None = None,
    environment: Mapping[str, str] | None = None,
    dry_run: bool = False,
) -> HookOutcome:
    """Take our server out of a program's settings, and leave them as they were before.

    The arguments and errors are those of `install`.
    """
    site = _Site.find(provider, scope, project, environment)
    text, flags = site.file.text, frozenset[str]()
    if text is not None:
        with site.errors():
            text, flags = site.kind.take_out(text, site.program)
    return site.finish(text, dry_run=dry_run, flags=flags)


def is_present(provider: Provider, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a program has been used here, or could be."""
    environment = os.environ if environment is None else environment
    path = PROGRAMS[provider].path(Scope.USER, None, environment)
    found = shutil.which(provider.value, path=environment.get("PATH"))
    return path.exists() or found is not None


@dataclass(frozen=True, slots=True)
class _Site:
    """Where the server is to be put, and what is there."""

    program: McpProgram
    scope: Scope
    file: SettingsFile

    @classmethod
    def find(
        cls,
        provider: Provider,
        scope: Scope,
        project: Path | None,
        environment: Mapping[str, str] | None,
    ) -> "_Site":
        program = PROGRAMS.get(provider)
        if program is None:
            raise UnsupportedError(f"{provider} takes no MCP servers that we know of")
        path = program.path(scope, project, os.environ if environment is None else environment)
        return cls(program, scope, SettingsFile.find(path))

    @property
    def kind(self) -> "type[JsonSettings | TomlSettings]":
        return TomlSettings if self.program.is_toml else JsonSettings

    def finish(
        self, text: str | None, *, dry_run: bool, flags: frozenset[str] = frozenset()
    ) -> HookOutcome:
        has_changed = self.file.write(text, dry_run=dry_run, flags=flags)
        return self.outcome(text, has_changed=has_changed)

    def outcome(self, text: str | None, *, has_changed: bool = False) -> HookOutcome:
        with self.errors():
            state = EventState.MISSING if text is None else self.kind.inspect(text, self.program)
        return HookOutcome(
            provider=self.program.provider,
            scope=self.scope,
            path=self.file.path,
            events={SERVER: state},
            has_changed=has_changed,
            diff=difference(self.file.text, text, self.file.path) if has_changed else "",
            note=self.program.note if state is EventState.INSTALLED else "",
        )

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Say of a mistake in the text which file it is in."""
        try:
            yield
        except MalformedDocumentError as error:
            raise SettingsError(self.file.path, str(error)) from error
        except (tomllib.TOMLDecodeError, ForeignServer) as error:
            raise SettingsError(self.file.path, str(error)) from error
