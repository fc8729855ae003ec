"""Codex: its screen is run on an app server of ours, which whoever is connected can follow.

The server runs the MCP servers and the turns; the screen tells it the model, the sandbox, the
directory and what else was set for the thread, but neither MCP servers nor the like, so that
settings given on the command line are given to both. The secret is not on any command line: the
server passes the variables on that are named.
"""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence

from bullpen.agents.launch import ours, plain
from bullpen.agents.launch.arguments import has, pairs_of
from bullpen.agents.launch.environment import AGENT, LOCATIONS, SECRET, environment_of
from bullpen.agents.launch.ours import SERVER
from bullpen.agents.launching import Beside, Given, LaunchPlan
from bullpen.connection.transports.socket import MAX_UNIX_PATH_BYTES

__all__ = ["can_be_remote", "plan", "server_options"]

SUBCOMMANDS = (
    "agents exec e review login logout mcp plugin app-server remote-control completion update "
    "doctor sandbox debug apply a queue archive delete migrate-rollouts migrate-nfs-db unarchive "
    "cloud exec-server features help"
)
PROBE_SECONDS = 10.0
CONFIG = ("-c", "--config", "--enable", "--disable")
PROFILE = ("-p", "--profile")


def plan(given: Given) -> LaunchPlan:
    """Return how to start Codex."""
    arguments = plain.arguments_of(given)
    if plain.is_subcommand(given, SUBCOMMANDS) or has(arguments, "--remote"):
        return plain.plan(given)
    environment = environment_of(given, user_id=os.getuid())
    if not can_be_remote(_help(given.profile.command, environment)):
        return plain.plan(given, note="this Codex cannot be run on a server: it has no --remote")
    why = _why_alone(given, arguments)
    return _alone(given, environment, why) if why else _on_server(given, environment)


def can_be_remote(help_text: str) -> bool:
    """Tell by its help whether a Codex can be run on a server that listens on a Unix socket."""
    return "--remote" in help_text and "unix://" in help_text


def server_options() -> tuple[str, ...]:
    """Return the options that give Codex the server with our tools, which it need not ask for."""
    program, *arguments = ours.MCP_COMMAND
    values = {
        "command": program,
        "args": arguments,
        "env_vars": [SECRET, AGENT, *LOCATIONS],
        "default_tools_approval_mode": "approve",
    }
    words: list[str] = []
    for key, value in values.items():
        words += ["-c", f"mcp_servers.{SERVER}.{key}={json.dumps(value)}"]
    return tuple(words)


def _why_alone(given: Given, arguments: Sequence[str]) -> str:
    """Return why it cannot be run on a server, if that is so."""
    if has(arguments, *PROFILE):
        return "a Codex with --profile is not run on a server, which takes no profile"
    socket = given.directory / "codex.sock"
    if len(os.fsencode(socket)) > MAX_UNIX_PATH_BYTES:
        return f"no socket can be made at such a path: {socket}"
    return ""


def _alone(given: Given, environment: dict[str, str], why: str) -> LaunchPlan:
    return LaunchPlan(
        command=(*given.profile.command, *server_options(), *plain.arguments_of(given)),
        environment=environment,
        doors={"mcp": True},
        note=why,
    )


def _on_server(given: Given, environment: dict[str, str]) -> LaunchPlan:
    arguments = plain.arguments_of(given)
    socket = given.directory / "codex.sock"
    address = f"unix://{socket}"
    config = [word for pair in pairs_of(arguments, *CONFIG) for word in pair]
    server = ("app-server", "--listen", address, *server_options(), *config)
    return LaunchPlan(
        command=(*given.profile.command, "--remote", address, *arguments),
        environment=environment,
        beside=(Beside(command=(*given.profile.command, *server), socket=socket),),
        doors={"app_server": address, "mcp": True},
    )


def _help(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Return what a program says of itself; nothing if it cannot be asked."""
    try:
        done = subprocess.run(
            [*command, "--help"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=PROBE_SECONDS,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode("utf-8", "replace")
