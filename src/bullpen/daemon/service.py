"""What the daemon answers: every request of the api, over the pipeline, the store and the alerts.

A handler here finds out, decides nothing, and answers at once unless waiting is what was asked for.
"""

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from bullpen.api import methods
from bullpen.api.errors import ApiError
from bullpen.api.lookup import brief, check_until, find_agent, find_pane, holds, not_found
from bullpen.api.subscribers import Subscribers
from bullpen.connection import Builder, Connection, Context, TypedRequest
from bullpen.daemon.alarms import Alarms
from bullpen.daemon.reach import Reach
from bullpen.daemon.snapshots import Snapshots
from bullpen.daemon.talk import TalkService
from bullpen.model.alerts import Alert
from bullpen.model.appearance import status_line
from bullpen.model.events import activity_event
from bullpen.model.observations import Observation, Origin
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, Presence, Provider, SourceKind
from bullpen.model.views import AgentState, Explanation, PaneState, StateChange, Summary
from bullpen.observe.errors import Refused
from bullpen.observe.explain import explain_pane, explain_session
from bullpen.observe.gateway import OURS
from bullpen.observe.pipeline import Pipeline
from bullpen.observe.sources.port import Now

__all__ = ["Deliver", "Service"]

LONGEST_WAIT_SECONDS = 24 * 3600.0

Deliver = Callable[[SourceKind, methods.DeliverRaw], Awaitable[None]]
"""Hands a source what a program has pushed."""

HOOK_SOURCES = {
    Provider.CLAUDE: SourceKind.CLAUDE_HOOKS,
    Provider.CODEX: SourceKind.CODEX_HOOKS,
    Provider.COPILOT: SourceKind.COPILOT,
    Provider.GEMINI: SourceKind.GEMINI,
    Provider.OPENCODE: SourceKind.OPENCODE,
}


