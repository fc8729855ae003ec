"""Why we say what we say: every source with its word, its age, and why it won or lost."""

from collections.abc import Iterator, Mapping
from datetime import datetime

import msgspec

from bullpen.model.states import EvidenceTier, SourceKind
from bullpen.model.views import Claim, Explanation
from bullpen.observe.freshness import Link
from bullpen.observe.projection import Projection
from bullpen.observe.resolver import Held, Resolution
from bullpen.observe.subjects import PaneRecord, SessionRecord

__all__ = ["explain_pane", "explain_session"]

Links = Mapping[SourceKind, Link]


def explain_pane(
    projection: Projection, record: PaneRecord, links: Links, now: datetime
) -> Explanation:
    """Explain a pane and the agent in it."""
    session = projection.records.session_in(record)
    claims = list(_words(record.resolution, session, links, now))
    if record.looked_at is not None:
        claims.append(_screen(record, links, now))
    return Explanation(
        subject=record.name or record.id.pane_id,
        agent=record.agent,
        pane=record.state,
        claims=tuple(sorted(claims, key=lambda each: not each.is_winner)),
        refused=(*record.refused, *(session.refused if session else ())),
    )


def explain_session(session: SessionRecord, links: Links, now: datetime) -> Explanation:
    """Explain a session that is in no pane."""
    claims = _words(session.resolution, session, links, now)
    return Explanation(
        subject=session.name or session.key,
        agent=session.agent,
        claims=tuple(sorted(claims, key=lambda each: not each.is_winner)),
        refused=tuple(session.refused),
    )


def _words(
    resolution: Resolution, session: SessionRecord | None, links: Links, now: datetime
) -> Iterator[Claim]:
    for held in session.held.values() if session else ():
        yield Claim(
            source_kind=held.source_kind,
            tier=held.tier,
            event_type=held.event_type,
            activity=held.activity,
            observed_at=held.at,
            link_age_seconds=_link_age(held.source_kind, links, now, held.at),
            age_seconds=max((now - held.at).total_seconds(), 0.0),
            is_winner=held.source_kind is resolution.source_kind,
            why=_why(held, resolution),
            session_key=held.session_key,
        )


def _why(held: Held, resolution: Resolution) -> str:
    if held.source_kind is resolution.source_kind:
        return resolution.why
    whys = (each.why for each in resolution.losers if each.source_kind is held.source_kind)
    return next(whys, "")


def _screen(record: PaneRecord, links: Links, now: datetime) -> Claim:
    assert record.looked_at is not None
    track, resolution = record.track, record.resolution
    since = (track.shown_since if track else None) or record.looked_at
    is_winner = resolution.source_kind is SourceKind.POLLER
    whys = (each.why for each in resolution.losers if each.source_kind is SourceKind.POLLER)
    return Claim(
        source_kind=SourceKind.POLLER,
        tier=EvidenceTier.HEURISTIC,
        event_type=f"activity.{track.shown}" if track else "pane.unmanaged",
        activity=track.shown if track else None,
        observed_at=record.looked_at,
        link_age_seconds=_link_age(SourceKind.POLLER, links, now, record.looked_at),
        age_seconds=max((now - since).total_seconds(), 0.0),
        is_winner=is_winner,
        why=resolution.why if is_winner else next(whys, ""),
        details=_details(record),
    )


def _details(record: PaneRecord) -> dict[str, object]:
    """Return what the screen was read by, as far as there is anything to say."""
    inputs = record.signature.inputs
    details: dict[str, object] = {
        "signals": ", ".join(name for name in inputs.__struct_fields__ if getattr(inputs, name)),
        "refusal": record.signature.refusal,
    }
    if record.screen is not None:
        details |= {
            "rule": record.screen.rule,
            "shows": record.screen.reason,
            "evidence": msgspec.to_builtins(record.screen.evidence),
            "box": record.screen.prompt,
            "not ready": record.screen.not_ready,
            "lost": list(record.screen.losers),
        }
    return details


def _link_age(kind: SourceKind, links: Links, now: datetime, otherwise: datetime) -> float:
    age = links[kind].age(now) if kind in links else now - otherwise
    return max(age.total_seconds(), 0.0)
