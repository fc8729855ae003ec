"""Putting a session into a pane and taking it out again."""

from datetime import datetime

import msgspec

from bullpen.model.records import BindingLink
from bullpen.model.states import BindingState, SourceKind
from bullpen.observe import binding
from bullpen.observe.binding import BindingEvent
from bullpen.observe.inventory import KnownPane
from bullpen.observe.records import Records
from bullpen.observe.subjects import CERTAIN, GUESSED, Farewell, PaneRecord, SessionRecord

__all__ = ["end", "is_better", "leave", "link", "may_take", "unlink"]


def may_take(
    records: Records,
    session: SessionRecord,
    known: KnownPane,
    strength: int,
    *,
    is_news: bool = True,
) -> bool:
    """Whether a session that was found in a pane is the one to speak for it.

    Of two that were put there by their directory, the likelier one is; what is certain goes before
    a guess; and an agent that another one has started speaks only for itself. Of two that are
    certain it is the one that spoke last, so what is no news takes nothing from it.
    """
    other = records.session_in(records.panes[known.pane])
    if other is None or other is session or other.is_ended:
        return other is session or not _is_below_another(session, known)
    if strength < other.strength:
        return False
    if strength == other.strength == GUESSED:
        return is_better(session, other)
    if strength == other.strength and not is_news:
        return False
    return not _is_nested(session, other, known)


def is_better(one: SessionRecord, other: SessionRecord) -> bool:
    """Whether of two sessions in the same directory the one is more likely in the pane."""
    if one.is_active != other.is_active:
        return one.is_active
    return _touched(one) > _touched(other)


def _touched(session: SessionRecord) -> float:
    at = session.updated_at or session.heard_at
    return at.timestamp() if at else 0.0


def _is_below_another(session: SessionRecord, known: KnownPane) -> bool:
    """Whether the process in the pane that started it is another program's, which says nothing."""
    if not known.is_anothers(session.provider):
        return False
    mine, its = known.depth(session.origin.pid), known.depth(known.agent_pid)
    return mine is not None and its is not None and mine > its


def _is_nested(session: SessionRecord, other: SessionRecord, known: KnownPane) -> bool:
    mine, others = known.depth(session.origin.pid), known.depth(other.origin.pid)
    return mine is not None and others is not None and mine > others


def link(
    records: Records,
    session: SessionRecord,
    record: PaneRecord,
    source_kind: SourceKind,
    strength: int,
    now: datetime,
) -> None:
    """Put a session into a pane; what was in it is taken out, and so is it from elsewhere."""
    if record.session_key == session.key and session.pane == record.id:
        session.strength = max(strength, session.strength)
        return
    other = records.session_in(record)
    if other is not None and other.strength == strength == CERTAIN:
        other.is_ended = True  # one process, one terminal: it has begun another session
    unlink(records, record, now)
    before = records.pane_of(session)
    if before is not None:
        session.pane = None
        unlink(records, before, now)
    elif session.agent is not None:
        # It was known already; now it is known where. That is no farewell.
        records.names.hand_over(session.key, str(record.id))
        record.name, record.agent = session.name, session.agent
        session.name, session.agent = "", None
    session.pane, session.strength = record.id, strength
    record.session_key = session.key
    if record.provider is not session.provider:
        record.provider = session.provider
        if record.agent is not None and record.agent.provider is not session.provider:
            records.rename(record)
    made = BindingLink(
        pane_instance_id=record.id,
        bound_at=now,
        session_key=session.key,
        source_kind=source_kind,
        title=session.title,
    )
    records.links[record.id] = made
    records.work.bindings.append(made)


def unlink(records: Records, record: PaneRecord, now: datetime) -> None:
    """Take out of a pane what is in it, and note when and under which title it was."""
    session = records.session_in(record)
    if session is not None and session.pane == record.id:
        session.candidates.pop(record.id, None)
        session.pane, session.strength = None, 0
    record.session_key = None
    if made := records.links.pop(record.id, None):
        title = session.title if session and session.title else made.title
        record.bound_title = title or record.bound_title
        records.work.bindings.append(msgspec.structs.replace(made, unbound_at=now, title=title))


def leave(records: Records, record: PaneRecord, event: BindingEvent, now: datetime) -> None:
    """Let an agent be gone from a pane, as far as the event says so."""
    before = record.binding
    record.binding = binding.transition(before, event)
    if record.binding is before and record.binding is not BindingState.UNMANAGED:
        return
    if record.binding is BindingState.UNMANAGED:
        record.track = None
        if session := records.session_in(record):
            session.is_ended = True
    unlink(records, record, now)


def end(records: Records, session: SessionRecord, source_kind: SourceKind, now: datetime) -> None:
    """Let a session be over, because it said so."""
    session.is_ended = True
    session.farewell = Farewell(source_kind, f"{source_kind} said so: its session is over")
    if record := records.pane_of(session):
        record.farewell = session.farewell
        record.exited_at = now
        leave(records, record, BindingEvent.EXITED, now)
