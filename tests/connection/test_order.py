"""What is promised about order, seen from outside, and that waiting in a handler is always safe."""

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    Connection,
    ConnectionStats,
    Context,
    Limits,
    Message,
    Notification,
    Request,
    Response,
    channel_pair,
)
from tests.connection.peers import MessagePeer, StreamPeer, logged, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")

# Going out


@pytest.mark.requirement("contract:O1", "L-8", "L-33")
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
async def test_frames_leave_whole_and_in_the_order_of_the_calls_also_when_callers_are_cancelled(
    seed: int,
) -> None:
    chance = random.Random(seed)
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        callers: list[asyncio.Task[Any]] = []
        expected: list[int] = []
        for n in range(30):
            match chance.randrange(4):
                case 0:
                    connection.send_notification("n", n)
                    expected.append(n)
                case 1:
                    connection.send_request("r", n, lambda outcome: None)
                    expected.append(n)
                case 2:
                    callers.append(asyncio.create_task(connection.request("r", n)))
                    expected.append(n)
                    await asyncio.sleep(0)
                case _:
                    if callers:
                        chance.choice(callers).cancel()
                    await settle(chance.randrange(2))
        await settle()
        assert [message["params"] for message in peer.heard] == expected
        for caller in callers:
            caller.cancel()
        await asyncio.gather(*callers, return_exceptions=True)


# Coming in


@pytest.mark.requirement("contract:O2", "T-22", "L-18")
async def test_messages_are_routed_in_wire_order_before_any_handler_goes_on() -> None:
    seen: list[str] = []
    blocked = asyncio.Event()

    async def wait(params: Any, context: Context) -> None:
        seen.append("handler")
        await blocked.wait()

    def route(message: Message, context: Context | None, size: int) -> bool:
        assert not isinstance(message, Response)
        seen.append(message.method)  # type: ignore[union-attr]
        return message.method.startswith("routed")  # type: ignore[union-attr]

    peer = MessagePeer()
    builder = Connection.builder().on_request("wait", wait).route(route)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        connection.send_request("m", None, lambda outcome: seen.append("response"))
        await peer.say(
            Notification("routed 1"), Request(1, "wait"), Response(1, None), Request(2, "routed 2")
        )
        assert seen == ["routed 1", "wait", "response", "routed 2", "handler"]
        blocked.set()


