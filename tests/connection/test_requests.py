"""Requests go out with ids of their own, and each caller gets its own response."""

import asyncio
import random
from typing import Any, assert_type

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    Connection,
    ConnectionClosed,
    Error,
    LocalProtocolError,
    Message,
    Notification,
    RemoteError,
    Request,
    RequestTimeout,
    Response,
    TypedNotification,
    TypedRequest,
)
from bullpen.errors import BullpenError
from bullpen.testing import ManualClock
from tests.connection.peers import MessagePeer, StreamPeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


def answer(message: Message, result: Any) -> Response:
    assert isinstance(message, Request)
    return Response(message.id, result)


@pytest.mark.requirement("T-02", "contract:I1")
async def test_a_hundred_thousand_requests_in_flight_have_ids_of_their_own() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(30), Connection.builder().connect(peer) as connection:
        for _ in range(100_000):
            connection.send_request("m", None, lambda outcome: None)
        ids = [message.id for message in peer.sent if isinstance(message, Request)]
        assert len(set(ids)) == 100_000
        assert {type(id_) for id_ in ids} == {int}
        assert connection.stats().requests_pending == 100_000


@pytest.mark.requirement("T-03", "T-12", "T-14", "L-20")
@settings(max_examples=40)
@given(data=st.data(), reads=st.integers(1, 20))
async def test_each_caller_gets_its_own_response_in_whatever_order_they_arrive(
    data: st.DataObject, reads: int
) -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        callers = [asyncio.create_task(connection.request("double", n)) for n in range(20)]
        await peer.heard(20)
        shuffled = data.draw(st.permutations(peer.sent))
        for start in range(0, 20, reads):
            responses = [answer(m, m.params * 2) for m in shuffled[start : start + reads]]  # type: ignore[union-attr]
            await peer.say(*responses)
        assert await asyncio.gather(*callers) == [n * 2 for n in range(20)]
        assert connection.stats().requests_pending == 0


@pytest.mark.requirement("T-03", "T-14")
async def test_a_thousand_concurrent_requests_over_a_stream_get_their_shuffled_responses() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(10), Connection.builder().connect(peer) as connection:
        callers = [asyncio.create_task(connection.request("m", {"n": n})) for n in range(1000)]
        await settle(5)
        requests = peer.heard
        assert len(requests) == 1000
        random.Random(7).shuffle(requests)
        peer.say(
            b"".join(
                msgspec.json.encode({"id": request["id"], "result": request["params"]}) + b"\n"
                for request in requests
            )
        )
        assert await asyncio.gather(*callers) == [{"n": n} for n in range(1000)]
        assert connection.stats().requests_pending == 0


@pytest.mark.requirement("T-11")
async def test_a_response_that_comes_before_sending_has_returned_is_still_correlated() -> None:
    peer = MessagePeer(lambda message: peer.say_now(answer(message, "early")))
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        assert await connection.request("m") == "early"
        assert await connection.request("m", timeout=5, on_result=lambda result: None) == "early"
        delivered: list[object] = []
        connection.send_request("m", None, delivered.append)
        assert delivered == [Response(3, "early")]
        assert connection.stats().requests_pending == 0


@pytest.mark.requirement("T-11", "error:response-hook", "contract:X1")
async def test_what_goes_wrong_before_sending_has_returned_is_raised_as_at_any_other_time() -> None:
    def react(message: Message) -> None:
        assert isinstance(message, Request)
        if message.method == "end":
            peer.end()
        else:
            peer.say_now(Response(message.id, "early"))

    def fail(result: Any) -> None:
        raise LookupError(result)

    peer = MessagePeer(react)
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        with pytest.raises(LookupError, match="early"):
            await connection.request("m", on_result=fail)
        with pytest.raises(ConnectionClosed):
            await connection.request("end")


@pytest.mark.requirement("contract:I2", "T-14", "L-22")
async def test_unknown_and_duplicate_responses_disturb_nobody_and_are_counted() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m"))
        await peer.heard(1)
        await peer.say(Response(17, "?"), Response("1", "?"), Response(None, error=Error(1, "?")))
        assert not caller.done()
        await peer.say(Response(1, "first"), Response(1, "second"))
        assert await caller == "first"
        await peer.say(Response(1, "third"))
        assert connection.stats().unknown_responses == 5


@pytest.mark.requirement("T-14", "contract:I2")
async def test_a_request_that_nobody_wants_the_answer_of_leaves_nothing_pending() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        id_ = connection.send_request("m", None, None)
        assert peer.sent == [Request(id_, "m", None)]
        assert connection.stats().requests_pending == 0
        await peer.say(Response(id_, "unwanted"))
        assert connection.stats().unknown_responses == 1


