"""What a wrapper is told when it is started."""

from pathlib import Path

import msgspec

from bullpen.agents.profile import Profile
from bullpen.api.runtime import Paths
from bullpen.model.states import Provider

__all__ = ["Pace", "WrapperOptions"]


class Pace(msgspec.Struct, frozen=True, kw_only=True):
    """How long the wrapper waits for what, in seconds."""

    settle: float = 0.3
    """How long a screen must stand still at its prompt before a turn is over; screens flicker."""
    unseen: float = 2.0
    """The same, if it was never seen at work."""
    prompt: float = 0.04
    """How long the prompt of before must stand at the end of the output of who prints lines."""
    other_prompt: float = 0.4
    """The same for what only looks like a prompt: it may be a part of the reply."""
    silence: float = 30.0
    """Without any output, and without a prompt: then it has said what it had to say."""
    echo: float = 5.0
    """For a line that was typed to be echoed, or answered."""
    interrupt: float = 5.0
    """For a program to stop what it does when it is interrupted."""
    state: float = 0.05
    """Between two changes that the daemon is told."""


class WrapperOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a wrapper is told when it is started."""

    profile: Profile
    paths: Paths
    name: str = ""
    """As wished; empty for the profile's."""
    port: int | None = None
    arguments: tuple[str, ...] = ()
    """What the user gave behind `--`."""
    cwd: Path
    is_detached: bool = False
    """Nobody looks: there is no terminal but the agent's own."""
    columns: int = 120
    """Of a terminal nobody looks at; otherwise it has the size of the user's."""
    rows: int = 40
    log_path: Path | None = None
    """Where the wrapper's own log goes; beside the daemon's if nothing is said."""
    output_path: Path | None = None
    """Where all that the program writes is kept as well, byte by byte."""
    starts_daemon: bool = True
    """Whether a daemon is started if there is none."""
    pace: Pace = Pace()

    @property
    def is_painted(self) -> bool:
        """Whether the program's screen is read, and not its lines."""
        return self.profile.has_screen and self.profile.provider is not Provider.OTHER
