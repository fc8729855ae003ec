"""A daemon that observes nothing: it says what a test tells it to say.

    async with FakeDaemon(path, agents=[agent_state("claude-1", Activity.RUNNING)]) as daemon:
        …                                       # any face, at this socket
        daemon.set_agent(agent_state("claude-1", Activity.IDLE))

It serves what faces ask for (`bullpen.api.methods` without the protocol of sources and gateway, and
the mail of `bullpen.api.talk`, see `talk`) at a real Unix socket, and passes the contracts of the
real one (`tests/contracts/test_daemon_api.py`, `test_talk_api.py`).
Whatever is changed is told to all who subscribed, each change with the next version. `script` puts
an answer or a refusal in the place of the next one to a method. `builder` serves the same over any
other transport. `python -m bullpen.testing.daemon SOCKET` is one in a process of its own.
"""

import asyncio
import contextlib
import os
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from bullpen.api import methods
from bullpen.api.errors import ApiError
from bullpen.api.lookup import check_until, find_agent, find_pane, holds, not_found
from bullpen.api.runtime import Paths
from bullpen.api.subscribers import Subscribers
from bullpen.connection import Builder, Connection, Context, TypedRequest, listen_unix
from bullpen.mail.mailboxes import Mailboxes
from bullpen.model.alerts import Alert, ResolvePolicy
from bullpen.model.appearance import status_line
from bullpen.model.observations import PaneInstanceId
from bullpen.model.reasons import Reason
from bullpen.model.records import SnapshotInfo
from bullpen.model.sources import SourceHealth, SourceRegistration
from bullpen.model.states import (
    Activity,
    BindingState,
    EvidenceMode,
    EvidenceTier,
    HealthStatus,
    Presence,
    Provider,
    RegistryState,
    SignatureClass,
    SourceKind,
)
from bullpen.model.version import VERSION
from bullpen.model.views import (
    AgentState,
    Explanation,
    PanePlace,
    PaneState,
    SessionState,
    SignatureInputs,
    StateChange,
    Summary,
)
from bullpen.testing.talk import FakePost

__all__ = ["FakeDaemon", "agent_state", "pane_state"]

KEPT_CHANGES = 1000  # later ones can be asked for again
KEPT_REQUESTS = 10_000
STARTED = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def agent_state(
    name: str,
    activity: Activity = Activity.RUNNING,
    *,
    pane: str | None = None,
    tmux_session: str = "work",
    window: int = 1,
    index: int = 0,
    cwd: str = "/src/project",
    since: datetime | None = None,
    age_seconds: float = 0.0,
    **changes: Any,
) -> AgentState:
    """Return what could be said of an agent: in a pane if one is given, else outside of tmux."""
    at = since or datetime.now(UTC) - timedelta(seconds=age_seconds)
    place = pane_place(tmux_session, window, index, cwd) if pane else None
    facts: dict[str, Any] = {
        "provider": _provider_in(name),
        "evidence_mode": EvidenceMode.HEURISTIC,
        "source": SourceKind.POLLER,
        "pane": PaneInstanceId(pane, 1, STARTED, "1:1") if pane else None,
        "place": place,
        "updated_at": at,
        "since": at,
        "cwd": cwd,
    }
    return AgentState(name=name, activity=activity, **(facts | changes))


def pane_state(
    pane: str,
    *,
    agent: AgentState | None = None,
    tmux_session: str = "work",
    window: int = 1,
    index: int = 0,
    cwd: str = "/src/project",
    **changes: Any,
) -> PaneState:
    """Return what could be said of a pane: with the agent in it, or with a shell."""
    facts: dict[str, Any] = {
        "place": pane_place(tmux_session, window, index, cwd),
        "updated_at": datetime.now(UTC),
    }
    if agent is not None:
        facts |= {
            "presence": Presence.MANAGED,
            "agent": agent.name,
            "provider": agent.provider,
            "activity_state": agent.activity,
            "activity_source": agent.source,
            "activity_since": agent.since,
            "evidence_mode": agent.evidence_mode,
            "session_key": agent.session_key,
            "is_ready": agent.is_ready,
            "title": agent.title,
            "place": agent.place or facts["place"],
            "binding_state": BindingState.MANAGED_HEURISTIC,
            "signature_class": SignatureClass.HEURISTIC,
            "signature_reason": f"the current command is {agent.provider.value!r}",
            "signature_confidence": 0.86,
            "signature_inputs": SignatureInputs(cmd_match=True),
        }
    return PaneState(pane_instance_id=PaneInstanceId(pane, 1, STARTED, "1:1"), **(facts | changes))


