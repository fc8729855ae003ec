"""One session's end of the connection: what it receives, how a turn is read, how it ends."""

import asyncio
import gc
import random
import time
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import RemoteError, SlowConsumer, WouldDeadlock
from bullpen.connection.channel import Overflow, SessionChannel, SessionLimits
from bullpen.connection.errors import SessionBusy, SessionEnded, SessionFailed
from bullpen.connection.routed import (
    Cancelled,
    Idle,
    PendingToolCall,
    PermissionRequest,
    SessionEvent,
)
from bullpen.connection.router import MessageRouter
from bullpen.testing.cli_server import FakeCliServer, FakeSession
from tests.connection.routers import (
    BareServer,
    in_pieces,
    numbers,
    opened,
    routed,
    settle,
    sockets,
)

texts = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=12), max_size=20)


def flood(session: FakeSession, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        session.emit("number", {"number": number})


# Receiving


@pytest.mark.requirement("D-25")
async def test_a_channel_works_after_its_creator_let_go_of_the_router() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), server.connected(sockets) as transport:

        async def create() -> SessionChannel:
            router = await MessageRouter.open(transport)
            return (await router.create_session({"sessionId": "mine"}))[1]

        channel = await create()
        gc.collect()
        await settle()
        assert channel.session_id == "mine"
        server.sessions["mine"].answer("still ", "here")
        assert await channel.read_streaming() == "still here"
        await channel.router.aclose()


@pytest.mark.requirement("D-26", "contract:O3")
async def test_messages_are_received_in_the_order_they_were_sent() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, in_pieces(50)) as router:
        channel, session = await opened(router, server)
        flood(session, 200)
        assert await numbers(channel, 200) == list(range(200))


@pytest.mark.requirement("D-26")
async def test_a_second_receiver_is_told_that_the_session_is_being_read() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        first = asyncio.ensure_future(channel.recv())
        await settle()
        with pytest.raises(SessionBusy):
            await channel.recv()
        with pytest.raises(SessionBusy):
            await channel.read_streaming()
        flood(session, 1)
        message = await first
        assert isinstance(message, SessionEvent)
        assert message.data == {"number": 0}
        assert server.count("session.abort") == 0


@pytest.mark.requirement("D-26")
@pytest.mark.parametrize("read", [SessionChannel.recv, SessionChannel.read_streaming])
async def test_a_receiver_overtaken_by_another_is_neither_lost_nor_forgotten(
    read: Callable[[SessionChannel], Any],
) -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        channel = await server.open(router)
        first = asyncio.ensure_future(read(channel))

        async def overtake() -> list[Any]:
            await router.request("ping")  # answered in the same read as the event comes in
            return [await channel.recv()]

        second = asyncio.ensure_future(overtake())
        ping = await server.hear_of("ping")
        event = server.event(channel.session_id, "number", number=1)
        server.say({"jsonrpc": "2.0", "id": ping["id"], "result": None}, event)
        with pytest.raises(SessionBusy):  # though the first has been called already
            await second
        server.say(server.event(channel.session_id, "session.idle"))
        outcome = await first
        assert outcome == "" or outcome.event_type == "number"
        router.send_request("end")
        assert (await server.hear())["method"] == "end"  # and no turn was aborted


@pytest.mark.requirement("D-26")
async def test_a_reading_whose_place_was_taken_while_it_answered_says_so_and_aborts_nothing() -> (
    None
):
    server = FakeCliServer()
    gate = server.hold("session.permissions.handlePendingPermissionRequest")
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        reading = asyncio.ensure_future(channel.read_streaming())
        decision = session.ask_permission("shell")
        asked = await gate.next()
        consumed: list[Any] = []
        consuming = asyncio.ensure_future(channel.consume(consumed.append))
        await settle()
        asked.proceed()
        with pytest.raises(SessionBusy):
            await reading
        flood(session, 1)
        await router.request("ping")
        assert consumed[-1].event_type == "number"
        assert server.count("session.abort") == 0
        consuming.cancel()
        del decision


