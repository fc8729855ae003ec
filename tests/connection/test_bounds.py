"""Every queue has a limit, and whoever meets it learns so."""

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    Batch,
    Connection,
    ConnectionClosed,
    Context,
    Error,
    Limits,
    Notification,
    Request,
    Response,
    RpcError,
    SendBufferFull,
    SlowConsumer,
    channel_pair,
)
from tests.connection.peers import MessagePeer, StreamPeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


def echo(params: Any, context: Context) -> Any:
    return params


async def for_ever(params: Any, context: Context) -> None:
    await asyncio.get_running_loop().create_future()


# Requests that come in


@pytest.mark.requirement("contract:B1", "contract:B6", "contract:I3")
async def test_one_request_too_many_is_told_to_try_again_and_the_others_are_served() -> None:
    release = asyncio.Event()

    async def handle(params: int, context: Context) -> int:
        await release.wait()
        return params

    peer = MessagePeer()
    limits = Limits(running_handlers=2, waiting_requests=3)
    builder = Connection.builder().on_request("m", handle).limits(limits)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(*(Request(n, "m", n) for n in range(7)))
        await settle()
        overloaded = Error(-32001, "overloaded, try again", {"retry": True})
        assert peer.responses == {n: Response(n, error=overloaded) for n in (5, 6)}
        stats = connection.stats()
        assert (stats.requests_running, stats.requests_waiting, stats.overloaded) == (2, 3, 2)
        release.set()
        await settle()
        assert [peer.responses[n].result for n in range(5)] == list(range(5))
        await peer.say(Request("again", "m", 6))
        await settle()
        assert peer.responses["again"] == Response("again", 6)
        stats = connection.stats()
        assert (stats.requests_running, stats.requests_waiting) == (0, 0)


@pytest.mark.requirement("contract:B1", "contract:B6")
async def test_requests_that_wait_are_limited_in_bytes_too() -> None:
    peer = MessagePeer()
    limits = Limits(running_handlers=1, waiting_bytes=1000)
    builder = Connection.builder().on_request("m", for_ever).limits(limits)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request("running", "m"), size=900)
        await settle()
        assert connection.stats().bytes_waiting == 0  # it no longer waits
        await peer.say(Request(1, "m"), Request(2, "m"), Request(3, "m"), size=400)
        assert [answer.error.code for answer in peer.responses.values() if answer.error] == [-32001]
        assert list(peer.responses) == [3]
        assert connection.stats().bytes_waiting == 800


@pytest.mark.requirement("contract:B6")
async def test_requests_whose_duty_was_handed_on_count_until_they_are_answered() -> None:
    kept: list[Any] = []
    peer = MessagePeer()
    limits = Limits(running_handlers=1, waiting_requests=1)
    builder = Connection.builder().limits(limits)
    builder = builder.on_request("m", lambda params, context: kept.append(context.detach()))
    async with asyncio.timeout(5), builder.connect(peer):
        for n in range(3):
            await peer.say(Request(n, "m"))
            await settle()
        assert list(peer.responses) == [2]
        kept.pop().respond(None)
        await peer.say(Request(3, "m"))
        await settle()
        assert list(peer.responses) == [2, 1]
        kept.clear()
        await settle()


# Notifications that come in


@pytest.mark.requirement("contract:B1", "contract:B4", "L-28", "L-29")
@settings(max_examples=30)
@given(
    limit=st.integers(1, 20),
    extra=st.integers(1, 20),
    read_size=st.integers(1, 40),
    waits=st.integers(0, 2),
    by_bytes=st.booleans(),
)
async def test_a_flood_ends_with_slow_consumer_after_what_was_queued_was_handled(
    limit: int, extra: int, read_size: int, waits: int, by_bytes: bool
) -> None:
    handled: list[int] = []
    release = asyncio.Event()

    async def handle(params: int, context: Context) -> None:
        await release.wait()
        for _ in range(waits):
            await asyncio.sleep(0)
        handled.append(params)

    peer = MessagePeer()
    limits = Limits(
        waiting_notifications=10**6 if by_bytes else limit,
        waiting_bytes=limit * 10 if by_bytes else 10**9,
        finish_seconds=3600,
    )
    builder = Connection.builder().name("flooded").on_notification("n", handle).limits(limits)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Notification("n", 0), size=10)
        await settle()  # the first is being handled, and waits no longer
        flood = [Notification("n", n) for n in range(1, limit + extra + 1)]
        for start in range(0, len(flood), read_size):
            await peer.say(*flood[start : start + read_size], size=10)
        assert isinstance(connection.cause, SlowConsumer)
        assert (connection.cause.events, connection.cause.bytes) == (limit, limit * 10)
        assert connection.cause.key == "flooded"
        assert connection.stats().dropped_notifications == extra
        release.set()
        await connection.wait_closed()
        assert handled == list(range(limit + 1))  # all of them up to the first that was dropped
        assert not connection.is_clean


