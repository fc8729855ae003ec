"""Claude Code: settings and servers of one run, and a helper in its background that wakes it.

`--settings` counts once, the last one; so what the user gives there is read and merged with ours.
`--mcp-config` counts each time, and takes every word up to the next option. Both are added to what
is configured in files.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bullpen.agents.hooks.waiter import EVENTS, wake_hook
from bullpen.agents.launch import ours, plain
from bullpen.agents.launch.arguments import has, values_of, without
from bullpen.agents.launch.environment import environment_of, identity_of
from bullpen.agents.launch.files import write_json
from bullpen.agents.launch.ours import SERVER, hooks_for
from bullpen.agents.launching import Given, LaunchPlan
from bullpen.agents.providers.claude.prompts import WAKE_MESSAGE, WAKE_SUMMARY

__all__ = ["merge_settings", "plan"]

SUBCOMMANDS = (
    "agents auth auto-mode doctor gateway install mcp plugin plugins project setup-token "
    "ultrareview update upgrade"
)


def plan(given: Given) -> LaunchPlan:
    """Return how to start Claude Code."""
    if plain.is_subcommand(given, SUBCOMMANDS):
        return plain.plan(given)
    arguments = plain.arguments_of(given)
    wanted = values_of(arguments, "--settings")
    settings = _read_settings(wanted[-1], given.cwd) if wanted else {}
    if settings is None:
        return plain.plan(given)  # Claude Code says what is wrong with them, and ends
    environment = environment_of(given, user_id=os.getuid())
    merged = merge_settings(settings, _settings(hooks_for(given)))
    settings_file = write_json(given.directory / "claude.json", merged)
    servers = {SERVER: _server(identity_of(given, environment))}
    mcp_file = write_json(given.directory / "claude-mcp.json", {"mcpServers": servers})
    # In this order: the second option ends the first, which takes more than one word.
    options = ("--mcp-config", str(mcp_file), "--settings", str(settings_file))
    return LaunchPlan(
        command=(*given.profile.command, *options, *without(arguments, "--settings")),
        environment=environment,
        doors=_doors(arguments, merged),
    )


def _doors(arguments: Sequence[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return what it will do of all that it is given: the user may have turned things off."""
    is_safe = has(arguments, "--safe-mode")
    runs_hooks = not (is_safe or has(arguments, "--bare") or settings.get("disableAllHooks"))
    doors = {"hooks": runs_hooks, "wake": runs_hooks, "mcp": not is_safe}
    return {name: True for name, is_open in doors.items() if is_open}


def merge_settings(user: dict[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Return settings in which both hold: lists are joined, and of two words the user's counts."""
    merged = dict(user)
    for key, value in ours.items():
        theirs = merged.get(key)
        if isinstance(theirs, dict) and isinstance(value, dict):
            merged[key] = merge_settings(theirs, value)
        elif isinstance(theirs, list) and isinstance(value, list):
            merged[key] = [*theirs, *value]
        else:
            merged.setdefault(key, value)
    return merged


def _settings(hooks: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    wake = wake_hook(WAKE_MESSAGE, WAKE_SUMMARY)
    waking = {event: [{"hooks": [wake]}] for event in EVENTS}
    return {
        "hooks": merge_settings(hooks, waking),
        "permissions": {"allow": [f"mcp__{SERVER}"]},  # all tools of the server, and no others
    }


def _server(environment: dict[str, str]) -> dict[str, Any]:
    program, *arguments = ours.MCP_COMMAND
    return {"type": "stdio", "command": program, "args": arguments, "env": environment}


def _read_settings(given: str, cwd: Path) -> dict[str, Any] | None:
    """Return the settings the user gives, as JSON or in a file; None if they are neither."""
    text = given.strip()
    try:
        if not text.startswith("{"):
            text = (cwd / Path(given).expanduser()).read_text("utf-8")
        settings = json.loads(text)
    except (OSError, ValueError):
        return None
    return settings if isinstance(settings, dict) else None
