"""Every request and notification of the daemon, as a type.

The names of the seed (`list_panes`, `source.pull_events` …) are the names on the wire. Whatever has
no params can be sent without any.
"""

from datetime import datetime
from typing import Any

import msgspec

from bullpen.connection import TypedNotification, TypedRequest
from bullpen.model.alerts import Alert
from bullpen.model.observations import Observation, Origin
from bullpen.model.records import SnapshotInfo
from bullpen.model.sources import SourceHealth, SourceRegistration
from bullpen.model.states import Activity, Provider, SourceKind
from bullpen.model.views import (
    AgentState,
    Explanation,
    PaneState,
    SessionState,
    StateChange,
    Summary,
)

__all__ = [
    "PROTOCOL_VERSION",
    "AckAlert",
    "AckDelivery",
    "AckResult",
    "BindPane",
    "ChangesReply",
    "DaemonInfo",
    "DeliverRaw",
    "EventsAvailable",
    "Explain",
    "GatewayPull",
    "GatewayReply",
    "GetChanges",
    "GetInfo",
    "GetLatency",
    "GetSummary",
    "Heartbeat",
    "Hello",
    "HelloReply",
    "HookAnswer",
    "HookAsk",
    "HookReport",
    "HookTook",
    "Ingest",
    "IngestReply",
    "LatencyStatus",
    "ListAgents",
    "ListAlerts",
    "ListPanes",
    "ListSessions",
    "ListSnapshots",
    "ListSourceHealth",
    "ListSourceRegistry",
    "PullEvents",
    "PullReply",
    "Refusal",
    "Report",
    "RestoreReport",
    "RestoreSnapshot",
    "Revoke",
    "Rewind",
    "RewindReply",
    "SaveSnapshot",
    "Shutdown",
    "StateChanged",
    "Subscribe",
    "SubscribeReply",
    "SummaryChanged",
    "TmuxStatus",
    "Wait",
    "WaitReply",
]

PROTOCOL_VERSION = 1

# --------------------------------------------------------------------------------- what there is


class ListPanes(TypedRequest[tuple[PaneState, ...]]):
    """Every pane of every tmux server, with an agent in it or not."""

    METHOD = "list_panes"


class ListSessions(TypedRequest[tuple[SessionState, ...]]):
    """Every session of an agent, in a pane or not."""

    METHOD = "list_sessions"


class ListAgents(TypedRequest[tuple[AgentState, ...]]):
    """Every agent, wherever it runs."""

    METHOD = "list_agents"


class ListSourceHealth(TypedRequest[tuple[tuple[SourceKind, SourceHealth], ...]]):
    """How each source fares."""

    METHOD = "list_source_health"


class ListSourceRegistry(TypedRequest[tuple[SourceRegistration, ...]]):
    """Which sources have said hello, and what became of them."""

    METHOD = "list_source_registry"


class ListAlerts(TypedRequest[tuple[Alert, ...]]):
    """The alerts, newest first."""

    METHOD = "list_alerts"
    include_resolved: bool = False


class AckAlert(TypedRequest[Alert]):
    """Acknowledge an alert; one that waits for that is resolved by it."""

    METHOD = "ack_alert"
    alert_id: str


class GetSummary(TypedRequest[Summary]):
    """All of it in numbers."""

    METHOD = "summary"


class TmuxStatus(TypedRequest[str]):
    """One line for tmux's status bar."""

    METHOD = "tmux_status"


class Explain(TypedRequest[Explanation]):
    """Why we say what we say. `subject` is an agent's name, a pane or a session."""

    METHOD = "explain"
    subject: str


class LatencyStatus(msgspec.Struct, frozen=True, kw_only=True):
    """How long it took from an observation to what is said of it, over the last ten minutes."""

    samples: int
    p50_ms: float
    p95_ms: float
    limit_ms: float
    is_breached: bool


class GetLatency(TypedRequest[dict[str, LatencyStatus]]):
    """The latencies, by tier of evidence."""

    METHOD = "latency_status"


class DaemonInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Which daemon this is."""

    pid: int
    version: str
    protocol_version: int
    nonce: str
    """Made anew at each start: what belongs to another run is known by it."""
    started_at: datetime
    socket_path: str
    state_path: str
    log_path: str
    is_persistent: bool = True
    """Whether what it knows outlives it; if not, an alert says why."""
    is_isolated: bool = False
    """Whether each source has a process of its own."""
    poll_interval_ms: int = 1000
    tmux_sockets: tuple[str, ...] = ()
    buffers: dict[str, int] = {}
    """How many entries our bounded buffers hold."""


class GetInfo(TypedRequest[DaemonInfo]):
    """Which daemon this is."""

    METHOD = "daemon.info"


class Shutdown(TypedRequest[bool]):
    """End the daemon; it answers before it goes."""

    METHOD = "daemon.shutdown"


# ----------------------------------------------------------------------------- what becomes of it


class SubscribeReply(msgspec.Struct, frozen=True):
    """From which version on changes are told."""

    version: int
    resync_required: bool = False
    """What lies between was forgotten: list everything again."""


class Subscribe(TypedRequest[SubscribeReply]):
    """Be told of changes on this connection: first of those since a version, then as they come."""

    METHOD = "subscribe"
    since_version: int | None = None


class StateChanged(TypedNotification):
    """Something became different. A gap in the versions means: list everything again."""

    METHOD = "state_changed"
    change: StateChange


class SummaryChanged(TypedNotification):
    """The numbers became different."""

    METHOD = "summary_changed"
    summary: Summary


class ChangesReply(msgspec.Struct, frozen=True):
    """What became different since a version."""

    version: int
    changes: tuple[StateChange, ...] = ()
    resync_required: bool = False


class GetChanges(TypedRequest[ChangesReply]):
    """Ask for changes instead of being told; wait for one if there is none."""

    METHOD = "changes"
    since_version: int
    timeout_seconds: float = 0.0


class WaitReply(msgspec.Struct, frozen=True):
    """What became of waiting."""

    outcome: str
    """`reached`, `timeout` or `gone`."""
    agent: AgentState | None = None


class Wait(TypedRequest[WaitReply]):
    """Wait until an agent is doing one of these; at once if it is already."""

    METHOD = "wait"
    agent: str
    until: tuple[str, ...]
    """Activities, or `waiting` (of either kind), `done` (idle, error or gone), `ready`, `gone`."""
    timeout_seconds: float = 60.0


# -------------------------------------------------------------------- from sources to the gateway


class PullReply(msgspec.Struct, frozen=True, kw_only=True):
    """What a source has to say from a cursor on."""

    events: tuple[Observation, ...]
    next_cursor: str
    """Where to go on: also when there was nothing."""
    heartbeat_ts: datetime
    source_health: SourceHealth


class PullEvents(TypedRequest[PullReply]):
    """Served by every source."""

    METHOD = "source.pull_events"
    cursor: str | None = None
    limit: int = 500


class EventsAvailable(TypedNotification):
    """A source has something new: whoever pulls from it need not wait for the next tick."""

    METHOD = "source.events_available"
    source_kind: SourceKind


class DeliverRaw(TypedRequest[bool]):
    """Hand a source what a program has pushed: a hook's payload."""

    METHOD = "source.deliver"
    at: datetime
    origin: Origin
    payload: Any


class HelloReply(msgspec.Struct, frozen=True):
    """The source is registered."""

    registration: SourceRegistration
    heartbeat_seconds: float
    """Heard of less often than this, it becomes stale."""


class Hello(TypedRequest[HelloReply]):
    """Register a source. Said again with another socket, it has moved there."""

    METHOD = "source.hello"
    source_kind: SourceKind
    nonce: str
    """The daemon's, from `daemon.info`."""
    protocol_version: int = PROTOCOL_VERSION
    socket_path: str | None = None


class Heartbeat(TypedRequest[SourceRegistration]):
    """The source is there."""

    METHOD = "source.heartbeat"
    source_kind: SourceKind


class Revoke(TypedRequest[SourceRegistration]):
    """Take nothing more from a source, until it says hello again after a restart of ours."""

    METHOD = "source.revoke"
    source_kind: SourceKind


class Refusal(msgspec.Struct, frozen=True):
    """An observation that was not taken, and why."""

    event_id: str
    reason: str
    message: str = ""


class IngestReply(msgspec.Struct, frozen=True):
    """What became of observations."""

    accepted: int
    duplicates: int = 0
    refused: tuple[Refusal, ...] = ()


class Ingest(TypedRequest[IngestReply]):
    """Deliver observations of a registered source. If all are refused, that is the error."""

    METHOD = "source.ingest"
    source_kind: SourceKind
    events: tuple[msgspec.Raw, ...]


class GatewayReply(msgspec.Struct, frozen=True):
    """A batch to be acknowledged by its token."""

    events: tuple[Observation, ...]
    next_cursor: str
    delivery_token: str | None
    """None if there was nothing to deliver."""
    attempt: int = 1