@pytest.mark.requirement("D-26", "contract:B4")
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
async def test_a_receiver_cancelled_at_any_moment_loses_no_message(seed: int) -> None:
    server = FakeCliServer()
    chance = random.Random(seed)
    received: list[Any] = []
    async with asyncio.timeout(10), routed(server, in_pieces(chance.choice([20, 5000]))) as router:
        channel, session = await opened(router, server)
        sent = 0
        while len(received) < 30:
            receiving = asyncio.ensure_future(channel.recv())
            if sent < 30 and chance.random() < 0.7:
                flood(session, 1, sent)
                sent += 1
            await settle(chance.randrange(12))
            receiving.cancel()
            (outcome,) = await asyncio.gather(receiving, return_exceptions=True)
            if isinstance(outcome, SessionEvent):
                received.append(outcome.data["number"])
        assert received == list(range(30))


# Reading a turn


@pytest.mark.requirement("D-27", "L-11", "L-28")
@settings(max_examples=60)
@given(pieces=texts, piece=st.sampled_from([7, 64, 10_000]))
async def test_the_pieces_of_a_turn_add_up_to_what_is_returned(
    pieces: list[str], piece: int
) -> None:
    server = FakeCliServer()
    async with asyncio.timeout(10), routed(server, in_pieces(piece)) as router:
        channel, session = await opened(router, server)
        chunks: list[str] = []
        session.answer(*pieces)
        text = await channel.read_streaming(chunks.append)
        assert text == "".join(pieces) == "".join(chunks)
        assert chunks == pieces


@pytest.mark.requirement("L-11", "D-27")
async def test_a_turn_ends_where_the_server_says_so_and_the_next_begins_there() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        session.answer("first")
        session.answer("second")
        session.delta("third")
        assert await channel.read_streaming() == "first"
        assert await channel.read_streaming() == "second"
        reading = asyncio.ensure_future(channel.read_streaming())
        await settle()
        assert not reading.done()
        session.idle()
        assert await reading == "third"


@pytest.mark.requirement("D-27")
async def test_pieces_are_handed_out_as_they_come() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        chunks: asyncio.Queue[str] = asyncio.Queue()
        reading = asyncio.ensure_future(channel.read_streaming(chunks.put_nowait))
        for word in ("one ", "two ", "three"):
            session.delta(word)
            assert await chunks.get() == word
        session.idle()
        assert await reading == "one two three"


@pytest.mark.requirement("D-28", "L-9")
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_turn_stops_at_a_tool_call_and_goes_on_after_its_result(protocol: int) -> None:
    server = FakeCliServer(protocol=protocol)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        chunks: list[str] = []
        session.say("Let me ", "look. ")
        first = session.call_tool("get_weather", {"city": "Oslo"})
        outcome = await channel.read_streaming_for_tools(chunks.append)
        assert isinstance(outcome, PendingToolCall)
        assert outcome.text == "Let me look. "
        assert outcome.request_id == outcome.call.request_id
        assert (outcome.params.tool_name, outcome.params.arguments) == (
            "get_weather",
            {"city": "Oslo"},
        )
        await channel.answer_tool_call(outcome.call, {"celsius": 12})
        assert await first == {"textResultForLlm": '{"celsius":12}', "resultType": "success"}
        second = session.call_tool("get_weather", {"city": "Rome"})
        outcome = await channel.read_streaming_for_tools(chunks.append)
        assert isinstance(outcome, PendingToolCall)
        await channel.answer_tool_call(outcome.call, error="no such city")
        assert await second == {
            "textResultForLlm": "no such city",
            "resultType": "failure",
            "error": "no such city",
        }
        session.say("It rains.")
        session.idle()
        outcome = await channel.read_streaming_for_tools(chunks.append)
        assert outcome == Idle("Let me look. It rains.")
        assert chunks == ["Let me ", "look. ", "It rains."]


@pytest.mark.requirement("D-33")
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_tool_called_in_a_plain_reading_is_refused_and_the_reading_goes_on(
    protocol: int,
) -> None:
    server = FakeCliServer(protocol=protocol)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        reading = asyncio.ensure_future(channel.read_streaming())
        session.delta("before, ")
        result = await session.call_tool("get_weather")
        assert result["resultType"] == "failure"
        assert "get_weather is not available in this session" in result["textResultForLlm"]
        session.delta("after")
        session.idle()
        assert await reading == "before, after"


