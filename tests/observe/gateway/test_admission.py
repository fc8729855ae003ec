"""What is no observation of its source is refused, and refused for the right reason."""

from datetime import UTC, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.observations import Observation
from bullpen.model.reasons import Reason
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.admission import (
    MAX_EVENT_BYTES,
    decode_observation,
    encode_observation,
    event_id_of,
    suppressor,
)
from bullpen.observe.errors import Refused
from tests.observe.gateway.worlds import NOON, observation

HOOKS = SourceKind.CLAUDE_HOOKS
MISSING: Any = object()


def as_json(**changes: Any) -> dict[str, Any]:
    fields = msgspec.to_builtins(observation("1"))
    return {name: value for name, value in (fields | changes).items() if value is not MISSING}


def refusal(raw: object, kind: SourceKind = HOOKS) -> Refused:
    with pytest.raises(Refused) as caught:
        decode_observation(raw, kind)
    return caught.value


def forms(value: dict[str, Any]) -> list[object]:
    """An observation as it may come: parsed, as bytes, as a part of a frame."""
    encoded = msgspec.json.encode(value)
    return [value, encoded, msgspec.Raw(encoded)]


@pytest.mark.requirement("DM-5", "DM-6", "DM-7", "DM-8", "DM-9", "DM-10", "DM-11", "DM-12", "DM-13")
@pytest.mark.parametrize("kind", list(SourceKind))
def test_an_observation_survives_the_wire_in_every_part(kind: SourceKind) -> None:
    whole = observation(
        "1",
        kind,
        pane_id="%1",
        pane_generation=2**40,
        pane_birth_ts=NOON - timedelta(days=1),
        source_event_id="turn-1",
        payload={"any": [1, None, "x", 1.5, True]},
        confidence=0.86,
        tmux_server="12/34",
    )
    for form in (*forms(msgspec.to_builtins(whole)), whole):
        assert decode_observation(form, kind) == whole


@pytest.mark.requirement("DM-11", "DM-12", "DM-13")
def test_what_is_optional_may_be_missing_or_null() -> None:
    needed = ("event_id", "provider", "source_kind", "tier", "observed_at", "session_key")
    little = {name: as_json()[name] for name in (*needed, "event_type")}
    assert decode_observation(little, HOOKS) == observation("1")
    null = little | dict.fromkeys(("pane_id", "pane_generation", "pane_birth_ts"))
    assert decode_observation(null, HOOKS) == observation("1")


@pytest.mark.requirement("ERR-1", "DM-6", "DM-7", "DM-8")
@pytest.mark.parametrize(
    "changes",
    [
        {"provider": "eliza"},
        {"provider": MISSING},
        {"source_kind": "crystal_ball"},
        {"source_kind": "codex_hooks"},
        {"provider": "codex"},
        {"tier": "heuristic"},
        {"tier": "certain"},
        {"event_id": ""},
        {"event_id": 7},
        {"event_id": MISSING},
        {"event_id": "x" * 1025},
        {"session_key": ""},
        {"event_type": ""},
        {"event_type": MISSING},
        {"observed_at": "yesterday"},
        {"observed_at": "2026-03-01T12:00:00"},
        {"observed_at": "0001-01-01T00:00:00+14:00"},
        {"pane_birth_ts": "2026-03-01T12:00:00"},
        {"pane_generation": -1},
        {"confidence": 1.01},
        {"confidence": -0.01},
        {"confidence": "sure"},
    ],
    ids=lambda changes: ", ".join(
        f"{name}={'missing' if value is MISSING else str(value)[:30]}"
        for name, value in changes.items()
    ),
)
def test_what_makes_no_sense_is_invalid(changes: dict[str, Any]) -> None:
    for form in forms(as_json(**changes)):
        assert refusal(form).reason is Reason.INVALID_SOURCE_EVENT


@pytest.mark.requirement("ERR-1")
@pytest.mark.parametrize("raw", [None, 1, "x", [], {}, b"", b"\xff", b"[" * 10_000, b"{"], ids=repr)
def test_garbage_is_invalid(raw: object) -> None:
    assert refusal(raw).reason is Reason.INVALID_SOURCE_EVENT
    assert event_id_of(raw) == ""


