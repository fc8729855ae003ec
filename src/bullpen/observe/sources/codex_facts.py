"""How what Codex told becomes an observation, whichever source heard it."""

from datetime import datetime

from bullpen.agents.providers.codex.facts import CodexFact
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Provider, SourceKind

__all__ = ["session_key", "to_observation"]


def session_key(thread_id: str) -> str:
    """Return the key of the session that a thread of Codex is."""
    return f"{Provider.CODEX}:{thread_id}"


def to_observation(
    fact: CodexFact, kind: SourceKind, *, event_id: str, at: datetime, origin: Origin
) -> Observation:
    """Return a fact as one source tells it. `at` is when it was heard, if Codex did not say."""
    return Observation(
        event_id=event_id,
        provider=Provider.CODEX,
        source_kind=kind,
        tier=kind.tier,
        observed_at=fact.at or at,
        session_key=session_key(fact.thread_id),
        event_type=fact.event_type,
        source_event_id=fact.source_event_id or event_id,
        payload=fact.payload,
        origin=origin,
    )
