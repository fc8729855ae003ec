"""opencode: its screen serves HTTP on a port we choose, behind a password.

Its configuration can be added to by a variable. Without a password, whoever is on the machine
could drive it.
"""

import json
import os
import random
import secrets
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from bullpen.agents.launch import ours, plain
from bullpen.agents.launch.arguments import has, values_of, without
from bullpen.agents.launch.environment import environment_of
from bullpen.agents.launch.ours import SERVER
from bullpen.agents.launching import Given, LaunchPlan

__all__ = ["add_to_config", "choose_port", "plan"]

CONFIG = "OPENCODE_CONFIG_CONTENT"
PASSWORD = "OPENCODE_SERVER_PASSWORD"  # noqa: S105 - the name of a variable
LOOPBACK = "127.0.0.1"
EVERYWHERE = ("0.0.0.0", "::", "localhost")  # noqa: S104 - as the user wants it
SUBCOMMANDS = (
    "completion acp mcp attach run debug providers auth agent upgrade uninstall serve web models "
    "stats export import github pr session plugin plug db"
)
# Below those that systems give to whoever asks for any: nobody gets one of these by chance
# between our look and its start. If the port is taken then, opencode shows nothing for ever.
PORTS = range(20000, 32000)
TRIES = 50


def plan(given: Given) -> LaunchPlan:
    """Return how to start opencode."""
    if plain.is_subcommand(given, SUBCOMMANDS):
        return plain.plan(given)
    arguments = plain.arguments_of(given)
    environment = environment_of(given, user_id=os.getuid())
    try:
        environment[CONFIG] = add_to_config(environment.get(CONFIG, ""))
    except ValueError:
        return plain.plan(given, note=f"nothing was added to {CONFIG}: it is no JSON object")
    port = _port_in(arguments) or choose_port(random.sample(PORTS, TRIES))
    if not port:
        return _plan(given, environment, arguments, doors={"mcp": True})
    environment.setdefault(PASSWORD, secrets.token_urlsafe(24))
    options = ["--port", str(port)]
    if not has(arguments, "--hostname", "--mdns"):
        options += ["--hostname", LOOPBACK]
    doors = {
        "http": f"http://{_host_in(arguments)}:{port}",
        "http_password": environment[PASSWORD],
        "mcp": True,
    }
    return _plan(given, environment, (*options, *without(arguments, "--port")), doors)


def add_to_config(config: str) -> str:
    """Return a configuration with our server in it, whose tools need not be asked for.

    The server has the environment of the program, and so the secret.

    Raises:
        ValueError: it is not a JSON object.
    """
    user = json.loads(config) if config.strip() else {}
    if not isinstance(user, dict):
        raise ValueError(config)
    permission = user.get("permission") or {}
    if isinstance(permission, str):  # for everything
        permission = {"*": permission}
    server = {"type": "local", "command": list(ours.MCP_COMMAND), "enabled": True}
    user["mcp"] = {**(user.get("mcp") or {}), SERVER: server}
    # Of those that match the last counts: all tools of the server, and no others.
    user["permission"] = {**permission, f"{SERVER}_*": "allow"}
    return json.dumps(user)


def choose_port(ports: Iterable[int]) -> int:
    """Return the first of these that nobody has; 0 if there is none."""
    for port in ports:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
            try:
                tried.bind((LOOPBACK, port))
            except OSError:
                continue
            return port
    return 0


def _port_in(arguments: Sequence[str]) -> int:
    """Return the port the user has chosen; 0 leaves it to others."""
    chosen = values_of(arguments, "--port")[-1:]
    return int(chosen[0]) if chosen and chosen[0].isdigit() else 0


def _host_in(arguments: Sequence[str]) -> str:
    """Return where it can be reached, if the user says where it listens."""
    chosen = values_of(arguments, "--hostname")[-1:]
    return LOOPBACK if not chosen or chosen[0] in EVERYWHERE else chosen[0]


def _plan(
    given: Given, environment: dict[str, str], arguments: Sequence[str], doors: dict[str, Any]
) -> LaunchPlan:
    return LaunchPlan(
        command=(*given.profile.command, *arguments), environment=environment, doors=doors
    )
