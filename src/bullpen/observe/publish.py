"""From what is remembered to what is said: panes, sessions and agents as others see them."""

from datetime import datetime

import msgspec

from bullpen.model.states import (
    Activity,
    EvidenceMode,
    EvidenceTier,
    Presence,
    SignatureClass,
    SourceKind,
)
from bullpen.model.views import AgentState, PanePlace, PaneState, SessionState
from bullpen.observe import binding
from bullpen.observe.subjects import PaneRecord, SessionRecord
from bullpen.observe.titles import choose_title, representative

__all__ = [
    "agent_of_pane",
    "agent_of_session",
    "is_same_agent",
    "is_same_pane",
    "is_same_session",
    "pane_state",
    "session_state",
]


def pane_state(record: PaneRecord, session: SessionRecord | None, now: datetime) -> PaneState:
    """Return what we say of a pane."""
    presence = binding.presence(record.binding)
    is_managed = presence is Presence.MANAGED
    signature = record.signature
    is_bound = is_managed and session is not None
    reason = signature.reason
    if is_bound and (word := record.resolution.source_kind or _any_source(session)):
        reason = f"reported by {word}"
    return PaneState(
        pane_instance_id=record.id,
        presence=presence,
        evidence_mode=_mode(record) if is_managed else EvidenceMode.NONE,
        binding_state=record.binding,
        signature_class=_signature_class(is_managed, is_bound),
        signature_reason=reason,
        signature_confidence=1.0 if is_bound else signature.confidence if is_managed else 0.0,
        signature_inputs=signature.inputs,
        no_agent_streak=record.no_agent_streak,
        agent=record.name or None if is_managed else None,
        provider=record.provider if is_managed else None,
        activity_state=record.activity if is_managed else Activity.UNKNOWN,
        activity_source=record.resolution.source_kind if is_managed else None,
        activity_since=record.activity_since if is_managed else None,
        is_ready=is_managed and record.screen is not None and record.screen.is_ready,
        session_key=_session_key(record) if is_managed else None,
        deterministic_last_seen=session.heard_at if is_bound and session else None,
        title=pane_title(record, session),
        place=record.place,
        updated_at=now,
    )


def _any_source(session: SessionRecord | None) -> SourceKind | None:
    return next(iter(session.held), None) if session else None


def _mode(record: PaneRecord) -> EvidenceMode:
    if record.resolution.tier is EvidenceTier.DETERMINISTIC:
        return EvidenceMode.DETERMINISTIC
    return EvidenceMode.HEURISTIC


def _signature_class(is_managed: bool, is_bound: bool) -> SignatureClass:
    if is_bound:
        return SignatureClass.DETERMINISTIC
    return SignatureClass.HEURISTIC if is_managed else SignatureClass.NONE


def _session_key(record: PaneRecord) -> str:
    return record.session_key or own_session_key(record)


def own_session_key(record: PaneRecord) -> str:
    """Return the key of the session that a pane stands for while no agent has named one."""
    return f"pane:{record.id.server}:{record.id.pane_id}:{record.id.generation}"


def pane_title(record: PaneRecord, session: SessionRecord | None) -> str:
    """Return what to call what is in a pane."""
    return choose_title(
        canonical=session.title if session else "",
        bound=record.bound_title if record.provider else "",
        live=record.place.title,
        path=record.place.current_path,
        provider=record.provider,
    )


