"""Any source is served alike: its observations by cursor, its health, its deliveries."""

import asyncio
import contextlib
import json
import logging
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.api.errors import reason_of
from bullpen.api.methods import DeliverRaw, EventsAvailable, PullEvents, PullReply
from bullpen.connection import Connection, RemoteError, TransportClosed
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import HealthStatus, SourceKind
from bullpen.observe.sources.port import Emit, SourceTrouble
from bullpen.observe.sources.serve import (
    MAX_PULL,
    PullCommitted,
    ServeLimits,
    SourceServer,
    serve_source,
)
from bullpen.testing.tmux import eventually
from tests.observe.gateway.worlds import NOON, FakeSource, Time, observation


@asynccontextmanager
async def peer_of(server: SourceServer, notices: list[SourceKind]) -> AsyncIterator[Connection]:
    builder = Connection.builder().on_notification(
        EventsAvailable, lambda notice, context: notices.append(notice.source_kind)
    )
    async with builder.connect(await server.open_channel()) as connection:
        yield connection


@asynccontextmanager
async def served(
    source: FakeSource, limits: ServeLimits | None = None
) -> AsyncIterator[tuple[SourceServer, Connection]]:
    async with (
        SourceServer(source, source._now, epoch="e", limits=limits) as server,
        peer_of(server, []) as peer,
    ):
        await asyncio.wait_for(server._opened.wait(), 5)
        yield server, peer


def ids(reply: PullReply) -> list[str]:
    return [each.event_id for each in reply.events]


async def refused(request: Any, peer: Connection) -> RemoteError:
    with pytest.raises(RemoteError) as caught:
        await peer.request(request)
    return caught.value


# ------------------------------------------------------------------------------------ on the wire


