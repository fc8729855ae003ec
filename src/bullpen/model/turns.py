"""What an agent program tells of its turns: how one began, what is said in it, how it ended."""

from enum import StrEnum

import msgspec

__all__ = ["Turn", "TurnEnd", "Utterance"]


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


class Utterance(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says in a turn that has not ended: perhaps a piece of its answer."""

    text: str
    turn_id: str = ""
    is_new: bool = False
    """It begins something: what was said in the turn before it was said on the way."""
