"""Copilot CLI: a plugin of one run with our hooks, and a server beside the user's own."""

import os
from typing import Any

from bullpen.agents.launch import ours, plain
from bullpen.agents.launch.environment import environment_of, identity_of
from bullpen.agents.launch.files import write_json
from bullpen.agents.launch.ours import SERVER, hooks_for
from bullpen.agents.launching import Given, LaunchPlan

__all__ = ["plan"]

SUBCOMMANDS = (
    "app login help init config update version workflow sessions memories plugin mcp skill "
    "instruction lsp sandbox completion"
)


def plan(given: Given) -> LaunchPlan:
    """Return how to start the Copilot CLI."""
    if plain.is_subcommand(given, SUBCOMMANDS):
        return plain.plan(given)
    environment = environment_of(given, user_id=os.getuid())
    plugin = given.directory / "copilot"
    described = {"name": "bullpen", "version": "1.0.0", "hooks": "hooks.json"}
    write_json(plugin / "plugin.json", described)
    write_json(plugin / "hooks.json", {"version": 1, "hooks": hooks_for(given)})
    servers = {SERVER: _server(identity_of(given, environment))}
    mcp_file = write_json(given.directory / "copilot-mcp.json", {"mcpServers": servers})
    options = (
        f"--plugin-dir={plugin}",
        f"--additional-mcp-config=@{mcp_file}",
        f"--allow-tool={SERVER}",  # all tools of the server, and no others
    )
    return LaunchPlan(
        command=(*given.profile.command, *options, *plain.arguments_of(given)),
        environment=environment,
        doors={"hooks": True, "mcp": True},
    )


def _server(environment: dict[str, str]) -> dict[str, Any]:
    program, *arguments = ours.MCP_COMMAND
    return {
        "type": "local",
        "command": program,
        "args": arguments,
        "env": environment,
        "tools": ["*"],
    }
