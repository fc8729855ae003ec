"""What an agent is doing, which program it is, and how firmly we know."""

from enum import StrEnum

__all__ = [
    "Activity",
    "BindingState",
    "EvidenceMode",
    "EvidenceTier",
    "HealthStatus",
    "Presence",
    "Provider",
    "RegistryState",
    "SignatureClass",
    "SourceKind",
]


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
    """The family of agent programs. `OTHER` is anybody's own, which reports about itself."""

    CLAUDE = "claude"
    CODEX = "codex"
    COPILOT = "copilot"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    OTHER = "other"


class SourceKind(StrEnum):
    """Who looks. Each kind is one part of the world seen in one way."""

    POLLER = "poller"
    """Screens, titles and processes: of tmux panes, and of terminals outside of tmux."""
    CLAUDE_HOOKS = "claude_hooks"
    CLAUDE_SESSIONS = "claude_sessions"
    """Claude Code's own state files, one per process."""
    CLAUDE_TRANSCRIPT = "claude_transcript"
    CODEX_APPSERVER = "codex_appserver"
    CODEX_HOOKS = "codex_hooks"
    CODEX_ROLLOUT = "codex_rollout"
    """Codex's session files."""
    CODEX_CAPTURE = "codex_capture"
    """The events that `codex exec --json` prints on the screen of a pane."""
    COPILOT = "copilot"
    GEMINI = "gemini"
    OPENCODE = "opencode"
    PTY = "pty"
    """The wrappers around agents that were launched through us."""
    REPORT = "report"
    """Anybody's own agent, through the api."""

    @property
    def tier(self) -> "EvidenceTier":
        """How firmly a source of this kind knows what it says."""
        if self is SourceKind.POLLER:
            return EvidenceTier.HEURISTIC
        return EvidenceTier.DETERMINISTIC


class EvidenceTier(StrEnum):
    """How firmly a claim is known: said by the program itself, or read off its appearance."""

    DETERMINISTIC = "deterministic"
    HEURISTIC = "heuristic"


class EvidenceMode(StrEnum):
    """By which tier what we say of a pane is known just now."""

    DETERMINISTIC = "deterministic"
    HEURISTIC = "heuristic"
    NONE = "none"


class Presence(StrEnum):
    """Whether there is an agent at all."""

    MANAGED = "managed"
    UNMANAGED = "unmanaged"


class SignatureClass(StrEnum):
    """What kind of evidence says which program runs in a pane."""

    DETERMINISTIC = "deterministic"
    HEURISTIC = "heuristic"
    NONE = "none"


class BindingState(StrEnum):
    """How a pane is tied to the agent in it."""

    UNMANAGED = "unmanaged"
    MANAGED_HEURISTIC = "managed_heuristic"
    MANAGED_DETERMINISTIC_FRESH = "managed_deterministic_fresh"
    MANAGED_DETERMINISTIC_STALE = "managed_deterministic_stale"


class HealthStatus(StrEnum):
    """Whether a source can be believed to tell what happens."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    DOWN = "down"


class RegistryState(StrEnum):
    """Where a source is in its registration. Only an active one may deliver."""

    PENDING = "pending"
    ACTIVE = "active"
    STALE = "stale"
    REVOKED = "revoked"
