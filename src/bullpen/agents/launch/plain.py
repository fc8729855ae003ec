"""A program we know nothing about: it is started as its profile says, and told who it is."""

import os

from bullpen.agents.launch.environment import environment_of
from bullpen.agents.launching import Given, LaunchPlan

__all__ = ["arguments_of", "is_subcommand", "plan"]


def plan(given: Given, *, note: str = "") -> LaunchPlan:
    """Return how to start a program by its profile alone."""
    return LaunchPlan(
        command=(*given.profile.command, *arguments_of(given)),
        environment=environment_of(given, user_id=os.getuid()),
        note=note,
    )


def arguments_of(given: Given) -> tuple[str, ...]:
    """Return what the profile and then the user want the program to be started with."""
    return (*given.profile.args, *given.arguments)


def is_subcommand(given: Given, names: str) -> bool:
    """Tell whether the user asks for something else than the agent, as in `claude mcp list`.

    `names` are words with spaces between them. Only the first word is judged: further on it may be
    the value of an option, or a prompt.
    """
    return next(iter(given.arguments), "") in names.split()
