"""Where each agent program reads of MCP servers, and how it wants them written."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bullpen.agents.hooks.errors import UnsupportedError
from bullpen.agents.hooks.install import Scope
from bullpen.agents.launch.environment import AGENT, LOCATIONS, SECRET
from bullpen.model.states import Provider

__all__ = ["PROGRAMS", "McpProgram"]

TOOL_SECONDS = 3600  # an answer may take long, and some programs wait a minute

Entry = Callable[[list[str]], dict[str, Any]]
"""Returns the entry for a command."""


@dataclass(frozen=True, slots=True)
class McpProgram:
    """Where one program reads of MCP servers, and how it wants them written."""

    provider: Provider
    title: str
    user_file: tuple[str, str, str]
    """The variable that names a directory, that directory below the home, and the file in it."""
    project_file: str
    """Empty if it has none."""
    entry: Entry
    key: str = "mcpServers"
    takes_comments: bool = False
    is_toml: bool = False
    note: str = ""

    def path(self, scope: Scope, project: Path | None, environment: Mapping[str, str]) -> Path:
        """Return the file it reads of servers.

        Raises:
            UnsupportedError: it has none of that scope.
        """
        if scope is Scope.PROJECT:
            if not self.project_file:
                raise UnsupportedError(f"{self.title} has no servers of a project")
            return (project or Path.cwd()) / self.project_file
        variable, directory, name = self.user_file
        if variable and (chosen := environment.get(variable)):
            return Path(chosen) / name
        home = environment.get("HOME")
        return (Path(home) if home else Path.home()) / directory / name


def _claude(command: list[str]) -> dict[str, Any]:
    return {"type": "stdio", "command": command[0], "args": command[1:]}


def _gemini(command: list[str]) -> dict[str, Any]:
    # It passes on no variable whose name looks like that of a secret, unless it is named.
    return {"command": command[0], "args": command[1:], "env": {SECRET: f"${SECRET}"}}


def _copilot(command: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": command[0], "args": command[1:], "tools": ["*"]}


def _opencode(command: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": command, "enabled": True}


def _codex(command: list[str]) -> dict[str, Any]:
    return {
        "command": command[0],
        "args": command[1:],
        "env_vars": [SECRET, AGENT, *LOCATIONS],  # else it passes on next to none
        "tool_timeout_sec": TOOL_SECONDS,
    }


PROGRAMS: dict[Provider, McpProgram] = {
    each.provider: each
    for each in (
        McpProgram(
            provider=Provider.CLAUDE,
            title="Claude Code",
            user_file=("CLAUDE_CONFIG_DIR", "", ".claude.json"),
            project_file=".mcp.json",
            entry=_claude,
        ),
        McpProgram(
            provider=Provider.CODEX,
            title="Codex",
            user_file=("CODEX_HOME", ".codex", "config.toml"),
            project_file=".codex/config.toml",
            entry=_codex,
            key="mcp_servers",
            is_toml=True,
        ),
        McpProgram(
            provider=Provider.GEMINI,
            title="Gemini CLI",
            user_file=("", ".gemini", "settings.json"),
            project_file=".gemini/settings.json",
            entry=_gemini,
            takes_comments=True,
        ),
        McpProgram(
            provider=Provider.COPILOT,
            title="Copilot CLI",
            user_file=("COPILOT_HOME", ".copilot", "mcp-config.json"),
            project_file="",
            entry=_copilot,
        ),
        McpProgram(
            provider=Provider.OPENCODE,
            title="opencode",
            user_file=("XDG_CONFIG_HOME", ".config", "opencode/opencode.json"),
            project_file="opencode.json",
            entry=_opencode,
            key="mcp",
            takes_comments=True,
        ),
    )
}
"""The programs that take MCP servers."""
