"""Folds observations into what we say: the one writer of panes, sessions and agents.

Without I/O: observations and the time go in, a `Step` comes out, with what became of each
observation, what changed, and what is to be written. Sessions are found in panes; a pane is
resolved with all that is said of the session in it and with its own screen, so that no source
speaks for a pane alone (pane first). Batches are folded in the order of `(event_time, ingest_seq)`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bullpen.model.observations import Observation, Origin, PaneInstanceId
from bullpen.model.reasons import Reason
from bullpen.model.records import Ingested, Restored
from bullpen.model.states import Activity, EvidenceMode, EvidenceTier, Presence, SourceKind
from bullpen.model.views import AgentState, PaneState, SessionState
from bullpen.observe import binding, publish
from bullpen.observe.binding import BindingEvent
from bullpen.observe.changes import ChangeLog
from bullpen.observe.errors import Refused
from bullpen.observe.freshness import Freshness, Link
from bullpen.observe.hearing import hear, seek_panes
from bullpen.observe.hysteresis import settle
from bullpen.observe.linking import link
from bullpen.observe.records import Folded, Records, Step, Work, set_back
from bullpen.observe.resolver import Held, Resolution, resolve
from bullpen.observe.seeing import close, recognise, see
from bullpen.observe.subjects import CERTAIN, Farewell, PaneRecord, SessionRecord

__all__ = ["CasConflict", "Projection"]

Links = Mapping[SourceKind, Link]

SILENT_WITHOUT_PROCESS = timedelta(minutes=15)
SILENT_WITH_PROCESS = timedelta(hours=12)
ENDED_KEPT = timedelta(minutes=2)
UNSEEN_AFTER_RESTART = timedelta(seconds=30)  # by then every source has looked
MOST_SESSIONS = 2_000
SET_BACK = timedelta(seconds=2)  # what a clock may jitter


class CasConflict(Refused):
    """What was to be changed has changed meanwhile. Nothing was done; look again, then decide."""

    def __init__(self, key: str, expected: int, found: int) -> None:
        super().__init__(
            Reason.BINDING_CAS_CONFLICT, f"{key} is at version {found}, not {expected}"
        )
        self.key = key
        self.expected = expected
        self.found = found


class Projection:
    """All that we say, and what it rests on."""

    def __init__(self, *, poll_interval: timedelta = timedelta(seconds=1)) -> None:
        self.log = ChangeLog()
        self._records = Records(poll_interval)
        self._restored_at: datetime | None = None
        self._latest: datetime | None = None
        self._agents: tuple[AgentState, ...] | None = None  # as long as nothing is taken

    # ---------------------------------------------------------------------------- what it is asked

    @property
    def version(self) -> int:
        """The number of the latest change."""
        return self.log.version

    @property
    def records(self) -> Records:
        """What is remembered, for whoever explains it. Only this class changes it."""
        return self._records

    def panes(self) -> tuple[PaneState, ...]:
        """Return every pane, in the order of its place."""
        states = (each.state for each in self._records.panes.values())
        return tuple(sorted(filter(None, states), key=_place))

    def sessions(self) -> tuple[SessionState, ...]:
        """Return every session."""
        states = (each.state for each in self._records.sessions.values())
        return tuple(sorted(filter(None, states), key=lambda each: each.session_key))

    def agents(self) -> tuple[AgentState, ...]:
        """Return every agent: first those in panes, by their place, then those elsewhere."""
        if self._agents is None:  # who sends a message asks several times
            in_panes = [each.agent for each in self._records.panes.values() if each.agent]
            elsewhere = [each.agent for each in self._records.sessions.values() if each.agent]
            in_panes.sort(key=_agent_place)
            elsewhere.sort(key=lambda each: each.name)
            self._agents = (*in_panes, *elsewhere)
        return self._agents

    def sizes(self) -> dict[str, int]:
        """Return how much is remembered."""
        return {
            "panes": len(self._records.panes),
            "sessions": len(self._records.sessions),
            "tombstones": len(self._records.tombstones),
            "changes": len(self.log),
        }

    # -------------------------------------------------------------------------------- what it takes

    def restore(self, restored: Restored, now: datetime) -> None:
        """Begin with what was known before.

        Nothing of it is said before it is seen again: a pane of a tmux server that is gone, or a
        process that ended meanwhile, is never believed.
        """
        self._agents = None
        records = self._records
        self._restored_at = now
        versions = [each.state_version for each in restored.panes]
        versions += [each.state_version for each in restored.sessions]
        self.log = ChangeLog(max(versions, default=0))
        titles: dict[PaneInstanceId, str] = {}
        for made in restored.bindings:
            titles[made.pane_instance_id] = made.title
            if made.unbound_at is None:
                records.links[made.pane_instance_id] = made
        for session in map(_session_from, restored.sessions):
            if not session.is_own:
                records.sessions[session.key] = session
        for pane in restored.panes:
            record = records.panes[pane.pane_instance_id] = _pane_from(pane)
            record.bound_title = titles.get(record.id, "")
            if record.name:
                records.names.keep(record.name, str(record.id))
            if inside := records.session_in(record):
                inside.pane, inside.strength = record.id, CERTAIN
            else:
                record.session_key = None
        for each in records.sessions.values():
            if each.name and each.pane is None:
                records.names.keep(each.name, each.key)

    def adopt(self, restored: Restored, now: datetime) -> None:
        """Take up what a snapshot says of panes that are there, as far as nothing newer is known.

        What was observed since holds: a snapshot brings back names, titles and which session was
        in which pane, not what an agent is doing now.
        """
        self._agents = None
        records = self._records
        for session in map(_session_from, restored.sessions):
            if not session.is_own:
                records.sessions.setdefault(session.key, session)
        for state in restored.panes:
            record = records.panes.get(state.pane_instance_id)
            session_key = state.session_key or ""
            inside = records.sessions.get(session_key)
            if record is None or record.session_key or inside is None or inside.is_own:
                continue
            if record.provider in (None, inside.provider):
                link(records, inside, record, SourceKind.REPORT, CERTAIN, now)

    def apply(self, batch: Sequence[Ingested], links: Links, now: datetime) -> Step:
        """Fold a batch."""
        self._agents = None
        self._records.work = Work()
        self._mind_clock(now)
        for each in sorted(batch, key=lambda each: (each.observation.observed_at, each.ingest_seq)):
            self._fold(each, now)
        return self._finish(links, now)

    def tick(self, links: Links, now: datetime) -> Step:
        """Let time pass: what has been shown long enough is believed, who is silent goes stale."""
        return self.apply((), links, now)

    def bind(
        self,
        pane: PaneInstanceId,
        session_key: str,
        expected_version: int,
        links: Links,
        now: datetime,
    ) -> Step:
        """Put a session into a pane because somebody says so.

        Raises:
            CasConflict: the pane has changed since whoever says so looked at it.
            KeyError: there is no such pane or session.
        """
        record, session = self._records.panes[pane], self._records.sessions[session_key]
        found = record.state.state_version if record.state else 0
        if found != expected_version:
            raise CasConflict(str(pane), expected_version, found)
        self._agents = None
        self._records.work = Work()
        link(self._records, session, record, SourceKind.REPORT, CERTAIN, now)
        record.binding = binding.transition(record.binding, BindingEvent.HANDSHAKE)
        return self._finish(links, now)

    def _mind_clock(self, now: datetime) -> None:
        """Take it that nothing was said later than now, should the clock have been set back.

        Otherwise all that is said from now on would be late, until that time comes again.
        """
        latest, self._latest = self._latest, now
        if latest is not None and latest - now > SET_BACK:
            set_back(self._records, now)
            self._restored_at = self._restored_at and min(self._restored_at, now)

    def _fold(self, ingested: Ingested, now: datetime) -> None:
        observation = ingested.observation
        reason, message = None, ""
        try:
            if observation.source_kind is SourceKind.POLLER:
                see(self._records, observation, now)
            else:
                hear(self._records, observation, ingested.ingest_seq, now)
        except Refused as refused:
            reason, message = refused.reason, str(refused)
            self._note_refusal(observation, refused)
        self._records.work.outcomes.append(
            Folded(
                ingested.ingest_seq,
                observation.event_id,
                observation.source_kind,
                reason,
                message,
                observation.session_key,
            )
        )

    def _note_refusal(self, observation: Observation, refused: Refused) -> None:
        line = (
            f"{observation.observed_at:%H:%M:%S} {observation.source_kind} "
            f"{observation.event_type}: {refused.reason.word}: {refused}"
        )
        if session := self._records.sessions.get(observation.session_key):
            session.refused.append(line)
        for record in self._records.panes.values():
            if record.id.pane_id == observation.pane_id:
                record.refused.append(line)

    # ----------------------------------------------------------------------------------- finishing

    def _finish(self, links: Links, now: datetime) -> Step:
        records = self._records
        records.tombstones.sweep(now)
        seek_panes(records, now)
        self._forget(now)
        for record in list(records.panes.values()):
            if record.id in records.work.closed:
                self._remove_pane(record, now)
            elif not record.is_restored:
                self._publish_pane(record, links, now)
        behind = records.behind_wrapped()
        for session in list(records.sessions.values()):
            if not session.is_own and not self._is_unseen(session):
                self._publish_session(session, behind.get(session.key, ()), links, now)
        for record in records.panes.values():
            if not record.is_restored:
                self._publish_own_session(record, now)
        self._judge_words()
        return records.work.step()

    def _is_unseen(self, session: SessionRecord) -> bool:
        """Whether a session is known from before a restart and from nowhere else."""
        record = self._records.pane_of(session)
        return session.is_restored and (record is None or record.is_restored)

    def _publish_pane(self, record: PaneRecord, links: Links, now: datetime) -> None:
        session = self._records.session_in(record)
        self._resolve_pane(record, session, links, now)
        state = publish.pane_state(record, session, now)
        if publish.is_same_pane(record.state, state):
            version = record.state.state_version if record.state else 0
            record.state = msgspec.structs.replace(state, state_version=version)
        else:
            record.state = msgspec.structs.replace(state, state_version=self.version + 1)
            self._tell(now, "pane", str(record.id), pane=record.state)
            self._records.work.panes[record.id] = record.state
        self._publish_agent(record, publish.agent_of_pane(record, now), now)
        if record.agent is None and record.name:
            self._records.rename(record)

    def _resolve_pane(
        self, record: PaneRecord, session: SessionRecord | None, links: Links, now: datetime
    ) -> None:
        if record.track is not None:
            record.track = settle(record.track, now, self._records.poll_interval)
        recognise(record, now)
        if session is not None:
            is_fresh = any(_is_fresh(kind, links, now) for kind in session.held)
            event = BindingEvent.HANDSHAKE if is_fresh else BindingEvent.WENT_STALE
            record.binding = binding.transition(record.binding, event)
        held = session.held.values() if session else ()
        record.resolution = resolve(held, links, record.track, now, self._records.poll_interval)
        _take_activity(record, now)
        if binding.presence(record.binding) is Presence.UNMANAGED:
            record.provider = None
        elif not record.name and record.provider is not None:
            self._records.christen(record, str(record.id), session.own_name if session else "")

    def _publish_session(
        self, session: SessionRecord, behind: Sequence[SessionRecord], links: Links, now: datetime
    ) -> None:
        record = self._records.pane_of(session)
        if record is None:
            interval = self._records.poll_interval
            held = list(session.held.values())
            for each in behind:  # what else is told of a wrapped agent is told of it
                held += each.held.values()
                session.title = each.title or session.title
            session.resolution = (
                _ELSEWHERE if session.is_process else resolve(held, links, None, now, interval)
            )
            _take_activity(session, now)
        is_agent = record is None and self._is_agent(session, now)
        if is_agent and not session.name:
            self._records.christen(session, session.key, session.own_name)
        self._keep_session(session, publish.session_state(session, record, now), now)
        agent = publish.agent_of_session(session, now) if is_agent else None
        self._publish_agent(session, agent, now)
        if session.agent is None and session.name and record is None:
            self._records.names.release(session.key)
            session.name = ""

    def _publish_own_session(self, record: PaneRecord, now: datetime) -> None:
        """A pane that only looks like an agent's has a session of its own, named after it."""
        key = publish.own_session_key(record)
        session = self._records.sessions.get(key)
        is_managed = binding.presence(record.binding) is Presence.MANAGED
        if not is_managed or record.session_key is not None or record.provider is None:
            if session is not None:
                self._remove_session(session, now)
            return
        if session is None:
            session = SessionRecord(key, record.provider, pane=record.id)
            self._records.sessions[key] = session
        session.provider = record.provider
        session.held = {SourceKind.POLLER: _looks(record, key, now)}
        self._keep_session(session, publish.session_state(session, record, now), now)

    def _keep_session(
        self, session: SessionRecord, state: SessionState | None, now: datetime
    ) -> None:
        if state is None:
            return
        if publish.is_same_session(session.state, state):
            version = session.state.state_version if session.state else 0
            session.state = msgspec.structs.replace(state, state_version=version)
        else:
            session.state = msgspec.structs.replace(state, state_version=self.version + 1)
            self._tell(now, "session", session.key, session=session.state)
            self._records.work.sessions[session.key] = session.state

    def _publish_agent(
        self, subject: PaneRecord | SessionRecord, agent: AgentState | None, now: datetime
    ) -> None:
        before = subject.agent
        if publish.is_same_agent(before, agent):
            return
        if agent is not None:
            subject.agent = msgspec.structs.replace(agent, state_version=self.version + 1)
            was = before.activity if before else Activity.UNKNOWN
            previous = was if was is not agent.activity else None
            self._tell(now, "agent", agent.name, agent=subject.agent, previous_activity=previous)
        elif before is not None:
            subject.agent = None
            source_kind, reason = subject.farewell
            subject.farewell = Farewell()
            gone = msgspec.structs.replace(
                before,
                activity=Activity.EXITED,
                since=now,
                evidence_mode=EvidenceMode(source_kind.tier.value),
                source=source_kind,
                reason=reason,
                is_ready=False,
                updated_at=now,
            )
            self._tell(
                now, "agent_removed", gone.name, agent=gone, previous_activity=before.activity
            )

    def _is_agent(self, session: SessionRecord, now: datetime) -> bool:
        """Whether a session that is in no pane is somebody who is there."""
        if session.is_ended or session.heard_at is None:
            return False
        if session.is_process:
            pid = session.origin.pid
            is_told = next(self._records.of_process(pid), None) is not None
            return not is_told and not self._records.wrapped.of_process(pid)
        if self._records.stand_in(session) is not None:
            return False  # which is what is shown
        if session.is_wrapped:
            owner = self._records.names.owner(session.key.partition(":")[2])
            return owner in (None, session.key)
        silent = now - session.heard_at
        if session.origin.pid or session.is_report:
            return silent <= SILENT_WITH_PROCESS
        return session.is_active and silent <= SILENT_WITHOUT_PROCESS

    def _forget(self, now: datetime) -> None:
        records = self._records
        for session in list(records.sessions.values()):
            if session.pane is not None or session.heard_at is None:
                continue
            limit = SILENT_WITH_PROCESS if session.origin.pid else SILENT_WITHOUT_PROCESS
            if now - session.heard_at > (ENDED_KEPT if session.is_ended else limit):
                self._remove_session(session, now)
        for session in list(records.sessions.values())[
            : max(len(records.sessions) - MOST_SESSIONS, 0)
        ]:
            if session.pane is None:
                self._remove_session(session, now)
        if self._restored_at is not None and now - self._restored_at > UNSEEN_AFTER_RESTART:
            self._restored_at = None
            for record in [each for each in records.panes.values() if each.is_restored]:
                close(records, record.id, now)
            for session in records.sessions.values():
                session.is_ended = session.is_ended or (session.is_restored and not session.pane)

    def _remove_pane(self, record: PaneRecord, now: datetime) -> None:
        records = self._records
        self._publish_agent(record, None, now)
        records.names.release(str(record.id))
        del records.panes[record.id]
        if session := records.sessions.get(publish.own_session_key(record)):
            self._remove_session(session, now)
        records.work.panes.pop(record.id, None)
        records.work.removed_panes.append(record.id)
        if record.state is not None:
            self._tell(now, "pane_removed", str(record.id), pane=record.state)

    def _remove_session(self, session: SessionRecord, now: datetime) -> None:
        records = self._records
        self._publish_agent(session, None, now)
        records.names.release(session.key)
        del records.sessions[session.key]
        records.work.sessions.pop(session.key, None)
        records.work.removed_sessions.append(session.key)
        if session.state is not None:
            self._tell(now, "session_removed", session.key, session=session.state)

    def _judge_words(self) -> None:
        """Say of each word that made no difference why it did not."""
        for ingest_seq, observation, session, activity in self._records.work.said:
            record = self._records.pane_of(session)
            resolution = record.resolution if record else session.resolution
            kind = observation.source_kind
            if resolution.activity is activity or resolution.source_kind in (None, kind):
                continue
            whys = (each.why for each in resolution.losers if each.source_kind is kind)
            why = next(whys, f"{resolution.source_kind} decides")
            self._records.work.refuse(ingest_seq, Reason.SOURCE_RANK_SUPPRESSED, why)

    def _tell(self, now: datetime, kind: str, key: str, **what: Any) -> None:
        self._records.work.changes.append(self.log.add(now, kind, key, **what))