async def allow(asked: PermissionRequest) -> bool:
    await asyncio.sleep(0)
    return asked.kind == "read"


@pytest.mark.requirement("L-9")
@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("permit", [None, allow, lambda asked: asked.kind == "read"])
async def test_leave_is_given_as_decided_and_otherwise_refused(
    protocol: int, permit: Callable[[PermissionRequest], Any] | None
) -> None:
    server = FakeCliServer(protocol=protocol)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, permit=permit)
        reading = asyncio.ensure_future(channel.read_streaming())
        decisions = [(await session.ask_permission(kind))["kind"] for kind in ("read", "shell")]
        yes, no = ("approved", "denied-interactively-by-user")
        if protocol == 3:
            yes, no = ("approve-once", "reject")
        assert decisions == [yes if permit is not None else no, no]
        session.answer("done")
        assert await reading == "done"


@pytest.mark.requirement("L-4")
async def test_a_request_nobody_can_handle_is_refused_while_a_turn_is_read() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        reading = asyncio.ensure_future(channel.read_streaming())
        with pytest.raises(RemoteError) as caught:
            await session.request("hooks.invoke", hookType="sessionStart", input={})
        assert caught.value.code == -32601
        session.answer("done")
        assert await reading == "done"


@pytest.mark.requirement("D-34", "D-08")
@pytest.mark.parametrize("says_idle", [True, False])
async def test_an_error_of_the_session_ends_the_reading_and_nothing_else(
    says_idle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bullpen.connection.channel.ERROR_DRAIN_SECONDS", 0.02)
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        other, others_session = await opened(router, server)
        reading = asyncio.ensure_future(other.read_streaming())
        session.delta("this much ")
        session.error("400 no such model", "query", 400)
        if says_idle:
            session.idle()
        with pytest.raises(SessionFailed, match="400 no such model") as caught:
            await channel.read_streaming()
        assert caught.value.message == "400 no such model"
        others_session.answer("not affected")
        assert await reading == "not affected"
        await channel.settle()
        session.answer("better now")
        assert await channel.read_streaming() == "better now"


# Giving a turn up


async def prompt(router: MessageRouter, channel: SessionChannel, text: str) -> None:
    await router.request("session.send", {"sessionId": channel.session_id, "prompt": text})


@pytest.mark.requirement("D-29", "L-12", "contract:C4")
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_reading_whose_token_is_set_ends_and_the_next_turn_is_clean(protocol: int) -> None:
    server = FakeCliServer(protocol=protocol)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        await prompt(router, channel, "first")
        token = asyncio.Event()
        session.delta("never to ")
        reading = asyncio.ensure_future(
            channel.read_streaming_with_cancellation(lambda text: token.set(), token)
        )
        assert await reading == Cancelled("never to ")
        assert server.count("session.abort") == 1
        assert not session.is_processing
        await prompt(router, channel, "second")
        session.answer("clean")
        assert await channel.read_streaming() == "clean"


@pytest.mark.requirement("D-29")
async def test_a_token_that_was_set_before_ends_the_reading_at_once() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, _ = await opened(router, server)
        await prompt(router, channel, "hello")
        token = asyncio.Event()
        token.set()
        outcome = await channel.read_streaming_with_cancellation(None, token)
        assert outcome == Cancelled("")


@pytest.mark.requirement("D-29")
async def test_a_token_that_is_never_set_changes_nothing() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        token = asyncio.Event()
        session.answer("all ", "of it")
        outcome = await channel.read_streaming_with_cancellation(None, token)
        assert outcome == Idle("all of it")
        session.error("broken")
        with pytest.raises(SessionFailed):
            await channel.read_streaming_with_cancellation(None, token)
        assert server.count("session.abort") == 0


@pytest.mark.requirement("L-12", "contract:C4", "D-29")
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
async def test_after_a_reading_cancelled_at_any_moment_the_next_turn_is_clean(seed: int) -> None:
    chance = random.Random(seed)
    server = FakeCliServer(protocol=chance.choice([2, 3]))
    async with (
        asyncio.timeout(10),
        routed(server, chance.choice([sockets, in_pieces(30)])) as router,
    ):
        channel, session = await opened(router, server)
        await prompt(router, channel, "first")
        reading = asyncio.ensure_future(channel.read_streaming())
        await asyncio.sleep(0)  # a reading that never began has no turn to give up
        asked: list[Any] = []
        for _ in range(chance.randrange(6)):
            step = chance.randrange(4)
            if step == 0:
                asked.append(session.call_tool("t"))
            elif step == 1:
                asked.append(session.ask_permission("shell"))
            else:
                session.delta("stale ")
            await settle(chance.randrange(5))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await server.wait_for("session.abort")
        await channel.settle()
        await prompt(router, channel, "second")
        session.answer("fresh")
        assert await channel.read_streaming() == "fresh"
        if server.protocol == 2:  # every request gets its answer, also those of a turn given up
            await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 1)


