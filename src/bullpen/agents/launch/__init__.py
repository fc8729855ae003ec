"""How each agent program is started so that we see it exactly and reach it well.

`plan_launch` makes the plan for one run. A program is given what it needs by its arguments, by its
environment and by files in the private directory of the run; nothing is written to the user's own
configuration, and what is configured there keeps working. One module for each program, `plain` for
all the others. What was found out about them stands in `docs/howto/what-a-run-is-given.md`.
"""

from collections.abc import Callable
from importlib import import_module

from bullpen.agents.launching import Given, LaunchPlan
from bullpen.model.states import Provider

__all__ = ["plan_launch"]


def plan_launch(given: Given) -> LaunchPlan:
    """Return how to start a program, and write the files it is to be given.

    It asks a program what it can do where versions differ, so it may take a tenth of a second, and
    must not be called in a running loop.

    Raises:
        DirectoryError, SettingsError: a file of the run cannot be written.
    """
    provider = given.profile.provider
    # Only what this program needs is loaded: somebody waits for it to start.
    name = "plain" if provider is Provider.OTHER else provider.value
    plan: Callable[[Given], LaunchPlan] = import_module(f"bullpen.agents.launch.{name}").plan
    return plan(given)