def session_state(
    session: SessionRecord, pane: PaneRecord | None, now: datetime
) -> SessionState | None:
    """Return what we say of a session; None as long as nothing is known of it."""
    subject = pane if pane is not None else session
    resolution = subject.resolution
    source = resolution.source_kind or _any_source(session)
    if source is None:
        return None
    is_managed = not session.is_ended and (
        pane is None or binding.presence(pane.binding) is Presence.MANAGED
    )
    return SessionState(
        session_key=session.key,
        presence=Presence.MANAGED if is_managed else Presence.UNMANAGED,
        evidence_mode=EvidenceMode(resolution.tier.value) if is_managed else EvidenceMode.NONE,
        deterministic_last_seen=session.heard_at,
        winner_tier=resolution.tier,
        activity_state=Activity.EXITED if session.is_ended else subject.activity,
        activity_source=source,
        representative_pane_instance_id=representative(session.candidates.values()),
        agent=subject.name or None,
        provider=session.provider,
        activity_since=subject.activity_since,
        title=_session_title(session, pane),
        pid=session.origin.pid,
        tty=session.origin.tty or (pane.place.tty if pane else ""),
        cwd=session.origin.cwd or (pane.place.current_path if pane else ""),
        updated_at=now,
    )


def _session_title(session: SessionRecord, pane: PaneRecord | None) -> str:
    if pane is not None:
        return pane_title(pane, session)
    return choose_title(canonical=session.title, path=session.origin.cwd, provider=session.provider)


def agent_of_pane(record: PaneRecord, now: datetime) -> AgentState | None:
    """Return the agent in a pane, if there is one."""
    state = record.state
    if state is None or state.presence is not Presence.MANAGED or record.provider is None:
        return None
    return AgentState(
        name=record.name,
        provider=record.provider,
        activity=record.activity,
        since=record.activity_since or now,
        evidence_mode=state.evidence_mode,
        source=record.resolution.source_kind or SourceKind.POLLER,
        reason=record.resolution.why,
        is_ready=state.is_ready,
        title=state.title,
        cwd=record.place.current_path,
        session_key=state.session_key,
        pane=record.id,
        place=record.place,
        pid=record.place.pane_pid,
        tty=record.place.tty,
        updated_at=now,
    )


def agent_of_session(session: SessionRecord, now: datetime) -> AgentState | None:
    """Return the agent of a session that is in no pane."""
    state = session.state
    if state is None or state.presence is not Presence.MANAGED or session.pane is not None:
        return None
    return AgentState(
        name=session.name,
        provider=session.provider,
        activity=session.activity,
        since=session.activity_since or now,
        evidence_mode=state.evidence_mode,
        source=state.activity_source,
        reason=session.resolution.why,
        title=state.title,
        cwd=session.origin.cwd,
        session_key=session.key,
        pid=session.origin.pid,
        tty=session.origin.tty,
        updated_at=now,
    )


# What changes all the time and is nobody's news: when it was last heard of, how often nobody was
# seen, how a title spins, and reasons that count seconds.


def is_same_pane(one: PaneState | None, other: PaneState | None) -> bool:
    """Whether there is nothing to tell."""
    if one is None or other is None:
        return one is other
    return one == msgspec.structs.replace(
        other,
        deterministic_last_seen=one.deterministic_last_seen,
        no_agent_streak=one.no_agent_streak,
        place=_with_title_of(one.place, other.place),
        state_version=one.state_version,
        updated_at=one.updated_at,
    )


def is_same_session(one: SessionState | None, other: SessionState | None) -> bool:
    """Whether there is nothing to tell."""
    if one is None or other is None:
        return one is other
    return one == msgspec.structs.replace(
        other,
        deterministic_last_seen=one.deterministic_last_seen,
        state_version=one.state_version,
        updated_at=one.updated_at,
    )


def is_same_agent(one: AgentState | None, other: AgentState | None) -> bool:
    """Whether there is nothing to tell."""
    if one is None or other is None:
        return one is other
    place = _with_title_of(one.place, other.place) if one.place and other.place else other.place
    return one == msgspec.structs.replace(
        other,
        reason=one.reason,
        place=place,
        state_version=one.state_version,
        updated_at=one.updated_at,
    )


def _with_title_of(one: PanePlace, other: PanePlace) -> PanePlace:
    return other if one is other else msgspec.structs.replace(other, title=one.title)