@pytest.mark.requirement("L-12", "contract:C4")
@pytest.mark.parametrize(
    "method",
    [
        "session.tools.handlePendingToolCall",
        "session.permissions.handlePendingPermissionRequest",
    ],
)
async def test_after_a_reading_cancelled_while_it_answers_the_next_turn_is_clean(
    method: str,
) -> None:
    server = FakeCliServer()
    gate = server.hold(method)
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        await prompt(router, channel, "first")
        reading = asyncio.ensure_future(channel.read_streaming())
        answer = session.call_tool("t") if "tools" in method else session.ask_permission("shell")
        session.delta("stale")
        await gate.next()
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        gate.open()
        await channel.settle()
        await prompt(router, channel, "second")
        session.answer("fresh")
        assert await channel.read_streaming() == "fresh"
        assert server.count("session.abort") == 1
        del answer


@pytest.mark.requirement("L-12", "contract:C4")
async def test_after_a_reading_whose_callback_failed_the_next_turn_is_clean() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        await prompt(router, channel, "first")
        session.delta("one ")
        session.delta("two ")

        def fail(text: str) -> None:
            raise LookupError(text)

        with pytest.raises(LookupError, match="one"):
            await channel.read_streaming(fail)
        await channel.settle()
        assert server.count("session.abort") == 1
        await prompt(router, channel, "second")
        session.answer("fresh")
        assert await channel.read_streaming() == "fresh"


@pytest.mark.requirement("L-12", "contract:C4")
async def test_a_turn_that_does_not_end_when_aborted_costs_the_session_and_no_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bullpen.connection.channel.DRAIN_SECONDS", 0.02)
    server = FakeCliServer("swallow session.abort")
    server.is_scripted = False
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        other, others_session = await opened(router, server)
        await prompt(router, channel, "first")
        session.delta("on ")
        with pytest.raises(SessionFailed, match="did not end when aborted"):
            await channel.abort()
        session.delta("and on")
        for attempt in (channel.recv, channel.read_streaming):
            with pytest.raises(SessionFailed):
                await attempt()
        others_session.answer("not affected")
        assert await other.read_streaming() == "not affected"
        await channel.aclose()
        assert channel.session_id not in server.sessions


@pytest.mark.requirement("L-12", "L-4")
@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_tool_call_of_a_turn_given_up_is_answered_all_the_same(protocol: int) -> None:
    server = FakeCliServer(protocol=protocol)
    gate = server.hold("session.abort")
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        await prompt(router, channel, "first")
        aborting = asyncio.ensure_future(channel.abort())
        asked = await gate.next()
        result = await session.call_tool("t")
        assert result["resultType"] == "failure"
        assert "cancelled" in result["textResultForLlm"]
        asked.proceed()
        await aborting


# A handler of its own


