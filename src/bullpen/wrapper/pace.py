"""How long a wrapper waits for what. Pure."""

import msgspec

__all__ = ["Pace"]


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
