"""All that the projection remembers, and the step it is in the middle of."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import msgspec

from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.reasons import Reason
from bullpen.model.records import BindingLink
from bullpen.model.states import Activity, SourceKind
from bullpen.model.views import PaneState, SessionState, StateChange
from bullpen.observe.binding import Tombstones
from bullpen.observe.inventory import Inventory
from bullpen.observe.names import Names
from bullpen.observe.subjects import PaneRecord, SessionRecord
from bullpen.observe.wrapped import Wrapped, wrapped_key

__all__ = ["Folded", "Records", "Step", "Work"]


class Folded(msgspec.Struct, frozen=True):
    """What became of an observation. It is in the log in any case."""

    ingest_seq: int
    event_id: str
    source_kind: SourceKind
    reason: Reason | None = None
    """Why it made no difference; None if it was taken."""
    message: str = ""
    session_key: str = ""


class Step(msgspec.Struct, frozen=True):
    """What one step of the projection did, and what is to be kept of it."""

    outcomes: tuple[Folded, ...] = ()
    changes: tuple[StateChange, ...] = ()
    panes: tuple[PaneState, ...] = ()
    removed_panes: tuple[PaneInstanceId, ...] = ()
    sessions: tuple[SessionState, ...] = ()
    removed_sessions: tuple[str, ...] = ()
    bindings: tuple[BindingLink, ...] = ()


class Work:
    """What has been done in the step that is under way."""

    def __init__(self) -> None:
        self.outcomes: list[Folded] = []
        self.changes: list[StateChange] = []
        self.panes: dict[PaneInstanceId, PaneState] = {}
        self.removed_panes: list[PaneInstanceId] = []
        self.sessions: dict[str, SessionState] = {}
        self.removed_sessions: list[str] = []
        self.bindings: list[BindingLink] = []
        self.closed: list[PaneInstanceId] = []
        self.said: list[tuple[int, Observation, SessionRecord, Activity]] = []

    def refuse(self, ingest_seq: int, reason: Reason, message: str) -> None:
        """Say of an observation that was taken why it made no difference after all."""
        for at, outcome in enumerate(self.outcomes):
            if outcome.ingest_seq == ingest_seq and outcome.reason is None:
                self.outcomes[at] = msgspec.structs.replace(outcome, reason=reason, message=message)

    def step(self) -> Step:
        """Return it as a whole."""
        return Step(
            tuple(sorted(self.outcomes, key=lambda each: each.ingest_seq)),
            tuple(self.changes),
            tuple(self.panes.values()),
            tuple(self.removed_panes),
            tuple(self.sessions.values()),
            tuple(self.removed_sessions),
            tuple(self.bindings),
        )


class Records:
    """Panes and sessions, where they are found, and what they are called."""

    def __init__(self, poll_interval: timedelta) -> None:
        self.poll_interval = poll_interval
        self.panes: dict[PaneInstanceId, PaneRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.inventory = Inventory()
        self.tombstones = Tombstones()
        self.names = Names()
        self.wrapped = Wrapped()
        self.links: dict[PaneInstanceId, BindingLink] = {}  # the ones that are not ended
        self.work = Work()

    def session(self, observation: Observation) -> SessionRecord:
        """Return the session an observation is about; a new one if it is not known."""
        session = self.sessions.get(observation.session_key)
        if session is None:
            session = SessionRecord(observation.session_key, observation.provider)
            self.sessions[session.key] = session
        return session

    def session_in(self, record: PaneRecord) -> SessionRecord | None:
        """Return the session that is in a pane."""
        return self.sessions.get(record.session_key or "")

    def pane_of(self, session: SessionRecord) -> PaneRecord | None:
        """Return the pane that a session is in."""
        return self.panes.get(session.pane) if session.pane else None

    def of_process(self, pid: int) -> Iterator[SessionRecord]:
        """Return the sessions that a process has spoken of as its own."""
        return (
            each
            for each in self.sessions.values()
            if pid and each.origin.pid == pid and not each.is_process and not each.is_wrapped
        )

    def christen(self, subject: PaneRecord | SessionRecord, owner: str, wanted: str) -> None:
        """Give an agent a name: the one it was launched with, the one it wants, or any.

        In a pane, where its wrapper has spoken for it under that name, it is seen from now on.
        """
        given = self._given(subject) if isinstance(subject, PaneRecord) else ""
        stand_in = self.sessions.get(wrapped_key(given)) if given else None
        if stand_in is not None and self.names.owner(given) == stand_in.key:
            self.names.hand_over(stand_in.key, owner)
            subject.agent = stand_in.agent or subject.agent
            stand_in.name, stand_in.agent = "", None
        family = subject.provider.value if subject.provider is not None else "agent"
        subject.name = self.names.give(owner, family, wanted=given or wanted)

    def _given(self, record: PaneRecord) -> str:
        inside = self.session_in(record)
        there = self.wrapped.in_pane(record.place.tmux_socket, record.id.pane_id)
        return there or (self.wrapped_name(inside) if inside is not None else "")

    def wrapped_name(self, session: SessionRecord) -> str:
        """Return the name of the wrapped agent that a session is of; empty if it is of none."""
        if session.is_wrapped:
            return ""
        return self.wrapped.of_session(session.key, session.origin.pid)

    def stand_in(self, session: SessionRecord) -> SessionRecord | None:
        """Return the session that stands for the wrapped agent whose own session this is."""
        name = self.wrapped_name(session)
        found = self.sessions.get(wrapped_key(name)) if name else None
        return found if found is not None and not found.is_ended else None

    def behind_wrapped(self) -> dict[str, list[SessionRecord]]:
        """Return the sessions of each wrapped agent, by the key of the one that stands for it."""
        found: dict[str, list[SessionRecord]] = {}
        for each in self.sessions.values():
            if not each.is_ended and not each.is_process and (name := self.wrapped_name(each)):
                found.setdefault(wrapped_key(name), []).append(each)
        return found

    def rename(self, record: PaneRecord) -> None:
        """Let what is in a pane have a new name, for it is another agent."""
        self.names.release(str(record.id))
        record.name = ""


def set_back(records: Records, now: datetime) -> None:
    """Take it that nothing was later than now."""
    records.tombstones.set_back(now)
    for record in records.panes.values():
        record.looked_at = _at_most(record.looked_at, now)
        record.exited_at = _at_most(record.exited_at, now)
        record.activity_since = _at_most(record.activity_since, now)
        if record.track is not None:
            record.track = msgspec.structs.replace(
                record.track,
                shown_since=_at_most(record.track.shown_since, now),
                last_output_at=_at_most(record.track.last_output_at, now),
                confirmed_at=_at_most(record.track.confirmed_at, now),
            )
    for session in records.sessions.values():
        session.heard_at = _at_most(session.heard_at, now)
        session.ended_at = _at_most(session.ended_at, now)
        session.activity_since = _at_most(session.activity_since, now)
        session.held = {
            kind: msgspec.structs.replace(held, at=min(held.at, now))
            for kind, held in session.held.items()
        }


def _at_most(at: datetime | None, now: datetime) -> datetime | None:
    return None if at is None else min(at, now)