@pytest.mark.requirement("contract:O6", "L-15", "L-17")
async def test_a_handler_may_make_requests_and_use_other_sessions() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        other, others_session = await opened(router, server)
        done: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()

        async def handle(message: Any) -> None:
            pong = await router.request("ping", {"message": "from inside"})
            others_session.answer("of another session")
            done.set_result([pong["message"], await other.read_streaming()])

        consuming = asyncio.ensure_future(channel.consume(handle))
        flood(session, 1)
        assert await done == ["pong: from inside", "of another session"]
        consuming.cancel()


@pytest.mark.requirement("contract:O6")
@pytest.mark.parametrize(
    "wait",
    [
        SessionChannel.recv,
        SessionChannel.read_streaming,
        SessionChannel.read_streaming_for_tools,
        lambda channel: channel.consume(print),
    ],
    ids=["recv", "read_streaming", "read_streaming_for_tools", "consume"],
)
@pytest.mark.parametrize("queued", [0, 1])
async def test_a_handler_that_waits_for_its_own_session_is_told_so(
    wait: Callable[[SessionChannel], Any], queued: int
) -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        flood(session, 1 + queued)

        async def handle(message: Any) -> None:
            await wait(channel)

        with pytest.raises(WouldDeadlock):
            await channel.consume(handle)
        flood(session, 1, 8)
        assert (await numbers(channel, queued + 1))[-1] == 8
        assert server.count("session.abort") == 0


@pytest.mark.requirement("contract:O3")
async def test_a_handler_gets_one_message_after_the_other_until_the_session_is_closed() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        handled: list[int] = []
        running = 0

        async def handle(message: Any) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await settle(3)
            handled.append(message.data["number"])
            running -= 1

        consuming = asyncio.ensure_future(channel.consume(handle))
        flood(session, 10)
        while len(handled) < 10:
            await settle(5)
        await channel.aclose()
        await consuming
        assert handled == list(range(10))


# Reading too slowly


@pytest.mark.requirement("contract:B3", "L-29", "contract:B1")
async def test_a_session_over_its_limit_for_too_long_ends_after_what_was_queued() -> None:
    server = FakeCliServer()
    limits = SessionLimits(events=10, grace_seconds=0.02)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, limits=limits)
        flood(session, 15)
        await router.request("ping")
        await asyncio.sleep(0.05)  # it is the passing of time that is tested
        session.emit("number", {"number": "lost"})
        assert await numbers(channel, 15) == list(range(15))
        with pytest.raises(SlowConsumer) as caught:
            await channel.recv()
        assert (caught.value.key, caught.value.events) == (channel.session_id, 15)
        assert caught.value.bytes > 15 * 50
        with pytest.raises(SlowConsumer):
            await channel.read_streaming()


@pytest.mark.requirement("contract:B3", "L-29")
async def test_a_session_that_catches_up_in_time_goes_on_and_may_fall_behind_again() -> None:
    server = FakeCliServer()
    limits = SessionLimits(events=10, grace_seconds=0.5)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, limits=limits)
        for start in (0, 15, 30):  # slow, but not stuck
            flood(session, 15, start)
            await router.request("ping")
            assert await numbers(channel, 15) == list(range(start, start + 15))
        await asyncio.sleep(0.7)
        flood(session, 12, 45)  # over the limit again, by less than it once was
        await router.request("ping")
        await asyncio.sleep(0.7)
        assert await numbers(channel, 12) == list(range(45, 57))
        with pytest.raises(SlowConsumer):
            await channel.recv()


@pytest.mark.requirement("contract:B3", "contract:B1")
@pytest.mark.parametrize(
    "limits",
    [SessionLimits(events=10, grace_seconds=60), SessionLimits(bytes=4000, grace_seconds=60)],
    ids=["events", "bytes"],
)
async def test_a_session_at_twice_its_limit_ends_at_once(limits: SessionLimits) -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, limits=limits)
        flood(session, 100)
        await router.request("ping")
        stats = channel.stats()
        assert stats.queued_events <= 2 * 10 + 20
        assert stats.dropped == 100 - stats.queued_events
        received = await numbers(channel, stats.queued_events)
        assert received == list(range(stats.queued_events))
        with pytest.raises(SlowConsumer):
            await channel.recv()


