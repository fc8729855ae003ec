"""Whoever stands between two peers changes what it wants to change, and nothing else."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    Builder,
    Connection,
    ConnectionClosed,
    Context,
    Error,
    Message,
    Notification,
    Receiver,
    Request,
    Response,
    RpcError,
    Stage,
    Trace,
    Transport,
    TransportClosed,
    TransportError,
    channel_pair,
)
from bullpen.connection.proxy import Direction, Rewrite, conduct, proxy
from bullpen.jsonrpc.errors import INTERNAL_ERROR, OVERLOADED, REQUEST_CANCELLED, SHUTTING_DOWN
from bullpen.testing.transports import MockPeer, byte_pair, create_mock_transport
from tests.connection.peers import MessagePeer, settle

Pair = Callable[[], tuple[Transport, Transport]]


@contextlib.asynccontextmanager
async def chain(
    agent: Builder,
    *rewrites: Rewrite,
    client: Builder | None = None,
    outer: Pair = channel_pair,
) -> AsyncIterator[Connection]:
    """Yield the client's connection to an agent behind some proxies."""
    near, client_end = outer()
    agent_end, far = outer()
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        group.create_task(agent.name("agent").serve_with(far))
        group.create_task(conduct(client_end, rewrites, agent_end))
        async with (client or Connection.builder().dialect(ACP)).name("client").connect(near) as c:
            yield c


@contextlib.asynccontextmanager
async def between(
    rewrite: Rewrite | None = None, *, builder: Builder | None = None
) -> AsyncIterator[tuple[MockPeer, MockPeer, "asyncio.Task[None]"]]:
    """Yield a client and an agent played by the test, and the proxy between them."""
    client_end, client = create_mock_transport()
    agent_end, agent = create_mock_transport()
    async with asyncio.timeout(5):
        work = asyncio.create_task(proxy(client_end, agent_end, rewrite, builder=builder))
        await settle()
        yield client, agent, work
        client.close()
        with contextlib.suppress(ConnectionClosed):
            await work


def signing(name: str) -> Rewrite:
    """Return a rewrite that signs requests on their way down and results on their way up."""

    def rewrite(message: Message, direction: Direction) -> Message:
        if isinstance(message, Request) and direction is Direction.DOWN:
            params = {**message.params, "path": [*message.params["path"], name]}
            return Request(message.id, message.method, params)
        if isinstance(message, Notification) and direction is Direction.UP:
            return Notification(message.method, [*message.params, name])
        if isinstance(message, Response) and direction is Direction.UP:
            return Response(message.id, [*message.result, name])
        return message

    return rewrite


class Ears:
    """Observes what a connection receives."""

    def __init__(self) -> None:
        self.heard: list[Message] = []
        self._news = asyncio.Event()

    def __call__(self, trace: Trace) -> None:
        if trace.stage is Stage.RECEIVED and trace.message is not None:
            self.heard.append(trace.message)
            self._news.set()

    async def hear(self, count: int) -> list[Message]:
        """Wait until so many messages have come; return all there are."""
        while len(self.heard) < count:
            self._news.clear()
            await self._news.wait()
        return self.heard