async def test_an_error_of_the_peer_is_raised_with_all_its_fields() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m"))
        await peer.heard(1)
        await peer.say(Response(1, error=Error(-5, "no such thing", {"thing": 1})))
        with pytest.raises(RemoteError, match=r"no such thing \(-5\)") as caught:
            await caller
        assert (caught.value.code, caught.value.message) == (-5, "no such thing")
        assert caught.value.data == {"thing": 1}
        assert not connection.is_closed


class Sum(TypedRequest[int]):
    METHOD = "sum"
    numbers: list[int]


class Said(TypedNotification):
    METHOD = "said"
    words: str


@pytest.mark.requirement("T-39", "T-53")
async def test_a_typed_request_has_its_method_and_a_result_of_its_type() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        peer.say(b'{"id":1,"result":6}\n')
        total = await connection.request(Sum([1, 2, 3]))
        assert_type(total, int)
        assert total == 6
        await connection.notify(Said("hello"))
        await settle()
        request, notification = peer.heard
        assert (request["method"], request["params"]) == ("sum", {"numbers": [1, 2, 3]})
        assert (notification["method"], notification["params"]) == ("said", {"words": "hello"})


async def test_a_result_of_another_type_is_refused_to_its_caller_alone() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        peer.say(b'{"id":1,"result":"six"}\n')
        with pytest.raises(msgspec.ValidationError, match="Expected `int`, got `str`"):
            await connection.request(Sum([1, 2, 3]))
        assert not connection.is_closed


async def test_a_result_is_decoded_into_the_type_that_is_asked_for() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        peer.say(b'{"id":1,"result":["a"]}\n')
        names = await connection.request("names", result=set[str])
        assert_type(names, set[str])
        assert names == {"a"}


async def test_params_that_are_not_given_are_not_sent() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        connection.send_notification("bare")
        connection.send_notification("empty", {})
        await settle()
        assert peer.heard == [
            {"jsonrpc": "2.0", "method": "bare"},
            {"jsonrpc": "2.0", "method": "empty", "params": {}},
        ]


@pytest.mark.requirement("error:unserializable")
async def test_params_that_cannot_be_written_are_refused_and_leave_nothing_behind() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as connection:
        with pytest.raises(LocalProtocolError, match="not serializable"):
            await connection.request("m", object())
        with pytest.raises(LocalProtocolError, match="not serializable"):
            connection.send_request("m", object(), lambda outcome: None)
        with pytest.raises(LocalProtocolError, match="not serializable"):
            await connection.notify("m", object())
        assert connection.stats().requests_pending == 0
        assert peer.written == b""
        peer.say(b'{"id":3,"result":"fine"}\n')
        assert await connection.request("m") == "fine"


# Time


@pytest.mark.requirement("contract:C2", "T-49")
async def test_the_default_timeout_ends_each_request_at_its_own_time() -> None:
    peer, clock = MessagePeer(), ManualClock()
    builder = Connection.builder().timeout(10).clock(clock).dialect(ACP)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        early = asyncio.create_task(connection.request("early"))
        await peer.heard(1)
        clock.advance(6)
        late = asyncio.create_task(connection.request("late"))
        never = asyncio.create_task(connection.request("never", timeout=None))
        await peer.heard(3)
        clock.advance(3.9)
        await settle()
        assert not early.done()
        clock.advance(0.1)
        with pytest.raises(RequestTimeout, match="no answer to 'early' within 10 s"):
            await early
        assert not late.done()
        clock.advance(6)
        with pytest.raises(RequestTimeout, match="'late'"):
            await late
        clock.advance(1000)
        await settle()
        assert not never.done()
        assert peer.sent[3:] == [ACP.cancel(1), ACP.cancel(2)]
        await peer.say(Response(3, "at last"))
        assert await never == "at last"


@pytest.mark.requirement("contract:C2")
async def test_a_timeout_per_call_comes_before_the_default_one() -> None:
    peer, clock = MessagePeer(), ManualClock()
    builder = Connection.builder().timeout(10).clock(clock).dialect(ACP)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        short = asyncio.create_task(connection.request("short", timeout=1))
        long = asyncio.create_task(connection.request("long", timeout=100))
        await peer.heard(2)
        clock.advance(1)
        with pytest.raises(RequestTimeout) as caught:
            await short
        assert (caught.value.method, caught.value.timeout_seconds) == ("short", 1)
        clock.advance(98)
        await settle()
        assert not long.done()
        clock.advance(1)
        with pytest.raises(RequestTimeout):
            await long
        assert not connection.is_closed


@pytest.mark.requirement("contract:C2")
async def test_a_request_that_was_answered_in_time_is_not_expired_later() -> None:
    peer, clock = MessagePeer(), ManualClock()
    builder = Connection.builder().timeout(10).clock(clock).dialect(ACP)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        plain = asyncio.create_task(connection.request("m"))
        timed = asyncio.create_task(connection.request("m", timeout=1))
        await peer.heard(2)
        await peer.say(Response(1, 1), Response(2, 2))
        assert (await plain, await timed) == (1, 2)
        clock.advance(100)
        await settle()
        assert len(peer.sent) == 2  # and no cancel