_ELSEWHERE = Resolution(
    Activity.UNKNOWN,
    SourceKind.POLLER,
    None,
    EvidenceTier.HEURISTIC,
    "a process on a terminal outside of tmux",
)


def _is_fresh(kind: SourceKind, links: Links, now: datetime) -> bool:
    return kind in links and links[kind].freshness(now) is Freshness.FRESH


def _take_activity(subject: PaneRecord | SessionRecord, now: datetime) -> None:
    resolution = subject.resolution
    if resolution.activity is not subject.activity or subject.activity_since is None:
        subject.activity = resolution.activity
        subject.activity_since = resolution.since or now


def _looks(record: PaneRecord, key: str, now: datetime) -> Held:
    assert record.provider is not None
    return Held(SourceKind.POLLER, record.provider, record.activity, now, 0, "", key)


def _place(state: PaneState) -> tuple[str, str, int, int, str]:
    place = state.place
    return (
        place.tmux_socket,
        place.session_name,
        place.window_index,
        place.pane_index,
        state.pane_instance_id.pane_id,
    )


def _agent_place(agent: AgentState) -> tuple[str, str, int, int]:
    place = agent.place
    assert place is not None
    return (place.tmux_socket, place.session_name, place.window_index, place.pane_index)


def _pane_from(state: PaneState) -> PaneRecord:
    return PaneRecord(
        state.pane_instance_id,
        place=state.place,
        looks_like=state.provider,
        no_agent_streak=state.no_agent_streak,
        binding=state.binding_state,
        session_key=state.session_key,
        name=state.agent or "",
        provider=state.provider,
        is_restored=True,
        activity=state.activity_state,
        activity_since=state.activity_since,
    )


def _session_from(state: SessionState) -> SessionRecord:
    record = SessionRecord(
        state.session_key,
        state.provider,
        origin=Origin(pid=state.pid, tty=state.tty, cwd=state.cwd),
        title=state.title,
        is_ended=state.presence is Presence.UNMANAGED,
        heard_at=state.deterministic_last_seen or state.updated_at,
        name=state.agent or "",
        is_restored=True,
        activity=state.activity_state,
        activity_since=state.activity_since,
        seen_pid=state.pid,
    )
    if state.winner_tier is EvidenceTier.DETERMINISTIC:
        # An edge that was reported then holds still, if nothing else was seen since.
        said_at = state.activity_since or state.updated_at
        record.held[state.activity_source] = Held(
            state.activity_source,
            state.provider,
            state.activity_state,
            said_at,
            0,
            "restored",
            state.session_key,
        )
    return record