class GatewayPull(TypedRequest[GatewayReply]):
    """Read the log. A batch that is not acknowledged is delivered again."""

    METHOD = "gateway.pull_events"
    consumer: str = "default"
    """Each consumer has a place of its own in the log."""
    cursor: str | None = None
    limit: int = 500


class AckResult(msgspec.Struct, frozen=True):
    """A batch is acknowledged."""

    status: str
    """`committed`, or `already_committed`."""
    committed_cursor: str


class AckDelivery(TypedRequest[AckResult]):
    """Acknowledge a batch; twice is the same as once."""

    METHOD = "gateway.ack_delivery"
    delivery_token: str
    consumer: str = "default"


class RewindReply(msgspec.Struct, frozen=True):
    """From where a consumer reads on."""

    next_cursor: str
    events: int


class Rewind(TypedRequest[RewindReply]):
    """Go back in the log, by a number of observations or a time."""

    METHOD = "gateway.rewind"
    consumer: str = "default"
    events: int | None = None
    seconds: float | None = None


# ------------------------------------------------------------------------------- telling us things


class HookReport(TypedRequest[bool]):
    """What the shim sends for a hook of an agent program."""

    METHOD = "hook.report"
    provider: Provider
    payload: Any
    at: float | None = None
    """Seconds since the epoch; now, if it is missing."""
    pid: int = 0
    tmux: str = ""
    tmux_pane: str = ""
    cwd: str = ""
    secret: str = ""
    """The agent's, if it was given one."""


class HookAnswer(msgspec.Struct, frozen=True):
    """What a hook is to answer its program; nothing, if the program is to go its own way."""

    output: str = ""
    """For its standard output, as the program wants it."""
    attempt_id: str = ""
    """To be taken by `hook.took` before a word of it is said."""


class HookAsk(TypedRequest[HookAnswer]):
    """What the shim sends at the end of a turn: a report, and whether there is more to do.

    It is answered within half a second, at once if no message waits for the agent.
    """

    METHOD = "hook.ask"
    provider: Provider
    payload: Any
    at: float | None = None
    """Seconds since the epoch; now, if it is missing."""
    pid: int = 0
    tmux: str = ""
    tmux_pane: str = ""
    cwd: str = ""
    secret: str = ""
    """The agent's, if it was given one."""

    @property
    def report(self) -> HookReport:
        """What it tells beside."""
        return HookReport(
            self.provider,
            self.payload,
            self.at,
            self.pid,
            self.tmux,
            self.tmux_pane,
            self.cwd,
            self.secret,
        )


class HookTook(TypedRequest[bool]):
    """Take a message that `hook.ask` or `agent.wake` has handed out.

    Only if the answer is true is it said to the program: then it is written down that it was. A
    message that nobody takes in time is handed over in another way.
    """

    METHOD = "hook.took"
    attempt_id: str


class Report(TypedRequest[IngestReply]):
    """What anybody's own agent says of itself."""

    METHOD = "report"
    name: str
    activity: Activity
    title: str = ""
    provider: Provider = Provider.OTHER
    session_id: str = ""
    pid: int = 0
    cwd: str = ""
    tmux: str = ""
    tmux_pane: str = ""
    message: str = ""


class BindPane(TypedRequest[PaneState]):
    """Say which session is in a pane, where we cannot know it. Refused if it changed meanwhile."""

    METHOD = "bind_pane"
    pane: str
    session_key: str
    expected_version: int


# ------------------------------------------------------------------------------------- snapshots


class SaveSnapshot(TypedRequest[SnapshotInfo]):
    """Keep a copy of the state."""

    METHOD = "snapshot.save"
    reason: str = "manual"


class ListSnapshots(TypedRequest[tuple[SnapshotInfo, ...]]):
    """The copies there are, newest first."""

    METHOD = "snapshot.list"


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    """What going back to a snapshot would do, or did."""

    snapshot: SnapshotInfo
    dry_run: bool
    is_valid: bool
    problems: tuple[str, ...] = ()
    panes_restored: int = 0
    panes_dropped: int = 0
    """Of tmux servers that no longer run: never believed."""
    sessions_restored: int = 0


class RestoreSnapshot(TypedRequest[RestoreReport]):
    """Go back to a snapshot. Refused unless the same was tried with `dry_run` just before."""

    METHOD = "snapshot.restore"
    snapshot_id: str
    dry_run: bool = True
