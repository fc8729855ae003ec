"""A small world for tests of the projection: panes, sources, and a clock that stands still."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import msgspec

from bullpen.model.events import PANE_CLOSED, PANE_UNMANAGED, activity_event
from bullpen.model.observations import Observation, Origin, PaneInstanceId
from bullpen.model.records import Ingested
from bullpen.model.states import (
    Activity,
    HealthStatus,
    Provider,
    SignatureClass,
    SourceKind,
)
from bullpen.model.views import AgentState, PanePlace, PaneState, SignatureInputs
from bullpen.observe.freshness import Link
from bullpen.observe.projection import Projection
from bullpen.observe.records import Step
from bullpen.observe.reports import PaneReport, ScreenReport, SignatureReport

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
SERVER = "4711.1000"


def pane(number: int = 0, *, generation: int = 1, server: str = SERVER) -> PaneInstanceId:
    return PaneInstanceId(f"%{number}", generation, START, server)


class World:
    """A projection, and short words for what sources say to it."""

    def __init__(self) -> None:
        self.now = START
        self.projection = Projection()
        self.silent: dict[SourceKind, datetime] = {}
        self.down: set[SourceKind] = set()
        self._ids = count(1)

    # time and links

    def links(self) -> dict[SourceKind, Link]:
        return {
            kind: Link(
                self.silent.get(kind, self.now),
                HealthStatus.DOWN if kind in self.down else HealthStatus.HEALTHY,
            )
            for kind in SourceKind
        }

    def wait(self, seconds: float) -> Step:
        self.now += timedelta(seconds=seconds)
        return self.projection.tick(self.links(), self.now)

    def apply(self, *observations: Observation) -> Step:
        batch = [Ingested(next(self._ids), each) for each in observations]
        return self.projection.apply(batch, self.links(), self.now)

    # what is said

    def look(
        self,
        where: PaneInstanceId,
        activity: Activity | None,
        *,
        provider: Provider = Provider.CLAUDE,
        quiet: float = 0.0,
        pids: Iterable[int] | None = (),
        cwd: str = "/home/ada/project",
        title: str = "",
        is_gone: bool = False,
        has_process: bool = True,
        refusal: str | None = None,
        at: datetime | None = None,
        streak: int = 0,
        is_ready: bool = False,
        agent_pid: int = 0,
    ) -> Observation:
        """What the poller says of a pane; without an activity, that there is no agent in it."""
        at = at or self.now
        is_agent = activity is not None
        report = PaneReport(
            place=PanePlace(
                tmux_socket="/tmp/tmux/default",
                session_name="main",
                tty=f"/dev/pts/{where.pane_id[1:]}",
                current_path=cwd,
                title=title,
            ),
            signature=SignatureReport(
                signature_class=SignatureClass.HEURISTIC if is_agent else SignatureClass.NONE,
                reason="the process in front is 'claude'" if is_agent else "nothing speaks for it",
                confidence=1.0 if is_agent else 0.0,
                inputs=SignatureInputs(provider_hint=is_agent and has_process),
                refusal=refusal,
            ),
            screen=ScreenReport(rule="rule", is_ready=is_ready) if is_agent else None,
            pids=tuple(pids) if pids is not None else None,
            last_output_at=at - timedelta(seconds=quiet),
            no_agent_streak=streak,
            is_agent_gone=is_gone,
            agent_pid=agent_pid,
        )
        return self._observation(
            SourceKind.POLLER,
            activity_event(activity) if activity else PANE_UNMANAGED,
            session_key=f"pane:{where}",
            provider=provider,
            where=where,
            payload=msgspec.to_builtins(report),
            at=at,
        )

    def closed(self, where: PaneInstanceId) -> Observation:
        return self._observation(
            SourceKind.POLLER, PANE_CLOSED, session_key=f"pane:{where}", where=where
        )

    def said(
        self,
        event_type: str,
        *,
        kind: SourceKind = SourceKind.CLAUDE_HOOKS,
        provider: Provider = Provider.CLAUDE,
        session: str = "claude:one",
        where: PaneInstanceId | None = None,
        at: datetime | None = None,
        ago: float = 0.0,
        payload: Any = None,
        source_event_id: str | None = "turn-1",
        **origin: Any,
    ) -> Observation:
        """What a source that is not the poller says."""
        return self._observation(
            kind,
            event_type,
            session_key=session,
            provider=provider,
            where=where,
            payload=payload,
            origin=Origin(**origin) if origin else None,
            at=at or self.now - timedelta(seconds=ago),
            source_event_id=source_event_id,
        )

    def _observation(
        self,
        kind: SourceKind,
        event_type: str,
        *,
        session_key: str,
        provider: Provider = Provider.CLAUDE,
        where: PaneInstanceId | None = None,
        at: datetime | None = None,
        **more: Any,
    ) -> Observation:
        return Observation(
            event_id=f"event-{next(self._ids)}",
            provider=provider,
            source_kind=kind,
            tier=kind.tier,
            observed_at=at or self.now,
            session_key=session_key,
            event_type=event_type,
            pane_id=where.pane_id if where else None,
            pane_generation=where.generation if where else None,
            pane_birth_ts=where.birth_ts if where else None,
            tmux_server=where.server if where else None,
            **more,
        )

    # what we say

    def pane(self, where: PaneInstanceId) -> PaneState:
        [found] = [each for each in self.projection.panes() if each.pane_instance_id == where]
        return found

    def agent(self, name: str = "claude-1") -> AgentState:
        [found] = [each for each in self.projection.agents() if each.name == name]
        return found

    def names(self) -> list[str]:
        return [each.name for each in self.projection.agents()]


def transitions(*steps: Step) -> list[tuple[str, Activity | None, Activity]]:
    """What agents began to do, and what they did before."""
    return [
        (change.agent.name, change.previous_activity, change.agent.activity)
        for step in steps
        for change in step.changes
        if change.agent is not None and change.previous_activity is not None
    ]
