"""Folding what the poller sees: panes with an agent in them, panes without, panes that are gone."""

from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from bullpen.model.events import (
    PANE_CLOSED,
    PANE_LISTED,
    PANE_UNMANAGED,
    SESSION_ENDED,
    activity_of,
)
from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, SourceKind
from bullpen.observe import binding, hysteresis
from bullpen.observe.binding import BindingEvent
from bullpen.observe.errors import Refused
from bullpen.observe.hysteresis import Look, ScreenTrack
from bullpen.observe.inventory import KnownPane
from bullpen.observe.linking import leave
from bullpen.observe.records import Records
from bullpen.observe.reports import PaneReport, ServerReport
from bullpen.observe.resolver import Held
from bullpen.observe.subjects import Farewell, PaneRecord, SessionRecord

__all__ = ["close", "recognise", "see"]

FAREWELL = timedelta(seconds=5)  # a program that said it ends may take so long to be gone

T = TypeVar("T")


def see(records: Records, observation: Observation, now: datetime) -> None:
    """Take what the poller says.

    Raises:
        Refused: it makes no difference.
    """
    if observation.event_type == PANE_LISTED:
        _forget_unlisted(records, _convert(observation.payload, ServerReport), now)
        return
    pane = observation.pane_instance_id
    if pane is None:
        _see_process(records, observation)
    elif observation.event_type == PANE_CLOSED:
        close(records, pane, now)
    elif records.tombstones.covers(pane, now):
        raise Refused(Reason.LATE_EVENT, f"{pane} is gone")
    else:
        _see_pane(records, pane, observation, now)


def _see_pane(
    records: Records, pane: PaneInstanceId, observation: Observation, now: datetime
) -> None:
    report = _convert(observation.payload, PaneReport)
    record = records.panes.get(pane)
    if record is None:
        record = records.panes[pane] = PaneRecord(pane)
    elif record.looked_at is not None and observation.observed_at < record.looked_at:
        raise Refused(Reason.LATE_EVENT, "there has been a later look at the pane")
    is_agent = observation.event_type != PANE_UNMANAGED
    record.is_restored = False
    record.looked_at = observation.observed_at
    record.place = report.place
    record.signature = report.signature
    record.screen = report.screen
    record.looks_like = observation.provider if is_agent else None
    records.inventory.put(
        KnownPane(
            pane,
            report.place,
            report.pids or (),
            record.looks_like,
            has_agent_process=is_agent and report.signature.inputs.provider_hint,
            agent_pid=report.agent_pid if is_agent else 0,
        )
    )
    _see_speaker(records, record, report)
    if is_agent:
        _see_agent(records, record, observation, report, now)
    else:
        _see_nobody(records, record, report, now)
    if report.signature.refusal:
        raise Refused(Reason[report.signature.refusal.upper()], report.signature.reason)


def _see_speaker(records: Records, record: PaneRecord, report: PaneReport) -> None:
    """Note that the process that speaks for a pane is in it."""
    session = records.session_in(record)
    if session is not None and session.origin.pid in (report.pids or ()):
        session.seen_pid = session.origin.pid


def _see_agent(
    records: Records,
    record: PaneRecord,
    observation: Observation,
    report: PaneReport,
    now: datetime,
) -> None:
    record.no_agent_streak = 0
    look = Look(
        observation.observed_at,
        activity_of(observation.event_type) or Activity.UNKNOWN,
        report.last_output_at or observation.observed_at,
    )
    is_other = record.provider not in (None, observation.provider)
    if is_other and report.signature.inputs.provider_hint:
        leave(records, record, BindingEvent.LOST_LINK, now)
        records.rename(record)
        record.track = None
    record.track = hysteresis.see(record.track or ScreenTrack(), look, records.poll_interval)
    recognise(record, now)


def recognise(record: PaneRecord, now: datetime) -> None:
    """Take a pane for an agent's because it looks like it."""
    if record.looks_like is None:
        return
    if record.exited_at is not None:
        if now - record.exited_at < FAREWELL:
            return
        record.exited_at = None
    record.binding = binding.transition(record.binding, BindingEvent.SIGNATURE)
    if record.session_key is None:
        record.provider = record.looks_like


def _see_nobody(records: Records, record: PaneRecord, report: PaneReport, now: datetime) -> None:
    record.exited_at = None
    record.no_agent_streak = max(report.no_agent_streak, record.no_agent_streak + 1)
    if record.no_agent_streak >= 2:
        is_gone = report.is_agent_gone and not _is_there(records.session_in(record), report)
        record.farewell = Farewell(
            SourceKind.POLLER,
            "no process of it is left" if is_gone else "nothing shows it any more",
        )
        gone = BindingEvent.EXITED if is_gone else BindingEvent.NO_AGENT
        leave(records, record, gone, now)


def _is_there(session: SessionRecord | None, report: PaneReport) -> bool:
    """Whether who speaks for a pane is in it, though it looks like none of the agents we know.

    That is so for a process of the pane, whatever it is called. Anybody's own agent may have had
    a short-lived process report for it; it belongs to the pane then until it says farewell.
    """
    if session is None:
        return False
    pid = session.origin.pid
    if pid and pid in (report.pids or ()):
        return True
    return session.is_report and session.seen_pid != (pid or None)


def _see_process(records: Records, observation: Observation) -> None:
    """A process outside of tmux that looks like an agent, or one that did."""
    session = records.session(observation)
    session.heard_at = observation.observed_at
    session.origin = observation.origin or session.origin
    if observation.event_type == SESSION_ENDED:
        session.is_ended = True
        for each in records.of_process(session.origin.pid):
            each.is_ended = True
        return
    activity = activity_of(observation.event_type)
    session.held[SourceKind.POLLER] = Held(
        SourceKind.POLLER,
        observation.provider,
        activity or Activity.UNKNOWN,
        observation.observed_at,
        0,
        observation.event_type,
        session.key,
    )
    session.is_ended = False


def close(records: Records, pane: PaneInstanceId, now: datetime) -> None:
    """Let a pane be gone, and the agent in it."""
    records.tombstones.bury(pane, now)
    records.inventory.remove(pane)
    if record := records.panes.get(pane):
        record.farewell = Farewell(SourceKind.POLLER, "its pane is gone")
        leave(records, record, BindingEvent.EXITED, now)
        records.work.closed.append(pane)


def _forget_unlisted(records: Records, report: ServerReport, now: datetime) -> None:
    there = frozenset(report.panes)
    for pane in [pane for pane in records.panes if pane.server == report.server]:
        if pane not in there:
            close(records, pane, now)


def _convert(payload: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise Refused(Reason.INVALID_SOURCE_EVENT, f"not what a poller says: {error}") from error