@pytest.mark.requirement("contract:B2", "contract:B3")
async def test_a_session_that_ended_for_slowness_delays_nobody_and_can_be_closed() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        slow, session = await opened(router, server, limits=SessionLimits(events=5))
        other, others_session = await opened(router, server)
        flood(session, 1000)
        others_session.answer("at its own pace")
        assert await other.read_streaming() == "at its own pace"
        assert (await router.request("ping"))["protocolVersion"] == 3
        await slow.aclose()
        assert set(server.sessions) == {other.session_id}


@pytest.mark.requirement("L-4", "contract:B3")
async def test_a_tool_call_to_a_session_that_ended_for_slowness_is_answered() -> None:
    server = FakeCliServer(protocol=2)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, limits=SessionLimits(events=5))
        flood(session, 100)
        with pytest.raises(RemoteError):
            await session.call_tool("t")
        assert channel.stats().queued_events > 0


@pytest.mark.requirement("contract:B1")
async def test_a_session_tells_how_much_waits_and_how_much_ever_waited() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server)
        before = channel.stats()
        flood(session, 50)
        await router.request("ping")
        assert await numbers(channel, 20) == list(range(20))
        stats = channel.stats()
        assert (stats.queued_events, stats.most_queued_events) == (30, 50)
        assert stats.delivered == before.delivered + 50
        assert 30 * 100 < stats.queued_bytes < 30 * 400
        assert stats.dropped == 0
        assert router.stats().queued_events == 30
        assert router.stats().queued_bytes == stats.queued_bytes
        await numbers(channel, 30)
        assert (channel.stats().queued_events, channel.stats().queued_bytes) == (0, 0)


@pytest.mark.requirement("L-29", "contract:B4")
async def test_a_burst_of_fifty_thousand_events_is_survived_by_default() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(30), routed(server) as router:
        channel, session = await opened(router, server)
        flood(session, 50_000)
        assert await numbers(channel, 50_000) == list(range(50_000))


@pytest.mark.requirement("contract:B3", "L-28")
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
async def test_pieces_joined_for_a_slow_reader_are_the_same_text(seed: int) -> None:
    chance = random.Random(seed)
    server = FakeCliServer()
    limits = SessionLimits(events=30, overflow=Overflow.COALESCE, grace_seconds=60)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, limits=limits)
        expected = ""
        expected_of: dict[str, str] = {}
        for number in range(500):
            piece = chance.choice(["a", "é", "語", "😀", " ", "\n"]) * chance.randrange(1, 4)
            message_id = f"m{number // 100}"
            session.delta(piece, message_id)
            expected += piece
            expected_of[message_id] = expected_of.get(message_id, "") + piece
            if number in (150, 350):
                session.emit("assistant.usage", {"number": number})
        session.idle()
        await router.request("ping")
        assert channel.stats().queued_events <= 60
        assert channel.stats().dropped == 0
        if chance.random() < 0.5:
            assert await channel.read_streaming() == expected
        else:
            received: list[SessionEvent] = []
            while not received or received[-1].event_type != "session.idle":
                message = await channel.recv()
                assert isinstance(message, SessionEvent)
                received.append(message)
            deltas = [m for m in received if m.event_type == "assistant.message_delta"]
            assert "".join(m.data["deltaContent"] for m in deltas) == expected
            for number in range(5):  # and each is the text of its own message
                mine = [m.data["deltaContent"] for m in deltas if m.message_id == f"m{number}"]
                assert "".join(mine) == expected_of[f"m{number}"]
            usage = [m.data["number"] for m in received if m.event_type == "assistant.usage"]
            assert usage == [150, 350]


@pytest.mark.requirement("contract:B3")
async def test_what_cannot_be_joined_ends_the_session_like_any_other() -> None:
    server = FakeCliServer()
    limits = SessionLimits(events=10, overflow=Overflow.COALESCE, grace_seconds=60)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, limits=limits)
        flood(session, 100)
        await router.request("ping")
        assert await numbers(channel, 21) == list(range(21))
        with pytest.raises(SlowConsumer):
            await channel.recv()


