"""Sources are pulled from alike over a channel and a socket; none delays or spoils another."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bullpen.api.errors import ApiError
from bullpen.api.methods import DeliverRaw, EventsAvailable, PullEvents, PullReply
from bullpen.connection import (
    Connection,
    Context,
    RpcError,
    Transport,
    channel_pair,
    listen_unix,
    open_transport,
)
from bullpen.model.observations import Origin
from bullpen.model.reasons import Reason
from bullpen.model.records import Restored
from bullpen.model.sources import CursorState, SourceHealth
from bullpen.model.states import HealthStatus, RegistryState, SourceKind
from bullpen.observe.deliveries import DeliveryLimits
from bullpen.observe.feed import OpenTransport, Unreachable
from bullpen.observe.gateway import Gateway, GatewayLimits
from bullpen.observe.sources.port import SourceTrouble
from bullpen.testing.tmux import eventually
from tests.observe.gateway.worlds import (
    NONCE,
    NOON,
    OWNER,
    FakeSource,
    Time,
    new_gateway,
    observation,
    served,
)

HOOKS, POLLER = SourceKind.CLAUDE_HOOKS, SourceKind.POLLER
over_both = pytest.mark.parametrize("over", ["channel", "unix"])


@asynccontextmanager
async def open_gateway(time: Time, **options: Any) -> AsyncIterator[Gateway]:
    gateway = new_gateway(time, **options)
    try:
        yield gateway
    finally:
        await gateway.aclose()


def given_out(gateway: Gateway, *, ack: bool = True) -> list[str]:
    """What the projection is given next."""
    delivery = gateway.take()
    if ack and delivery.token is not None:
        gateway.ack(delivery.token)
    return [each.observation.event_id for each in delivery.events]


def cursor(gateway: Gateway, kind: SourceKind = HOOKS) -> CursorState:
    return next(each for each in gateway.cursors() if each.source_kind is kind)


def status(gateway: Gateway, kind: SourceKind = HOOKS) -> HealthStatus:
    return dict(gateway.health())[kind].status


# A source of somebody else's: what it answers is up to the test.


class Foreign:
    def __init__(self, answer: Callable[[PullEvents], Any]) -> None:
        self.answer = answer
        self.asked: list[PullEvents] = []
        self.connections = 0
        self._served: list[Connection] = []

    async def __call__(self) -> Transport:
        self.connections += 1
        near, far = channel_pair()
        self._served.append(await self.builder().open(far))
        return near

    def builder(self) -> Any:
        return Connection.builder().on_request(PullEvents.METHOD, self._pull)

    async def _pull(self, params: Any, context: Context) -> Any:
        asked = msgspec.convert(params, PullEvents, from_attributes=True)
        self.asked.append(asked)
        answer = self.answer(asked)
        return await answer if hasattr(answer, "__await__") else answer

    async def aclose(self) -> None:
        for connection in self._served:
            await connection.aclose()


def reply(
    *events: Any, next_cursor: object = "c", status: str = "healthy", **more: Any
) -> dict[str, Any]:
    return {
        "events": [msgspec.to_builtins(each) for each in events],
        "next_cursor": next_cursor,
        "heartbeat_ts": "2026-03-01T12:00:00Z",
        "source_health": {"status": status, "checked_at": "2026-03-01T12:00:00Z"},
        **more,
    }


def invalid_cursor() -> ApiError:
    return ApiError(Reason.INVALID_CURSOR, "no such cursor")


def script(*answers: Any) -> Callable[[PullEvents], Any]:
    """Answer so, one after the other; the last one from then on."""
    left = list(answers)

    def answer(asked: PullEvents) -> Any:
        one = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(one, Exception):
            raise one
        return one

    return answer


# ------------------------------------------------------------------------------- over both ways


@over_both
@pytest.mark.requirement("IF-S1", "CUR-2", "Q1")
async def test_what_sources_say_arrives_once_and_numbered(over: str, home: Path) -> None:
    time = Time()
    hooks, poller = FakeSource(time), FakeSource(time, POLLER)
    async with (
        served(over, hooks, home) as to_hooks,
        served(over, poller, home) as to_poller,
        open_gateway(time, last_ingest_seq=6) as gateway,
    ):
        gateway.attach(HOOKS, to_hooks)
        gateway.attach(POLLER, to_poller)
        assert [each.state for each in gateway.registrations()] == [RegistryState.PENDING] * 2
        assert status(gateway) is HealthStatus.DEGRADED
        hooks.say("h1", "h2")
        poller.say("p1", session_key="pane:1")
        assert await gateway.pull_sources() == 3
        assert [each.state for each in gateway.registrations()] == [RegistryState.ACTIVE] * 2
        delivery = gateway.take()
        assert [each.ingest_seq for each in delivery.events] == [7, 8, 9]
        taken = {each.observation.event_id for each in delivery.events}
        assert taken == {"h1", "h2", "p1"}


@over_both
@pytest.mark.requirement("CUR-1", "CUR-2")
async def test_a_hundred_idle_ticks_deliver_nothing_twice(over: str, home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with served(over, source, home) as way, open_gateway(time) as gateway:
        gateway.attach(HOOKS, way)
        source.say("1", "2")
        assert await gateway.pull_sources() == 2
        for _ in range(100):
            time.advance(0.25)
            assert await gateway.pull_sources() == 0
        assert given_out(gateway) == ["1", "2"]
        health = dict(gateway.health())[HOOKS]
        assert (health.accepted, health.dropped) == (2, {})  # not even as a duplicate


@over_both
@pytest.mark.requirement("MEM-1", "IF-G4", "A1-1")
async def test_a_source_keeps_what_is_not_committed_and_no_more(over: str, home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with served(over, source, home) as way, open_gateway(time) as gateway:
        gateway.attach(HOOKS, way)
        source.say("1", "2")
        await gateway.pull_sources()
        await gateway.pull_sources()
        fetched = cursor(gateway).fetched_cursor
        assert fetched is not None
        assert cursor(gateway).committed_cursor is None
        async with Connection.builder().connect(await _transport(way)) as other:
            assert len((await other.request(PullEvents())).events) == 2
            assert given_out(gateway) == ["1", "2"]
            assert cursor(gateway).committed_cursor == fetched
            await gateway.pull_sources()
            assert (await other.request(PullEvents())).events == ()


async def _transport(way: OpenTransport) -> Transport:
    transport = way()
    return transport if isinstance(transport, Transport) else await transport


@over_both
async def test_many_observations_are_pulled_in_one_go_and_in_order(over: str, home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    limits = GatewayLimits(pull_limit=10, pulls_in_a_row=4, patience_seconds=5)
    async with served(over, source, home) as way, open_gateway(time, limits=limits) as gateway:
        gateway.attach(HOOKS, way)
        source.say(*map(str, range(45)))
        assert await gateway.pull_sources() == 40
        assert await gateway.pull_sources() == 5
        assert given_out(gateway) == [str(number) for number in range(45)]


@over_both
async def test_a_source_that_says_something_wakes_the_gateway(over: str, home: Path) -> None:
    time = Time()
    source, other = FakeSource(time), FakeSource(time, POLLER)
    async with (
        served(over, source, home) as way,
        served(over, other, home) as other_way,
        open_gateway(time) as gateway,
    ):
        gateway.attach(HOOKS, way)
        gateway.attach(POLLER, other_way)
        await gateway.pull_sources()
        assert not await gateway.wait_for_events(0.01)
        source.say("1")
        assert await gateway.wait_for_events(5)
        other.say("2")
        assert await gateway.pull_sources(only_nudged=True) >= 1
        assert "1" in given_out(gateway)


@over_both
@pytest.mark.requirement("IF-S6")
async def test_a_sources_own_word_on_its_health_is_taken(over: str, home: Path) -> None:
    time = Time()
    trouble = [SourceTrouble("no program", is_down=True)]

    def look() -> None:
        if trouble:
            raise trouble[0]

    source = FakeSource(time, look=look)
    source.version = "9.9"
    async with served(over, source, home) as way, open_gateway(time) as gateway:
        gateway.attach(HOOKS, way)
        await eventually(lambda: source.looks > 0)
        await gateway.pull_sources()
        health = dict(gateway.health())[HOOKS]
        assert (health.status, health.reason) == (HealthStatus.DOWN, "no program")
        assert health.version == "9.9"
        assert gateway.links()[HOOKS].status is HealthStatus.DOWN
        trouble.clear()
        looks = source.looks
        await eventually(lambda: source.looks > looks + 1)
        await gateway.pull_sources()
        assert status(gateway) is HealthStatus.HEALTHY


@over_both
async def test_an_observation_that_makes_no_sense_spoils_no_other(over: str, home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with served(over, source, home) as way, open_gateway(time) as gateway:
        gateway.attach(HOOKS, way)
        source.say("1")
        source.say("2", observed_at=NOON.replace(tzinfo=None))
        source.say("3")
        await gateway.pull_sources()
        assert given_out(gateway) == ["1", "3"]
        assert dict(gateway.health())[HOOKS].dropped == {"invalid_source_event": 1}


@over_both
async def test_a_source_that_lost_something_says_so_at_the_gateway(over: str, home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with served(over, source, home) as way, open_gateway(time) as gateway:
        gateway.attach(HOOKS, way)
        source.say(*map(str, range(10_003)))
        await gateway.pull_sources()
        health = dict(gateway.health())[HOOKS]
        assert health.status is HealthStatus.DEGRADED
        assert health.dropped == {"buffer_full": 3}


@over_both
async def test_what_a_program_pushed_is_handed_to_its_source(over: str, home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with served(over, source, home) as way, open_gateway(time) as gateway:
        gateway.attach(HOOKS, way)
        await gateway.pull_sources()
        pushed = DeliverRaw(at=NOON, origin=Origin(pid=7), payload={"hook": "Stop"})
        await gateway.deliver(HOOKS, pushed)
        assert source.delivered == [({"hook": "Stop"}, NOON, Origin(pid=7))]
        assert await gateway.wait_for_events(5)
        assert await gateway.pull_sources(only_nudged=True) == 1
        with pytest.raises(RpcError) as caught:
            await gateway.deliver(POLLER, pushed)
        assert caught.value.code == Reason.SOURCE_REGISTRY_MISS


@over_both
async def test_a_pull_and_a_delivery_at_the_same_time_connect_once(over: str, home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with served(over, source, home) as way, open_gateway(time) as gateway:
        connections = 0

        async def count() -> Transport:
            nonlocal connections
            connections += 1
            await asyncio.sleep(0)
            return await _transport(way)

        gateway.attach(HOOKS, count)
        pushed = DeliverRaw(at=NOON, origin=Origin(), payload={})
        await asyncio.gather(
            gateway.pull_sources(), gateway.deliver(HOOKS, pushed), gateway.deliver(HOOKS, pushed)
        )
        assert (connections, len(source.delivered)) == (1, 2)


async def test_what_was_pushed_to_a_source_out_of_reach_is_refused() -> None:
    gateway = new_gateway(Time())
    gateway.attach(HOOKS, lambda: open_transport("unix:///nowhere"))
    feed = gateway._feeds[HOOKS]
    pushed = DeliverRaw(at=NOON, origin=Origin(), payload={})
    with pytest.raises(ApiError) as caught:
        await gateway.deliver(HOOKS, pushed)
    assert caught.value.reason is Reason.SOURCE_INADMISSIBLE
    await gateway.aclose()
    with pytest.raises(Unreachable, match="connection closed"):  # and it is not even tried
        await feed.deliver(pushed)


async def test_the_notice_of_a_source_that_is_gone_wakes_nobody(home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with open_gateway(time) as gateway:
        async with served("channel", source, home) as way:
            gateway.attach(HOOKS, way)
            await gateway.pull_sources()
            source.say("1")
            assert await gateway.wait_for_events(5)
        assert not await gateway.wait_for_events(0.01)


# ------------------------------------------------------------------------------------ sockets alone


@pytest.mark.requirement("A3-5", "A3-3")
async def test_a_source_that_says_hello_is_pulled_from_its_socket_and_may_move(home: Path) -> None:
    time = Time()

    def hello(gateway: Gateway, path: Path) -> RegistryState:
        return gateway.hello(
            HOOKS, nonce=NONCE, protocol_version=1, peer_uid=OWNER, socket_path=str(path)
        ).registration.state

    source = FakeSource(time)
    async with open_gateway(time) as gateway:
        async with served("unix", source, home):
            assert hello(gateway, home / f"{HOOKS}.sock") is RegistryState.PENDING
            source.say("1")
            await gateway.pull_sources()
            assert [each.state for each in gateway.registrations()] == [RegistryState.ACTIVE]
        time.advance(31)
        await gateway.pull_sources()
        assert [each.state for each in gateway.registrations()] == [RegistryState.STALE]
        moved = home / "elsewhere"
        moved.mkdir()
        again = FakeSource(time)
        async with served("unix", again, moved):
            assert hello(gateway, moved / f"{HOOKS}.sock") is RegistryState.ACTIVE
            again.say("2")
            await gateway.pull_sources()
            assert given_out(gateway) == ["1", "2"]


@pytest.mark.requirement("A3-5", "IF-S2")
async def test_a_source_that_takes_the_place_of_ours_is_read_from_its_start(home: Path) -> None:
    time = Time()
    asked: list[str | None] = []

    def answer(request: PullEvents, context: Context) -> PullReply:
        asked.append(request.cursor)
        health = SourceHealth(status=HealthStatus.HEALTHY, checked_at=time())
        return PullReply(events=(), next_cursor="theirs", heartbeat_ts=time(), source_health=health)

    builder = Connection.builder().on_request(PullEvents, answer)
    path, ours = home / "theirs.sock", FakeSource(time)
    async with open_gateway(time) as gateway, served("unix", ours, home) as way:
        gateway.attach(HOOKS, way)
        ours.say("1")
        await gateway.pull_sources()
        async with listen_unix(str(path), builder):
            gateway.hello(
                HOOKS, nonce=NONCE, protocol_version=1, peer_uid=OWNER, socket_path=str(path)
            )
            await gateway.pull_sources()
            time.advance(1)
            await gateway.pull_sources()
    assert asked == [None, "theirs"]


async def test_a_source_that_was_restarted_is_found_again_and_nothing_told_twice(
    home: Path,
) -> None:
    time = Time()
    path = home / f"{HOOKS}.sock"
    async with open_gateway(time) as gateway:
        gateway.attach(HOOKS, lambda: open_transport(f"unix://{path}"))
        first = FakeSource(time)
        async with served("unix", first, home):
            first.say("1", "2")
            await gateway.pull_sources()
        time.advance(1)
        await gateway.pull_sources()
        assert status(gateway) is HealthStatus.DEGRADED
        time.advance(0.1)
        second = FakeSource(time)
        async with served("unix", second, home):
            second.say("2", "3")  # it has read some of it again
            assert await gateway.pull_sources() == 0  # too soon after a failure
            time.advance(1)
            assert await gateway.pull_sources() == 1
            assert given_out(gateway) == ["1", "2", "3"]
            assert dict(gateway.health())[HOOKS].dropped == {"duplicate": 1}


async def test_a_foreign_source_is_read_line_by_line(home: Path) -> None:
    """The whole of somebody else's source, in any language: read a line, write a line."""
    asked: list[dict[str, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            request = msgspec.json.decode(line)
            asked.append(request)
            number = str(len(asked))
            answer = {"id": request["id"], "result": reply(observation(number), next_cursor=number)}
            writer.write(msgspec.json.encode(answer) + b"\n")
        writer.close()

    path = str(home / "foreign.sock")
    server = await asyncio.start_unix_server(serve, path)
    async with server, open_gateway(Time()) as gateway:
        gateway.hello(HOOKS, nonce=NONCE, protocol_version=1, peer_uid=OWNER, socket_path=path)
        await gateway.pull_sources()
        await gateway.pull_sources()
        assert given_out(gateway) == ["1", "2"]
    assert [each["method"] for each in asked] == ["source.pull_events"] * 2
    assert [each["params"]["cursor"] for each in asked] == [None, "1"]
    assert asked[0]["params"]["limit"] == 500


async def test_a_source_that_takes_nothing_but_the_two_params_is_asked_with_them() -> None:
    def answer(asked: PullEvents) -> dict[str, Any]:
        return reply(observation(str(len(foreign.asked))), next_cursor=str(len(foreign.asked)))

    class Strict(Foreign):
        def builder(self) -> Any:
            class Two(msgspec.Struct, forbid_unknown_fields=True):
                cursor: str | None
                limit: int

            async def pull(params: Two, context: Context) -> Any:
                return await self._pull(params, context)

            return Connection.builder().on_request(PullEvents.METHOD, pull, params=Two)

    foreign = Strict(answer)
    near, far = _socket_pair(foreign)
    async with open_gateway(Time()) as gateway, far as _:
        gateway.attach(HOOKS, near)
        await gateway.pull_sources()
        await gateway.pull_sources()
        assert given_out(gateway) == ["1", "2"]


def _socket_pair(foreign: Foreign) -> tuple[Callable[[], Transport], Any]:
    """Serve somebody over bytes, where what he is asked is decoded strictly."""
    import socket

    from bullpen.connection import SocketTransport

    left, right = socket.socketpair()
    left.setblocking(False)
    right.setblocking(False)
    serving = foreign.builder().connect(SocketTransport.over(right))
    return lambda: SocketTransport.over(left), serving


# --------------------------------------------------------------------------------- what goes wrong


async def test_a_slow_source_delays_no_other_and_is_not_asked_twice() -> None:
    release = asyncio.Event()

    async def slowly() -> Any:
        await release.wait()
        return reply(observation("slow"))

    slow, fast = Foreign(lambda asked: slowly()), Foreign(script(reply()))
    kind = SourceKind.CLAUDE_TRANSCRIPT
    time = Time()
    limits = GatewayLimits(patience_seconds=0.05, pull_timeout_seconds=5)
    async with open_gateway(time, limits=limits) as gateway:
        gateway.attach(HOOKS, slow)
        gateway.attach(kind, fast)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        fast.answer = script(reply(observation("fast", kind)))
        assert await gateway.pull_sources() == 1
        assert loop.time() - begun < 2
        assert given_out(gateway) == ["fast"]
        gateway.unfolded()
        for _ in range(10):
            await gateway.pull_sources()
        assert (len(slow.asked), len(fast.asked)) == (1, 11)
        release.set()
        assert await gateway.wait_for_events(5)
        assert given_out(gateway) == ["slow"]
    await slow.aclose()
    await fast.aclose()


async def test_a_source_that_does_not_answer_is_degraded_then_down_and_recovers() -> None:
    time = Time()
    silence = asyncio.Event()
    foreign = Foreign(lambda asked: silence.wait())
    limits = GatewayLimits(patience_seconds=5, pull_timeout_seconds=0.02)
    async with open_gateway(time, limits=limits) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        health = dict(gateway.health())[HOOKS]
        assert health.status is HealthStatus.DEGRADED
        assert "no answer" in health.reason
        time.advance(15.1)
        await gateway.pull_sources()
        assert status(gateway) is HealthStatus.DOWN
        outcomes = gateway.ingest(HOOKS, [observation("1")])
        assert [each.reason for each in outcomes] == [Reason.SOURCE_NOT_ACTIVE]
        foreign.answer = script(reply(observation("2")))
        await gateway.pull_sources()
        assert status(gateway) is HealthStatus.HEALTHY
        assert given_out(gateway) == ["2"]
    await foreign.aclose()


@pytest.mark.requirement("ERR-3")
async def test_nothing_is_taken_from_a_source_that_says_it_is_down() -> None:
    foreign = Foreign(script(reply(observation("1"), status="down"), reply(observation("2"))))
    async with open_gateway(Time()) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        assert given_out(gateway) == []
        assert dict(gateway.health())[HOOKS].dropped == {"source_inadmissible": 1}
        await gateway.pull_sources()
        assert given_out(gateway) == ["2"]
    await foreign.aclose()


@pytest.mark.parametrize(
    "nonsense",
    [
        None,
        [],
        {},
        reply(events={}),
        reply(next_cursor=7),
        reply(next_cursor="x" * 2000),
        reply(next_cursor="a\nb"),
        reply(source_health={"status": "fine", "checked_at": "2026-03-01T12:00:00Z"}),
        reply(heartbeat_ts="soon"),
    ],
    ids=repr,
)
async def test_an_answer_that_makes_no_sense_moves_nothing(nonsense: Any) -> None:
    foreign = Foreign(script(reply(next_cursor="good"), nonsense))
    async with open_gateway(Time()) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        await gateway.pull_sources()
        assert status(gateway) is HealthStatus.DEGRADED
        assert cursor(gateway).fetched_cursor == "good"
    await foreign.aclose()


async def test_a_source_that_answers_with_an_error_or_has_no_such_method_is_degraded() -> None:
    async def nothing() -> Transport:
        near, far = channel_pair()
        others.append(await Connection.builder().open(far))
        return near

    others: list[Connection] = []
    async with open_gateway(Time()) as gateway:
        gateway.attach(HOOKS, nothing)
        await gateway.pull_sources()
        assert "refused to be pulled from" in dict(gateway.health())[HOOKS].reason
    for each in others:
        await each.aclose()


async def test_a_way_that_crashes_is_a_source_out_of_reach(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def way() -> Transport:
        raise LookupError("a bug")

    async with open_gateway(Time()) as gateway:
        gateway.attach(HOOKS, way)
        await gateway.pull_sources()
        assert "LookupError" in dict(gateway.health())[HOOKS].reason
    assert "pulling failed" in caplog.text


async def test_a_source_that_is_gone_is_tried_less_and_less_often(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tries = 0

    def way() -> Transport:
        nonlocal tries
        tries += 1
        return open_transport("unix:///nowhere/at/all")

    time = Time()
    async with open_gateway(time) as gateway:
        gateway.attach(HOOKS, way)
        for _ in range(400):
            await gateway.pull_sources()
            time.advance(0.25)
        assert 15 < tries < 40
        assert status(gateway) is HealthStatus.DOWN
        assert gateway.registrations()[0].state is RegistryState.STALE
    assert [each.message.split(" (")[0] for each in caplog.records] == [
        "claude_hooks is down",
        "claude_hooks was not heard of for 0:00:30",
    ]


async def test_a_connection_of_somebody_elses_is_used_and_left_open() -> None:
    foreign = Foreign(script(reply(observation("1"))))
    async with Connection.builder().connect(await foreign()) as connection:
        async with open_gateway(Time()) as gateway:
            gateway.attach(HOOKS, connection)
            await gateway.pull_sources()
            assert given_out(gateway) == ["1"]
        assert not connection.is_closed
    time = Time()
    async with open_gateway(time) as gateway:
        gateway.attach(HOOKS, connection)
        await gateway.pull_sources()
        assert "closed" in dict(gateway.health())[HOOKS].reason
    await foreign.aclose()


async def test_a_revoked_source_is_not_pulled_from_and_what_is_on_its_way_is_not_taken() -> None:
    release = asyncio.Event()

    async def late() -> Any:
        await release.wait()
        return reply(observation("1"))

    foreign = Foreign(lambda asked: late())
    limits = GatewayLimits(patience_seconds=0.01)
    async with open_gateway(Time(), limits=limits) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        gateway.revoke(HOOKS)
        release.set()
        assert await gateway.pull_sources() == 0
        assert len(foreign.asked) == 1
        assert not await gateway.wait_for_events(0.01)
    await foreign.aclose()


async def test_nobody_asks_a_revoked_source_again() -> None:
    foreign = Foreign(script(reply()))
    async with open_gateway(Time()) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        gateway.revoke(HOOKS)
        await gateway.pull_sources()
        assert len(foreign.asked) == 1
        await eventually(lambda: foreign._served[0].is_closed)
    await foreign.aclose()


async def test_a_source_that_says_something_while_it_is_pulled_from_is_pulled_from_again() -> None:
    said, release = asyncio.Event(), asyncio.Event()

    class Talkative(Foreign):
        async def _pull(self, params: Any, context: Context) -> Any:
            context.connection.send_notification(EventsAvailable(source_kind=HOOKS))
            said.set()
            await release.wait()
            return reply()

    foreign = Talkative(lambda asked: None)
    async with open_gateway(Time(), limits=GatewayLimits(patience_seconds=0.01)) as gateway:
        gateway.attach(HOOKS, foreign)
        waiting = asyncio.create_task(gateway.wait_for_events(5))
        await gateway.pull_sources()
        await asyncio.wait_for(said.wait(), 5)
        await eventually(lambda: gateway._feeds[HOOKS].is_nudged)
        assert not waiting.done()  # nothing can be done about it yet
        release.set()
        assert await waiting
    await foreign.aclose()


async def test_closing_leaves_nothing_and_may_be_repeated() -> None:
    hanging = Foreign(lambda asked: asyncio.Event().wait())
    gateway = new_gateway(Time(), limits=GatewayLimits(patience_seconds=0.01))
    gateway.attach(HOOKS, hanging)
    await gateway.pull_sources()
    await gateway.aclose()
    await gateway.aclose()
    assert await gateway.pull_sources() == 0
    await hanging.aclose()


# ------------------------------------------------------------------------------------------ cursors


@pytest.mark.requirement("A2-3", "CUR-2")
async def test_a_refused_cursor_is_gone_back_from_to_the_committed_one() -> None:
    foreign = Foreign(
        script(
            reply(observation("1"), next_cursor="a"),
            reply(observation("2"), next_cursor="b"),
            invalid_cursor(),
            reply(observation("2"), observation("3"), next_cursor="b2"),
        )
    )
    troubles: list[Reason] = []
    async with open_gateway(Time(), on_trouble=lambda *what: troubles.append(what[0])) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        assert given_out(gateway) == ["1"]
        await gateway.pull_sources()
        await gateway.pull_sources()
        assert [each.cursor for each in foreign.asked] == [None, "a", "b", "a"]
        assert given_out(gateway) == ["2", "3"]
        assert cursor(gateway).committed_cursor == "b2"
        assert troubles == []
    await foreign.aclose()


@pytest.mark.requirement("A2-3", "A8-1")
@pytest.mark.parametrize(("pauses", "is_resynced"), [((29, 30), True), ((30, 31), False)])
async def test_three_refusals_within_a_minute_are_a_resync_with_a_warning(
    pauses: tuple[float, float], is_resynced: bool
) -> None:
    time = Time()
    troubles: list[tuple[Reason, SourceKind | None]] = []
    async with open_gateway(
        time, on_trouble=lambda reason, message, kind: troubles.append((reason, kind))
    ) as gateway:
        foreign = Foreign(script(reply(observation("1"), next_cursor="a")))
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        assert given_out(gateway) == ["1"]
        numbers = iter(range(2, 99))
        for pause in (*pauses, 0):
            foreign.answer = script(reply(observation(f"{next(numbers)}"), next_cursor="b"))
            await gateway.pull_sources()  # fetched, and not committed
            foreign.answer = script(invalid_cursor(), reply(next_cursor="a"))
            await gateway.pull_sources()
            time.advance(pause)
        expected = [(Reason.INVALID_CURSOR, HOOKS)] if is_resynced else []
        assert troubles == expected
        assert foreign.asked[-1].cursor == (None if is_resynced else "a")
        await foreign.aclose()


@pytest.mark.requirement("A2-3")
async def test_a_cursor_from_before_a_restart_is_refused_once_and_then_all_is_read(
    home: Path,
) -> None:
    time = Time()
    source = FakeSource(time)
    old = CursorState(
        source_kind=HOOKS, fetched_cursor="old.9", committed_cursor="old.7", checkpoint_ts=NOON
    )
    troubles: list[Reason] = []
    async with (
        served("channel", source, home) as way,
        open_gateway(time, on_trouble=lambda *what: troubles.append(what[0])) as gateway,
    ):
        gateway.restore(Restored(cursors=(old,)))
        assert cursor(gateway).fetched_cursor == cursor(gateway).committed_cursor == "old.7"
        gateway.attach(HOOKS, way)
        source.say("1")
        assert await gateway.pull_sources() == 1
        assert given_out(gateway) == ["1"]
        assert troubles == []


async def test_a_source_that_refuses_its_own_start_is_not_asked_for_ever() -> None:
    foreign = Foreign(script(invalid_cursor()))
    async with open_gateway(Time()) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        assert len(foreign.asked) == 1
        assert status(gateway) is HealthStatus.DEGRADED
    await foreign.aclose()


async def test_a_source_that_never_gets_on_is_not_asked_for_ever() -> None:
    full = [observation(str(number)) for number in range(10)]
    foreign = Foreign(script(reply(*full, next_cursor="stuck")))
    limits = GatewayLimits(pull_limit=10, patience_seconds=5)
    async with open_gateway(Time(), limits=limits) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        assert len(foreign.asked) == 2
        assert dict(gateway.health())[HOOKS].dropped == {"duplicate": 10}
    await foreign.aclose()


@pytest.mark.requirement("IF-G3", "IF-G4", "A1-1", "DM-17")
async def test_a_sources_cursor_is_committed_when_the_projection_has_all_before_it() -> None:
    foreign = Foreign(script(reply(observation("1"), observation("2"), next_cursor="a")))
    async with open_gateway(Time()) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        half = gateway.take(1)
        assert half.token
        gateway.ack(half.token)
        assert cursor(gateway).committed_cursor is None
        assert given_out(gateway, ack=False) == ["2"]  # given, but the store failed
        assert cursor(gateway) == CursorState(
            source_kind=HOOKS, fetched_cursor="a", committed_cursor=None, checkpoint_ts=NOON
        )
        assert given_out(gateway) == ["2"]  # the same again
        assert cursor(gateway).committed_cursor == "a"
    await foreign.aclose()


@pytest.mark.requirement("A2-1")
async def test_cursors_are_to_be_written_every_half_minute_or_five_hundred() -> None:
    time = Time()
    foreign = Foreign(script(reply(observation("1"), next_cursor="a")))
    async with open_gateway(time) as gateway:
        gateway.attach(HOOKS, foreign)
        await gateway.pull_sources()
        assert gateway.checkpoint() == ()
        time.advance(30)
        (state,) = gateway.checkpoint()
        assert (state.source_kind, state.checkpoint_ts) == (HOOKS, time.now)
        assert gateway.checkpoint() == ()
        more = [observation(f"m{number}") for number in range(499)]
        foreign.answer = script(reply(*more, next_cursor="b"))
        await gateway.pull_sources()
        assert gateway.checkpoint() == ()  # fetched is not committed
        assert len(given_out(gateway)) == 500
        (state,) = gateway.checkpoint()
        assert state.committed_cursor == "b"
    await foreign.aclose()


async def test_while_nothing_is_folded_sources_keep_what_they_have(home: Path) -> None:
    time = Time()
    limits = GatewayLimits(
        pull_limit=10, patience_seconds=5, deliveries=DeliveryLimits(rewind_events=25)
    )
    source = FakeSource(time)
    async with (
        served("channel", source, home) as way,
        open_gateway(time, limits=limits) as gateway,
    ):
        gateway.attach(HOOKS, way)
        await gateway.pull_sources()
        source.say(*map(str, range(100)))
        await eventually(lambda: source.looks > 0)
        assert await gateway.pull_sources() == 25
        assert await gateway.pull_sources() == 0
        assert status(gateway) is HealthStatus.HEALTHY  # it was not even asked
        taken: list[str] = []
        while len(taken) < 100:
            taken += [each.observation.event_id for each in gateway.unfolded()]
            given_out(gateway)
            await gateway.pull_sources()
        assert taken == [str(number) for number in range(100)]
        assert gateway.buffers()["gateway.lost"] == 0


async def test_what_cannot_be_kept_does_not_hold_up_what_is_seen(home: Path) -> None:
    time = Time()
    limits = GatewayLimits(
        pull_limit=10, patience_seconds=5, deliveries=DeliveryLimits(rewind_events=25)
    )
    source = FakeSource(time)
    async with (
        served("channel", source, home) as way,
        open_gateway(time, limits=limits) as gateway,
    ):
        gateway.attach(HOOKS, way)
        folded: list[str] = []
        for number in range(10):
            source.say(*(f"{number}-{each}" for each in range(10)))
            await gateway.pull_sources()
            folded += [each.observation.event_id for each in gateway.unfolded()]
        assert len(folded) == 100
        assert gateway.buffers()["gateway.lost"] == 75
        with pytest.raises(ApiError) as caught:
            gateway.take()
        assert caught.value.reason is Reason.INVALID_CURSOR
        assert given_out(gateway) == folded[75:]


def test_the_health_of_a_source_has_what_the_protocol_names() -> None:
    assert set(SourceHealth.__struct_fields__) >= {"status", "checked_at"}


async def test_listening_again_at_the_same_socket_is_the_same_source(home: Path) -> None:
    path = str(home / "s.sock")
    foreign = Foreign(script(reply(observation("1"), next_cursor="a")))
    time = Time()
    async with open_gateway(time) as gateway:
        gateway.attach(HOOKS, lambda: open_transport(f"unix://{path}"))
        for _ in range(2):
            async with listen_unix(path, foreign.builder()):
                time.advance(10)
                await gateway.pull_sources()
            await eventually(lambda: not gateway._feeds[HOOKS].has_news(time.now))
        assert [each.cursor for each in foreign.asked] == [None, "a"]
