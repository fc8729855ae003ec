"""Sources as the gateway knows them: how they fare, whether they may deliver, how far they got."""

from datetime import datetime

import msgspec

from bullpen.model.states import HealthStatus, RegistryState, SourceKind

__all__ = ["CursorState", "SourceHealth", "SourceRegistration"]


class SourceHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How a source fares."""

    status: HealthStatus
    checked_at: datetime
    reason: str = ""
    """Why it is not healthy, in words for a person."""
    is_absent: bool = False
    """What it looks at is not on this machine: it sees nothing, and nothing is wrong with it."""
    last_event_at: datetime | None = None
    accepted: int = 0
    dropped: dict[str, int] = {}
    """How many of its observations were refused, by reason."""
    version: str = ""
    """The version of the program behind it, if there is one."""


class SourceRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """A source that has said hello."""

    source_kind: SourceKind
    state: RegistryState
    owner_uid: int
    socket_path: str | None = None
    """Where it serves `source.pull_events`; None if it delivers over our own socket or channel."""
    protocol_version: int = 1
    registered_at: datetime
    last_heartbeat_at: datetime


class CursorState(msgspec.Struct, frozen=True, kw_only=True):
    """How far a source has been read, and how far what was read is in the store."""

    source_kind: SourceKind
    fetched_cursor: str | None = None
    committed_cursor: str | None = None
    checkpoint_ts: datetime
