"""At the gateway each observation is judged, numbered once, and given out until it is kept."""

import asyncio
from typing import Any

import msgspec
import pytest

from bullpen.api.errors import ApiError
from bullpen.connection import RpcError
from bullpen.model.reasons import Reason
from bullpen.model.records import Ingested, Restored
from bullpen.model.states import HealthStatus, RegistryState, SourceKind
from bullpen.observe.deliveries import DeliveryLimits
from bullpen.observe.gateway import (
    FOLD,
    PROJECTION,
    Gateway,
    GatewayLimits,
    Outcome,
    ingest_reply,
)
from tests.observe.gateway.worlds import NONCE, NOON, OWNER, Time, new_gateway, observation

HOOKS = SourceKind.CLAUDE_HOOKS


class Troubles(list[tuple[Reason, SourceKind | None]]):
    def __call__(self, reason: Reason, message: str, kind: SourceKind | None) -> None:
        assert message
        self.append((reason, kind))


def hello(gateway: Gateway, kind: SourceKind = HOOKS, **changes: Any) -> RegistryState:
    said = {"nonce": NONCE, "protocol_version": 1, "peer_uid": OWNER, **changes}
    return gateway.hello(kind, **said).registration.state


def pusher(time: Time | None = None, **options: Any) -> Gateway:
    gateway = new_gateway(time or Time(), **options)
    hello(gateway)
    return gateway


def reasons(outcomes: list[Outcome]) -> list[Reason | None]:
    return [each.reason for each in outcomes]


def refused(call: Any) -> Reason:
    with pytest.raises(ApiError) as caught:
        call()
    assert caught.value.code == int(caught.value.reason)
    return caught.value.reason


# -------------------------------------------------------------------------------------- admission


@pytest.mark.requirement("ERR-1", "ERR-2")
async def test_each_observation_of_a_batch_is_judged_on_its_own() -> None:
    gateway = pusher(last_ingest_seq=100)
    timeless = msgspec.to_builtins(observation("3"))
    del timeless["observed_at"]
    outcomes = gateway.ingest(
        HOOKS,
        [
            observation("1"),
            msgspec.Raw(b'{"event_id": "2", "provider": "eliza"}'),
            timeless,
            {**msgspec.to_builtins(observation("4")), "provider": "eliza"},
            msgspec.Raw(msgspec.json.encode(observation("5"))),
            observation("6", SourceKind.CODEX_HOOKS),
        ],
    )
    assert reasons(outcomes) == [
        None,
        Reason.MISSING_EVENT_TIME,
        Reason.MISSING_EVENT_TIME,
        Reason.INVALID_SOURCE_EVENT,
        None,
        Reason.INVALID_SOURCE_EVENT,
    ]
    assert [each.event_id for each in outcomes] == ["1", "2", "3", "4", "5", "6"]
    assert [each.ingest_seq for each in outcomes] == [101, None, None, None, 102, None]
    health = dict(gateway.health())[HOOKS]
    assert health.accepted == 2
    assert health.dropped == {"missing_event_time": 2, "invalid_source_event": 2}
    assert health.last_event_at == NOON


@pytest.mark.requirement("RES-1", "RES-2", "Q4")
async def test_a_fact_told_twice_is_taken_once_across_batches() -> None:
    gateway = pusher()
    first = gateway.ingest(HOOKS, [observation("1"), observation("1")])
    second = gateway.ingest(HOOKS, [observation("1"), observation("1", session_key="other")])
    assert [each.is_duplicate for each in first + second] == [False, True, True, False]
    health = dict(gateway.health())[HOOKS]
    assert (health.accepted, health.dropped) == (2, {"duplicate": 2})


@pytest.mark.requirement("A2-4")
async def test_what_is_told_again_after_eleven_minutes_is_still_known() -> None:
    time = Time()
    gateway = pusher(time)
    gateway.ingest(HOOKS, [observation("1")])
    time.advance(11 * 60)
    gateway.heartbeat(HOOKS)
    assert gateway.ingest(HOOKS, [observation("1")])[0].is_duplicate


async def test_what_another_run_kept_is_known() -> None:
    gateway = pusher()
    gateway.restore(Restored(), [Ingested(7, observation("1"))])
    assert gateway.ingest(HOOKS, [observation("1")])[0].is_duplicate


