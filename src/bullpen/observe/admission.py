"""Whether an observation is taken at all, without I/O.

Each is judged on its own, so that one that makes no sense spoils none of the others. The reasons
are those of the one table.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from bullpen.model.observations import Observation
from bullpen.model.reasons import Reason
from bullpen.model.states import Provider, SourceKind
from bullpen.observe.errors import Refused
from bullpen.observe.ranks import rank

__all__ = ["Outcome", "decode_observation", "encode_observation", "event_id_of", "suppressor"]

MAX_EVENT_BYTES = 2**20
MAX_ID_LENGTH = 1024

# Whoever looks at one program only. The others see any.
_PROGRAMS: dict[SourceKind, Provider] = {
    SourceKind.CLAUDE_HOOKS: Provider.CLAUDE,
    SourceKind.CLAUDE_SESSIONS: Provider.CLAUDE,
    SourceKind.CLAUDE_TRANSCRIPT: Provider.CLAUDE,
    SourceKind.CODEX_APPSERVER: Provider.CODEX,
    SourceKind.CODEX_HOOKS: Provider.CODEX,
    SourceKind.CODEX_ROLLOUT: Provider.CODEX,
    SourceKind.CODEX_CAPTURE: Provider.CODEX,
    SourceKind.COPILOT: Provider.COPILOT,
    SourceKind.GEMINI: Provider.GEMINI,
    SourceKind.OPENCODE: Provider.OPENCODE,
}

# Who is a fallback for whom: it tells the same facts less well, and both would be told twice.
_FALLBACKS: dict[SourceKind, SourceKind] = {SourceKind.CODEX_CAPTURE: SourceKind.CODEX_APPSERVER}


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one observation at the gateway."""

    event_id: str
    """As far as it could be read."""
    ingest_seq: int | None = None
    """Its place in the log; None if it is not there."""
    is_duplicate: bool = False
    reason: Reason | None = None
    """Why it was refused."""
    message: str = ""

    @property
    def is_accepted(self) -> bool:
        return self.ingest_seq is not None


def decode_observation(raw: object, kind: SourceKind) -> Observation:
    """Make an observation of JSON, of what JSON was decoded to, or of one; times are in UTC.

    Raises:
        Refused: it is none (`invalid_source_event`), has no time (`missing_event_time`), or is
            none that a source of this kind can make.
    """
    observation = _decode(raw)
    _check_text(observation)
    if observation.source_kind is not kind:
        raise _invalid(f"{kind} cannot speak for {observation.source_kind}")
    if observation.tier is not kind.tier:
        raise _invalid(f"{kind} is {kind.tier}, not {observation.tier}")
    if observation.provider is not _PROGRAMS.get(kind, observation.provider):
        raise _invalid(f"{kind} cannot speak for {observation.provider}")
    if not 0.0 <= observation.confidence <= 1.0:
        raise _invalid("confidence is not between 0 and 1")
    if observation.pane_generation is not None and observation.pane_generation < 0:
        raise _invalid("pane_generation is negative")
    return _in_utc(observation)


def encode_observation(observation: Observation) -> bytes:
    """Return the JSON of an observation, as it will be kept.

    Raises:
        Refused: it has none, or is too long.
    """
    try:
        encoded = msgspec.json.encode(observation)
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise _invalid("it cannot be written as JSON") from error
    if len(encoded) > MAX_EVENT_BYTES:
        raise _invalid(f"it has {len(encoded)} bytes of at most {MAX_EVENT_BYTES}")
    return encoded


def event_id_of(raw: object) -> str:
    """Return the id of what may not be an observation; empty if it has none."""
    if isinstance(raw, Observation):
        return raw.event_id
    found = _members(raw).get("event_id")
    return found[:MAX_ID_LENGTH] if isinstance(found, str) else ""


def suppressor(
    observation: Observation, is_healthy: Callable[[SourceKind], bool]
) -> SourceKind | None:
    """Return the source of higher rank beside which an observation is not taken, if there is one.

    Which of several sources is right is for the resolver to say. Only a fallback is not heard at
    all while whom it stands in for is healthy.
    """
    kind = observation.source_kind
    better = _FALLBACKS.get(kind)
    if better is None or not is_healthy(better):
        return None
    assert rank(observation.provider, better) < rank(observation.provider, kind)
    return better


def _decode(raw: object) -> Observation:
    if isinstance(raw, Observation):
        return raw
    try:
        if isinstance(raw, bytes | msgspec.Raw):
            return msgspec.json.decode(raw, type=Observation)
        return msgspec.convert(raw, Observation)
    except (ValueError, RecursionError) as error:
        members = _members(raw)
        if members and members.get("observed_at") is None:
            raise Refused(Reason.MISSING_EVENT_TIME, "observed_at is missing") from error
        raise _invalid(_words(error)) from error


def _members(raw: object) -> Mapping[Any, Any]:
    if isinstance(raw, bytes | msgspec.Raw):
        try:
            raw = msgspec.json.decode(raw)
        except (ValueError, RecursionError):
            return {}
    return raw if isinstance(raw, Mapping) else {}


def _words(error: Exception) -> str:
    """Return what is wrong and where. Of some types msgspec also says with which value."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return "it is not JSON"
    beginning, _, place = text.partition(" - at ")
    if beginning.startswith(("Invalid enum value", "Invalid value")):
        beginning = "invalid value"
    return f"{beginning[:1].lower()}{beginning[1:]} - at {place}" if place else beginning.lower()


def _check_text(observation: Observation) -> None:
    for name in ("event_id", "session_key", "event_type"):
        text = getattr(observation, name)
        if not text:
            raise _invalid(f"{name} is empty")
        if len(text) > MAX_ID_LENGTH:
            raise _invalid(f"{name} has {len(text)} characters of at most {MAX_ID_LENGTH}")


def _in_utc(observation: Observation) -> Observation:
    observed_at = _utc(observation.observed_at, "observed_at")
    born_at = observation.pane_birth_ts
    if born_at is not None:
        born_at = _utc(born_at, "pane_birth_ts")
    if observed_at is observation.observed_at and born_at is observation.pane_birth_ts:
        return observation
    return msgspec.structs.replace(observation, observed_at=observed_at, pane_birth_ts=born_at)


def _utc(time: datetime, name: str) -> datetime:
    if time.tzinfo is UTC:
        return time
    if time.tzinfo is None:
        raise _invalid(f"{name} has no offset from UTC")
    try:
        return time.astimezone(UTC)
    except OverflowError as error:  # the first or last day there is
        raise _invalid(f"{name} is out of range") from error


def _invalid(message: str) -> Refused:
    return Refused(Reason.INVALID_SOURCE_EVENT, message)
