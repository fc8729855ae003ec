"""A batch is answered by one array, however its entries fare."""

import asyncio
import gc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    MCP,
    Batch,
    Connection,
    Context,
    Dialect,
    Error,
    Limits,
    Notification,
    Request,
    Response,
)
from tests.connection.peers import MessagePeer, StreamPeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


def echo(params: Any, context: Context) -> Any:
    return params


async def for_ever(params: Any, context: Context) -> None:
    await asyncio.get_running_loop().create_future()


@pytest.mark.requirement("contract:I3", "error:invalid-envelope")
async def test_a_mixed_batch_is_answered_by_one_array_in_the_order_of_its_entries() -> None:
    seen: list[Any] = []

    async def slow(params: Any, context: Context) -> Any:
        await asyncio.sleep(0)
        return params

    peer = StreamPeer()
    builder = (
        Connection.builder()
        .on_request("echo", echo)
        .on_request("slow", slow)
        .on_notification("n", lambda params, context: seen.append(params))
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m"))
        await settle()
        peer.say(
            b'[{"id":"a","method":"slow","params":1},{"method":"n","params":"between"},17,'
            b'{"id":"b","method":"unknown"},{"id":1,"result":"ours"},{"id":true,"method":"echo"},'
            b'{"result":"garbled"},{"id":null,"method":"echo","params":2},'
            b'{"method":"n","params":"at the end"}]\n'
        )
        assert await caller == "ours"
        await settle()
        assert seen == ["between", "at the end"]
        _, answers = peer.heard
        assert [(a["id"], a.get("result"), a.get("error", {}).get("code")) for a in answers] == [
            ("a", 1, None),
            (None, None, -32600),
            ("b", None, -32601),
            (None, None, -32600),
            (None, 2, None),
        ]
        assert connection.stats().malformed == 3
        assert not connection.is_closed


@pytest.mark.requirement("contract:I3")
async def test_a_batch_is_answered_when_its_last_request_is() -> None:
    release = {name: asyncio.Event() for name in "abc"}

    async def wait(params: str, context: Context) -> str:
        await release[params].wait()
        return params

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("wait", wait).connect(peer):
        await peer.say(Batch(Request(name, "wait", name) for name in "abc"))
        for name in "cab":
            await settle()
            assert peer.sent == []
            release[name].set()
        await settle()
        assert peer.sent == [Batch(Response(name, name) for name in "abc")]


@pytest.mark.requirement("contract:I2", "contract:I3")
async def test_one_id_used_twice_gets_two_answers() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("echo", echo).connect(peer):
        await peer.say(Batch([Request(7, "echo", "first"), Request(7, "echo", "second")]))
        await settle()
        assert peer.sent == [Batch([Response(7, "first"), Response(7, "second")])]


@pytest.mark.requirement("contract:I2", "contract:I3")
@settings(max_examples=30)
@given(order=st.permutations(range(6)))
async def test_overlapping_batches_with_the_same_ids_are_kept_apart(order: list[int]) -> None:
    release = [asyncio.Event() for _ in range(6)]

    async def wait(params: int, context: Context) -> int:
        await release[params].wait()
        return params

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("wait", wait).connect(peer):
        for start in (0, 3):
            await peer.say(Batch(Request(slot, "wait", start + slot) for slot in range(3)))
        for number in order:
            release[number].set()
            await settle(5)
        batches = [Batch(Response(slot, start + slot) for slot in range(3)) for start in (0, 3)]
        last = order[-1] // 3
        assert peer.sent == [batches[1 - last], batches[last]]


@pytest.mark.requirement("error:invalid-envelope", "L-36")
async def test_an_empty_batch_is_answered_by_one_error_and_not_by_an_array() -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer):
        peer.say(b"[]\n")
        await settle()
        (answer,) = peer.heard
        assert (answer["id"], answer["error"]["code"]) == (None, -32600)


@pytest.mark.requirement("T-20")
async def test_an_empty_batch_that_no_codec_refused_disturbs_nothing() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("echo", echo).connect(peer):
        await peer.say(Batch(), Request(1, "echo", "after"))
        assert await peer.heard(1) == [Response(1, "after")]


@pytest.mark.requirement("error:unknown-notification")
async def test_a_batch_of_notifications_and_responses_is_not_answered() -> None:
    seen: list[Any] = []
    peer = StreamPeer()
    builder = Connection.builder().on_notification("n", lambda params, c: seen.append(params))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        peer.say(b'[{"method":"n","params":1},{"method":"?"},{"id":9,"result":1},{"error":1}]\n')
        await settle()
        assert seen == [1]
        assert peer.written == b""
        stats = connection.stats()
        assert (stats.unknown_responses, stats.dropped_notifications) == (1, 1)


@pytest.mark.requirement("contract:I3")
async def test_a_responder_that_is_forgotten_does_not_strand_its_siblings() -> None:
    peer = MessagePeer()
    builder = (
        Connection.builder()
        .on_request("forget", lambda params, context: bool(context.detach()))
        .on_request("echo", echo)
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Batch([Request(1, "forget"), Request(2, "echo", "sibling")]))
        gc.collect()
        await settle()
        (answers,) = peer.sent
        assert answers == Batch(
            [
                Response(1, error=Error(-32603, "the request was dropped")),
                Response(2, "sibling"),
            ]
        )


