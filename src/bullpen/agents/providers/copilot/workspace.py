"""The directory Copilot CLI keeps for a session: what `workspace.yaml` in it says.

It is written by the program alone, one short line for each key; so much of YAML is read here.
"""

import json
import re
from typing import Final

import msgspec

__all__ = ["LOCK", "Workspace", "parse_workspace"]

LOCK: Final = re.compile(r"inuse\.(\d{1,10})\.lock")
"""The name of a file that is there while a process has the session open."""

_LINE: Final = re.compile(r"^([a-z_]+):[ ]+(\S.*?)\s*$", re.MULTILINE)
_BLOCK: Final = ("|", ">")


class Workspace(msgspec.Struct, frozen=True):
    """What is known of a session without reading its record."""

    cwd: str = ""
    name: str = ""
    client: str = ""

    @property
    def is_terminal(self) -> bool:
        """Whether somebody uses it in a terminal, and not a program through a server."""
        return self.client in ("", "github/cli")


def parse_workspace(content: str) -> Workspace:
    """Return what the file says, as far as it is understood."""
    values = {match[1]: _plain(match[2]) for match in _LINE.finditer(content)}
    return Workspace(
        cwd=values.get("cwd", ""), name=values.get("name", ""), client=values.get("client_name", "")
    )


def _plain(value: str) -> str:
    """Return a value without its quotes."""
    if value.startswith(_BLOCK):
        return ""  # it goes on over several lines
    if len(value) > 1 and value[0] == value[-1] == "'":
        return value[1:-1].replace("''", "'")
    if value.startswith('"'):
        try:
            unquoted = json.loads(value)
        except ValueError:
            return value
        return unquoted if isinstance(unquoted, str) else value
    return value
