"""What the servers of agent programs tell of a turn, in one shape for all who follow them."""

from enum import StrEnum

import msgspec

from bullpen.model.turns import Turn, Utterance

__all__ = ["Sign", "TurnNews"]


class Sign(StrEnum):
    """What is known of a turn, the more the later."""

    BEGUN = "begun"
    ASKED = "asked"
    """What somebody said is in the session."""
    WORKING = "working"
    """The agent did something."""
    ENDED = "ended"


class TurnNews(msgspec.Struct, frozen=True, kw_only=True):
    """Something new about a turn."""

    sign: Sign
    session_id: str
    turn_id: str
    client_id: str = ""
    """By what who said it marked what was said; empty if it did not."""
    turn: Turn | None = None
    """What is to be told of it."""
    said: Utterance | None = None
    """What the agent says in it, while it says it."""