@pytest.mark.requirement("contract:C3", "contract:I3")
@pytest.mark.parametrize("dialect", [ACP, MCP], ids=["acp", "mcp"])
@pytest.mark.parametrize("last", ["the cancelled one", "its sibling"])
async def test_a_cancelled_request_does_not_strand_its_siblings(
    dialect: Dialect, last: str
) -> None:
    release = asyncio.Event()

    async def wait(params: Any, context: Context) -> str:
        await release.wait()
        return "sibling"

    peer = MessagePeer()
    builder = (
        Connection.builder()
        .dialect(dialect)
        .on_request("wait", wait)
        .on_request("for ever", for_ever)
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Batch([Request(1, "for ever"), Request(2, "wait")]))
        cancel = dialect.cancel(1)
        assert cancel is not None
        if last == "its sibling":
            await peer.say(cancel)
            await settle()
            release.set()
        else:
            release.set()
            await settle()
            await peer.say(cancel)
        await settle()
        cancelled = (
            [] if dialect is MCP else [Response(1, error=Error(-32800, "request cancelled"))]
        )
        assert peer.sent == [Batch([*cancelled, Response(2, "sibling")])]


@pytest.mark.requirement("contract:C3")
async def test_a_batch_whose_requests_are_all_cancelled_unanswered_is_not_answered() -> None:
    peer = MessagePeer()
    builder = Connection.builder().dialect(MCP).on_request("m", for_ever)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Batch([Request(1, "m"), Request(2, "m")]))
        for id_ in (1, 2):
            cancel = MCP.cancel(id_)
            assert cancel is not None
            await peer.say(cancel)
        await settle()
        assert peer.sent == []
        assert connection.stats().requests_running == 0


@pytest.mark.requirement("contract:X3", "contract:I3")
async def test_closing_completes_the_answers_to_a_batch() -> None:
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", for_ever).on_request("echo", echo)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Batch([Request(1, "m"), Request(2, "echo", "done"), Request(3, "m")]))
        await settle()
        assert peer.sent == []
    (answers,) = peer.sent
    assert isinstance(answers, Batch)
    assert [answer.id for answer in answers if isinstance(answer, Response)] == [1, 2, 3]
    assert answers[1] == Response(2, "done")


@pytest.mark.requirement("error:unserializable", "contract:I3")
async def test_an_answer_that_cannot_be_written_does_not_take_its_siblings_with_it() -> None:
    peer = StreamPeer()
    builder = (
        Connection.builder()
        .on_request("bad", lambda params, context: object())
        .on_request("echo", echo)
    )
    async with asyncio.timeout(5), builder.connect(peer):
        peer.say(b'[{"id":1,"method":"bad"},{"id":2,"method":"echo","params":"good"}]\n')
        await settle()
        heard = [entry for frame in peer.heard for entry in ([frame] if "id" in frame else frame)]
        answers = {answer["id"]: answer for answer in heard}
        assert len(heard) == 2
        assert answers[1]["error"]["code"] == -32603
        assert answers[2]["result"] == "good"


@pytest.mark.requirement("contract:B6")
async def test_an_overloaded_entry_has_its_place_in_the_array() -> None:
    peer = MessagePeer()
    limits = Limits(running_handlers=1, waiting_requests=1)
    builder = Connection.builder().on_request("echo", echo).limits(limits)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Batch(Request(n, "echo", n) for n in range(4)))
        await settle()
        (answers,) = peer.sent
        assert isinstance(answers, Batch)
        codes = [a.error.code if a.error else a.result for a in answers]  # type: ignore[union-attr]
        assert codes == [0, 1, -32001, -32001]


@pytest.mark.requirement("contract:O2", "contract:O5", "L-2")
async def test_what_a_response_installs_is_in_effect_for_later_entries_of_its_batch() -> None:
    routes: dict[str, list[Any]] = {}

    def update(params: Any, context: Context) -> None:
        routes[params["session"]].append(params["text"])

    peer = StreamPeer()
    builder = Connection.builder().on_notification("update", update)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        peer.say(
            b'[{"id":1,"result":"a"},{"method":"update","params":{"session":"a","text":"one"}}]\n'
        )
        await connection.request("create", on_result=lambda name: routes.update({name: []}))
        await settle()
        assert routes == {"a": ["one"]}


@pytest.mark.requirement("contract:O3")
async def test_the_entries_of_a_batch_begin_in_order_like_messages_of_their_own() -> None:
    begun: list[int] = []

    async def note(params: int, context: Context) -> None:
        begun.append(params)
        await asyncio.sleep(0)

    peer = MessagePeer()
    builder = Connection.builder().on_request("m", note).on_notification("m", note)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(
            Request(0, "m", 0),
            Batch([Request(1, "m", 1), Notification("m", 2), Request(3, "m", 3)]),
            Request(4, "m", 4),
        )
        await settle()
        assert begun == [0, 1, 2, 3, 4]