@pytest.mark.requirement("ERR-3", "A3-4", "A8-2", "A8-3")
async def test_a_source_that_may_not_deliver_is_told_why() -> None:
    time = Time()
    gateway = new_gateway(time)
    assert reasons(gateway.ingest(HOOKS, [observation()])) == [Reason.SOURCE_REGISTRY_MISS]
    assert gateway.health() == ()
    hello(gateway, socket_path="/nowhere")
    assert reasons(gateway.ingest(HOOKS, [observation()])) == [Reason.SOURCE_NOT_ACTIVE]
    hello(gateway)
    assert reasons(gateway.ingest(HOOKS, [observation("1")])) == [None]
    time.advance(31)
    assert reasons(gateway.ingest(HOOKS, [observation("2")])) == [Reason.SOURCE_NOT_ACTIVE]
    gateway.heartbeat(HOOKS)
    assert reasons(gateway.ingest(HOOKS, [observation("3")])) == [None]
    assert gateway.revoke(HOOKS).state is RegistryState.REVOKED
    assert reasons(gateway.ingest(HOOKS, [observation("4")])) == [Reason.SOURCE_REVOKED]
    health = dict(gateway.health())[HOOKS]
    assert (health.status, health.reason) == (HealthStatus.DOWN, "it has been revoked")
    assert gateway.links()[HOOKS].status is HealthStatus.DOWN
    await gateway.aclose()


@pytest.mark.requirement("A3-3")
async def test_what_is_delivered_is_a_sign_of_life_and_what_is_refused_is_not() -> None:
    time = Time()
    gateway = pusher(time)
    for number in range(4):
        time.advance(20)
        assert reasons(gateway.ingest(HOOKS, [observation(str(number))])) == [None]
    assert gateway.links()[HOOKS].heard_at == time.now
    heard = time.now
    time.advance(20)
    gateway.ingest(HOOKS, [observation("x", tier="certain")])
    assert gateway.links()[HOOKS].heard_at == heard


@pytest.mark.requirement("A3-3")
async def test_a_source_not_heard_of_is_stale_and_not_healthy() -> None:
    time = Time()
    gateway = pusher(time)
    assert dict(gateway.health())[HOOKS].status is HealthStatus.HEALTHY
    time.advance(31)
    assert [each.state for each in gateway.registrations()] == [RegistryState.STALE]
    health = dict(gateway.health())[HOOKS]
    assert (health.status, health.reason) == (
        HealthStatus.DEGRADED,
        "it was not heard of for 31 s",
    )


@pytest.mark.requirement("A3-2", "A3-4", "A8-2", "A8-3")
async def test_strangers_are_refused_at_hello() -> None:
    gateway = new_gateway(Time())
    assert refused(lambda: hello(gateway, peer_uid=1)) is Reason.PEER_UID_MISMATCH
    assert refused(lambda: hello(gateway, nonce="x")) is Reason.RUNTIME_NONCE_MISMATCH
    assert refused(lambda: hello(gateway, protocol_version=99)) is Reason.PROTOCOL_VERSION_MISMATCH
    assert refused(lambda: gateway.heartbeat(HOOKS)) is Reason.SOURCE_REGISTRY_MISS
    assert refused(lambda: gateway.revoke(HOOKS)) is Reason.SOURCE_REGISTRY_MISS
    with pytest.raises(RpcError) as caught:
        hello(gateway, socket_path="not/absolute")
    assert caught.value.code == -32602
    assert gateway.registrations() == ()
    hello(gateway)
    gateway.revoke(HOOKS)
    assert refused(lambda: hello(gateway)) is Reason.SOURCE_REVOKED
    assert refused(lambda: gateway.heartbeat(HOOKS)) is Reason.SOURCE_REVOKED
    assert refused(lambda: gateway.attach(HOOKS, None)) is Reason.SOURCE_REVOKED


@pytest.mark.requirement("RES-9", "ERR-4", "Q5")
async def test_the_capture_is_heard_only_while_the_app_server_is_not_healthy() -> None:
    time = Time()
    gateway = new_gateway(time)
    capture, appserver = SourceKind.CODEX_CAPTURE, SourceKind.CODEX_APPSERVER
    hello(gateway, capture)
    assert reasons(gateway.ingest(capture, [observation("1", capture)])) == [None]
    hello(gateway, appserver)
    suppressed = gateway.ingest(capture, [observation("2", capture)])
    assert reasons(suppressed) == [Reason.SOURCE_RANK_SUPPRESSED]
    assert dict(gateway.health())[capture].dropped == {"source_rank_suppressed": 1}
    assert reasons(gateway.ingest(appserver, [observation("3", appserver)])) == [None]
    time.advance(20)
    gateway.heartbeat(capture)
    time.advance(20)  # the app server is stale by now
    again = gateway.ingest(capture, [observation("2", capture)])
    assert reasons(again) == [None]  # what was suppressed is not known as told