@pytest.mark.requirement("contract:B2", "contract:B3")
async def test_joining_pieces_costs_no_more_the_more_there_are() -> None:
    # An older server sends two events for each piece, so that no two pieces are neighbours.
    server = BareServer()
    limits = SessionLimits(events=20_000, overflow=Overflow.COALESCE, grace_seconds=60)
    async with asyncio.timeout(20), server.routed() as router:
        creating = asyncio.ensure_future(router.create_session({"sessionId": "s"}, limits=limits))
        asked = await server.hear()
        server.say({"jsonrpc": "2.0", "id": asked["id"], "result": {}})
        _, channel = await creating
        pair = [
            server.event("s", "assistant.message_delta", messageId="m", deltaContent="x"),
            server.event("s", "assistant.streaming_delta", totalResponseSizeBytes=1),
        ]
        begun = time.process_time()
        while channel.stats().queued_events < 39_000:
            server.say(*pair * 100)
            await settle(2)
        assert time.process_time() - begun < 10


@pytest.mark.requirement("contract:B3")
async def test_a_session_may_have_the_connection_wait_for_it_and_nothing_is_lost() -> None:
    server = FakeCliServer()
    limits = SessionLimits(events=20, overflow=Overflow.PAUSE)
    async with asyncio.timeout(10), routed(server, in_pieces(200)) as router:
        channel, session = await opened(router, server, limits=limits)
        other, others_session = await opened(router, server)
        for start in (0, 300, 600):  # it can fall behind more than once
            flood(session, 300, start)
            others_session.emit("number", {"number": start})
            await settle(2000)
            assert channel.stats().queued_events <= 25
            assert other.stats().queued_events == 0  # that is the price, and it is documented
            assert await numbers(channel, 300) == list(range(start, start + 300))
            assert await numbers(other, 1) == [start]
        assert channel.stats().dropped == 0


@pytest.mark.requirement("contract:B3", "contract:B2")
@pytest.mark.parametrize("leave", ["aclose", "deregister", "drop", "stop"])
async def test_a_connection_does_not_wait_for_a_session_that_is_gone(leave: str) -> None:
    server = FakeCliServer()
    limits = SessionLimits(events=5, overflow=Overflow.PAUSE)
    async with asyncio.timeout(5), routed(server, sockets) as router:
        channel, session = await opened(router, server, limits=limits)
        other, others_session = await opened(router, server)
        flood(session, 100)
        await settle()
        if leave == "aclose":
            await channel.aclose()
        elif leave == "deregister":
            router.deregister_session(channel.session_id)
        elif leave == "drop":
            del channel
        else:
            await router.aclose()
            return
        others_session.answer("on we go")
        assert await other.read_streaming() == "on we go"


@pytest.mark.requirement("contract:B3")
async def test_two_sessions_that_pause_must_both_catch_up() -> None:
    server = FakeCliServer()
    limits = SessionLimits(events=5, overflow=Overflow.PAUSE)
    async with asyncio.timeout(5), routed(server) as router:
        ends = [await opened(router, server, limits=limits) for _ in range(2)]
        for number in range(50):
            for _, session in ends:
                session.emit("number", {"number": number})
        receiving = [asyncio.ensure_future(numbers(channel, 50)) for channel, _ in ends]
        assert await asyncio.gather(*receiving) == [list(range(50))] * 2


# The end of a session


@pytest.mark.requirement("D-09", "L-5")
async def test_closing_a_channel_ends_the_session_on_both_sides() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, _ = await opened(router, server)
        await channel.aclose()
        assert router.stats().routes == 0
        assert server.sessions == {}
        await channel.aclose()
        assert server.count("session.destroy") == 1
        with pytest.raises(SessionEnded):
            await channel.recv()


@pytest.mark.requirement("D-09", "L-5")
@pytest.mark.parametrize("how", ["end", "exception", "cancellation"])
async def test_a_block_ends_its_session_however_it_is_left(how: str) -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:

        async def use() -> None:
            _, channel = await router.create_session()
            async with channel:
                if how == "exception":
                    raise LookupError
                if how == "cancellation":
                    await asyncio.Event().wait()

        using = asyncio.ensure_future(use())
        await server.wait_for("session.create")
        await settle()
        using.cancel()
        await asyncio.gather(using, return_exceptions=True)
        assert router.stats().routes == 0
        await server.wait_sessions(0)


