"""The agents elsewhere that somebody has added, as files that Synapse reads and writes, too.

There is one file per agent in `~/.a2a/external/`, by its alias, with exactly the eight fields that
were agreed on. Files are replaced whole; what is none is passed over.
"""

import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import msgspec

from bullpen.agents.a2a.errors import A2AError, AliasError
from bullpen.agents.a2a_files import hold, read_fields, write_fields
from bullpen.model.external import ExternalAgent

__all__ = ["ExternalAgentRegistry", "RegistryUnusable", "alias_of", "default_directory"]

DIRECTORY_VARIABLE: Final = "SYNAPSE_EXTERNAL_REGISTRY_DIR"
LOCK: Final = ".lock"
MAX_BYTES: Final = 2**20
LONGEST_ALIAS: Final = 64
MOST_AGENTS: Final = 1000
OUR_NAMES: Final = frozenset({"user", "bullpen", "mailbox", "all"})

_ALIAS: Final = re.compile(r"\w[\w.-]*")


class RegistryUnusable(A2AError):
    """The files cannot be written. What was added before is still there."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"cannot write {path}: {reason}")
        self.path = path


def default_directory(environment: Mapping[str, str] | None = None) -> Path:
    """Where they are: `~/.a2a/external`, unless Synapse was told otherwise."""
    environment = os.environ if environment is None else environment
    given = environment.get(DIRECTORY_VARIABLE)
    return Path(given).expanduser() if given else Path.home() / ".a2a" / "external"


def alias_of(name: str, wanted: str | None = None) -> str:
    """Return the alias that was given, or the one that the name of an agent makes.

    Raises:
        AliasError: it cannot be one.
    """
    alias = (wanted or re.sub(r"[^\w.-]+", "", name.replace(" ", "-"))).lower()
    if not _ALIAS.fullmatch(alias):
        raise AliasError(alias, "it may have letters, digits, dots, dashes and underscores")
    if len(alias) > LONGEST_ALIAS:
        raise AliasError(alias, f"it may have {LONGEST_ALIAS} characters")
    if alias in OUR_NAMES:
        raise AliasError(alias, "it means somebody else")
    return alias


class ExternalAgentRegistry:
    """Agents elsewhere, by their aliases. Every method reads or writes files."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = default_directory() if directory is None else directory

    def add(self, agent: ExternalAgent) -> None:
        """Keep an agent, in the place of any other of its alias.

        Raises:
            AliasError: its alias cannot be one.
            RegistryUnusable: nothing can be written there.
        """
        alias_of("", agent.alias)
        with self._locked():
            self._write(agent)

    def remove(self, alias: str) -> bool:
        """Forget an agent; return whether it was there.

        Raises:
            RegistryUnusable: nothing can be removed there.
        """
        if not _ALIAS.fullmatch(alias) or not self._path(alias).exists():
            return False
        with self._locked():
            try:
                self._path(alias).unlink()
            except FileNotFoundError:
                return False
            except OSError as error:
                raise RegistryUnusable(self._path(alias), error.strerror or error) from error
        return True

    def get(self, alias: str) -> ExternalAgent | None:
        """Return the agent of an alias."""
        return _read(self._path(alias)) if _ALIAS.fullmatch(alias) else None

    def list_agents(self) -> tuple[ExternalAgent, ...]:
        """Return them all, in the order of their aliases."""
        found = map(_read, sorted(self.directory.glob("*.json"))[:MOST_AGENTS])
        return tuple(each for each in found if each is not None)

    def update_last_seen(self, alias: str, at: str) -> bool:
        """Note when an agent took something; return whether it is still there.

        Raises:
            RegistryUnusable: nothing can be written there.
        """
        if self.get(alias) is None:
            return False
        with self._locked():
            agent = self.get(alias)
            if agent is not None:
                self._write(msgspec.structs.replace(agent, last_seen=at))
        return agent is not None

    def _path(self, alias: str) -> Path:
        return self.directory / f"{alias}.json"

    def _write(self, agent: ExternalAgent) -> None:
        path = self._path(agent.alias)
        try:
            write_fields(path, agent)
        except OSError as error:
            raise RegistryUnusable(path, error.strerror or error) from error

    def _locked(self) -> AbstractContextManager[None]:
        """Keep others of us away for the time it takes to write a small file."""
        return hold(
            self.directory,
            LOCK,
            lambda error: RegistryUnusable(self.directory, error.strerror or error),
        )


def _read(path: Path) -> ExternalAgent | None:
    try:
        found = msgspec.json.decode(read_fields(path, MAX_BYTES + 1), type=ExternalAgent)
    except (OSError, ValueError, RecursionError):
        return None
    return found if found.alias == path.stem else None
