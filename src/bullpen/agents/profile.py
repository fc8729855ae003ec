"""A profile: how a program is run as an agent, and how it is to be typed to."""

from enum import StrEnum

import msgspec

from bullpen.model.states import Provider

__all__ = ["InterruptBy", "Profile"]


class InterruptBy(StrEnum):
    """How a program is made to stop what it is doing."""

    ESCAPE = "escape"
    """The key Esc, as agent programs with a screen want it."""
    ESCAPE_TWICE = "escape_twice"
    SIGNAL = "signal"
    """SIGINT to the process group in front, as Ctrl-C does for programs that print lines."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How a program is run as an agent. One TOML file each; see `bullpen.agents.profiles`."""

    name: str
    command: tuple[str, ...]
    """The program and its first arguments."""
    idle_regex: str
    """Searched in the last 1000 bytes of output: the program waits for input."""
    args: tuple[str, ...] = ()
    submit_sequence: str = "\n"
    """Escape sequences are already decoded."""
    env: dict[str, str] = {}
    """Merged over the environment."""
    provider: Provider = Provider.OTHER
    port: int | None = None
    """Where it is announced if nothing else is said."""
    has_screen: bool = False
    """It paints a screen, which is read by rules; otherwise it prints lines and a prompt."""
    interrupt: InterruptBy = InterruptBy.SIGNAL
    addresses: bool = True
    """Whether `@name text` typed at its prompt is a message to somebody else."""
    description: str = ""