@pytest.mark.requirement("D-09", "L-24", "L-5")
async def test_a_channel_nobody_holds_takes_its_route_with_it_at_once() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        flood(session, 3)
        await settle()
        assert router.stats().routes == 1
        del channel
        assert router.stats().routes == 0
        await server.wait_sessions(0)


@pytest.mark.requirement("L-24")
async def test_a_channel_somebody_waits_at_is_held_and_let_go_of_after_the_wait() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, _ = await opened(router, server)
        waiting = asyncio.ensure_future(channel.recv())
        await settle()
        del channel
        gc.collect()
        assert router.stats().routes == 1
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        del waiting
        await settle()
        gc.collect()
        assert router.stats().routes == 0
        await server.wait_sessions(0)


@pytest.mark.requirement("L-24", "D-09")
async def test_a_channel_in_a_cycle_is_let_go_of_when_the_cycle_is_collected() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, _ = await opened(router, server)
        holder = [channel]
        holder.append(holder)  # type: ignore[arg-type]
        del channel, holder
        assert router.stats().routes == 1
        gc.collect()
        assert router.stats().routes == 0
        await server.wait_sessions(0)


@pytest.mark.requirement("L-24", "D-09")
async def test_a_channel_collected_in_another_thread_is_let_go_of_too() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, _ = await opened(router, server)
        holder = [channel]
        del channel
        await asyncio.to_thread(holder.clear)
        assert router.stats().routes == 0
        await server.wait_sessions(0)


@pytest.mark.requirement("L-24")
async def test_closing_does_not_depend_on_a_stored_error_that_refers_to_the_channel() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        channel, session = await opened(router, server)
        session.error("kept")
        stored: list[BaseException] = []
        async with channel:
            try:
                await channel.read_streaming()
            except SessionFailed as error:
                stored.append(error)
        assert router.stats().routes == 0
        assert server.sessions == {}
        assert stored[0].__traceback__ is not None


@pytest.mark.requirement("L-5", "contract:B2")
async def test_closing_takes_a_bounded_time_though_the_server_does_not_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bullpen.connection.router.DESTROY_SECONDS", 0.02)
    server = FakeCliServer("swallow session.destroy")
    async with asyncio.timeout(5), routed(server) as router:
        channel, _ = await opened(router, server)
        await channel.aclose()
        assert router.stats().routes == router.stats().pending == 0


@pytest.mark.requirement("L-5", "contract:B2", "D-07")
async def test_closing_takes_a_bounded_time_though_the_server_does_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bullpen.connection.router.DESTROY_SECONDS", 0.02)
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        channel = await server.open(router)
        stuck = [asyncio.ensure_future(router.request("m", "x" * 2**20)) for _ in range(4)]
        await settle()
        await channel.aclose()
        assert router.stats().routes == 0
        for request in stuck:
            request.cancel()


@pytest.mark.requirement("L-30")
async def test_sessions_opened_used_and_closed_again_and_again_leave_nothing_behind() -> None:
    server = FakeCliServer("stream 5")
    process = psutil.Process()
    figures = []
    async with asyncio.timeout(50), routed(server, sockets) as router:
        for _ in range(3):

            async def use() -> None:
                _, channel = await router.create_session()
                async with channel:
                    await prompt(router, channel, "go")
                    assert (await channel.read_streaming()).startswith("word0 word1")

            await asyncio.gather(*(use() for _ in range(100)))
            server.asked.clear()
            await settle()
            gc.collect()
            stats = router.stats()
            assert (stats.routes, stats.pending, stats.orphans, stats.held_messages) == (0,) * 4
            figures.append((len(asyncio.all_tasks()), process.num_fds(), len(gc.get_objects())))
    tasks, descriptors, objects = zip(*figures, strict=True)
    assert tasks[1] == tasks[2]
    assert descriptors[0] == descriptors[2]
    assert objects[2] - objects[1] < 100, objects
