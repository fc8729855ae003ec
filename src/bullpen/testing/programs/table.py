"""Which programs there are, read from `programs.toml`."""

import platform
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from types import MappingProxyType

from bullpen.testing.programs.errors import UnknownProgram

__all__ = ["PROGRAMS", "Program", "current_platform", "find"]


@dataclass(frozen=True, slots=True)
class Program:
    """One agent program at one version: an npm package.

    The executable mostly lies in a second package, one per platform, which npm brings along.
    """

    name: str
    command: str  # what a person types
    package: str
    version: str
    executable: str
    megabytes: int
    integrity: Mapping[str, str] = field(repr=False)  # path in node_modules -> digest
    needs_node: bool = False

    def __str__(self) -> str:
        return f"{self.command} {self.version}"

    def path_in_node_modules(self, on: str) -> str:
        """Return where the executable lies on the platform `on`."""
        return self.executable.format(platform=on, triple=_TRIPLES.get(on, "unknown"))


def find(name: str) -> Program:
    """Return the program of that name.

    Raises:
        UnknownProgram: the table has none.
    """
    try:
        return PROGRAMS[name]
    except KeyError:
        raise UnknownProgram(name, PROGRAMS) from None


def current_platform() -> str:
    """Return npm's name of this machine, such as linux-x64 or darwin-arm64."""
    machine = platform.machine().lower()
    return f"{sys.platform}-{_MACHINES.get(machine, machine)}"


def _read_table() -> Mapping[str, Program]:
    text = resources.files(__package__).joinpath("programs.toml").read_text("utf-8")
    programs = {}
    for name, row in tomllib.loads(text).items():
        row["integrity"] = MappingProxyType(row["integrity"])
        programs[name] = Program(name=name, **row)
    return MappingProxyType(programs)


_MACHINES = {"x86_64": "x64", "amd64": "x64", "aarch64": "arm64"}
_TRIPLES = {
    "linux-x64": "x86_64-unknown-linux-musl",
    "linux-arm64": "aarch64-unknown-linux-musl",
    "darwin-x64": "x86_64-apple-darwin",
    "darwin-arm64": "aarch64-apple-darwin",
}

PROGRAMS = _read_table()
