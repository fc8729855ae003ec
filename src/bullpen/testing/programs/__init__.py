"""The real agent programs, for tests: fetched once, started offline.

`ensure("codex")` returns the path of a pinned version's executable and installs it from npm into
the user's cache when it is not there. `launch("codex", "prompt", ...)` returns the command, the
environment and the directory to start it in, with a private home and a model server on loopback,
so that no key is needed, none is seen, and nothing leaves the machine.

It starts no process that outlives the call and knows no protocol: `connection`, `terminal` or
plain subprocess take the `Launch` from here. `python -m bullpen.testing.programs` is the same
for the command line and a Makefile.
"""

from bullpen.testing.programs.errors import (
    InstallFailed,
    IntegrityMismatch,
    NodeMissing,
    ProgramError,
    UnknownMode,
    UnknownProgram,
)
from bullpen.testing.programs.install import ensure, installed
from bullpen.testing.programs.placing import programs_directory
from bullpen.testing.programs.recipes import (
    API_KEY,
    MODEL,
    Launch,
    copilot_provider,
    launch,
    modes,
)
from bullpen.testing.programs.table import PROGRAMS, Program

__all__ = [
    "API_KEY",
    "MODEL",
    "PROGRAMS",
    "InstallFailed",
    "IntegrityMismatch",
    "Launch",
    "NodeMissing",
    "Program",
    "ProgramError",
    "UnknownMode",
    "UnknownProgram",
    "copilot_provider",
    "ensure",
    "installed",
    "launch",
    "modes",
    "programs_directory",
]
