"""Folding what agents say of themselves: which session, in which pane, doing what."""

from datetime import datetime, timedelta

import msgspec

from bullpen.model.events import HEARTBEAT, SESSION_ENDED, SESSION_NAMED, activity_of
from bullpen.model.observations import Observation, Origin, PaneInstanceId
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, Provider, SourceKind
from bullpen.observe import binding
from bullpen.observe.binding import BindingEvent
from bullpen.observe.errors import Refused
from bullpen.observe.inventory import KnownPane
from bullpen.observe.linking import end, is_better, link, may_take
from bullpen.observe.records import Records
from bullpen.observe.resolver import Held
from bullpen.observe.subjects import CERTAIN, GUESSED, SessionRecord
from bullpen.observe.titles import Candidate

__all__ = ["hear", "seek_panes"]

AHEAD = timedelta(seconds=2)  # clocks of one machine differ by less


def hear(records: Records, observation: Observation, ingest_seq: int, now: datetime) -> None:
    """Take what an agent, or somebody who reads its records, says.

    Raises:
        Refused: it makes no difference.
    """
    if observation.event_type == HEARTBEAT:
        return
    known, strength = _whereabouts(records, observation, now)
    if not observation.session_key or not observation.source_event_id:
        missing = "source_event_id" if observation.session_key else "session_key"
        raise Refused(Reason.SIGNATURE_INCONCLUSIVE, f"the observation has no {missing}")
    session = records.session(observation)
    _hold(records, session, observation, ingest_seq, now)
    if known is not None:
        _settle_in(records, session, known, observation, strength, now)
    if observation.event_type == SESSION_ENDED:
        end(records, session, observation.source_kind, now)


def _whereabouts(
    records: Records, observation: Observation, now: datetime
) -> tuple[KnownPane | None, int]:
    """Return the pane an observation is about, and how sure that is."""
    origin = observation.origin or Origin()
    if observation.pane_id is None:
        return _find(records, origin, observation.provider, observation.session_key)
    known = records.inventory.at(
        observation.pane_id, observation.tmux_server, observation.pane_generation
    )
    born = observation.pane_birth_ts
    if known is not None and born is not None and known.pane.birth_ts != born:
        known = None
    if known is None:
        _check_late(records, observation, now)
        return None, 0
    elsewhere = records.inventory.of_process(origin.pid) if origin.pid else None
    if elsewhere is not None and elsewhere.pane != known.pane:
        raise Refused(
            Reason.BINDING_CONFLICT,
            f"process {origin.pid} is in {elsewhere.pane}, not in {known.pane}",
        )
    return known, CERTAIN


def _check_late(records: Records, observation: Observation, now: datetime) -> None:
    """Refuse what is about a pane that is not there any more."""
    old = observation.pane_instance_id
    if old is not None and records.tombstones.covers(old, now):
        raise Refused(Reason.BINDING_CONFLICT, f"{old} is gone; its id is another pane's now")
    if any(
        each.pane.pane_id == observation.pane_id
        and observation.tmux_server in (None, "", each.pane.server)
        for each in records.inventory
    ):
        raise Refused(Reason.LATE_EVENT, f"{observation.pane_id} has another life by now")


def _find(
    records: Records, origin: Origin, provider: Provider, session_key: str
) -> tuple[KnownPane | None, int]:
    session = records.sessions.get(session_key)
    known = records.inventory.find(origin, provider, _taken_from(records, session, provider))
    is_sure = bool(origin.pid or origin.tmux_pane or origin.tty)
    return known, CERTAIN if is_sure else GUESSED


def _taken_from(
    records: Records, session: SessionRecord | None, provider: Provider
) -> frozenset[PaneInstanceId]:
    """Return the panes that a guess must not take from the sessions they have."""
    return frozenset(
        record.id
        for record in records.panes.values()
        if record.session_key is not None
        and (other := records.sessions.get(record.session_key)) is not None
        and other is not session
        and other.provider is provider
        and not other.is_ended
        and (other.strength > GUESSED or session is None or not is_better(session, other))
    )


def _hold(
    records: Records,
    session: SessionRecord,
    observation: Observation,
    ingest_seq: int,
    now: datetime,
) -> None:
    """Keep what was said, unless the same source has said something later."""
    at = min(observation.observed_at, now + AHEAD)
    session.heard_at = max(session.heard_at or at, at)
    session.is_restored = False
    session.origin = _merge(session.origin, observation.origin)
    if observation.event_type == SESSION_NAMED:
        session.title = _title(observation.payload)
        return
    if updated := _updated_at(observation.payload):
        session.updated_at = updated
    activity = activity_of(observation.event_type)
    if activity is None:
        return
    before = session.held.get(observation.source_kind)
    if before is not None and (at, ingest_seq) < (before.at, before.ingest_seq):
        raise Refused(Reason.LATE_EVENT, "the same source has said something later")
    session.held[observation.source_kind] = Held(
        observation.source_kind,
        observation.provider,
        activity,
        at,
        ingest_seq,
        observation.event_type,
        session.key,
    )
    records.work.said.append((ingest_seq, observation, session, activity))
    if activity is Activity.EXITED:
        session.ended_at = at
    elif session.ended_at is None or at > session.ended_at:
        session.is_ended = False


def _settle_in(
    records: Records,
    session: SessionRecord,
    known: KnownPane,
    said: Observation,
    strength: int,
    now: datetime,
) -> None:
    """Put a session into the pane it was found in, if the pane is not another's."""
    if session.is_ended or session.is_wrapped or not may_take(records, session, known, strength):
        return
    _enter(records, session, known, said.observed_at, strength, now)


def seek_panes(records: Records, now: datetime) -> None:
    """Find panes for sessions that had none when they spoke: the pane may be new to us."""
    for session in records.sessions.values():
        if session.pane or session.is_ended or not session.held:
            continue
        if session.is_process or session.is_wrapped:
            continue
        known, strength = _find(records, session.origin, session.provider, session.key)
        if known is not None and may_take(records, session, known, strength, is_news=False):
            last = max(each.at for each in session.held.values())
            _enter(records, session, known, last, strength, now)


def _enter(
    records: Records,
    session: SessionRecord,
    known: KnownPane,
    at: datetime,
    strength: int,
    now: datetime,
) -> None:
    record = records.panes[known.pane]
    session.candidates[known.pane] = Candidate(known.pane, at, record.looked_at or at)
    said_by = max(session.held.values(), key=lambda each: each.at, default=None)
    link(
        records,
        session,
        record,
        said_by.source_kind if said_by else SourceKind.REPORT,
        strength,
        now,
    )
    record.exited_at = None
    record.binding = binding.transition(record.binding, BindingEvent.HANDSHAKE)


def _merge(origin: Origin, other: Origin | None) -> Origin:
    """Return an origin with what the other one knows more or newer."""
    if other is None:
        return origin
    known = {name: value for name in other.__struct_fields__ if (value := getattr(other, name))}
    return msgspec.structs.replace(origin, **known)


def _title(payload: object) -> str:
    title = payload.get("title") if isinstance(payload, dict) else None
    return title if isinstance(title, str) else ""


def _updated_at(payload: object) -> datetime | None:
    value = payload.get("updated_at") if isinstance(payload, dict) else None
    try:
        return msgspec.convert(value, datetime) if value is not None else None
    except msgspec.ValidationError:
        return None
