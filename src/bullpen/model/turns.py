"""What an agent program tells of its turns: that one began with a prompt, or ended with a text."""

from enum import StrEnum

import msgspec

__all__ = ["Turn", "TurnEnd"]


class TurnEnd(StrEnum):
    """How a turn of an agent ended."""

    DONE = "done"
    FAILED = "failed"
    RATE_LIMITED = "rate_limited"
    INTERRUPTED = "interrupted"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was told of a turn."""

    by: str
    """Who says so: `claude_hooks`, `codex_appserver`, `pty` …"""
    prompt: str | None = None
    """What the agent was asked, as it has it itself; None if this tells of an end."""
    end: TurnEnd | None = None
    """How it ended; None if this tells of a beginning."""
    text: str = ""
    """What the agent said at the end, whole; or the error."""
    asked: tuple[str, ...] = ()
    """Of an end: what the agent was asked in this turn, as far as its teller knows."""
    thinking: str = ""
    session_id: str = ""
    turn_id: str = ""