@pytest.mark.requirement("contract:C1", "contract:I2", "L-22")
async def test_a_late_response_after_a_timeout_is_dropped() -> None:
    peer, clock = MessagePeer(), ManualClock()
    async with asyncio.timeout(5), Connection.builder().clock(clock).connect(peer) as connection:
        late = asyncio.create_task(connection.request("m", timeout=1))
        await peer.heard(1)
        clock.advance(1)
        await peer.say(Response(1, "late"))
        with pytest.raises(RequestTimeout):
            await late
        assert connection.stats().unknown_responses == 1
        other = asyncio.create_task(connection.request("m"))
        await peer.heard(2)
        await peer.say(Response(2, "in time"))
        assert await other == "in time"


@pytest.mark.requirement("contract:C2")
def test_a_timeout_is_not_a_closed_connection_and_neither_is_the_other() -> None:
    assert not issubclass(RequestTimeout, ConnectionClosed)
    assert not issubclass(ConnectionClosed, RequestTimeout)
    assert issubclass(RequestTimeout, BullpenError)


@pytest.mark.requirement("contract:C2")
async def test_a_delivery_that_times_out_is_told_so() -> None:
    peer, clock = MessagePeer(), ManualClock()
    async with asyncio.timeout(5), Connection.builder().clock(clock).connect(peer) as connection:
        delivered: list[Any] = []
        connection.send_request("m", None, delivered.append, timeout=1)
        clock.advance(1)
        await peer.say(Response(1, "late"))
        (outcome,) = delivered
        assert isinstance(outcome, RequestTimeout)


# Hooks


@pytest.mark.requirement("contract:O5", "L-2")
async def test_what_a_result_installs_is_in_effect_before_the_next_message() -> None:
    routes: dict[str, list[Any]] = {}

    def deliver(update: Any, context: object) -> None:
        routes[update["session"]].append(update["text"])

    peer = StreamPeer()
    builder = Connection.builder().on_notification("update", deliver)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        peer.say(
            b'{"id":1,"result":{"session":"a"}}\n'
            b'{"method":"update","params":{"session":"a","text":"one"}}\n'
            b'{"method":"update","params":{"session":"a","text":"two"}}\n'
        )
        await connection.request("create", on_result=lambda r: routes.update({r["session"]: []}))
        await settle()
        assert routes == {"a": ["one", "two"]}


@pytest.mark.requirement("contract:O5")
async def test_a_hook_runs_in_wire_order_between_its_neighbours() -> None:
    seen: list[Any] = []

    def route(message: Message, context: object, size: int) -> bool:
        seen.append(message)
        return True

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().route(route).connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m", on_result=seen.append))
        await peer.heard(1)
        before, after = Notification("before"), Notification("after")
        await peer.say(before, Response(1, "result"), after)
        assert seen == [before, "result", after]
        assert await caller == "result"


@pytest.mark.requirement("error:response-hook")
async def test_a_hook_that_fails_fails_its_caller_and_nobody_else() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:

        def fail(result: Any) -> None:
            raise LookupError(result)

        failing = asyncio.create_task(connection.request("m", on_result=fail))
        other = asyncio.create_task(connection.request("m"))
        await peer.heard(2)
        await peer.say(Response(1, "one"), Response(2, "two"))
        with pytest.raises(LookupError, match="one"):
            await failing
        assert await other == "two"
        assert not connection.is_closed


@pytest.mark.requirement("error:response-hook")
async def test_a_hook_is_given_a_result_of_the_type_asked_for_or_not_called() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        results: list[int] = []
        callers = [
            asyncio.create_task(connection.request("m", result=int, on_result=results.append))
            for _ in range(3)
        ]
        await settle()
        peer.say(b'{"id":1,"result":1}\n{"id":2,"result":"one"}\n{"id":3,"error":')
        peer.say(b'{"code":5,"message":"no"}}\n')
        one, two, three = await asyncio.gather(*callers, return_exceptions=True)
        assert (one, results) == (1, [1])
        assert isinstance(two, msgspec.ValidationError)
        assert isinstance(three, RemoteError)


@pytest.mark.requirement("error:response-hook", "T-14")
async def test_a_delivery_that_fails_harms_nobody_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:

        def fail(outcome: object) -> None:
            raise LookupError("deliver")

        connection.send_request("m", None, fail)
        other = asyncio.create_task(connection.request("m"))
        await peer.heard(2)
        await peer.say(Response(1, "one"), Response(2, "two"))
        assert await other == "two"
        assert "deliver" in caplog.text
