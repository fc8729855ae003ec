"""What the projection remembers of a pane and of a session, beside what it has published."""

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from bullpen.model.observations import Origin, PaneInstanceId
from bullpen.model.states import Activity, BindingState, Provider, SourceKind
from bullpen.model.views import AgentState, PanePlace, PaneState, SessionState
from bullpen.observe.hysteresis import ScreenTrack
from bullpen.observe.reports import ScreenReport, SignatureReport
from bullpen.observe.resolver import Held, Resolution
from bullpen.observe.titles import Candidate

__all__ = ["CERTAIN", "GUESSED", "Farewell", "PaneRecord", "SessionRecord"]

GUESSED = 1
"""A session was put into a pane by its directory."""
CERTAIN = 2
"""... by the pane it named, its process or its terminal."""

MOST_REFUSED = 8


class Farewell(NamedTuple):
    """By whom, and how, it is known that an agent is gone."""

    source_kind: SourceKind = SourceKind.POLLER
    reason: str = "it is not there any more"


@dataclass(slots=True)
class PaneRecord:
    """One pane instance."""

    id: PaneInstanceId
    place: PanePlace = field(default_factory=PanePlace)
    looked_at: datetime | None = None
    signature: SignatureReport = field(default_factory=SignatureReport)
    screen: ScreenReport | None = None
    track: ScreenTrack | None = None
    looks_like: Provider | None = None
    """Whose program it seems to be, by the last look."""
    no_agent_streak: int = 0
    binding: BindingState = BindingState.UNMANAGED
    session_key: str | None = None
    """The session that is in it, if an agent has said so itself."""
    bound_title: str = ""
    """What the last session in it with a name of its own was called."""
    exited_at: datetime | None = None
    """When an agent in it said farewell, until something else is seen in it."""
    name: str = ""
    provider: Provider | None = None
    is_restored: bool = False
    """It is known from before a restart, and was not seen since."""
    resolution: Resolution = field(default_factory=Resolution)
    activity: Activity = Activity.UNKNOWN
    activity_since: datetime | None = None
    refused: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_REFUSED))
    farewell: Farewell = field(default_factory=Farewell)
    state: PaneState | None = None
    agent: AgentState | None = None


@dataclass(slots=True)
class SessionRecord:
    """One session of an agent program."""

    key: str
    provider: Provider
    held: dict[SourceKind, Held] = field(default_factory=dict)
    origin: Origin = field(default_factory=Origin)
    pane: PaneInstanceId | None = None
    strength: int = 0
    candidates: dict[PaneInstanceId, Candidate] = field(default_factory=dict)
    seen_pid: int = 0
    """The process of its origin, once it was seen in its pane."""
    title: str = ""
    """What the program itself calls it."""
    is_ended: bool = False
    ended_at: datetime | None = None
    """When it said that it is over; what it said before does not bring it back."""
    heard_at: datetime | None = None
    """When anything was last said about it."""
    updated_at: datetime | None = None
    """When the program itself last touched it, if it tells."""
    name: str = ""
    is_restored: bool = False
    """It is known from before a restart, and nothing was said of it since."""
    resolution: Resolution = field(default_factory=Resolution)
    activity: Activity = Activity.UNKNOWN
    activity_since: datetime | None = None
    refused: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_REFUSED))
    farewell: Farewell = field(default_factory=Farewell)
    state: SessionState | None = None
    agent: AgentState | None = None

    @property
    def is_active(self) -> bool:
        """Whether any source says that it is at work or waits."""
        return any(
            each.activity is Activity.RUNNING or each.activity.is_waiting
            for each in self.held.values()
        )

    @property
    def is_process(self) -> bool:
        """Whether it is only a process that looks like an agent."""
        return self.key.startswith("process:")

    @property
    def is_own(self) -> bool:
        """Whether it only stands for a pane in which no agent has named its session."""
        return self.key.startswith("pane:")

    @property
    def is_wrapped(self) -> bool:
        """Whether it only stands for an agent that was launched through us."""
        return self.key.startswith("pty:")

    @property
    def is_report(self) -> bool:
        """Whether it is anybody's own agent, which reports about itself."""
        return self.key.startswith("report:")

    @property
    def own_name(self) -> str:
        """The name it has given itself; empty if it has none."""
        return self.key.partition(":")[2] if self.is_report or self.is_wrapped else ""