@pytest.mark.requirement("contract:B1")
async def test_the_entries_of_a_batch_count_against_the_limit_in_bytes() -> None:
    peer = MessagePeer()
    limits = Limits(waiting_bytes=1000, finish_seconds=0)
    builder = Connection.builder().on_notification("n", for_ever).limits(limits)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Batch([Notification("n"), Notification("n")]), size=400)
        await settle()
        assert connection.stats().bytes_waiting == 200
        await peer.say(Batch([Notification("n"), Notification("n")]), size=2000)
        assert isinstance(connection.cause, SlowConsumer)
        await connection.wait_closed()


@pytest.mark.requirement("contract:B1", "L-29")
async def test_a_burst_is_survived_and_leaves_its_mark_in_the_statistics() -> None:
    handled = 0
    blocked = asyncio.Event()

    async def handle(params: int, context: Context) -> None:
        nonlocal handled
        assert params == handled
        handled += 1
        await blocked.wait()

    peer = StreamPeer()
    async with (
        asyncio.timeout(20),
        Connection.builder().on_notification("n", handle).connect(peer) as connection,
    ):
        burst = b"".join(b'{"method":"n","params":%d}\n' % n for n in range(20_000))
        for start in range(0, len(burst), 2**16):
            peer.say(burst[start : start + 2**16])
        await settle()
        stats = connection.stats()
        assert stats.notifications_waiting == 19_999
        assert stats.most_notifications_waiting >= 19_999
        assert stats.bytes_waiting > 19_999 * 25
        blocked.set()
        await settle()
        stats = connection.stats()
        assert handled == 20_000
        assert (stats.notifications_waiting, stats.bytes_waiting) == (0, 0)
        assert stats.most_notifications_waiting >= 19_999
        assert stats.dropped_notifications == 0


@pytest.mark.requirement("contract:B4", "L-28")
async def test_no_piece_is_lost_and_none_blocks_the_response_behind_it() -> None:
    pieces: list[int] = []
    release = asyncio.Event()

    async def slow(params: int, context: Context) -> None:
        await release.wait()
        pieces.append(params)

    peer = MessagePeer()
    builder = Connection.builder().on_notification("piece", slow)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("prompt"))
        await peer.heard(1)
        await peer.say(*(Notification("piece", n) for n in range(1000)), Response(1, "end"))
        assert await caller == "end"
        assert pieces == []
        release.set()
        await settle()
        assert pieces == list(range(1000))


# What goes out


@pytest.mark.requirement("contract:B5", "contract:O1")
async def test_sending_waits_while_the_peer_does_not_read_and_then_goes_on_in_order() -> None:
    peer = StreamPeer(is_stuck=True)
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        connection.send_notification("first")
        senders = [asyncio.create_task(connection.notify("m", n)) for n in range(5)]
        caller = asyncio.create_task(connection.request("last"))
        await settle()
        assert not any(sender.done() for sender in senders)
        peer.read_again()
        await asyncio.gather(*senders)
        await settle()
        assert [message["method"] for message in peer.heard] == ["first", *["m"] * 5, "last"]
        assert [message["params"] for message in peer.heard[1:6]] == list(range(5))
        peer.say(b'{"id":1,"result":"read"}\n')
        assert await caller == "read"


@pytest.mark.requirement("contract:B1", "contract:B5", "contract:C2")
async def test_who_cannot_wait_is_refused_when_the_peer_does_not_read() -> None:
    peer = StreamPeer(is_stuck=True, max_unsent_bytes=1000)
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        for _ in range(7):
            connection.send_notification("m", "x" * 100)
            await settle(2)
        with pytest.raises(SendBufferFull, match="more than 1000 bytes") as caught:
            connection.send_notification("m", "x" * 100)
        assert not isinstance(caught.value, ConnectionClosed)
        with pytest.raises(SendBufferFull):
            connection.send_request("m", "x" * 100, lambda outcome: None)
        assert connection.stats().requests_pending == 0
        peer.read_again()
        connection.send_notification("m")
        await settle()
        assert len(peer.heard) == 7 + 1  # each whole, and nothing of what was refused