@contextlib.contextmanager
def json_calls() -> Iterator[list[str]]:
    """Yield a list that is given the name of each JSON function that is called meanwhile.

    A profiler is told of every call, also of those in C and of those to names bound long ago.
    """
    calls: list[str] = []
    coders = (msgspec.json.Decoder, msgspec.json.Encoder)

    def watch(_frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and (
            isinstance(called.__self__, coders)
            or called in (msgspec.json.encode, msgspec.json.decode)
            or "json" in (called.__module__ or "")
        ):
            calls.append(called.__qualname__)

    sys.setprofile(watch)
    try:
        yield calls
    finally:
        sys.setprofile(None)


@pytest.mark.requirement("T-45", "T-07")
@pytest.mark.parametrize(("outer", "is_silent"), [(channel_pair, True), (byte_pair, False)])
async def test_three_proxies_in_a_row_rewrite_in_turn_and_serialize_nothing(
    outer: Pair, is_silent: bool
) -> None:
    async def answer(params: dict[str, Any], context: Context) -> Any:
        await context.connection.notify("progress", ["half"])
        return params["path"]

    progress: list[Any] = []
    agent = Connection.builder().on_request("work", answer)
    client = Connection.builder().on_notification("progress", lambda p, _: progress.append(p))
    proxies = [signing("first"), signing("second"), signing("third")]
    if not is_silent:  # what comes from bytes is not parsed, so it has to be before it is changed
        proxies = [parsed(rewrite) for rewrite in proxies]
    async with chain(agent, *proxies, client=client, outer=outer) as connection:
        with json_calls() as calls:
            result = await connection.request("work", {"path": []})
    assert result == ["first", "second", "third", "third", "second", "first"]
    assert progress == [["half", "third", "second", "first"]]
    assert (not calls) is is_silent, calls


def parsed(rewrite: Rewrite) -> Rewrite:
    def with_values(message: Message, direction: Direction) -> Message | None:
        if isinstance(message, Request):
            message = Request(message.id, message.method, json.loads(bytes_of(message.params)))
        elif isinstance(message, Notification):
            message = Notification(message.method, json.loads(bytes_of(message.params)))
        elif isinstance(message, Response):
            message = Response(message.id, json.loads(bytes_of(message.result)))
        return rewrite(message, direction)

    return with_values


def bytes_of(value: Any) -> bytes:
    return bytes(value) if isinstance(value, msgspec.Raw) else json.dumps(value).encode()


@pytest.mark.requirement("T-45", "T-17", "T-33")
async def test_what_no_proxy_changes_arrives_as_the_very_object_that_was_sent() -> None:
    secret = object()  # which no JSON can carry
    agent = Connection.builder().on_request("echo", lambda params, _: params)
    async with chain(agent, *[lambda message, _: message] * 3) as connection:
        result = await connection.request("echo", {"secret": secret})
        assert result["secret"] is secret


@pytest.mark.requirement("T-45", "L-16", "contract:O2")
@pytest.mark.parametrize("outer", [channel_pair, byte_pair])
@settings(max_examples=25)
@given(data=st.data())
async def test_responses_and_notifications_come_out_in_the_order_they_went_in(
    data: st.DataObject, outer: Pair
) -> None:
    sequence = data.draw(st.permutations([*range(8), *["event"] * 8]))
    open_requests: dict[int, Any] = {}
    everybody_asked = asyncio.Event()

    def take(number: int, context: Context) -> None:
        open_requests[number] = context.detach()
        if len(open_requests) == 8:
            everybody_asked.set()

    async def speak(connection: Connection) -> None:
        await everybody_asked.wait()
        for position, item in enumerate(sequence):
            if item == "event":
                connection.send_notification("event", position)
            else:
                open_requests[item].respond(position)

    def begin(_: Any, context: Context) -> None:
        context.connection.spawn(speak(context.connection))

    agent = Connection.builder().on_request("take", take).on_request("begin", begin)
    ears = Ears()
    client = Connection.builder().observe(ears)
    async with chain(agent, *[lambda m, _: m] * 3, client=client, outer=outer) as connection:
        await connection.request("begin")
        ears.heard.clear()
        await asyncio.gather(*[connection.request("take", number) for number in range(8)])
        heard = await ears.hear(len(sequence))
    values = [m.result if isinstance(m, Response) else m.params for m in heard]  # type: ignore[union-attr]
    assert [int(bytes_of(value)) for value in values] == list(range(len(sequence)))


@pytest.mark.requirement("T-45")
async def test_an_agents_requests_go_up_and_the_clients_answers_come_down() -> None:
    seen: list[tuple[str, Direction]] = []

    def note(message: Message, direction: Direction) -> Message:
        seen.append((type(message).__name__, direction))
        return message

    async def ask_back(_: Any, context: Context) -> Any:
        return await context.connection.request("permission", {"tool": "rm"})

    agent = Connection.builder().on_request("work", ask_back)
    client = Connection.builder().on_request("permission", lambda params, _: [params, "no"])
    async with chain(agent, note, client=client) as connection:
        assert await connection.request("work") == [{"tool": "rm"}, "no"]
    assert seen == [
        ("Request", Direction.DOWN),
        ("Request", Direction.UP),
        ("Response", Direction.DOWN),
        ("Response", Direction.UP),
    ]


# Cancelling


@pytest.mark.requirement("contract:C5", "contract:C3")
async def test_a_cancel_stays_at_its_hop_and_is_sent_again_with_the_next_hops_own_id() -> None:
    def answer_pings(message: Message, _: Direction) -> Message:
        if isinstance(message, Request) and message.method == "ping":
            return Response(message.id, "pong")  # so the ids of the hops drift apart
        return message

    is_working = asyncio.Event()

    async def work(_: Any, context: Context) -> None:
        is_working.set()
        await asyncio.get_running_loop().create_future()

    agent_ears, client_ears = Ears(), Ears()
    agent = Connection.builder().dialect(ACP).on_request("work", work).observe(agent_ears)
    client = Connection.builder().dialect(ACP).observe(client_ears)
    async with chain(agent, answer_pings, answer_pings, answer_pings, client=client) as connection:
        for _ in range(5):
            await connection.request("ping")
        caller = asyncio.create_task(connection.request("work"))
        await is_working.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        *pongs, answer = await client_ears.hear(6)
    assert agent_ears.heard == [Request(1, "work"), ACP.cancel(1)]
    assert len(pongs) == 5
    assert answer == Response(6, error=Error(REQUEST_CANCELLED, "request cancelled"))


@pytest.mark.requirement("contract:C5")
async def test_a_cancelled_request_is_answered_with_what_the_next_hop_makes_of_it() -> None:
    async with between() as (client, agent, _):
        client.send_request("prompt", id="mine")
        request = await agent.receive_request()
        client.send_notification(ACP.cancel_method, {"requestId": "mine"})
        assert await agent.receive_notification() == ACP.cancel(request.id)
        agent.send_response(request.id, {"stopReason": "cancelled"})
        assert await client.receive() == Response("mine", {"stopReason": "cancelled"})


@pytest.mark.requirement("contract:C5")
async def test_a_cancel_of_something_unknown_goes_no_further() -> None:
    async with between() as (client, agent, _):
        client.send_notification(ACP.cancel_method, {"requestId": 99})
        client.send_notification("after")
        assert await agent.receive() == Notification("after")


# Rewriting, answering, swallowing


@pytest.mark.requirement("T-45")
async def test_a_proxy_may_answer_a_request_itself() -> None:
    def answer(message: Message, _: Direction) -> Message:
        if isinstance(message, Request) and message.method == "ping":
            return Response(None, "pong")  # the right id is put in its place
        if isinstance(message, Request) and message.method == "secret":
            raise RpcError(-32099, "not for you", {"who": "client"})
        return message

    async with between(answer) as (client, agent, _):
        client.send_request("ping", id="a")
        client.send_request("secret", id="b")
        client.send_request("other", id="c")
        assert await client.receive() == Response("a", "pong")
        refusal = Error(-32099, "not for you", {"who": "client"})
        assert await client.receive() == Response("b", error=refusal)
        assert (await agent.receive_request()).method == "other"
        assert agent.unreceived == ()


@pytest.mark.requirement("T-45")
async def test_a_proxy_may_swallow_a_notification() -> None:
    def swallow(message: Message, direction: Direction) -> Message | None:
        is_noise = isinstance(message, Notification) and message.method == "noise"
        return None if is_noise and direction is Direction.UP else message

    async with between(swallow) as (client, agent, _):
        for method in ("noise", "news", "noise", "end"):
            agent.send_notification(method)
        assert [(await client.receive_notification()).method for _ in range(2)] == ["news", "end"]
        client.send_notification("noise")
        assert await agent.receive() == Notification("noise")


@pytest.mark.requirement("T-45", "contract:I1")
async def test_ids_are_the_clients_own_when_the_answers_come_back() -> None:
    async with between() as (client, agent, _):
        for id_ in ("text", 7, None):
            client.send_request("m", id=id_)
        asked = [await agent.receive_request() for _ in range(3)]
        assert len({request.id for request in asked}) == 3
        agent.send_response(asked[2].id, "third")
        agent.send_response(asked[0].id, error=Error(-1, "first", [1]))
        agent.send_response(asked[1].id, "second")
        assert await client.receive() == Response(None, "third")
        assert await client.receive() == Response("text", error=Error(-1, "first", [1]))
        assert await client.receive() == Response(7, "second")


@pytest.mark.requirement("T-45", "contract:I3")
@pytest.mark.parametrize("kind", ["raises", "loses-requests", "loses-responses", "confuses-kinds"])
async def test_a_rewrite_that_fails_fails_one_message_and_harms_nobody_behind_it(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def rewrite(message: Message, direction: Direction) -> Message | None:
        if isinstance(message, Response):
            is_bad = message.result == "bad"
        else:
            assert isinstance(message, Request | Notification)
            is_bad = message.params == "bad"
        if not is_bad:
            return message
        if kind == "raises":
            raise LookupError("a bug")
        if kind == "confuses-kinds":
            return Notification("other") if isinstance(message, Request) else Request(1, "other")
        return None

    async with between(rewrite) as (client, agent, work):
        if kind != "loses-responses":
            client.send_request("m", "bad", id="a")
            refused = await client.receive_response()
            assert isinstance(refused.error, Error)
            assert refused.error.code == INTERNAL_ERROR
            assert "a bug" not in str(refused.error)
        client.send_notification("m", "bad")
        client.send_request("m", "good", id="b")
        request = await agent.receive_request()
        agent.send_response(request.id, "bad")
        refused = await client.receive_response()
        assert refused.id == "b"
        assert isinstance(refused.error, Error)
        assert refused.error.code == INTERNAL_ERROR
        client.send_request("m", "good", id="c")
        agent.send_response((await agent.receive_request()).id, "good")
        assert await client.receive() == Response("c", "good")
        assert not work.done()
    # Each that failed is in the log; of a notification, None is no failure.
    failures = {"raises": 3, "loses-requests": 2, "loses-responses": 1, "confuses-kinds": 3}
    assert caplog.text.count("was not passed on") == failures[kind]


# Ends


@pytest.mark.requirement("contract:I3", "contract:X1")
async def test_when_the_agent_is_gone_open_requests_are_answered_and_the_client_is_hung_up_on() -> (
    None
):
    async with between() as (client, agent, work):
        client.send_request("one", id="a")
        client.send_request("two", id="b")
        agent.send_notification("last words")
        agent.close()
        gone = Error(SHUTTING_DOWN, "the next hop is gone")
        assert await client.receive() == Notification("last words")
        assert await client.receive() == Response("a", error=gone)
        assert await client.receive() == Response("b", error=gone)
        await work
        assert client.is_closed


async def test_a_request_for_an_agent_that_is_just_going_is_answered() -> None:
    client_end, client = create_mock_transport()
    agent_end, far = channel_pair()
    async with asyncio.timeout(5):
        work = asyncio.create_task(proxy(client_end, agent_end))
        await settle()
        await far.close()  # the proxy hears of it in the loop's next round, and of these now:
        client.send_notification("m")
        client.send_request("m", id="a")
        gone = Error(SHUTTING_DOWN, "the next hop is gone")
        assert await client.receive() == Response("a", error=gone)
        await work


@pytest.mark.requirement("contract:X1", "L-22")
@pytest.mark.parametrize("who", ["client", "agent"])
async def test_the_failure_of_one_side_ends_both_and_is_raised(who: str) -> None:
    cause = TransportClosed("the cable is cut")
    async with between() as (client, agent, work):
        (client if who == "client" else agent).close(cause)
        with pytest.raises(ConnectionClosed) as caught:
            await work
        assert caught.value.cause is cause
        assert client.is_closed
        assert agent.is_closed


@pytest.mark.requirement("contract:X1", "contract:I3")
async def test_a_client_that_leaves_with_requests_open_is_no_reason_to_complain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with between() as (client, agent, work):
        client.send_request("m", id="a")
        await agent.receive_request()
        client.close()
        await work
        assert agent.is_closed
        [answer] = client.unreceived
        assert isinstance(answer, Response)
        assert answer.id == "a"
    assert caplog.records == []


@pytest.mark.requirement("contract:X2", "contract:X1", "T-45")
async def test_what_an_agent_said_before_it_failed_passes_the_whole_chain() -> None:
    client_end, client = create_mock_transport()
    agent_end, agent = create_mock_transport()
    cause = TransportClosed("the cable is cut")
    async with asyncio.timeout(5):
        work = asyncio.create_task(conduct(client_end, [signing("a")] * 3, agent_end))
        await settle()
        for number in range(100):
            agent.send_notification("event", [number])
        agent.close(cause)
        with pytest.raises(ConnectionClosed) as caught:
            await work
        assert caught.value.cause is cause
        heard = [message.params for message in client.unreceived]  # type: ignore[union-attr]
        assert heard == [[number, "a", "a", "a"] for number in range(100)]
        assert client.is_closed


class Unreachable(Transport):
    """Nobody is there."""

    def __init__(self) -> None:
        self.closed = 0

    async def open(self, receiver: Receiver) -> None:
        raise TransportError("nobody is there")

    def send(self, message: Message) -> None:
        raise AssertionError(message)

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.requirement("contract:X3")
@pytest.mark.parametrize("who", ["client", "agent"])
async def test_a_chain_with_an_end_nobody_can_reach_closes_the_other_end(who: str) -> None:
    reachable, peer = create_mock_transport()
    nobody = Unreachable()
    ends = (nobody, reachable) if who == "client" else (reachable, nobody)
    async with asyncio.timeout(5):
        with pytest.raises(TransportError, match="nobody is there"):
            await conduct(ends[0], [signing("a")] * 3, ends[1])
    assert peer.is_closed
    assert nobody.closed


@pytest.mark.requirement("contract:X3")
async def test_a_cancelled_chain_closes_both_ends() -> None:
    client_end, client = create_mock_transport()
    agent_end, agent = create_mock_transport()
    async with asyncio.timeout(5):
        work = asyncio.create_task(conduct(client_end, [signing("a")] * 3, agent_end))
        await settle()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
    assert client.is_closed
    assert agent.is_closed


async def test_a_chain_of_no_proxies_joins_its_ends() -> None:
    agent = Connection.builder().on_request("echo", lambda params, _: params)
    async with chain(agent) as connection:
        assert await connection.request("echo", [1]) == [1]


# Bounds


@pytest.mark.requirement("contract:B4", "contract:B5")
async def test_a_client_that_does_not_read_holds_the_agent_back_and_loses_nothing() -> None:
    count = 20_000
    sent = 0

    async def flood(_: Any, context: Context) -> None:
        nonlocal sent
        for number in range(count):
            await context.connection.notify("event", number)
            sent += 1

    heard: list[int] = []
    agent = Connection.builder().on_request("flood", flood)
    client = Connection.builder().on_notification("event", lambda n, _: heard.append(n))
    async with chain(agent, *[lambda m, _: m] * 2, client=client) as connection:
        connection.pause_reading()
        caller = asyncio.create_task(connection.request("flood"))
        await settle(2000)
        assert 0 < sent < count / 2
        assert heard == []
        connection.resume_reading()
        await caller
    assert heard == list(range(count))


@pytest.mark.requirement("contract:B5")
async def test_answers_a_client_does_not_read_hold_the_agent_back_as_well() -> None:
    async with between() as (client, agent, _):
        client.send_request("m", id="a")
        client.send_request("m", id="b")
        asked = [await agent.receive_request() for _ in range(2)]
        client.congest()
        agent.send_response(asked[0].id, 1)
        assert agent.is_paused
        agent.send_response(asked[1].id, 2)
        assert await client.receive() == Response("a", 1)
        await settle()
        assert client.unreceived == ()
        client.relieve()
        assert await client.receive() == Response("b", 2)
        assert not agent.is_paused


@pytest.mark.requirement("contract:B5")
async def test_an_agent_that_does_not_read_holds_the_client_back() -> None:
    async with between() as (client, agent, _):
        agent.congest()
        client.send_notification("one")
        assert client.is_paused
        client.send_notification("two")
        await settle()
        assert list(agent.unreceived) == [Notification("one")]
        agent.relieve()
        await settle()
        assert list(agent.unreceived) == [Notification("one"), Notification("two")]
        assert not client.is_paused


@pytest.mark.requirement("contract:B5")
async def test_however_much_comes_in_one_read_one_task_waits_for_the_agent_to_read() -> None:
    client = MessagePeer()
    agent_end, agent = create_mock_transport()
    async with asyncio.timeout(5):
        work = asyncio.create_task(proxy(client, agent_end))
        await settle()
        agent.congest()
        await client.say(*[Notification("event", number) for number in range(100)])
        assert len([t for t in asyncio.all_tasks() if "hold-back" in t.get_name()]) == 1
        assert len(agent.unreceived) == 100
        client.end()
        await work


@pytest.mark.requirement("contract:B4", "contract:B6")
async def test_what_finds_no_room_is_answered_or_ends_the_proxy_and_is_never_lost_in_silence() -> (
    None
):
    async with between() as (client, agent, work):
        agent.congest(full=True)
        client.send_request("m", id="a")
        refused = await client.receive_response()
        assert isinstance(refused.error, Error)
        assert refused.error.code == OVERLOADED
        agent.relieve()
        await settle()
        agent.congest(full=True)
        client.send_notification("m")
        with pytest.raises(ConnectionClosed):
            await work


# What is said before both sides are there


class Slow(Transport):
    """Opens when the test lets it."""

    def __init__(self, inner: Transport) -> None:
        self.may_open = asyncio.Event()
        self.inner = inner
        self.send = inner.send  # type: ignore[method-assign]

    async def open(self, receiver: Receiver) -> None:
        await self.may_open.wait()
        await self.inner.start(receiver)

    def send(self, message: Message) -> None: ...

    async def close(self) -> None:
        await self.inner.close()


@pytest.mark.requirement("T-45", "contract:B1", "contract:C5")
async def test_what_a_client_says_before_the_agent_is_there_is_passed_on_in_order() -> None:
    client_end, client = create_mock_transport()
    agent_end, agent = create_mock_transport()
    slow = Slow(agent_end)
    # Said while the proxy opens the transport: it is handed up before anybody can pause it.
    client.send_request("one", id="a")
    client.send_notification("two")
    client.send_request("three", id="b")
    client.send_notification(ACP.cancel_method, {"requestId": "b"})
    async with asyncio.timeout(5):
        work = asyncio.create_task(proxy(client_end, slow))
        await settle()
        assert client.is_paused  # so that no more than that can wait here
        client.send_notification("four")
        slow.may_open.set()
        one = await agent.receive_request()
        assert one.method == "one"
        assert await agent.receive() == Notification("two")
        three = await agent.receive_request()
        assert await agent.receive() == ACP.cancel(three.id)
        assert await agent.receive() == Notification("four")
        agent.send_response(one.id, 1)
        assert await client.receive() == Response("a", 1)
        client.close()
        await work


async def test_what_an_agent_says_before_it_is_asked_reaches_the_client() -> None:
    client_end, client = create_mock_transport()
    agent_end, agent = create_mock_transport()
    agent.send_notification("welcome")
    async with asyncio.timeout(5):
        work = asyncio.create_task(proxy(client_end, agent_end))
        assert await client.receive() == Notification("welcome")
        client.close()
        await work