@pytest.mark.requirement("ERR-3")
async def test_a_source_of_ours_may_deliver_from_within_for_ever() -> None:
    time = Time()
    gateway = new_gateway(time)
    gateway.attach(SourceKind.REPORT, None)
    time.advance(3600)
    report = observation("1", SourceKind.REPORT)
    assert reasons(gateway.ingest(SourceKind.REPORT, [report])) == [None]
    link = gateway.links()[SourceKind.REPORT]
    assert (link.heard_at, link.status) == (time.now, HealthStatus.HEALTHY)
    hello(gateway, SourceKind.REPORT, socket_path="/nowhere")  # others may come and go beside it
    time.advance(60)
    await gateway.pull_sources()
    assert dict(gateway.health())[SourceKind.REPORT].status is HealthStatus.DOWN
    report = observation("2", SourceKind.REPORT)
    assert reasons(gateway.ingest(SourceKind.REPORT, [report])) == [None]
    await gateway.aclose()


async def test_too_many_at_once_are_refused_whole() -> None:
    gateway = pusher()
    with pytest.raises(RpcError) as caught:
        gateway.ingest(HOOKS, [observation()] * 5_001)
    assert caught.value.code == -32602
    assert gateway.buffers()["gateway.log"] == 0


def test_a_reply_counts_and_names_what_was_refused() -> None:
    taken = Outcome(event_id="1", ingest_seq=1)
    again = Outcome(event_id="1", is_duplicate=True)
    bad = Outcome(event_id="2", reason=Reason.INVALID_SOURCE_EVENT, message="no")
    reply = ingest_reply([taken, again, bad])
    assert (reply.accepted, reply.duplicates) == (1, 1)
    assert [(each.event_id, each.reason) for each in reply.refused] == [
        ("2", "invalid_source_event")
    ]
    assert ingest_reply([]).accepted == 0
    assert refused(lambda: ingest_reply([bad, bad])) is Reason.INVALID_SOURCE_EVENT


# --------------------------------------------------------------------------------------- deliveries


@pytest.mark.requirement("IF-G2", "A1-2", "A1-3")
async def test_a_consumer_pulls_acknowledges_and_goes_on() -> None:
    gateway = pusher(last_ingest_seq=10)
    gateway.ingest(HOOKS, [observation("1"), observation("2")])
    reply = gateway.pull("web", limit=1)
    assert ([each.event_id for each in reply.events], reply.next_cursor) == (["1"], "11")
    assert reply.delivery_token
    assert gateway.ack(reply.delivery_token, "web").status == "committed"
    again = gateway.ack(reply.delivery_token, "web")
    assert (again.status, again.committed_cursor) == ("already_committed", "11")
    assert [each.event_id for each in gateway.pull("web").events] == ["2"]


@pytest.mark.requirement("A8-1")
async def test_what_a_consumer_may_not_is_refused_with_its_reason() -> None:
    gateway = pusher()
    assert refused(lambda: gateway.pull("web", "garbage")) is Reason.INVALID_CURSOR
    assert refused(lambda: gateway.pull("web", "1")) is Reason.INVALID_CURSOR
    assert refused(lambda: gateway.ack("x", "web")) is Reason.UNKNOWN_DELIVERY_TOKEN
    for limit in (0, -1, 5_001):
        with pytest.raises(RpcError) as caught:
            gateway.pull("web", limit=limit)
        assert caught.value.code == -32602
    for name in ("", "x" * 129):
        with pytest.raises(RpcError):
            gateway.pull(name)
        with pytest.raises(RpcError):
            gateway.rewind(name, events=1)


@pytest.mark.requirement("A1-4", "A8-1")
async def test_a_batch_is_given_again_and_a_late_ack_is_told() -> None:
    time, troubles = Time(), Troubles()
    gateway = pusher(time, on_trouble=troubles)
    gateway.ingest(HOOKS, [observation("1")])
    first = gateway.pull("web")
    time.advance(2.1)
    second = gateway.pull("web")
    assert (second.delivery_token, second.attempt) == (first.delivery_token, 2)
    assert troubles == []
    assert second.delivery_token
    assert gateway.ack(second.delivery_token, "web").status == "committed"
    assert troubles == [(Reason.ACK_TIMEOUT, HOOKS)]
    gateway.ack(second.delivery_token, "web")
    assert len(troubles) == 1


