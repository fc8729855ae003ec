"""What an agent program is given for one run, so that we see it exactly and reach it well.

Everything is given by arguments, by the environment and by files in a private directory of the
run; nothing is written to the user's own configuration. `bullpen.agents.launch` makes the plans.
"""

from pathlib import Path
from typing import Any

import msgspec

from bullpen.agents.profile import Profile

__all__ = ["Beside", "Given", "LaunchPlan"]


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What is known when an agent is about to be started."""

    profile: Profile
    name: str
    secret: str
    directory: Path
    """Private, for this run alone; removed after it."""
    daemon_socket: Path
    environment: dict[str, str]
    """What the program would be started with."""
    arguments: tuple[str, ...] = ()
    """What the user gave behind `--`."""
    cwd: Path


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A program to be run beside the agent's, from before its start until after its end.

    It has the environment and the directory of the agent. A Codex server that is told to end by a
    signal waits for the turn it is at; a second signal ends it at once.
    """

    command: tuple[str, ...]
    socket: Path
    """It is ready when this is there."""


class LaunchPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How to start it."""

    command: tuple[str, ...]
    environment: dict[str, str]
    beside: tuple[Beside, ...] = ()
    doors: dict[str, Any] = {}
    """What the daemon is told of it: `hooks`, `wake`, `mcp` (booleans), `app_server` (an address),
    `http` (an address, with `http_password` for the user `opencode`)."""
    note: str = ""
    """Why it is given less than it could be, for the user."""
