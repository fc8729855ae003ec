"""Only a source that is ours, of this run and alive may deliver."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.reasons import Reason
from bullpen.model.sources import SourceRegistration
from bullpen.model.states import RegistryState, SourceKind
from bullpen.observe.errors import Refused
from bullpen.observe.registry import Registry
from tests.observe.gateway.worlds import NONCE, NOON, OWNER

KIND = SourceKind.CODEX_HOOKS
PENDING, ACTIVE = RegistryState.PENDING, RegistryState.ACTIVE
STALE, REVOKED = RegistryState.STALE, RegistryState.REVOKED


def new_registry() -> Registry:
    return Registry(nonce=NONCE, owner_uid=OWNER, protocol_version=1)


def hello(registry: Registry, seconds: float = 0, **changes: Any) -> SourceRegistration:
    said = {"nonce": NONCE, "protocol_version": 1, "peer_uid": OWNER, **changes}
    return registry.hello(KIND, NOON + timedelta(seconds=seconds), **said)


def reason(registry: Registry) -> Reason | None:
    """Why the source may not deliver, if it may not."""
    try:
        registry.check(KIND)
    except Refused as error:
        return error.reason
    return None


@pytest.mark.requirement("A3-2", "A3-4", "A8-2")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"peer_uid": 0}, Reason.PEER_UID_MISMATCH),
        ({"nonce": "another run"}, Reason.RUNTIME_NONCE_MISMATCH),
        ({"nonce": ""}, Reason.RUNTIME_NONCE_MISMATCH),
        ({"protocol_version": 99}, Reason.PROTOCOL_VERSION_MISMATCH),
        ({"peer_uid": 0, "nonce": "x", "protocol_version": 0}, Reason.PEER_UID_MISMATCH),
    ],
)
def test_a_stranger_is_not_registered(changes: dict[str, Any], expected: Reason) -> None:
    registry = new_registry()
    with pytest.raises(Refused) as caught:
        hello(registry, **changes)
    assert caught.value.reason is expected
    assert registry.list() == ()
    assert reason(registry) is Reason.SOURCE_REGISTRY_MISS


@pytest.mark.requirement("A3-3", "A3-4", "A8-3")
def test_a_source_that_is_pulled_from_is_pending_until_it_has_answered() -> None:
    registry = new_registry()
    assert hello(registry, socket_path="/run/a").state is PENDING
    assert reason(registry) is Reason.SOURCE_NOT_ACTIVE
    assert registry.heartbeat(KIND, NOON).state is PENDING
    assert registry.pulled(KIND, NOON).state is ACTIVE
    assert reason(registry) is None


@pytest.mark.requirement("A3-3")
def test_a_source_that_delivers_itself_is_active_at_once() -> None:
    registry = new_registry()
    assert hello(registry).state is ACTIVE
    assert reason(registry) is None


@pytest.mark.requirement("A3-3", "A3-4")
def test_a_source_not_heard_of_for_more_than_half_a_minute_is_stale() -> None:
    registry = new_registry()
    hello(registry)
    assert registry.sweep(NOON + timedelta(seconds=30)) == ()
    assert registry.sweep(NOON + timedelta(seconds=30.001)) == (KIND,)
    assert reason(registry) is Reason.SOURCE_NOT_ACTIVE
    assert registry.sweep(NOON + timedelta(seconds=31)) == ()  # it is known


@pytest.mark.requirement("A3-3")
def test_a_source_that_never_answered_is_stale_too() -> None:
    registry = new_registry()
    hello(registry, socket_path="/run/a")
    assert registry.sweep(NOON + timedelta(seconds=31)) == (KIND,)


@pytest.mark.requirement("A3-5")
def test_a_stale_source_that_says_hello_from_another_socket_is_active_there() -> None:
    registry = new_registry()
    hello(registry, socket_path="/run/a")
    registry.sweep(NOON + timedelta(seconds=31))
    moved = hello(registry, 40, socket_path="/run/b")
    assert (moved.state, moved.socket_path) == (ACTIVE, "/run/b")
    assert moved.registered_at == NOON
    assert moved.last_heartbeat_at == NOON + timedelta(seconds=40)


@pytest.mark.requirement("A3-5")
def test_an_active_source_stays_active_when_it_moves() -> None:
    registry = new_registry()
    hello(registry, socket_path="/run/a")
    registry.pulled(KIND, NOON)
    assert hello(registry, 1, socket_path="/run/b").state is ACTIVE


@pytest.mark.requirement("A3-3")
@pytest.mark.parametrize("sign", ["heartbeat", "pulled"])
def test_a_stale_source_that_shows_a_sign_of_life_is_active(sign: str) -> None:
    registry = new_registry()
    hello(registry, socket_path="/run/a")
    later = NOON + timedelta(seconds=31)
    registry.sweep(later)
    assert getattr(registry, sign)(KIND, later).state is ACTIVE
    assert registry.sweep(later + timedelta(seconds=30)) == ()


@pytest.mark.requirement("A3-4", "A8-3")
def test_a_revoked_source_stays_so_whatever_it_says() -> None:
    registry = new_registry()
    hello(registry)
    assert registry.revoke(KIND).state is REVOKED
    for attempt in (
        lambda: hello(registry, socket_path="/run/b"),
        lambda: registry.heartbeat(KIND, NOON),
        lambda: registry.pulled(KIND, NOON),
        lambda: registry.register(KIND, NOON, is_pulled=True),
        lambda: registry.check(KIND),
    ):
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.reason is Reason.SOURCE_REVOKED
    assert registry.sweep(NOON + timedelta(hours=1)) == ()
    assert [each.state for each in registry.list()] == [REVOKED]


@pytest.mark.requirement("A3-4", "A8-2")
def test_a_source_that_never_said_hello_is_missed() -> None:
    registry = new_registry()
    for attempt in (
        lambda: registry.heartbeat(KIND, NOON),
        lambda: registry.pulled(KIND, NOON),
        lambda: registry.revoke(KIND),
        lambda: registry.check(KIND),
    ):
        with pytest.raises(Refused) as caught:
            attempt()
        assert caught.value.reason is Reason.SOURCE_REGISTRY_MISS


def test_a_source_of_ours_that_delivers_from_within_is_never_stale() -> None:
    registry = new_registry()
    assert registry.register(KIND, NOON, is_pulled=False).state is ACTIVE
    assert registry.is_local(KIND)
    assert registry.sweep(NOON + timedelta(days=1)) == ()
    assert hello(registry).state is ACTIVE  # somebody else delivers for it as well
    assert hello(registry, socket_path="/run/a").state is ACTIVE
    assert registry.sweep(NOON + timedelta(days=1)) == ()
    assert registry.register(KIND, NOON, is_pulled=True).state is ACTIVE
    assert registry.sweep(NOON + timedelta(days=1)) == (KIND,)


def test_a_source_of_ours_that_is_pulled_from_need_not_say_hello() -> None:
    registry = new_registry()
    assert registry.register(KIND, NOON, is_pulled=True).state is PENDING
    registry.pulled(KIND, NOON)
    assert registry.register(KIND, NOON, is_pulled=True).state is ACTIVE  # attached anew
    assert registry.sweep(NOON + timedelta(seconds=31)) == (KIND,)


steps = st.lists(
    st.tuples(
        st.sampled_from(["hello", "hello socket", "heartbeat", "pulled", "revoke", "wait"]),
        st.integers(0, 40),
    )
)


@given(steps=steps)
def test_whoever_may_deliver_has_been_heard_of_and_was_never_revoked(
    steps: list[tuple[str, int]],
) -> None:
    registry = new_registry()
    now, heard, revoked, known = 0, 0, False, False
    for step, seconds in steps:
        now += seconds
        at = NOON + timedelta(seconds=now)
        registry.sweep(at)
        refusal = None
        try:
            match step:
                case "hello":
                    hello(registry, now)
                case "hello socket":
                    hello(registry, now, socket_path="/run/a")
                case "heartbeat":
                    registry.heartbeat(KIND, at)
                case "pulled":
                    registry.pulled(KIND, at)
                case "revoke":
                    registry.revoke(KIND)
        except Refused as error:
            refusal = error.reason
        if refusal is not None:
            assert refusal is (Reason.SOURCE_REVOKED if revoked else Reason.SOURCE_REGISTRY_MISS)
            assert revoked or not known
        else:
            known = known or step != "wait"
            revoked = revoked or step == "revoke"
            heard = heard if step in ("wait", "revoke") else now
        if reason(registry) is None:
            assert known
            assert not revoked
            assert now - heard <= 30