@pytest.mark.requirement("A1-5", "A8-1")
async def test_a_consumer_that_never_acknowledges_degrades_the_sources_until_it_does() -> None:
    time, troubles = Time(), Troubles()
    gateway = pusher(time, on_trouble=troubles)
    hello(gateway, SourceKind.REPORT)
    gateway.ingest(HOOKS, [observation("1")])
    for _ in range(5):
        gateway.pull("web")
        time.advance(2)
    assert refused(lambda: gateway.pull("web")) is Reason.ACK_RETRY_EXHAUSTED
    assert troubles == [(Reason.ACK_RETRY_EXHAUSTED, HOOKS)]
    health = dict(gateway.health())
    assert health[HOOKS].status is HealthStatus.DEGRADED
    assert health[HOOKS].reason == "'web' does not acknowledge what it says"
    assert health[SourceKind.REPORT].status is HealthStatus.HEALTHY
    assert gateway.links()[HOOKS].status is HealthStatus.HEALTHY  # it is not the source's fault
    token = gateway.pull("web").delivery_token
    assert token
    assert dict(gateway.health())[HOOKS].status is HealthStatus.DEGRADED
    gateway.ack(token, "web")
    assert dict(gateway.health())[HOOKS].status is HealthStatus.HEALTHY


@pytest.mark.requirement("A1-5")
async def test_a_consumer_that_is_gone_degrades_nothing_for_long() -> None:
    time = Time()
    gateway = pusher(time)
    gateway.ingest(HOOKS, [observation("1")])
    for _ in range(5):
        gateway.pull("web")
        time.advance(2)
    assert refused(lambda: gateway.pull("web")) is Reason.ACK_RETRY_EXHAUSTED
    time.advance(61)
    gateway.heartbeat(HOOKS)
    assert dict(gateway.health())[HOOKS].status is HealthStatus.HEALTHY


@pytest.mark.requirement("A2-2", "A8-4")
async def test_a_consumer_rewinds_within_the_window() -> None:
    gateway = pusher()
    gateway.ingest(HOOKS, [observation("1"), observation("2")])
    token = gateway.take().token
    assert token
    gateway.ack(token)
    assert gateway.rewind(PROJECTION, events=1).events == 1
    assert [each.ingest_seq for each in gateway.take().events] == [2]
    for far in ({"events": 10_001}, {"seconds": 601.0}, {"seconds": float("inf")}):
        call = lambda far=far: gateway.rewind("web", **far)  # noqa: E731
        assert refused(call) is Reason.REWIND_WINDOW_EXCEEDED
    for wrong in ({}, {"events": 1, "seconds": 1.0}, {"events": -1}, {"seconds": float("nan")}):
        with pytest.raises(RpcError) as caught:
            gateway.rewind("web", **wrong)
        assert caught.value.code == -32602


@pytest.mark.requirement("MEM-2")
async def test_what_is_kept_is_bounded_however_much_comes() -> None:
    time = Time()
    limits = GatewayLimits(deliveries=DeliveryLimits(rewind_events=50))
    gateway = pusher(time, limits=limits)
    for number in range(200):
        time.advance(1)
        gateway.ingest(HOOKS, [observation(f"{number}-{each}") for each in range(5)])
        token = gateway.take().token
        assert token
        gateway.ack(token)
    assert gateway.buffers()["gateway.log"] == 50
    assert gateway.buffers()["gateway.lost"] == 0
    time.advance(601)
    await gateway.pull_sources()
    assert gateway.buffers()["gateway.log"] == 0
    time.advance(120)
    gateway.heartbeat(HOOKS)
    gateway.ingest(HOOKS, [observation("last")])
    assert gateway.buffers()["gateway.log"] == 1
    assert gateway.buffers()["gateway.dedup"] == 1


# ------------------------------------------------------------------------------------------ waiting


async def test_whoever_waits_is_woken_by_what_comes() -> None:
    gateway = pusher()
    assert not await gateway.wait_for_events(0.01)
    waiting = asyncio.create_task(gateway.wait_for_events(5))
    await asyncio.sleep(0)
    gateway.ingest(HOOKS, [observation("1")])
    assert await waiting
    assert await gateway.wait_for_events(0)  # it is still there
    assert [each.ingest_seq for each in gateway.unfolded()] == [1]
    assert gateway.unfolded() == ()
    assert not await gateway.wait_for_events(0)  # folded, though not yet kept
    gateway.rewind(FOLD, events=1)
    assert await gateway.wait_for_events(0)


async def test_what_is_refused_or_known_wakes_nobody() -> None:
    gateway = pusher()
    gateway.ingest(HOOKS, [observation("1")])
    gateway.unfolded()
    gateway.ingest(HOOKS, [observation("1"), {}])
    assert not await gateway.wait_for_events(0)
