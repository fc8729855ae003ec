"""What we say: panes, sessions and agents as the projection has them, and why."""

from datetime import datetime
from typing import Any

import msgspec

from bullpen.model.observations import PaneInstanceId
from bullpen.model.states import (
    Activity,
    BindingState,
    EvidenceMode,
    EvidenceTier,
    HealthStatus,
    Presence,
    Provider,
    SignatureClass,
    SourceKind,
)

__all__ = [
    "AgentState",
    "Claim",
    "Explanation",
    "PanePlace",
    "PaneState",
    "SessionState",
    "SignatureInputs",
    "StateChange",
    "Summary",
]


class SignatureInputs(msgspec.Struct, frozen=True):
    """Which of the signals for an agent matched."""

    provider_hint: bool = False
    cmd_match: bool = False
    poller_match: bool = False
    title_match: bool = False


class PanePlace(msgspec.Struct, frozen=True, kw_only=True):
    """Where a pane is and what tmux says of it."""

    tmux_socket: str = ""
    session_id: str = ""
    session_name: str = ""
    window_id: str = ""
    window_index: int = 0
    window_name: str = ""
    pane_index: int = 0
    pane_pid: int = 0
    tty: str = ""
    width: int = 0
    height: int = 0
    is_active: bool = False
    """Within its window."""
    is_visible: bool = False
    """Somebody may be looking at it."""
    is_dead: bool = False
    current_command: str = ""
    current_path: str = ""
    title: str = ""
    """The title as tmux has it, which a program may have left behind."""
    also_in: tuple[str, ...] = ()
    """Other sessions the window is linked into."""


class PaneState(msgspec.Struct, frozen=True, kw_only=True):
    """What we say of a pane."""

    pane_instance_id: PaneInstanceId
    presence: Presence = Presence.UNMANAGED
    evidence_mode: EvidenceMode = EvidenceMode.NONE
    binding_state: BindingState = BindingState.UNMANAGED
    signature_class: SignatureClass = SignatureClass.NONE
    signature_reason: str = ""
    signature_confidence: float = 0.0
    signature_inputs: SignatureInputs = SignatureInputs()
    no_agent_streak: int = 0
    agent: str | None = None
    """The name of the agent in it."""
    provider: Provider | None = None
    activity_state: Activity = Activity.UNKNOWN
    activity_source: SourceKind | None = None
    activity_since: datetime | None = None
    is_ready: bool = False
    """A message could be typed and submitted now, by what its screen shows."""
    session_key: str | None = None
    deterministic_last_seen: datetime | None = None
    title: str = ""
    place: PanePlace = PanePlace()
    state_version: int = 0
    updated_at: datetime


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """What we say of an agent's session, in a pane or not."""

    session_key: str
    presence: Presence
    evidence_mode: EvidenceMode
    deterministic_last_seen: datetime | None = None
    winner_tier: EvidenceTier
    activity_state: Activity
    activity_source: SourceKind
    representative_pane_instance_id: PaneInstanceId | None = None
    agent: str | None = None
    provider: Provider
    activity_since: datetime | None = None
    title: str = ""
    pid: int = 0
    tty: str = ""
    cwd: str = ""
    state_version: int = 0
    updated_at: datetime


class AgentState(msgspec.Struct, frozen=True, kw_only=True):
    """An agent wherever it runs: what the board shows of it."""

    name: str
    provider: Provider
    activity: Activity
    since: datetime
    evidence_mode: EvidenceMode
    source: SourceKind
    reason: str = ""
    """By what it is known, in a few words."""
    is_ready: bool = False
    title: str = ""
    cwd: str = ""
    session_key: str | None = None
    pane: PaneInstanceId | None = None
    place: PanePlace | None = None
    pid: int = 0
    tty: str = ""
    state_version: int = 0
    updated_at: datetime


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """All of it in numbers."""

    version: int = 0
    panes: int = 0
    agents: int = 0
    unmanaged: int = 0
    activities: dict[str, int] = {}
    """How many agents are doing what."""
    sources: dict[str, HealthStatus] = {}
    absent: tuple[str, ...] = ()
    """Those of them that have nothing to look at on this machine, which is no trouble."""
    alerts: int = 0
    """How many alerts are open."""


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """Something became different. `version` counts all changes of one daemon, without gaps."""

    version: int
    at: datetime
    kind: str
    """`pane`, `session`, `agent`, or the same with `_removed`."""
    key: str
    pane: PaneState | None = None
    session: SessionState | None = None
    agent: AgentState | None = None
    previous_activity: Activity | None = None
    """What an agent was doing before, if that is what changed."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one source says about an agent, and what became of it."""

    source_kind: SourceKind
    tier: EvidenceTier
    event_type: str
    activity: Activity | None
    observed_at: datetime
    link_age_seconds: float
    """Since the source was last heard of."""
    age_seconds: float
    """Since it said this."""
    is_winner: bool = False
    why: str = ""
    """Why it won or lost, in words for a person."""
    session_key: str = ""
    details: Any = None
    """What the source itself knows more: for a screen, the rule, the evidence and who lost."""


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why we say what we say about an agent or a pane."""

    subject: str
    agent: AgentState | None = None
    pane: PaneState | None = None
    claims: tuple[Claim, ...] = ()
    refused: tuple[str, ...] = ()
    """The latest observations about it that were refused, with the reason."""