@pytest.mark.requirement("contract:O2", "L-15", "L-19")
async def test_a_handler_that_never_returns_holds_up_neither_responses_nor_requests() -> None:
    async def stuck(params: Any, context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    peer = MessagePeer()
    builder = (
        Connection.builder()
        .on_request("stuck", stuck)
        .on_notification("stuck", stuck)
        .on_request("echo", lambda params, context: params)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m"))
        await peer.heard(1)
        await peer.say(Request(1, "stuck"), Notification("stuck"), Notification("stuck"))
        await peer.say(Request(2, "echo", "through"), Response(1, "through"))
        assert await caller == "through"
        await settle()
        assert peer.responses == {2: Response(2, "through")}


@pytest.mark.requirement("contract:O3")
@settings(max_examples=30)
@given(
    waits=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    read_size=st.integers(1, 30),
)
async def test_requests_start_in_wire_order_and_run_side_by_side(
    waits: list[int], read_size: int
) -> None:
    started: list[int] = []

    async def handle(params: int, context: Context) -> None:
        started.append(params)
        for _ in range(waits[params]):
            await asyncio.sleep(0)

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", handle).connect(peer):
        requests = [Request(n, "m", n) for n in range(len(waits))]
        for start in range(0, len(waits), read_size):
            await peer.say(*requests[start : start + read_size])
        await settle()
        assert started == list(range(len(waits)))
        assert sorted(peer.responses) == started


@pytest.mark.requirement("contract:O3")
async def test_all_the_requests_of_one_read_run_at_once() -> None:
    arrived = asyncio.Barrier(64)

    async def meet(params: Any, context: Context) -> str:
        await arrived.wait()  # opens when all 64 are here
        return "met"

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("meet", meet).connect(peer):
        await peer.say(*(Request(n, "meet") for n in range(64)))
        await peer.heard(64)
        assert {response.result for response in peer.responses.values()} == {"met"}


@pytest.mark.requirement("contract:O3", "L-18")
@settings(max_examples=30)
@given(
    waits=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    read_size=st.integers(1, 30),
)
async def test_notifications_are_handled_strictly_one_after_the_other(
    waits: list[int], read_size: int
) -> None:
    seen: list[tuple[str, int]] = []

    async def handle(params: int, context: Context) -> None:
        seen.append(("begin", params))
        for _ in range(waits[params]):
            await asyncio.sleep(0)
        seen.append(("end", params))

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_notification("m", handle).connect(peer):
        messages = [Notification("m", n) for n in range(len(waits))]
        for start in range(0, len(waits), read_size):
            await peer.say(*messages[start : start + read_size])
        await settle(200)
        assert seen == [(what, n) for n in range(len(waits)) for what in ("begin", "end")]


@pytest.mark.requirement("contract:O3", "L-15")
async def test_a_notification_that_waits_holds_up_later_notifications_but_no_request() -> None:
    seen: list[str] = []
    release = asyncio.Event()

    async def wait(params: Any, context: Context) -> None:
        seen.append("waits")
        await release.wait()
        seen.append("waited")

    builder = (
        Connection.builder()
        .on_notification("wait", wait)
        .on_notification("n", lambda params, context: seen.append(params))
        .on_request("r", lambda params, context: seen.append(params))
    )
    peer = MessagePeer()
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(
            Notification("wait"), Notification("n", "n1"), Request(1, "r", "r1"),
            Notification("n", "n2"), Request(2, "r", "r2"),
        )  # fmt: skip
        await peer.heard(2)
        await peer.say(Notification("n", "n3"))
        await settle()
        assert seen == ["waits", "r1", "r2"]
        release.set()
        await settle()
        assert seen == ["waits", "r1", "r2", "waited", "n1", "n2", "n3"]


@pytest.mark.requirement("contract:O3", "contract:O6")
async def test_a_notification_handler_that_fails_or_is_disappointed_goes_and_the_next_comes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []
    disappointment: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handle(params: Any, context: Context) -> None:
        seen.append(params)
        if params == "fails":
            raise ValueError(params)
        if params == "waits for what is cancelled":
            await disappointment

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_notification("m", handle).connect(peer):
        order = ["fails", "waits for what is cancelled", "second", "third"]
        await peer.say(*(Notification("m", text) for text in order))
        await settle()
        assert seen == order[:2]
        disappointment.cancel()
        await settle()
        assert seen == order
        await peer.say(Notification("m", "fourth"))
        await settle()
        assert seen == [*order, "fourth"]
    assert len(logged(caplog)) == 2


@pytest.mark.requirement("contract:O3", "contract:I3")
async def test_a_request_handler_whose_wait_is_cancelled_elsewhere_is_answered_as_failed() -> None:
    disappointment: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def handle(params: Any, context: Context) -> Any:
        if params == "waits":
            await disappointment
        return params

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", handle).connect(peer):
        await peer.say(Request(0, "m", "first"))
        await peer.say(Request(1, "m", "waits"), Request(2, "m", "second"))
        disappointment.cancel()
        await peer.say(Request(3, "m", "third"))
        await peer.heard(4)
        responses = peer.responses
        assert responses.pop(1).error.code == -32603  # type: ignore[union-attr]
        assert [response.result for response in responses.values()] == ["first", "second", "third"]


@pytest.mark.requirement("contract:O3", "contract:B6")
async def test_those_that_waited_their_turn_begin_when_it_comes_and_need_no_new_message() -> None:
    release = [asyncio.Event(), asyncio.Event()]
    begun: list[Any] = []

    async def wait(params: int, context: Context) -> None:
        begun.append(params)
        if params < 2:
            await release[params].wait()

    peer = MessagePeer()
    limits = Limits(running_handlers=2)
    builder = Connection.builder().on_request("m", wait).on_notification("m", wait).limits(limits)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(0, "m", 0), Request(1, "m", 1), Request(2, "m", 2))
        await peer.say(Notification("m", 3), Request(4, "m", 4))
        await settle()
        assert begun == [0, 1]
        release[0].set()
        await settle()
        assert begun == [0, 1, 2, 3, 4]
        release[1].set()
        await peer.heard(4)


@pytest.mark.requirement("contract:O4", "L-11", "L-16")
@pytest.mark.parametrize("reads", [1, 2], ids=["in the same read", "in an earlier read"])
async def test_when_a_request_returns_the_notifications_before_its_response_were_delivered(
    reads: int,
) -> None:
    delivered: list[Any] = []

    def route(message: Message, context: Context | None, size: int) -> bool:
        delivered.append(message)
        return True

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().route(route).connect(peer) as connection:
        for turn in range(1, 4):  # the first is no different from the others
            caller = asyncio.create_task(connection.request("prompt"))
            await peer.heard(turn)
            pieces = [Notification("piece", n) for n in range(5)]
            if reads == 1:
                await peer.say(*pieces, Response(turn, "end of turn"), Notification("late"))
            else:
                await peer.say(*pieces)
                await peer.say(Response(turn, "end of turn"), Notification("late"))
            assert await caller == "end of turn"
            assert delivered[: len(pieces)] == pieces
            delivered.clear()


@pytest.mark.requirement("contract:O4", "L-16")
@pytest.mark.parametrize("wire", ["message", "stream", "channel"])
async def test_when_a_request_returns_handlers_that_need_not_wait_have_seen_what_came_before(
    wire: str,
) -> None:
    seen: list[int] = []
    builder = Connection.builder().on_notification("piece", lambda n, context: seen.append(n))

    async def prompt(params: Any, context: Context) -> str:
        for n in range(5):
            context.connection.send_notification("piece", n)
        return "end of turn"

    async with asyncio.timeout(5):
        for _ in range(3):
            if wire == "channel":
                left, right = channel_pair()
                agent = Connection.builder().on_request("prompt", prompt)
                async with agent.connect(right), builder.connect(left) as connection:
                    for again in range(1, 4):
                        await connection.request("prompt")
                        assert seen == [0, 1, 2, 3, 4] * again
            elif wire == "stream":
                stream = StreamPeer()
                async with builder.connect(stream) as connection:
                    lines = [b'{"method":"piece","params":%d}\n' % n for n in range(5)]
                    for again in range(1, 4):
                        stream.say(b"".join(lines) + b'{"id":%d,"result":1}\n' % again)
                        await connection.request("prompt")
                        assert seen == [0, 1, 2, 3, 4] * again
            else:
                peer = MessagePeer()
                async with builder.connect(peer) as connection:
                    for again in range(1, 4):
                        caller = asyncio.create_task(connection.request("prompt"))
                        await peer.heard(again)
                        pieces = (Notification("piece", n) for n in range(5))
                        at_return: list[int] = []
                        caller.add_done_callback(lambda _: at_return.extend(seen))  # noqa: B023
                        await peer.say(*pieces, Response(again, "end of turn"))
                        await caller
                        assert seen == [0, 1, 2, 3, 4] * again
            seen.clear()


# Waiting inside a handler


def stats(connection: Connection) -> ConnectionStats:
    return connection.stats()


def nesting(depth_limit: int) -> Any:
    """Return a handler that asks the other side back until it is deep enough."""

    async def handle(depth: int, context: Context) -> int:
        if depth == depth_limit:
            return depth
        answer: int = await context.connection.request("deeper", depth + 1, timeout=None)
        return answer

    return handle


@pytest.mark.requirement("contract:O6", "L-15", "L-17")
@pytest.mark.parametrize(("callers", "depth"), [(1, 200), (64, 6)])
async def test_handlers_may_ask_back_and_forth_many_times_deep(callers: int, depth: int) -> None:
    left, right = channel_pair()
    builder = Connection.builder().on_request("deeper", nesting(depth))
    async with (
        asyncio.timeout(10),
        builder.connect(right),
        builder.connect(left) as us,
        asyncio.TaskGroup() as group,
    ):
        answers = [group.create_task(us.request("deeper", 0)) for _ in range(callers)]
    assert [answer.result() for answer in answers] == [depth] * callers


@pytest.mark.requirement("contract:O6", "L-15")
async def test_sixty_four_requests_of_one_read_may_all_wait_for_requests_of_their_own() -> None:
    async def ask_back(params: int, context: Context) -> Any:
        return [
            await context.connection.request("back", params),
            await context.connection.request("back", -params),
        ]

    peer = StreamPeer()
    builder = Connection.builder().on_request("m", ask_back)
    async with asyncio.timeout(10), builder.connect(peer) as connection:
        peer.say(b"".join(b'{"id":"%d","method":"m","params":%d}\n' % (n, n) for n in range(64)))
        answered = 0
        for _ in range(2):
            await settle()
            asked = peer.heard[answered:]
            assert len(asked) == 64
            answered += 64
            peer.say(
                b"".join(
                    msgspec.json.encode({"id": message["id"], "result": message["params"]}) + b"\n"
                    for message in reversed(asked)
                )
            )
        await settle()
        results = {int(message["id"]): message["result"] for message in peer.heard[128:]}
        assert results == {n: [n, -n] for n in range(64)}
        assert connection.stats().requests_running == 0


@pytest.mark.requirement("contract:O6", "L-17")
async def test_a_notification_handler_may_wait_for_a_request_of_its_own() -> None:
    seen: list[Any] = []

    async def fetch(params: Any, context: Context) -> None:
        seen.append((params, await context.connection.request("fetch", params)))

    left, right = channel_pair()
    server = Connection.builder().on_request("fetch", lambda params, context: params * 2)
    client = Connection.builder().on_notification("changed", fetch)
    async with asyncio.timeout(5), server.connect(right) as them, client.connect(left):
        for n in range(5):
            await them.notify("changed", n)
        await settle()
        assert seen == [(n, n * 2) for n in range(5)]


@pytest.mark.requirement("contract:O6", "L-15")
@settings(max_examples=30)
@given(data=st.data())
async def test_random_crowds_of_nested_calls_and_notifications_never_get_stuck(
    data: st.DataObject,
) -> None:
    chance = random.Random(data.draw(st.integers(0, 2**32)))

    async def handle(depth: int, context: Context) -> int:
        for _ in range(chance.randrange(3)):
            match chance.randrange(3):
                case 0:
                    await asyncio.sleep(0)
                case 1 if depth < 4:
                    assert await context.connection.request("m", depth + 1) == depth + 1
                case _:
                    context.connection.send_notification("n", depth)
        return depth

    async def note(params: int, context: Context) -> None:
        if chance.randrange(4) == 0:
            await context.connection.request("m", 4)

    left, right = channel_pair()
    builder = Connection.builder().on_request("m", handle).on_notification("n", note)
    async with asyncio.timeout(20), builder.connect(right) as them, builder.connect(left) as us:
        ends = (us, them)
        results = await asyncio.gather(*(chance.choice(ends).request("m", 0) for _ in range(20)))
        assert results == [0] * 20
        for _ in range(100):
            await settle()
            if all(s.notifications_waiting + s.requests_pending == 0 for s in map(stats, ends)):
                break
        assert [s.notifications_waiting for s in map(stats, ends)] == [0, 0]
        assert [s.requests_pending + s.requests_running for s in map(stats, ends)] == [0, 0]


@pytest.mark.requirement("contract:O6", "contract:B6")
async def test_more_requests_than_may_run_wait_their_turn_without_getting_stuck() -> None:
    running, most = 0, 0

    async def handle(params: int, context: Context) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        answer = await context.connection.request("back", params)
        running -= 1
        return answer

    left, right = channel_pair()
    server = Connection.builder().on_request("m", handle).limits(Limits(running_handlers=3))
    client = Connection.builder().on_request("back", lambda params, context: params)
    async with asyncio.timeout(5), server.connect(right), client.connect(left) as us:
        answers = await asyncio.gather(*(us.request("m", n) for n in range(50)))
        assert answers == list(range(50))
        assert most == 3