@pytest.mark.requirement("contract:B5")
@pytest.mark.parametrize("batch", [False, True], ids=["one by one", "in a batch"])
async def test_answers_have_room_of_their_own(batch: bool) -> None:
    peer = StreamPeer(is_stuck=True, max_unsent_bytes=1000)
    builder = Connection.builder().on_request("m", lambda params, context: "x" * 60)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        while True:
            try:
                connection.send_notification("m", "x" * 10)
            except SendBufferFull:
                break
            await settle(2)
        request = b'{"id":1,"method":"m"}'
        peer.say(b"[%b]\n" % request if batch else request + b"\n")
        await settle()
        assert not connection.is_closed
        peer.read_again()
        await settle()
        answer = peer.heard[-1][0] if batch else peer.heard[-1]
        assert answer["result"] == "x" * 60


@pytest.mark.requirement("contract:B5", "L-15")
async def test_a_peer_that_does_not_read_is_still_read_from() -> None:
    delivered: list[Any] = []
    peer = StreamPeer(is_stuck=True)
    builder = (
        Connection.builder()
        .on_notification("n", lambda params, context: delivered.append(params))
        .on_request("echo", lambda params, context: params)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        results: list[Any] = []
        connection.send_request("m", None, results.append)
        blocked = asyncio.create_task(connection.notify("blocked"))
        await settle()
        for n in range(100):
            peer.say(
                b'{"method":"n","params":%d}\n{"id":%d,"method":"echo","params":%d}\n' % (n, n, n)
            )
        peer.say(b'{"id":1,"result":"through"}\n')
        await settle()
        assert delivered == list(range(100))
        assert [bytes(result.result) for result in results] == [b'"through"']
        assert not blocked.done()
        assert peer.written == b""
        peer.read_again()
        await blocked
        await settle()
        assert [m["result"] for m in peer.heard if "result" in m] == list(range(100))


@pytest.mark.requirement("contract:B1", "contract:B5", "contract:X1")
async def test_a_peer_that_asks_and_never_reads_the_answers_is_given_up() -> None:
    peer = StreamPeer(is_stuck=True, max_unsent_bytes=1000)
    builder = Connection.builder().on_request("m", lambda params, context: "x" * 100)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        for n in range(20):
            peer.say(b'{"id":%d,"method":"m"}\n' % n)
        await connection.wait_closed()
        assert isinstance(connection.cause, SendBufferFull)


@pytest.mark.requirement("L-31")
async def test_the_bytes_of_cancelled_writes_count_against_the_limit() -> None:
    peer = StreamPeer(is_stuck=True, max_unsent_bytes=10_000)
    async with asyncio.timeout(5), Connection.builder().timeout(None).connect(peer) as connection:
        for _ in range(9):
            abandoned = connection.send_request("m", "x" * 1000, lambda outcome: None)
            connection.abandon(abandoned)
        with pytest.raises(SendBufferFull):
            connection.send_request("m", "x" * 1000, lambda outcome: None)
        assert connection.stats().requests_pending == 0
        waiting = [asyncio.create_task(connection.request("m", "x" * 1000)) for _ in range(50)]
        await settle()
        for caller in waiting:
            caller.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        peer.read_again()
        await settle()
        assert len(peer.written) < 10_000


@pytest.mark.requirement("contract:B5")
async def test_reading_can_be_paused_and_goes_on_where_it_stopped() -> None:
    seen: list[Any] = []
    left, right = channel_pair()
    builder = Connection.builder().on_notification("n", lambda params, c: seen.append(params))
    async with (
        asyncio.timeout(5),
        builder.connect(right) as them,
        Connection.builder().connect(left) as us,
    ):
        them.pause_reading()
        for n in range(10):
            us.send_notification("n", n)
        await settle()
        assert seen == []
        them.resume_reading()
        await settle()
        assert seen == list(range(10))


# Nothing grows


@pytest.mark.requirement("L-30", "T-14")
async def test_nothing_grows_with_the_number_of_requests_served() -> None:
    async def handle(params: int, context: Context) -> int:
        if params % 3 == 0:
            await asyncio.sleep(0)
        if params % 7 == 0:
            raise RpcError(-1, "no")
        return params

    left, right = channel_pair()
    server = Connection.builder().on_request("m", handle).on_notification("n", echo)
    client = Connection.builder().dialect(ACP)
    async with asyncio.timeout(30), server.connect(right), client.connect(left) as us:

        async def serve(rounds: int) -> None:
            for n in range(rounds):
                calls = (us.request("m", 10 * n + index) for index in range(10))
                await asyncio.gather(*calls, return_exceptions=True)
                us.send_notification("n", n)
                us.send_notification(f"unknown {n}", n)
                caller = asyncio.create_task(us.request(f"unknown {n}", n))
                await asyncio.sleep(0)
                caller.cancel()
                await asyncio.wait([caller])

        await serve(20)
        gc.collect()
        before = len(gc.get_objects())
        await serve(100)
        gc.collect()
        assert len(gc.get_objects()) - before < 50  # of 1100 requests and 300 notifications
        assert us.stats().requests_pending == 0
