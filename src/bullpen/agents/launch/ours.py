"""What is ours in a program: the hooks that report, and the server with our tools."""

import sys
from typing import Any

from bullpen.agents.hooks.errors import HooksError
from bullpen.agents.hooks.install import Scope, check, default_runner
from bullpen.agents.hooks.merge import EventState
from bullpen.agents.hooks.programs import PROGRAMS
from bullpen.agents.launching import Given

__all__ = ["MCP_COMMAND", "SERVER", "hooks_for"]

SERVER = "bullpen"
"""What programs know the server with our tools by; it is a part of the names of the tools."""

# Not in the directory of the project: what is called `bullpen` or `json` there is not ours.
MCP_COMMAND = (sys.executable, "-P", "-m", "bullpen", "mcp")


def hooks_for(given: Given) -> dict[str, list[dict[str, Any]]]:
    """Return our hooks by event, without those that the user has installed: each tells once."""
    provider = given.profile.provider
    program, runner = PROGRAMS[provider], default_runner()
    installed = _installed(given)
    return {
        event: [program.entry(event, runner.command(provider, event))]
        for event in program.events
        if event not in installed
    }


def _installed(given: Given) -> set[str]:
    found: set[str] = set()
    for scope in Scope:
        try:
            outcome = check(
                given.profile.provider,
                scope=scope,
                project=given.cwd,
                environment=given.environment | given.profile.env,
            )
        except HooksError:  # what we cannot read says nothing of ours
            continue
        states = outcome.events.items()
        found |= {event for event, state in states if state is EventState.INSTALLED}
    return found
