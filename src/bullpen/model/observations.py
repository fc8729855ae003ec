"""What a source claims: the observation, and the instance of a pane it may be about."""

from datetime import datetime
from typing import Any

import msgspec

from bullpen.model.states import EvidenceTier, Provider, SourceKind

__all__ = ["Observation", "Origin", "PaneInstanceId"]


class PaneInstanceId(msgspec.Struct, frozen=True, order=True):
    """One life of a pane. The same id in another run of tmux, or respawned, is another instance."""

    pane_id: str
    generation: int
    birth_ts: datetime
    server: str = ""
    """Which run of which tmux server: its pid and its start time."""

    def __str__(self) -> str:
        return f"{self.pane_id}.{self.generation}@{self.server}"


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where an observation comes from, for a source that does not know the pane."""

    pid: int = 0
    """A process of the agent, or one below it."""
    process_start: str = ""
    """When that process started, as the system counts it; empty if unknown."""
    tty: str = ""
    cwd: str = ""
    tmux_pane: str = ""
    """`TMUX_PANE` as the agent has it."""
    tmux_socket: str = ""


class Observation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One claim of one source about one session, at one time."""

    event_id: str
    """Unique within a source and a session, and the same if the same fact is read again."""
    provider: Provider
    source_kind: SourceKind
    tier: EvidenceTier
    observed_at: datetime
    """When it happened, by the clock of whoever saw it."""
    session_key: str
    """Which session it is about: `claude:<session id>`, `codex:<thread id>`, `pane:<instance>`."""
    event_type: str
    """What happened: a word of `bullpen.model.events`."""
    pane_id: str | None = None
    pane_generation: int | None = None
    pane_birth_ts: datetime | None = None
    source_event_id: str | None = None
    """The program's own name for the fact: a turn, a request, a tool use."""
    payload: Any = None
    confidence: float = 1.0
    origin: Origin | None = None
    tmux_server: str | None = None
    """The `server` of the pane instance, with `pane_id`."""

    @property
    def pane_instance_id(self) -> PaneInstanceId | None:
        """The pane it is about, if the source knows it wholly."""
        if self.pane_id is None or self.pane_generation is None or self.pane_birth_ts is None:
            return None
        return PaneInstanceId(
            self.pane_id, self.pane_generation, self.pane_birth_ts, self.tmux_server or ""
        )
