"""Hooks of agent programs: what we put into their settings, and the shim that those entries run.

`install`, `check` and `uninstall` change the settings of a program by as little text as there is to
change, and take it out again to the byte. `shim.py` is run by the agent programs, as a file and
without the package. What the events mean is known in `agents.providers`; nothing here speaks with
the daemon but the shim.
"""

from bullpen.agents.hooks.errors import HooksError, SettingsError, UnsupportedError
from bullpen.agents.hooks.install import (
    HookOutcome,
    Scope,
    check,
    install,
    is_present,
    settings_path,
    uninstall,
)
from bullpen.agents.hooks.merge import EventState
from bullpen.agents.hooks.programs import PROGRAMS

__all__ = [
    "PROGRAMS",
    "EventState",
    "HookOutcome",
    "HooksError",
    "Scope",
    "SettingsError",
    "UnsupportedError",
    "check",
    "install",
    "is_present",
    "settings_path",
    "uninstall",
]
