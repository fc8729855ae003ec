"""What an agent is doing, which program it is, and how firmly we know."""

from enum import StrEnum

__all__ = ["Activity", "Provider", "SignatureClass"]


class Activity(StrEnum):
    """What an agent is doing. `UNKNOWN` is an honest answer; a guess called idle is not."""

    STARTING = "starting"
    RUNNING = "running"
    IDLE = "idle"
    WAITING_INPUT = "waiting_input"
    """A question, a menu or a dialog that decides about no action of the agent is open."""
    WAITING_APPROVAL = "waiting_approval"
    RATE_LIMITED = "rate_limited"
    """Its last turn was refused for usage, not for what it asked."""
    ERROR = "error"
    """Its last turn ended with an error; a new prompt can be given."""
    EXITED = "exited"
    UNKNOWN = "unknown"

    @property
    def is_waiting(self) -> bool:
        """Nothing goes on until somebody answers."""
        return self in (Activity.WAITING_INPUT, Activity.WAITING_APPROVAL)


class Provider(StrEnum):
    """The family of agent programs."""

    CLAUDE = "claude"
    CODEX = "codex"
    COPILOT = "copilot"
    GEMINI = "gemini"
    OPENCODE = "opencode"


class SignatureClass(StrEnum):
    """What kind of evidence says which program runs in a pane."""

    DETERMINISTIC = "deterministic"
    HEURISTIC = "heuristic"
    NONE = "none"