def test_the_longest_id_is_taken_and_told() -> None:
    longest = observation("x" * 1024)
    assert decode_observation(longest, HOOKS) is longest
    assert event_id_of(longest) == longest.event_id


@pytest.mark.requirement("ERR-1")
def test_a_refusal_says_where_and_never_with_which_value() -> None:
    message = str(refusal(as_json(provider="secret")))
    assert message == "invalid value - at `$.provider`"
    assert "secret" not in str(refusal(as_json(confidence="secret")))


@pytest.mark.requirement("ERR-2", "DM-9")
@pytest.mark.parametrize("time", [MISSING, None])
def test_an_observation_without_a_time_is_refused_for_that(time: Any) -> None:
    for form in forms(as_json(observed_at=time)):
        assert refusal(form).reason is Reason.MISSING_EVENT_TIME
        assert event_id_of(form) == "1"


@pytest.mark.requirement("DM-9")
def test_times_are_kept_in_utc() -> None:
    elsewhere = timezone(timedelta(hours=9))
    given_ = observation("1", observed_at=NOON.astimezone(elsewhere), pane_birth_ts=NOON)
    for form in (given_, *forms(msgspec.to_builtins(given_))):
        decoded = decode_observation(form, HOOKS)
        assert decoded.observed_at == NOON
        assert decoded.observed_at.utcoffset() == timedelta(0)
    assert decode_observation(observation("1"), HOOKS).observed_at.tzinfo is UTC


@pytest.mark.requirement("DM-8")
@pytest.mark.parametrize("kind", list(SourceKind))
def test_the_poller_alone_is_heuristic(kind: SourceKind) -> None:
    tier = EvidenceTier.HEURISTIC if kind is SourceKind.POLLER else EvidenceTier.DETERMINISTIC
    other = next(each for each in EvidenceTier if each is not tier)
    assert decode_observation(observation("1", kind, tier=tier), kind).tier is tier
    wrong = refusal(observation("1", kind, tier=other), kind)
    assert wrong.reason is Reason.INVALID_SOURCE_EVENT


@pytest.mark.parametrize("kind", [SourceKind.POLLER, SourceKind.REPORT, SourceKind.PTY])
def test_some_sources_speak_for_any_program(kind: SourceKind) -> None:
    for provider in Provider:
        decoded = decode_observation(observation("1", kind, provider=provider), kind)
        assert decoded.provider is provider


@pytest.mark.parametrize(
    "payload",
    [object(), {1j}, "\ud800", "x" * MAX_EVENT_BYTES],
    ids=["object", "set", "half", "big"],
)
def test_what_cannot_be_kept_is_invalid(payload: object) -> None:
    with pytest.raises(Refused) as caught:
        encode_observation(observation("1", payload=payload))
    assert caught.value.reason is Reason.INVALID_SOURCE_EVENT


@given(
    raw=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
    | st.builds(
        lambda name, value: as_json(**{name: value}),
        st.sampled_from(Observation.__struct_fields__),
        st.none() | st.integers() | st.text() | st.datetimes().map(str),
    )
)
def test_anything_is_either_an_observation_or_refused(raw: object) -> None:
    reasons = []
    try:
        decoded = decode_observation(raw, HOOKS)
        assert decoded.observed_at.utcoffset() == timedelta(0)
        encode_observation(decoded)
    except Refused as error:
        reasons.append(error.reason)
    assert set(reasons) <= {Reason.INVALID_SOURCE_EVENT, Reason.MISSING_EVENT_TIME}


@pytest.mark.requirement("RES-9", "ERR-4", "Q5")
def test_the_capture_is_not_heard_beside_a_healthy_app_server() -> None:
    captured = observation("1", SourceKind.CODEX_CAPTURE)
    assert suppressor(captured, lambda kind: True) is SourceKind.CODEX_APPSERVER
    assert suppressor(captured, lambda kind: False) is None
    others = set(SourceKind) - {SourceKind.CODEX_APPSERVER}
    assert suppressor(captured, lambda kind: kind in others) is None


@pytest.mark.requirement("RES-9", "RES-10")
@pytest.mark.parametrize("kind", sorted(set(SourceKind) - {SourceKind.CODEX_CAPTURE}))
def test_nobody_else_is_silenced_at_the_door(kind: SourceKind) -> None:
    assert suppressor(observation("1", kind), lambda kind: True) is None
