"""What is kept on disk: all that one step of the projection changes, and all that is restored."""

from datetime import datetime

import msgspec

from bullpen.model.alerts import Alert
from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.sources import CursorState, SourceHealth
from bullpen.model.states import SourceKind
from bullpen.model.views import PaneState, SessionState

__all__ = ["BindingLink", "Commit", "Ingested", "Restored", "SnapshotInfo"]


class Ingested(msgspec.Struct, frozen=True):
    """An observation in the log, at its place."""

    ingest_seq: int
    observation: Observation


class BindingLink(msgspec.Struct, frozen=True, kw_only=True):
    """A session was in a pane. Links are added and ended, never edited otherwise."""

    pane_instance_id: PaneInstanceId
    bound_at: datetime
    session_key: str
    source_kind: SourceKind
    title: str = ""
    unbound_at: datetime | None = None


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """Everything one step writes: all of it, or nothing."""

    observations: tuple[Ingested, ...] = ()
    panes: tuple[PaneState, ...] = ()
    removed_panes: tuple[PaneInstanceId, ...] = ()
    sessions: tuple[SessionState, ...] = ()
    removed_sessions: tuple[str, ...] = ()
    bindings: tuple[BindingLink, ...] = ()
    cursors: tuple[CursorState, ...] = ()
    health: tuple[tuple[SourceKind, SourceHealth], ...] = ()
    alerts: tuple[Alert, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not any(getattr(self, name) for name in self.__struct_fields__)


class Restored(msgspec.Struct, frozen=True, kw_only=True):
    """What a restart finds. It is believed until it is observed to be otherwise."""

    panes: tuple[PaneState, ...] = ()
    sessions: tuple[SessionState, ...] = ()
    bindings: tuple[BindingLink, ...] = ()
    """The ones that are not ended, and the latest ended one of each pane."""
    cursors: tuple[CursorState, ...] = ()
    health: tuple[tuple[SourceKind, SourceHealth], ...] = ()
    alerts: tuple[Alert, ...] = ()
    """The open ones."""
    last_ingest_seq: int = 0


class SnapshotInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A copy of the state that can be gone back to."""

    snapshot_id: str
    created_at: datetime
    reason: str
    """`periodic`, `shutdown`, `manual` or `before_restore`."""
    panes: int = 0
    sessions: int = 0
    last_ingest_seq: int = 0
    size_bytes: int = 0
    sha256: str = ""