class Lines:
    """A peer that knows nothing of us: lines of JSON on a socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def send(self, value: object) -> None:
        self._writer.write(json.dumps(value).encode() + b"\n")
        await self._writer.drain()

    async def read(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self._reader.readline(), 5)
        assert line.endswith(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def ask(self, value: object) -> dict[str, Any]:
        await self.send(value)
        return await self.read()


@asynccontextmanager
async def lines_to(source: FakeSource, home: Path) -> AsyncIterator[Lines]:
    path = str(home / "source.sock")
    ready = asyncio.Event()
    serving = asyncio.create_task(serve_source(source, path, source._now, on_ready=ready.set))
    await asyncio.wait_for(ready.wait(), 5)
    await eventually(lambda: source.looks > 0)
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield Lines(reader, writer)
    finally:
        writer.close()
        serving.cancel()
        await asyncio.wait((serving,))


@pytest.mark.requirement("IF-S1", "IF-S7")
@pytest.mark.parametrize("member", [{"jsonrpc": "2.0"}, {}], ids=["with jsonrpc", "without"])
@pytest.mark.parametrize("id_", [1, "a", None, 2**53])
async def test_a_line_is_answered_by_a_line_with_the_same_id(
    home: Path, id_: object, member: dict[str, str]
) -> None:
    async with lines_to(FakeSource(Time()), home) as lines:
        answer = await lines.ask({**member, "id": id_, "method": "source.pull_events"})
        assert answer["id"] == id_
        assert answer["result"]["events"] == []


@pytest.mark.requirement("IF-S2", "IF-S3", "IF-S4", "IF-S5", "IF-S6")
async def test_the_wire_has_what_the_protocol_names(home: Path) -> None:
    time = Time()
    source = FakeSource(time)
    async with lines_to(source, home) as lines:
        source.say("1", "2", "3", pane_id="%1", payload={"any": "thing"})
        time.advance(90)
        request = {"id": 1, "method": "source.pull_events"}
        first = await lines.ask({**request, "params": {"cursor": None, "limit": 2}})
        result = first["result"]
        assert [each["event_id"] for each in result["events"]] == ["1", "2"]
        assert result["events"][0] == {
            "event_id": "1",
            "provider": "claude",
            "source_kind": "claude_hooks",
            "tier": "deterministic",
            "observed_at": "2026-03-01T12:00:00Z",
            "session_key": "claude:s",
            "event_type": "turn.started",
            "pane_id": "%1",
            "pane_generation": None,
            "pane_birth_ts": None,
            "source_event_id": None,
            "payload": {"any": "thing"},
            "confidence": 1.0,
            "origin": None,
            "tmux_server": None,
        }
        assert isinstance(result["next_cursor"], str)
        assert result["heartbeat_ts"] == "2026-03-01T12:01:30Z"
        assert result["source_health"]["status"] == "healthy"
        checked_at = datetime.fromisoformat(result["source_health"]["checked_at"])
        assert checked_at.tzinfo is not None
        params = {"cursor": result["next_cursor"], "limit": 500}
        second = (await lines.ask({**request, "params": params}))["result"]
        assert [each["event_id"] for each in second["events"]] == ["3"]
        params["cursor"] = second["next_cursor"]
        third = (await lines.ask({**request, "params": params}))["result"]
        assert (third["events"], third["next_cursor"]) == ([], second["next_cursor"])


@pytest.mark.requirement("IF-S1")
async def test_whoever_did_not_ask_for_notices_reads_answers_only(home: Path) -> None:
    source = FakeSource(Time())
    async with lines_to(source, home) as lines:
        for number in range(5):
            answer = await lines.ask({"id": number, "method": "source.pull_events"})
            assert answer["id"] == number
            source.say(f"e{number}")


@pytest.mark.requirement("A8-1")
async def test_a_bad_cursor_is_an_error_with_its_reason(home: Path) -> None:
    async with lines_to(FakeSource(Time()), home) as lines:
        params = {"cursor": "garbage"}
        answer = await lines.ask({"id": 1, "method": "source.pull_events", "params": params})
        assert answer["error"]["code"] == -32020
        assert answer["error"]["data"]["reason"] == "invalid_cursor"


@pytest.mark.requirement("IF-S2")
@pytest.mark.parametrize(
    "params",
    [{"limit": 0}, {"limit": -1}, {"limit": MAX_PULL + 1}, {"limit": "x"}, {"cursor": 7}, [1]],
    ids=str,
)
async def test_params_that_make_no_sense_are_refused(home: Path, params: object) -> None:
    source = FakeSource(Time())
    async with lines_to(source, home) as lines:
        answer = await lines.ask({"id": 1, "method": "source.pull_events", "params": params})
        assert answer["error"]["code"] == -32602


async def test_the_socket_is_its_owners_alone_and_goes_with_the_server(home: Path) -> None:
    path = home / "source.sock"
    with socket.socket(socket.AF_UNIX) as dead:  # what a server that was killed leaves behind
        dead.bind(str(path))
    source = FakeSource(Time())
    async with lines_to(source, home):
        mode = path.stat().st_mode
        assert (stat.S_ISSOCK(mode), stat.S_IMODE(mode)) == (True, 0o600)
    assert not path.exists()
    assert source.is_closed


# ------------------------------------------------------------------------------ pulling, compacting


@pytest.mark.requirement("IF-S2", "CUR-1")
async def test_the_largest_pull_is_five_thousand() -> None:
    source = FakeSource(Time())
    async with served(source) as (_, peer):
        source.say(*map(str, range(MAX_PULL + 1)))
        reply = await peer.request(PullEvents(limit=MAX_PULL))
        assert len(reply.events) == MAX_PULL
        reply = await peer.request(PullEvents(cursor=reply.next_cursor, limit=MAX_PULL))
        assert ids(reply) == [str(MAX_PULL)]


@pytest.mark.requirement("MEM-1")
async def test_a_pull_drops_what_its_cursor_acknowledges() -> None:
    source = FakeSource(Time())
    async with served(source) as (server, peer):
        source.say("1", "2", "3")
        reply = await peer.request(PullEvents(limit=2))
        assert server.buffered == 3
        reply = await peer.request(PullEvents(cursor=reply.next_cursor))
        assert server.buffered == 1
        await peer.request(PullEvents(cursor=reply.next_cursor))
        assert server.buffered == 0


@pytest.mark.requirement("MEM-1", "A1-1")
async def test_whoever_says_what_it_has_kept_can_go_back_to_that() -> None:
    source = FakeSource(Time())
    async with served(source) as (server, peer):
        source.say("1", "2", "3")
        one = await peer.request(PullCommitted(limit=1, committed_cursor=None))
        two = await peer.request(
            PullCommitted(cursor=one.next_cursor, limit=1, committed_cursor=None)
        )
        await peer.request(PullEvents(cursor=two.next_cursor))  # somebody looks in
        assert server.buffered == 3
        again = await peer.request(
            PullCommitted(cursor=one.next_cursor, committed_cursor=one.next_cursor)
        )
        assert (ids(again), server.buffered) == (["2", "3"], 2)
        await peer.request(PullCommitted(cursor=one.next_cursor, committed_cursor="other.7"))
        assert server.buffered == 2


@pytest.mark.requirement("MEM-1")
async def test_what_nobody_pulls_is_lost_at_last_and_that_is_told() -> None:
    time = Time()
    source = FakeSource(time)
    async with served(source, ServeLimits(max_events=3)) as (server, peer):
        await eventually(lambda: server.health().status is HealthStatus.HEALTHY)
        source.say("1", "2", "3", "4", "5")
        reply = await peer.request(PullEvents())
        assert ids(reply) == ["3", "4", "5"]
        health = reply.source_health
        assert (health.status, health.dropped) == (HealthStatus.DEGRADED, {"buffer_full": 2})
        assert "2 observations were lost" in health.reason
        time.advance(61)
        assert server.health().status is HealthStatus.HEALTHY


async def test_an_observation_nobody_can_write_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeSource(Time())
    async with served(source) as (server, peer):
        for number in range(3):
            source.say(str(number), payload=object())
        source.say("good")
        assert ids(await peer.request(PullEvents())) == ["good"]
        assert server.health().dropped == {"unserializable": 3}
    assert len([each for each in caplog.records if "JSON" in each.message]) == 1


async def test_a_fact_with_too_much_to_carry_is_told_without() -> None:
    source = FakeSource(Time())
    async with served(source) as (_, peer):
        source.say("1", payload="x" * 2**21)
        (event,) = (await peer.request(PullEvents())).events
        assert event.event_type == "turn.started"
        assert event.payload["omitted_bytes"] > 2**21


# ------------------------------------------------------------------------------------------ notices


async def test_a_peer_that_wants_it_is_told_once_between_two_pulls() -> None:
    source = FakeSource(Time())
    notices: list[SourceKind] = []
    async with served(source) as (server, other), peer_of(server, notices) as peer:
        reply = await peer.request(PullCommitted(wants_notice=True))
        await other.request(PullEvents())
        source.say("1", "2")
        await eventually(lambda: bool(notices))
        source.say("3")
        await other.request(PullEvents())  # a turn of everything
        assert notices == [source.kind]
        reply = await peer.request(PullCommitted(cursor=reply.next_cursor, wants_notice=True))
        assert ids(reply) == ["1", "2", "3"]
        source.say("4")
        await eventually(lambda: len(notices) == 2)


async def test_a_peer_that_is_gone_is_forgotten() -> None:
    source = FakeSource(Time())
    async with served(source) as (server, _):
        async with peer_of(server, []) as peer:
            await peer.request(PullCommitted(wants_notice=True))
        await eventually(lambda: not server._peers)
        source.say("1")


# --------------------------------------------------------------------------------------- deliveries


async def test_what_a_program_pushed_reaches_the_source() -> None:
    source = FakeSource(Time())
    origin = Origin(pid=7)
    async with served(source) as (_, peer):
        assert await peer.request(DeliverRaw(at=NOON, origin=origin, payload={"hook": "Stop"}))
        assert source.delivered == [({"hook": "Stop"}, NOON, origin)]
        assert ids(await peer.request(PullEvents())) == ["delivered-1"]


async def test_a_delivery_that_makes_no_sense_is_refused_in_words() -> None:
    source = FakeSource(Time())
    async with served(source) as (_, peer):
        nonsense = DeliverRaw(at=NOON, origin=Origin(), payload=SourceTrouble("what is this"))
        error = await refused(nonsense, peer)
        assert (reason_of(error), error.message) == ("invalid_source_event", "what is this")
        naive = DeliverRaw(at=NOON.replace(tzinfo=None), origin=Origin(), payload={})
        assert (await refused(naive, peer)).code == -32602


async def test_a_delivery_waits_until_the_source_is_open_and_not_for_ever() -> None:
    gate = asyncio.Event()

    class Slow(FakeSource):
        async def open(self, emit: Emit) -> None:
            await gate.wait()
            await super().open(emit)

        async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:
            if payload == "hang":
                await asyncio.Event().wait()
            await super().deliver(payload, at, origin)

    source = Slow(Time())
    limits = ServeLimits(deliver_timeout_seconds=0.05)
    async with SourceServer(source, source._now, limits=limits) as server, peer_of(server, []) as p:
        early = DeliverRaw(at=NOON, origin=Origin(), payload=1)
        assert (await refused(early, p)).code == -32603
        asyncio.get_running_loop().call_soon(gate.set)
        assert await p.request(early)
        hanging = DeliverRaw(at=NOON, origin=Origin(), payload="hang")
        assert (await refused(hanging, p)).code == -32603


# ------------------------------------------------------------------------------------------- health


def status(server: SourceServer) -> HealthStatus:
    return server.health().status


async def test_a_source_that_has_not_looked_is_not_called_healthy() -> None:
    source = FakeSource(Time(), look=lambda: asyncio.Event().wait())
    async with SourceServer(source, source._now) as server:
        assert server.health().status is HealthStatus.DEGRADED
        assert server.health().reason == "it has not looked yet"


@pytest.mark.requirement("SRC-8", "IF-S6")
async def test_health_follows_what_becomes_of_the_looks() -> None:
    trouble: list[Exception] = []

    def look() -> None:
        if trouble:
            raise trouble[0]

    source = FakeSource(Time(), look=look)
    source.version = "1.2"
    async with served(source) as (server, _):
        await eventually(lambda: status(server) is HealthStatus.HEALTHY)
        assert (server.health().reason, server.health().version) == ("", "1.2")
        trouble[:] = [SourceTrouble("one file is locked")]
        await eventually(lambda: status(server) is HealthStatus.DEGRADED)
        assert server.health().reason == "one file is locked"
        trouble[:] = [SourceTrouble("no program", is_down=True)]
        await eventually(lambda: status(server) is HealthStatus.DOWN)
        trouble.clear()
        await eventually(lambda: status(server) is HealthStatus.HEALTHY)


async def test_a_look_that_crashes_is_logged_once_for_each_kind_of_crash(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def look() -> None:
        if source.looks % 2:
            raise ValueError(f"odd {source.looks}")
        raise KeyError("even")

    source = FakeSource(Time(), look=look)
    async with served(source) as (server, _):
        await eventually(lambda: source.looks > 10)
        assert status(server) is HealthStatus.DOWN
        assert server.health().reason.startswith("it crashed: ")
    errors = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.exc_info and each.exc_info[0] for each in errors] == [ValueError, KeyError]
    warnings = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert [each.message.split()[2] for each in warnings] == ["degraded", "down"]


async def test_a_source_whose_look_is_no_coroutine_crashes_its_looks_only() -> None:
    source = FakeSource(Time())
    source.look = lambda: None  # type: ignore[method-assign,assignment,return-value]
    async with served(source) as (server, peer):
        await eventually(lambda: "it crashed" in server.health().reason)
        await peer.request(PullEvents())


async def test_a_look_that_hangs_is_cancelled_and_the_next_one_follows() -> None:
    source = FakeSource(Time(), look=lambda: asyncio.Event().wait())
    async with served(source, ServeLimits(look_timeout_seconds=0.02)) as (server, _):
        await eventually(lambda: "it has been looking for 0.02 s" in server.health().reason)
        await eventually(lambda: status(server) is HealthStatus.DOWN)
        assert source.looks >= 3
        source._do = lambda: None
        await eventually(lambda: status(server) is HealthStatus.HEALTHY)


async def test_a_look_that_hangs_counts_once() -> None:
    ended = asyncio.Event()

    async def hang() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    source = FakeSource(Time(), look=hang)
    source.interval_seconds = 3600
    async with served(source, ServeLimits(look_timeout_seconds=0.02)) as (server, peer):
        await asyncio.wait_for(ended.wait(), 5)
        for _ in range(3):
            await peer.request(PullEvents())  # turns of everything
        assert server.health().reason == "it has been looking for 0.02 s"
        assert server._health.failures == 1


async def test_a_look_that_does_not_let_itself_be_cancelled_is_never_doubled() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    source = FakeSource(Time(), look=stubborn)
    async with served(source, ServeLimits(look_timeout_seconds=0.02)) as (server, _):
        await eventually(lambda: status(server) is HealthStatus.DOWN)
        assert source.looks == 1
        source._do = lambda: None
        release.set()
        await eventually(lambda: status(server) is HealthStatus.HEALTHY)


async def test_a_look_that_is_cancelled_by_itself_is_a_failure() -> None:
    async def cancelled() -> None:
        raise asyncio.CancelledError

    source = FakeSource(Time(), look=cancelled)
    async with served(source) as (server, _):
        await eventually(lambda: server.health().reason == "its look was cancelled")


async def test_looks_keep_their_interval() -> None:
    source = FakeSource(Time())
    source.interval_seconds = 3600
    async with served(source):
        await eventually(lambda: source.looks == 1)
        for _ in range(100):
            await asyncio.sleep(0)
        assert source.looks == 1


async def test_what_was_seen_before_a_source_went_down_is_told_before_that() -> None:
    def look() -> None:
        if source.looks == 1:
            source.say("last words")
        raise SourceTrouble("gone", is_down=True)

    source = FakeSource(Time(), look=look)
    async with served(source) as (server, peer):
        await eventually(lambda: status(server) is HealthStatus.DOWN)
        reply = await peer.request(PullEvents())
        assert ids(reply) == ["last words"]
        assert reply.source_health.status is HealthStatus.DEGRADED
        reply = await peer.request(PullEvents(cursor=reply.next_cursor))
        assert reply.source_health.status is HealthStatus.DOWN


async def test_the_heartbeats_of_a_source_that_is_down_do_not_make_it_look_better() -> None:
    def look() -> None:
        source.say(f"beat-{source.looks}", event_type="heartbeat")
        raise SourceTrouble("blind", is_down=True)

    source = FakeSource(Time(), look=look)
    async with served(source) as (server, peer):
        await eventually(lambda: status(server) is HealthStatus.DOWN)
        reply = await peer.request(PullEvents())
        assert reply.events
        assert reply.source_health.status is HealthStatus.DOWN


async def test_a_source_that_is_down_and_hears_of_something_is_not_down() -> None:
    source = FakeSource(Time(), look=lambda: _raise(SourceTrouble("blind", is_down=True)))
    source.interval_seconds = 3600
    async with served(source) as (server, _):
        await eventually(lambda: status(server) is HealthStatus.DOWN)
        source.say("a hook")
        assert status(server) is HealthStatus.DEGRADED


def _raise(error: Exception) -> None:
    raise error


# ------------------------------------------------------------------------------ opening and closing


async def test_a_source_that_does_not_open_is_tried_again() -> None:
    class Shy(FakeSource):
        opened = 0

        async def open(self, emit: Emit) -> None:
            self.opened += 1
            if self.opened == 1:
                raise OSError("not yet")
            if self.opened == 2:
                raise SourceTrouble("soon", is_down=True)
            if self.opened == 3:
                await asyncio.Event().wait()
            await super().open(emit)

    source = Shy(Time())
    limits = ServeLimits(retry_open_seconds=0.01, open_timeout_seconds=0.02)
    async with SourceServer(source, source._now, limits=limits) as server:
        await eventually(lambda: server.health().status is HealthStatus.HEALTHY)
        assert (source.opened, source.is_closed) == (4, True)


async def test_a_look_that_does_not_end_is_left_behind_and_that_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    release, ended = asyncio.Event(), asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        ended.set()

    source = FakeSource(Time(), look=stubborn)
    async with served(source, ServeLimits(close_timeout_seconds=0.02)):
        await eventually(lambda: source.looks == 1)
    assert source.is_closed
    said = [each.message for each in caplog.records if each.levelno == logging.ERROR]
    assert said == [f"{source.kind}:look does not end"]
    release.set()
    await asyncio.wait_for(ended.wait(), 5)


@pytest.mark.parametrize("ending", ["raise", "hang"])
async def test_a_source_that_does_not_close_ends_nothing_else(
    ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Bad(FakeSource):
        async def aclose(self) -> None:
            if ending == "raise":
                raise OSError("no")
            await asyncio.Event().wait()

    source = Bad(Time(), look=lambda: asyncio.Event().wait())
    async with served(source, ServeLimits(close_timeout_seconds=0.02)):
        await eventually(lambda: source.looks == 1)
    assert "closing the source failed" in caplog.text


async def test_a_server_that_has_ended_serves_nobody() -> None:
    source = FakeSource(Time())
    async with served(source) as (server, peer):
        pass
    assert peer.is_closed
    with pytest.raises(TransportClosed):
        await server.open_channel()


async def test_a_source_emits_the_observation_itself_over_a_channel() -> None:
    source = FakeSource(Time())
    one: Observation = observation("1")
    async with served(source) as (_, peer):
        source._emit(one)
        assert (await peer.request(PullEvents())).events[0] is one


async def test_the_heartbeat_is_the_time_of_the_pull() -> None:
    time = Time()
    source = FakeSource(time)
    async with served(source) as (_, peer):
        time.advance(5)
        source.say("1")
        time.advance(5)
        reply = await peer.request(PullEvents())
        assert reply.source_health.last_event_at == NOON + timedelta(seconds=5)
        assert reply.heartbeat_ts == NOON + timedelta(seconds=10)
        assert reply.heartbeat_ts.tzinfo is UTC