class Service:
    """Serves the api."""

    def __init__(
        self,
        pipeline: Pipeline,
        alarms: Alarms,
        snapshots: Snapshots,
        now: Now,
        *,
        describe: Callable[[], methods.DaemonInfo],
        deliver: Deliver,
        stop: Callable[[], None],
        talk: TalkService,
        reach: Reach,
    ) -> None:
        self._pipeline = pipeline
        self._projection = pipeline.projection
        self._gateway = pipeline.gateway
        self._alarms = alarms
        self._snapshots = snapshots
        self._now = now
        self._describe = describe
        self._deliver = deliver
        self._stop = stop
        self._talk = talk
        self._reach = reach
        self._reports = 0
        self._told: Summary | None = None
        self.subscribers = Subscribers()

    @property
    def builder(self) -> Builder:
        """What every connection to the daemon is made with."""
        builder = Connection.builder().name("bullpend")
        answers = {**self._answers(), **self._talk.requests(), **self._reach.requests()}
        for request, answer in answers.items():
            builder = builder.on_request(request, answer)
        for notification, take in self._talk.notifications().items():
            builder = builder.on_notification(notification, take)
        return builder

    def tell(self, changes: tuple[StateChange, ...]) -> None:
        """Tell of changes, and of the numbers if those are others."""
        self.subscribers.tell(changes)
        self.tell_summary()

    def tell_summary(self) -> None:
        """Tell the numbers, if they are others than were told."""
        summary = self.summary()
        if self._told is None or not _is_same(summary, self._told):
            self._told = summary
            self.subscribers.tell_summary(summary)

    def summary(self) -> Summary:
        """Return all of it in numbers."""
        agents, panes = self._projection.agents(), self._projection.panes()
        health = self._gateway.health()
        return Summary(
            version=self._projection.version,
            panes=len(panes),
            agents=len(agents),
            unmanaged=sum(each.presence is Presence.UNMANAGED for each in panes),
            activities=dict(Counter(each.activity.value for each in agents)),
            sources={kind.value: each.status for kind, each in health},
            absent=tuple(kind.value for kind, each in health if each.is_absent),
            alerts=len(self._alarms.open),
        )

    def _answers(self) -> dict[type[TypedRequest[Any]], Callable[[Any, Context], Any]]:
        return {
            methods.ListPanes: lambda *_: self._projection.panes(),
            methods.ListSessions: lambda *_: self._projection.sessions(),
            methods.ListAgents: lambda *_: self._projection.agents(),
            methods.ListSourceHealth: lambda *_: self._gateway.health(),
            methods.ListSourceRegistry: lambda *_: self._gateway.registrations(),
            methods.ListAlerts: self._list_alerts,
            methods.AckAlert: self._acknowledge,
            methods.GetSummary: lambda *_: self.summary(),
            methods.TmuxStatus: lambda *_: status_line(self.summary()),
            methods.Explain: self._explain,
            methods.GetLatency: lambda *_: self._alarms.latencies(),
            methods.GetInfo: lambda *_: self._describe(),
            methods.Shutdown: self._shutdown,
            methods.Subscribe: self._subscribe,
            methods.GetChanges: self._changes,
            methods.Wait: self._wait,
            methods.Hello: self._hello,
            methods.Heartbeat: lambda request, _: self._gateway.heartbeat(request.source_kind),
            methods.Revoke: lambda request, _: self._gateway.revoke(request.source_kind),
            methods.Ingest: self._ingest,
            methods.GatewayPull: self._pull,
            methods.AckDelivery: self._ack,
            methods.Rewind: self._rewind,
            methods.HookReport: self._hook,
            methods.HookAsk: self._ask_for_hook,
            methods.Report: self._report,
            methods.BindPane: self._bind,
            methods.SaveSnapshot: self._save_snapshot,
            methods.ListSnapshots: lambda *_: self._snapshots.list(),
            methods.RestoreSnapshot: self._restore_snapshot,
        }

    # ------------------------------------------------------------------------------- what there is

    def _list_alerts(self, request: methods.ListAlerts, _: Context) -> tuple[Alert, ...]:
        return self._alarms.all if request.include_resolved else self._alarms.open

    def _acknowledge(self, request: methods.AckAlert, _: Context) -> Alert:
        alert = self._alarms.acknowledge(request.alert_id)
        if alert is None:
            raise ApiError(Reason.ALERT_NOT_FOUND, f"there is no alert {brief(request.alert_id)}")
        self.tell_summary()
        return alert

    def _explain(self, request: methods.Explain, _: Context) -> Explanation:
        return msgspec.structs.replace(self._explanation(request.subject), subject=request.subject)

    def _explanation(self, subject: str) -> Explanation:
        records, links, now = self._projection.records, self._gateway.links(), self._now()
        agent = find_agent(self._projection.agents(), subject)
        if agent is not None and agent.pane is None:
            return explain_session(records.sessions[agent.session_key or ""], links, now)
        pane = agent.pane if agent else None
        if pane is None and (found := find_pane(self._projection.panes(), subject)):
            pane = found.pane_instance_id
        if pane is not None:
            return explain_pane(self._projection, records.panes[pane], links, now)
        if session := records.sessions.get(subject):
            return explain_session(session, links, now)
        raise not_found(subject)

    def _shutdown(self, _: methods.Shutdown, context: Context) -> None:
        context.respond(result=True)
        self._stop()

    # --------------------------------------------------------------------------- what becomes of it

    def _subscribe(self, request: methods.Subscribe, context: Context) -> None:
        since = request.since_version
        missed = self._projection.log.since(since) if since is not None else ()
        self.subscribers.add(context, self._projection.version, missed)

    async def _changes(self, request: methods.GetChanges, _: Context) -> methods.ChangesReply:
        log = self._projection.log
        await self.subscribers.wait_until(
            lambda: log.since(request.since_version) != (),
            min(request.timeout_seconds, LONGEST_WAIT_SECONDS),
        )
        changes = log.since(request.since_version)
        return methods.ChangesReply(log.version, changes or (), resync_required=changes is None)

    async def _wait(self, request: methods.Wait, _: Context) -> methods.WaitReply:
        check_until(request.until)
        agent = find_agent(self._projection.agents(), request.agent)
        if agent is None:
            if "gone" in request.until:
                return methods.WaitReply("reached")
            raise not_found(request.agent)
        last = agent

        def is_over() -> bool:
            nonlocal last
            now = self._agent(agent.name)
            last = now or last
            return now is None or holds(now, request.until)

        timeout_seconds = min(request.timeout_seconds, LONGEST_WAIT_SECONDS)
        if not await self.subscribers.wait_until(is_over, timeout_seconds):
            return methods.WaitReply("timeout", last)
        now = self._agent(agent.name)
        if holds(now, request.until):
            return methods.WaitReply("reached", now or last)
        return methods.WaitReply("gone", last)

    def _agent(self, name: str) -> AgentState | None:
        return next((each for each in self._projection.agents() if each.name == name), None)

    # ------------------------------------------------------------------------ sources and the log

    def _hello(self, request: methods.Hello, _: Context) -> methods.HelloReply:
        # Who is another user was sent away when it connected.
        return self._gateway.hello(
            request.source_kind,
            nonce=request.nonce,
            protocol_version=request.protocol_version,
            peer_uid=os.getuid(),
            socket_path=request.socket_path,
        )

    def _ingest(self, request: methods.Ingest, _: Context) -> methods.IngestReply:
        return self._pipeline.ingest(request.source_kind, request.events)

    def _pull(self, request: methods.GatewayPull, _: Context) -> methods.GatewayReply:
        _not_ours(request.consumer)
        return self._gateway.pull(request.consumer, request.cursor, request.limit)

    def _ack(self, request: methods.AckDelivery, _: Context) -> methods.AckResult:
        _not_ours(request.consumer)
        return self._gateway.ack(request.delivery_token, request.consumer)

    def _rewind(self, request: methods.Rewind, _: Context) -> methods.RewindReply:
        _not_ours(request.consumer)
        return self._gateway.rewind(
            request.consumer, events=request.events, seconds=request.seconds
        )

    # ---------------------------------------------------------------------------- telling us things

    async def _hook(self, request: methods.HookReport, _: Context) -> bool:
        origin = _origin(request)
        at = _time(request.at) if request.at else self._now()
        kind = HOOK_SOURCES.get(request.provider)
        if kind is None:
            raise ApiError(
                Reason.SOURCE_INADMISSIBLE, f"no source takes hooks of {request.provider}"
            )
        await self._deliver(kind, methods.DeliverRaw(at, origin, request.payload))
        await self._reach.hear(request, origin)
        return True

    async def _ask_for_hook(self, request: methods.HookAsk, context: Context) -> methods.HookAnswer:
        await self._hook(request.report, context)
        return await self._reach.ask(request, _origin(request))

    def _report(self, request: methods.Report, _: Context) -> methods.IngestReply:
        if not request.name.strip() or not request.name.isprintable():
            raise ApiError(
                Reason.INVALID_SOURCE_EVENT, "an agent needs a name that can be read and typed"
            )
        now = self._now()
        origin = _origin(request)
        said = [activity_event(request.activity)]
        if request.activity is Activity.EXITED:
            said = ["session.ended"]
        elif request.title:
            said = ["session.named", *said]
        return self._pipeline.ingest(
            SourceKind.REPORT, [self._reported(request, each, now, origin) for each in said]
        )

    def _reported(
        self, request: methods.Report, event_type: str, now: datetime, origin: Origin
    ) -> Observation:
        self._reports += 1
        event_id = f"{now.timestamp():.6f}.{self._reports}"
        return Observation(
            event_id=event_id,
            provider=request.provider,
            source_kind=SourceKind.REPORT,
            tier=SourceKind.REPORT.tier,
            observed_at=now,
            session_key=f"report:{request.name}",
            event_type=event_type,
            source_event_id=request.session_id or event_id,
            payload={"title": request.title, "message": request.message},
            origin=origin,
        )

    def _bind(self, request: methods.BindPane, _: Context) -> PaneState:
        pane = find_pane(self._projection.panes(), request.pane)
        if pane is None or request.session_key not in self._projection.records.sessions:
            raise not_found(request.pane if pane is None else request.session_key)
        try:
            return self._pipeline.bind(
                pane.pane_instance_id, request.session_key, request.expected_version
            )
        except Refused as refused:
            raise ApiError(refused.reason, str(refused), version=pane.state_version) from refused

    # ---------------------------------------------------------------------------------- snapshots

    async def _save_snapshot(self, request: methods.SaveSnapshot, _: Context) -> Any:
        return await self._snapshots.save(request.reason)

    async def _restore_snapshot(
        self, request: methods.RestoreSnapshot, _: Context
    ) -> methods.RestoreReport:
        return await self._snapshots.restore(request.snapshot_id, dry_run=request.dry_run)


def _origin(request: methods.HookReport | methods.HookAsk | methods.Report) -> Origin:
    return Origin(
        pid=max(request.pid, 0),  # what is below is a group's, or everybody's
        cwd=request.cwd,
        tmux_pane=request.tmux_pane,
        tmux_socket=request.tmux.rsplit(",", 2)[0],
    )


def _time(at: float) -> datetime:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError) as error:
        raise ApiError(Reason.INVALID_SOURCE_EVENT, f"{at} is no time") from error


def _not_ours(consumer: str) -> None:
    if consumer in OURS:
        raise ApiError(
            Reason.SOURCE_INADMISSIBLE, f"{consumer!r} is the daemon's own; take another name"
        )


def _is_same(one: Summary, other: Summary) -> bool:
    return msgspec.structs.replace(one, version=0) == msgspec.structs.replace(other, version=0)
