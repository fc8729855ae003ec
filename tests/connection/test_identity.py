"""Ids are echoed as they came, kept apart by type and value, and never taken for one another."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import Connection, Context, Request, Response
from tests.connection.peers import MessagePeer, StreamPeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


def echo(params: Any, context: Context) -> Any:
    return params


@pytest.mark.requirement("contract:I1", "L-35")
@settings(max_examples=30)
@given(
    ids=st.lists(
        st.none()
        | st.integers()
        | st.text()
        | st.sampled_from(["\ud83d", "\udfff x", "7", "", "null", "true"]),
        max_size=10,
    )
)
async def test_string_integer_and_null_ids_are_echoed_verbatim(ids: list[Any]) -> None:
    async def slow(params: Any, context: Context) -> Any:
        await asyncio.sleep(0)
        return params

    peer = StreamPeer()
    builder = Connection.builder().on_request("echo", echo).on_request("slow", slow)
    async with asyncio.timeout(5), builder.connect(peer):
        for n, id_ in enumerate(ids):
            method = "slow" if n % 2 else "echo"
            peer.say(json.dumps({"id": id_, "method": method, "params": n}).encode() + b"\n")
        await settle()
        answers = [json.loads(line) for line in peer.written.splitlines()]
        echoed = {answer["result"]: answer["id"] for answer in answers}
        assert len(answers) == len(ids)
        assert [(type(echoed[n]), echoed[n]) for n in range(len(ids))] == [
            (type(id_), id_) for id_ in ids
        ]


@pytest.mark.requirement("contract:I1", "error:invalid-envelope", "L-37")
@pytest.mark.parametrize("id_", ["true", "false", "1.0", "1e2", "{}", "[1]"])
async def test_ids_of_other_types_are_refused_and_never_alias_one(id_: str) -> None:
    handled: list[Any] = []
    peer = StreamPeer()
    builder = Connection.builder().on_request("m", lambda params, context: handled.append(context))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("ours"))  # it has id 1
        await settle()
        peer.say(f'{{"id":{id_},"method":"m"}}\n{{"id":{id_},"result":"not yours"}}\n'.encode())
        await settle()
        assert not caller.done()
        assert handled == []
        (_, answer) = peer.heard
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)
        peer.say(b'{"id":1,"result":"yours"}\n')
        assert await caller == "yours"
        assert connection.stats().malformed == 2


@pytest.mark.requirement("contract:I1", "T-02", "L-37")
async def test_a_response_over_a_channel_is_not_taken_by_an_id_that_is_only_equal() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m"))
        await peer.heard(1)
        await peer.say(Response(True, "a lie"), Response(1.0, "a lie"))  # type: ignore[arg-type]
        await peer.say(Response(1, "the truth"))
        assert await caller == "the truth"


@pytest.mark.requirement("contract:I2", "contract:I3")
async def test_two_requests_in_flight_with_one_id_are_both_answered() -> None:
    release = [asyncio.Event(), asyncio.Event()]

    async def wait(params: int, context: Context) -> int:
        await release[params].wait()
        return params

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("wait", wait).connect(peer):
        await peer.say(Request(7, "wait", 0), Request(7, "wait", 1))
        release[1].set()
        await peer.heard(1)
        release[0].set()
        assert await peer.heard(2) == [Response(7, 1), Response(7, 0)]


@pytest.mark.requirement("L-39", "contract:I1")
async def test_a_request_that_reuses_one_of_our_ids_is_not_taken_for_a_response() -> None:
    peer = StreamPeer()
    async with (
        asyncio.timeout(5),
        Connection.builder().on_request("echo", echo).connect(peer) as connection,
    ):
        caller = asyncio.create_task(connection.request("ours"))
        await settle()
        peer.say(b'{"id":1,"method":"echo","params":"theirs","result":"confusing"}\n')
        await settle()
        assert not caller.done()
        assert peer.heard[1]["result"] == "theirs"
        peer.say(b'{"id":1,"result":"ours"}\n')
        assert await caller == "ours"


@pytest.mark.requirement("contract:I2", "T-20")
async def test_answers_to_nobody_are_counted_and_answered_with_nothing() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        peer.say(b'{"id":1,"result":1}\n{"id":"a","result":1}\n{"id":null,"result":1}\n')
        peer.say(b'{"id":null,"error":{"code":-32700,"message":"Parse error"}}\n')
        await settle()
        assert connection.stats().unknown_responses == 4
        assert peer.written == b""
        assert not connection.is_closed


@pytest.mark.requirement("contract:I2", "error:invalid-json")
async def test_two_confused_peers_do_not_answer_each_others_errors_for_ever() -> None:
    ours, theirs = StreamPeer(), StreamPeer()
    async with (
        asyncio.timeout(5),
        Connection.builder().connect(ours) as us,
        Connection.builder().connect(theirs) as them,
    ):
        ours.say(b"this is not JSON\n")
        passed_on = [0, 0]
        for _ in range(10):
            await settle(3)
            for index, (here, there) in enumerate([(ours, theirs), (theirs, ours)]):
                there.say(bytes(here.written[passed_on[index] :]))
                passed_on[index] = len(here.written)
        await settle()
        assert len(ours.heard) == 1
        assert theirs.heard == []
        assert (us.stats().malformed, them.stats().unknown_responses) == (1, 1)


@pytest.mark.requirement("contract:I3", "T-05")
async def test_every_way_to_end_gives_exactly_one_response() -> None:
    async def handle(params: str, context: Context) -> Any:
        match params:
            case "returns":
                return None
            case "returns what cannot be a result":
                return msgspec.UNSET
            case "answers":
                context.respond(1)
            case "answers and raises":
                context.respond(1)
                raise ValueError
            case "raises":
                raise ValueError
            case "is cancelled by itself":
                raise asyncio.CancelledError
            case "detaches":
                context.detach().respond(2)
            case "forgets":
                context.detach()
        return 0

    ways = [
        "returns", "returns what cannot be a result", "answers", "answers and raises", "raises",
        "is cancelled by itself", "detaches", "forgets",
    ]  # fmt: skip
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", handle).connect(peer) as us:
        for together in (ways, *[[way] for way in ways]):
            peer.sent.clear()
            await peer.say(*(Request(way, "m", way) for way in together))
            await settle()
            assert sorted(peer.responses) == sorted(together)
            assert us.stats().requests_running == 0