def pane_place(tmux_session: str, window: int, index: int, cwd: str) -> PanePlace:
    return PanePlace(
        tmux_socket="/tmp/tmux-0/default",  # noqa: S108 - where tmux has it
        session_id="$1",
        session_name=tmux_session,
        window_id=f"@{window}",
        window_index=window,
        window_name="main",
        pane_index=index,
        current_command="bash",
        current_path=cwd,
    )


def _provider_in(name: str) -> Provider:
    return next((each for each in Provider if name.startswith(each.value)), Provider.OTHER)


class FakeDaemon:
    """Serves the states it was given at a Unix socket, as long as its block lasts.

    With the `mailboxes` of another one, it is what a daemon is after a restart.

    `requests` are all that it was asked, in order. `is_stopped` is set once somebody has asked it
    to shut down: it answers, then it is gone like a real one.
    """

    def __init__(
        self,
        socket_path: str | Path,
        *,
        agents: Iterable[AgentState] = (),
        panes: Iterable[PaneState] = (),
        sessions: Iterable[SessionState] = (),
        health: dict[SourceKind, SourceHealth] | None = None,
        alerts: Iterable[Alert] = (),
        mailboxes: Mailboxes | None = None,
        version: str = VERSION,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.socket_path = str(socket_path)
        self.requests: deque[TypedRequest[Any]] = deque(maxlen=KEPT_REQUESTS)
        self.explanations: dict[str, Explanation] = {}
        self.latency: dict[str, methods.LatencyStatus] = {}
        self.snapshots: dict[str, SnapshotInfo] = {}
        self.is_stopped = asyncio.Event()
        self.talk = FakePost(
            Paths.resolve(socket=self.socket_path),
            now,
            agents=lambda: tuple(self._agents.values()),
            mailboxes=mailboxes,
        )
        self._now = now
        self._agents = {each.name: each for each in agents}
        self._panes = {str(each.pane_instance_id): each for each in panes}
        self._sessions = {each.session_key: each for each in sessions}
        self._health = health if health is not None else {SourceKind.POLLER: self._healthy()}
        self._alerts = {each.alert_id: each for each in alerts}
        self._scripted: dict[str, deque[Any]] = {}
        self._version = 0
        self._changes: deque[StateChange] = deque(maxlen=KEPT_CHANGES)
        self._subscribers = Subscribers()
        self._told = self.summary
        self._dry_run_of: str | None = None
        self._serving = AsyncExitStack()
        self._ending: asyncio.Task[None] | None = None
        self.info = methods.DaemonInfo(
            pid=os.getpid(),
            version=version,
            protocol_version=methods.PROTOCOL_VERSION,
            nonce=secrets.token_hex(8),
            started_at=now(),
            socket_path=self.socket_path,
            state_path=f"{self.socket_path}.db",
            log_path=f"{self.socket_path}.log",
        )

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(_make_directory, Path(self.socket_path).parent)
        await self._serving.enter_async_context(self.talk.running())
        await self._serving.enter_async_context(listen_unix(self.socket_path, self.builder))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End every connection and remove the socket, now. Twice is the same as once."""
        await asyncio.shield(self._begin_to_stop())

    def _begin_to_stop(self) -> "asyncio.Task[None]":
        self.is_stopped.set()
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._serving.aclose())
        return self._ending

    # What a test says

    @property
    def version(self) -> int:
        """How many changes there have been."""
        return self._version

    @property
    def subscribers(self) -> int:
        """How many connections are told of changes."""
        return len(self._subscribers)

    @property
    def summary(self) -> Summary:
        """All of it in numbers, as it is served."""
        unmanaged = sum(each.presence is Presence.UNMANAGED for each in self._panes.values())
        return Summary(
            version=self._version,
            panes=len(self._panes),
            agents=len(self._agents),
            unmanaged=unmanaged,
            activities=dict(Counter(each.activity.value for each in self._agents.values())),
            sources={kind.value: health.status for kind, health in self._health.items()},
            alerts=sum(alert.is_open for alert in self._alerts.values()),
        )

    def set_agent(self, agent: AgentState) -> StateChange:
        """Let an agent be there, or be otherwise."""
        before = self._agents.get(agent.name)
        previous = before.activity if before and before.activity is not agent.activity else None
        agent = msgspec.structs.replace(agent, state_version=self._version + 1)
        self._agents[agent.name] = agent
        return self._tell("agent", agent.name, agent=agent, previous_activity=previous)

    def remove_agent(self, name: str) -> StateChange:
        """Let an agent be gone."""
        agent = self._agents.pop(name)
        return self._tell("agent_removed", name, agent=agent, previous_activity=agent.activity)

    def set_pane(self, pane: PaneState) -> StateChange:
        """Let a pane be there, or be otherwise."""
        pane = msgspec.structs.replace(pane, state_version=self._version + 1)
        key = str(pane.pane_instance_id)
        self._panes[key] = pane
        return self._tell("pane", key, pane=pane)

    def remove_pane(self, pane_id: str) -> StateChange:
        """Let a pane be gone."""
        [key] = [k for k, each in self._panes.items() if each.pane_instance_id.pane_id == pane_id]
        return self._tell("pane_removed", key, pane=self._panes.pop(key))

    def set_session(self, session: SessionState) -> StateChange:
        """Let a session be there, or be otherwise."""
        session = msgspec.structs.replace(session, state_version=self._version + 1)
        self._sessions[session.session_key] = session
        return self._tell("session", session.session_key, session=session)

    def remove_session(self, session_key: str) -> StateChange:
        """Let a session be gone."""
        session = self._sessions.pop(session_key)
        return self._tell("session_removed", session_key, session=session)

    def set_health(self, kind: SourceKind, status: HealthStatus, reason: str = "") -> None:
        """Let a source fare otherwise."""
        self._health[kind] = SourceHealth(status=status, checked_at=self._now(), reason=reason)
        self._tell_summary()

    def set_alert(self, alert: Alert) -> None:
        """Let an alert be there, or be otherwise."""
        self._alerts[alert.alert_id] = alert
        self._tell_summary()

    def script(self, method: str, answer: Any) -> None:
        """Answer the next request of a method so, once; an exception is raised."""
        self._scripted.setdefault(method, deque()).append(answer)

    def skip_versions(self, count: int = 1) -> None:
        """Leave a gap in the versions, as for somebody who was not told in time."""
        self._version += count
        self._changes.clear()

    def hang_up(self) -> None:
        """End every connection that was told of changes; others can be opened at once."""
        self._subscribers.hang_up()

    # What it serves

    @property
    def builder(self) -> Builder:
        """The same over any other transport."""
        builder = Connection.builder().name("FakeDaemon")
        for request, answer in self._answers().items():
            builder = builder.on_request(request, self._handler(answer))
        return builder

    def _answers(self) -> dict[type[TypedRequest[Any]], Callable[[Any, Context], Any]]:
        return {
            methods.ListPanes: lambda *_: tuple(self._panes.values()),
            methods.ListSessions: lambda *_: tuple(self._sessions.values()),
            methods.ListAgents: lambda *_: tuple(self._agents.values()),
            methods.ListSourceHealth: lambda *_: tuple(self._health.items()),
            methods.ListSourceRegistry: lambda *_: tuple(map(self._registration, self._health)),
            methods.ListAlerts: self._list_alerts,
            methods.AckAlert: self._acknowledge,
            methods.GetSummary: lambda *_: self.summary,
            methods.TmuxStatus: lambda *_: status_line(self.summary),
            methods.Explain: self._explain,
            methods.GetLatency: lambda *_: self.latency,
            methods.GetInfo: lambda *_: self.info,
            methods.GetChanges: self._get_changes,
            methods.Wait: self._wait,
            methods.HookReport: lambda *_: True,
            methods.Report: self._report,
            methods.BindPane: self._bind_pane,
            methods.SaveSnapshot: self._save_snapshot,
            methods.ListSnapshots: self._list_snapshots,
            methods.RestoreSnapshot: self._restore_snapshot,
            methods.Subscribe: self._subscribe,
            methods.Shutdown: self._shutdown,
            **self.talk.answers(),
        }

    def _handler(self, answer: Callable[[Any, Context], Any]) -> Callable[[Any, Context], Any]:
        async def handle(request: TypedRequest[Any], context: Context) -> Any:
            self.requests.append(request)
            if scripted := self._scripted.get(request.METHOD):
                said = scripted.popleft()
                if isinstance(said, BaseException):
                    raise said
                return said
            result = answer(request, context)
            return await result if asyncio.iscoroutine(result) else result

        return handle

    def _subscribe(self, request: methods.Subscribe, context: Context) -> None:
        missed = self._changes_since(request.since_version)
        self._subscribers.add(context, self._version, missed)

    def _shutdown(self, _: methods.Shutdown, context: Context) -> None:
        context.respond(result=True)
        self._begin_to_stop()

    def _changes_since(self, version: int | None) -> list[StateChange] | None:
        """Return what was missed; None if that is not known any more, or never was."""
        if version is None:
            return []
        missed = [each for each in self._changes if each.version > version]
        return missed if len(missed) == self._version - version else None

    async def _get_changes(self, request: methods.GetChanges, _: Context) -> methods.ChangesReply:
        since = request.since_version
        await self._subscribers.wait_until(
            lambda: self._changes_since(since) != [], request.timeout_seconds
        )
        changes = self._changes_since(since)
        return methods.ChangesReply(
            self._version, tuple(changes or ()), resync_required=changes is None
        )

    async def _wait(self, request: methods.Wait, _: Context) -> methods.WaitReply:
        check_until(request.until)
        agent = find_agent(self._agents.values(), request.agent)
        if agent is None:
            if "gone" in request.until:
                return methods.WaitReply("reached")
            raise not_found(request.agent)
        name, last = agent.name, agent

        def is_over() -> bool:
            nonlocal last
            now = self._agents.get(name)
            last = now or last
            return now is None or holds(now, request.until)

        if not await self._subscribers.wait_until(is_over, request.timeout_seconds):
            return methods.WaitReply("timeout", last)
        is_so = holds(self._agents.get(name), request.until)
        return methods.WaitReply("reached" if is_so else "gone", last)

    def _list_alerts(self, request: methods.ListAlerts, _: Context) -> tuple[Alert, ...]:
        alerts = sorted(self._alerts.values(), key=lambda each: each.raised_at, reverse=True)
        return tuple(each for each in alerts if each.is_open or request.include_resolved)

    def _acknowledge(self, request: methods.AckAlert, _: Context) -> Alert:
        alert = self._alerts.get(request.alert_id)
        if alert is None:
            raise ApiError(Reason.ALERT_NOT_FOUND, f"there is no alert {request.alert_id!r}")
        at = self._now()
        resolved = at if alert.policy is ResolvePolicy.OPERATOR else None
        alert = msgspec.structs.replace(
            alert,
            acknowledged_at=alert.acknowledged_at or at,
            resolved_at=alert.resolved_at or resolved,
        )
        self.set_alert(alert)
        return alert

    def _explain(self, request: methods.Explain, _: Context) -> Explanation:
        if request.subject in self.explanations:
            return self.explanations[request.subject]
        agent = find_agent(self._agents.values(), request.subject)
        pane = find_pane(self._panes.values(), request.subject)
        if agent is None and pane is None:
            raise not_found(request.subject)
        return Explanation(subject=request.subject, agent=agent, pane=pane)

    def _report(self, request: methods.Report, _: Context) -> methods.IngestReply:
        key, at = f"report:{request.name}", self._now()
        is_over = request.activity is Activity.EXITED
        before = self._agents.get(request.name)
        since = before.since if before and before.activity is request.activity else at
        said: dict[str, Any] = {
            "session_key": key,
            "evidence_mode": EvidenceMode.NONE if is_over else EvidenceMode.DETERMINISTIC,
            "provider": request.provider,
            "title": request.title,
            "pid": request.pid,
            "cwd": request.cwd,
            "updated_at": at,
        }
        self.set_session(
            SessionState(
                presence=Presence.UNMANAGED if is_over else Presence.MANAGED,
                winner_tier=EvidenceTier.DETERMINISTIC,
                activity_state=request.activity,
                activity_source=SourceKind.REPORT,
                activity_since=since,
                agent=request.name,
                **said,
            )
        )
        if not is_over:
            agent = AgentState(
                name=request.name,
                activity=request.activity,
                since=since,
                source=SourceKind.REPORT,
                reason=request.message,
                **said,
            )
            self.set_agent(agent)
        elif before is not None:
            self.remove_agent(request.name)
        return methods.IngestReply(accepted=1)

    def _bind_pane(self, request: methods.BindPane, _: Context) -> PaneState:
        pane = find_pane(self._panes.values(), request.pane)
        if pane is None:
            raise not_found(request.pane)
        if pane.state_version != request.expected_version:
            raise ApiError(
                Reason.BINDING_CAS_CONFLICT,
                f"pane {request.pane} has changed meanwhile",
                version=pane.state_version,
            )
        change = self.set_pane(msgspec.structs.replace(pane, session_key=request.session_key))
        assert change.pane is not None
        return change.pane

    def _save_snapshot(self, request: methods.SaveSnapshot, _: Context) -> SnapshotInfo:
        saved = SnapshotInfo(
            snapshot_id=f"s{len(self.snapshots) + 1}",
            created_at=self._now(),
            reason=request.reason,
            panes=len(self._panes),
            sessions=len(self._sessions),
        )
        self.snapshots[saved.snapshot_id] = saved
        return saved

    def _list_snapshots(
        self, request: methods.ListSnapshots, _: Context
    ) -> tuple[SnapshotInfo, ...]:
        del request
        return tuple(reversed(self.snapshots.values()))

    def _restore_snapshot(
        self, request: methods.RestoreSnapshot, _: Context
    ) -> methods.RestoreReport:
        snapshot = self.snapshots.get(request.snapshot_id)
        if snapshot is None:
            raise ApiError(
                Reason.SNAPSHOT_NOT_FOUND, f"there is no snapshot {request.snapshot_id!r}"
            )
        if not request.dry_run and self._dry_run_of != request.snapshot_id:
            raise ApiError(
                Reason.DRY_RUN_REQUIRED,
                f"restoring snapshot {request.snapshot_id!r} was not tried with a dry run before",
            )
        self._dry_run_of = request.snapshot_id if request.dry_run else None
        return methods.RestoreReport(
            snapshot=snapshot,
            dry_run=request.dry_run,
            is_valid=True,
            panes_restored=snapshot.panes,
            sessions_restored=snapshot.sessions,
        )

    # Telling

    def _tell(self, kind: str, key: str, **facts: Any) -> StateChange:
        self._version += 1
        change = StateChange(version=self._version, at=self._now(), kind=kind, key=key, **facts)
        self._changes.append(change)
        self._subscribers.tell([change])
        self._tell_summary()
        return change

    def _tell_summary(self) -> None:
        summary = self.summary
        if msgspec.structs.replace(summary, version=self._told.version) != self._told:
            self._told = summary
            self._subscribers.tell_summary(summary)

    def _healthy(self) -> SourceHealth:
        return SourceHealth(status=HealthStatus.HEALTHY, checked_at=self._now())

    def _registration(self, kind: SourceKind) -> SourceRegistration:
        at = self.info.started_at
        return SourceRegistration(
            source_kind=kind,
            state=RegistryState.ACTIVE,
            owner_uid=os.getuid(),
            registered_at=at,
            last_heartbeat_at=at,
        )


def _make_directory(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def main() -> None:
    """Serve some agents at a socket until somebody asks for the end, and say when it is there."""
    import argparse
    import sys

    parser = argparse.ArgumentParser(prog="bullpen.testing.daemon", description=main.__doc__)
    parser.add_argument("socket", help="where to serve")
    parser.add_argument("--agents", type=int, default=0, help="how many agents there are")
    options = parser.parse_args()

    async def serve() -> None:
        agents = [
            agent_state(f"claude-{n}", pane=f"%{n}", tmux_session=f"s{n % 3}", index=n)
            for n in range(1, options.agents + 1)
        ]
        panes = [pane_state(f"%{n}", agent=each) for n, each in enumerate(agents, start=1)]
        async with FakeDaemon(options.socket, agents=agents, panes=panes) as daemon:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await daemon.is_stopped.wait()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve())


if __name__ == "__main__":
    main()
