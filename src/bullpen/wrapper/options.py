"""What a wrapper is told when it is started."""

from pathlib import Path

import msgspec

from bullpen.agents.profile import Profile
from bullpen.api.runtime import Paths
from bullpen.model.states import Provider
from bullpen.wrapper.pace import Pace

__all__ = ["WrapperOptions"]


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
