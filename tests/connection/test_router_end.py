"""When the connection ends, everybody who waits is told once, and nobody waits in vain."""

import asyncio
import gc
import random
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    Builder,
    Connection,
    RemoteError,
    RequestTimeout,
    SendBufferFull,
    Transport,
    TransportClosed,
    channel_pair,
)
from bullpen.connection.channel import SessionChannel, SessionLimits
from bullpen.connection.errors import (
    RouterError,
    RouterStopped,
    SessionCreateTimeout,
    SessionEnded,
    SessionFailed,
    SlowConsumer,
)
from bullpen.connection.routed import SessionEvent, ToolCall
from bullpen.connection.router import MessageRouter
from bullpen.jsonrpc.errors import UnserializableError
from bullpen.testing.cli_server import FakeCliServer
from bullpen.testing.transports import create_mock_transport
from tests.connection.routers import (
    BareServer,
    in_pieces,
    numbers,
    opened,
    routed,
    settle,
    sockets,
)


@pytest.mark.requirement("D-45", "D-47", "contract:X1")
async def test_waiters_of_every_kind_fail_once_and_promptly_when_the_socket_dies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        channels = [await server.open(router) for _ in range(5)]
        received, streamed, streamed_for_tools, consumed, aborted = channels
        waiters = {
            "recv": received.recv(),
            "read_streaming": streamed.read_streaming(),
            "read_streaming_for_tools": streamed_for_tools.read_streaming_for_tools(),
            "consume": consumed.consume(lambda message: None),
            "drain": aborted.abort(),
            "request": router.request("never answered"),
            "create": router.create_session(),
            **{f"write {n}": router.request("never read", "x" * 2**20) for n in range(8)},
        }
        waiting = {name: asyncio.ensure_future(work) for name, work in waiters.items()}
        await settle()
        assert not any(work.done() for work in waiting.values())
        server.socket.close()
        async with asyncio.timeout(1):
            await asyncio.wait(waiting.values())
        for name, work in waiting.items():
            assert isinstance(work.exception(), RouterStopped), (name, work)
        stats = router.stats()
        assert (stats.routes, stats.pending, stats.orphans, stats.held_messages) == (0, 0, 0, 0)
        errors = {id(work.exception()) for work in waiting.values()}
        assert len(errors) == len(waiting)  # an exception of its own for each, with its traceback
    assert not caplog.records


@pytest.mark.requirement("D-49", "D-52")
async def test_after_the_last_word_of_the_server_every_call_fails_at_once() -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        channel = await server.open(router)
        server.socket.shutdown(socket.SHUT_WR)  # it would still read what we write
        with pytest.raises(RouterStopped):
            await channel.recv()
        assert router.is_stopped
        calls: list[Callable[[], Any]] = [
            lambda: router.request("ping"),
            lambda: router.request("ping", timeout=None),
            router.create_session,
            channel.recv,
            channel.read_streaming,
            channel.read_streaming_for_tools,
            lambda: channel.consume(print),
            lambda: channel.read_streaming_with_cancellation(None, asyncio.Event()),
        ]
        for call in calls:
            with pytest.raises(RouterStopped):
                await asyncio.wait_for(call(), 0.5)
        with pytest.raises(RouterStopped):
            router.send_request("ping")
        router.post("session.abort")  # which asks nothing, and is told nothing
        await channel.aclose()
        router.deregister_session(channel.session_id)


@pytest.mark.requirement("D-50", "contract:X2")
@settings(max_examples=30)
@given(
    events=st.integers(0, 100),
    piece=st.integers(10, 3000),
    read=st.integers(0, 100),
)
async def test_what_arrived_before_the_end_is_received_before_the_error(
    events: int, piece: int, read: int
) -> None:
    server = FakeCliServer()
    near, far = in_pieces(piece)()
    client = await MessageRouter.open(near)
    async with asyncio.timeout(10), server.connected(lambda: (near, far)), client as router:
        channel, session = await opened(router, server)
        for number in range(events):
            session.emit("number", {"number": number})
        before = await numbers(channel, min(read, events))
        await far.close()
        rest = await numbers(channel, events - len(before))
        assert before + rest == list(range(events))
        with pytest.raises(RouterStopped):
            await numbers(channel, 1)
        with pytest.raises(RouterStopped):  # and ever after
            await channel.recv()


@pytest.mark.requirement("D-50", "contract:X2")
@pytest.mark.parametrize("pair", [channel_pair, sockets, in_pieces(64)])
async def test_a_hundred_events_and_a_close_are_a_hundred_events_and_an_error(
    pair: Callable[[], tuple[Transport, Transport]],
) -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5):
        async with server.connected(pair) as transport:
            router = await MessageRouter.open(transport)
            channel, session = await opened(router, server)
            for number in range(100):
                session.emit("number", {"number": number})
        assert await numbers(channel, 100) == list(range(100))
        with pytest.raises(RouterStopped) as caught:
            await channel.recv()
        assert isinstance(caught.value.cause, TransportClosed)
        await router.aclose()


@pytest.mark.requirement("D-50", "contract:X2", "D-47")
async def test_a_turn_that_was_complete_is_read_though_the_connection_has_ended() -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        channel = await server.open(router)
        asking = asyncio.ensure_future(router.request("ping"))
        ping = await server.hear_of("ping")
        server.say(
            server.event(channel.session_id, "assistant.message_delta", deltaContent="all of it"),
            server.event(channel.session_id, "session.idle"),
            {"jsonrpc": "2.0", "id": ping["id"], "result": "pong"},
            server.event(channel.session_id, "assistant.message_delta", deltaContent="a begi"),
        )
        server.socket.close()
        assert await asking == "pong"
        assert await channel.read_streaming() == "all of it"
        with pytest.raises(RouterStopped):
            await channel.read_streaming()


@pytest.mark.requirement("D-45", "contract:X1", "L-22")
async def test_the_first_cause_is_the_one_that_everybody_is_told() -> None:
    transport, mock = create_mock_transport()
    async with asyncio.timeout(5), await MessageRouter.open(transport) as router:
        asking = [asyncio.ensure_future(router.request("ping")) for _ in range(3)]
        for _ in range(3):
            await mock.receive_request()
        cause = TransportClosed("the cable was pulled")
        mock.close(cause)
        for outcome in await asyncio.gather(*asking, return_exceptions=True):
            assert isinstance(outcome, RouterStopped)
            assert outcome.cause is outcome.__cause__ is cause
            assert "the cable was pulled" in str(outcome)


# Requests that cannot be sent


@pytest.mark.requirement("D-39", "L-6")
async def test_a_request_that_is_no_json_raises_and_leaves_nothing_pending() -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets) as router:
        with pytest.raises(UnserializableError):
            await router.request("m", {"a": object()})
        with pytest.raises(UnserializableError):
            router.send_request("m", {"a": object()})
        with pytest.raises(UnserializableError):
            await router.create_session({"a": object()})
        stats = router.stats()
        assert (stats.routes, stats.pending, stats.orphans) == (0, 0, 0)
        assert (await router.request("ping"))["protocolVersion"] == 3


@pytest.mark.requirement("D-39", "D-38")
async def test_a_request_there_is_no_room_for_raises_and_leaves_nothing_pending() -> None:
    transport, mock = create_mock_transport()
    async with asyncio.timeout(5), await MessageRouter.open(transport) as router:
        mock.congest(full=True)
        mock.relieve()
        transport.is_full = True
        with pytest.raises(SendBufferFull):
            await router.request("m")
        with pytest.raises(SendBufferFull):
            await router.create_session()
        stats = router.stats()
        assert (stats.routes, stats.pending, stats.orphans) == (0, 0, 0)
        assert mock.unreceived == ()


@pytest.mark.requirement("D-39", "D-47", "D-52")
async def test_a_request_into_a_transport_that_has_closed_is_told_that_the_router_stopped() -> None:
    near, far = channel_pair()
    connection = await Connection.builder().open(far)
    async with asyncio.timeout(5), await MessageRouter.open(near) as router:
        await far.close()  # which nobody on this side has heard of yet
        for attempt in (router.request("m"), router.create_session()):
            with pytest.raises(RouterStopped) as caught:
                await attempt
            assert isinstance(caught.value.cause, TransportClosed)
        assert router.stats().pending == router.stats().routes == 0
        await connection.aclose()


# Each situation has one error


async def refused(router: MessageRouter, server: FakeCliServer) -> None:
    await router.request("no.such.method")


async def not_answered(router: MessageRouter, server: FakeCliServer) -> None:
    server.hold("ping")
    await router.request("ping", timeout=0.01)


async def not_created(router: MessageRouter, server: FakeCliServer) -> None:
    server.hold("session.create")
    await router.create_session(timeout=0.01)


async def closed_here(router: MessageRouter, server: FakeCliServer) -> None:
    channel, _ = await opened(router, server)
    await channel.aclose()
    await channel.recv()


async def failed(router: MessageRouter, server: FakeCliServer) -> None:
    channel, session = await opened(router, server)
    session.error("no")
    await channel.read_streaming()


async def too_slow(router: MessageRouter, server: FakeCliServer) -> None:
    channel, session = await opened(router, server, limits=SessionLimits(events=1))
    for number in range(10):
        session.emit("number", {"number": number})
    await numbers(channel, 11)


async def stopped(router: MessageRouter, server: FakeCliServer) -> None:
    await router.aclose()
    await router.request("ping")


@pytest.mark.requirement("D-52", "D-46", "D-47", "D-49")
@pytest.mark.parametrize(
    ("happen", "kind"),
    [
        (refused, RemoteError),
        (not_answered, RequestTimeout),
        (not_created, SessionCreateTimeout),
        (closed_here, SessionEnded),
        (failed, SessionFailed),
        (too_slow, SlowConsumer),
        (stopped, RouterStopped),
    ],
)
async def test_each_situation_has_an_error_of_its_own(
    happen: Callable[[MessageRouter, FakeCliServer], Any], kind: type[Exception]
) -> None:
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server) as router:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - its very type is what is tested
            await happen(router, server)
        assert type(caught.value) is kind
        if kind not in (RemoteError, RequestTimeout, SlowConsumer):
            assert isinstance(caught.value, RouterError)


# Who keeps the connection


@pytest.mark.requirement("D-24", "D-25")
async def test_the_connection_lives_as_long_as_a_channel_and_ends_with_the_last() -> None:
    server = BareServer()
    router = await MessageRouter.open(server.transport)
    async with asyncio.timeout(5):
        first = await server.open(router)
        second = await server.open(router)
        del router
        gc.collect()
        for channel in (first, second):
            server.say(server.event(channel.session_id, "number", number=1))
            assert await numbers(channel, 1) == [1]
        del channel, first
        assert (await server.hear())["method"] == "session.destroy"
        server.say(server.event(second.session_id, "number", number=2))
        assert await numbers(second, 1) == [2]
        del second
        assert (await server.hear())["method"] == "session.destroy"
        with pytest.raises(EOFError):
            await server.hear()
        server.socket.close()


@pytest.mark.requirement("L-27", "D-24")
async def test_a_tool_call_that_was_kept_does_not_keep_the_connection() -> None:
    server = BareServer()
    router = await MessageRouter.open(server.transport)
    async with asyncio.timeout(5):
        channel = await server.open(router)
        params = {"sessionId": channel.session_id, "toolCallId": "1", "toolName": "t"}
        server.say({"jsonrpc": "2.0", "id": 0, "method": "tool.call", "params": params})
        server.say(server.event(channel.session_id, "number", number=1))
        kept = [await channel.recv(), await channel.recv(), channel.stats(), router.stats()]
        assert isinstance(kept[0], ToolCall)
        assert isinstance(kept[1], SessionEvent)
        del channel, router
        with pytest.raises(EOFError):
            await server.hear_of("the end")
        assert kept[0].responder.is_answered
        server.socket.close()


@pytest.mark.requirement("L-27")
async def test_a_channel_that_was_kept_does_not_keep_a_closed_connection_open() -> None:
    server = BareServer()
    async with asyncio.timeout(5):
        async with await MessageRouter.open(server.transport) as router:
            kept = await server.open(router)
        with pytest.raises(EOFError):
            await server.hear()
        with pytest.raises(RouterStopped):
            await kept.recv()
        server.socket.close()


@pytest.mark.requirement("L-27")
async def test_an_open_request_of_a_gone_router_is_told_and_keeps_nothing() -> None:
    server = BareServer()
    router = await MessageRouter.open(server.transport)
    async with asyncio.timeout(5):
        asking = asyncio.ensure_future(router.request("ping"))
        await server.hear()
        del router
        gc.collect()
        assert not asking.done()  # whoever asks holds the router
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        del asking
        with pytest.raises(EOFError):
            await server.hear()
        server.socket.close()


@pytest.mark.requirement("D-09", "D-17", "contract:X3")
@settings(max_examples=20)
@given(seed=st.integers(0, 2**32))
async def test_sessions_closed_dropped_and_left_at_random_leave_no_route(seed: int) -> None:
    chance = random.Random(seed)
    server = FakeCliServer()
    async with (
        asyncio.timeout(10),
        routed(server, chance.choice([sockets, channel_pair])) as router,
    ):
        ends = [await opened(router, server) for _ in range(10)]
        channels: list[SessionChannel | None] = [channel for channel, _ in ends]
        sessions = [session for _, session in ends]
        del ends
        readers = []
        for number in chance.sample(range(10), 10):
            sessions[chance.randrange(10)].delta("meanwhile")
            channel = channels[number]
            assert channel is not None
            channels[number] = None
            way = chance.randrange(4)
            if way == 0:
                await channel.aclose()
            elif way == 1:
                reader = asyncio.ensure_future(channel.read_streaming())
                readers.append(reader)
                await settle(chance.randrange(4))
                await channel.aclose()
            elif way == 2:
                reader = asyncio.ensure_future(channel.read_streaming())
                await settle(chance.randrange(4))
                reader.cancel()
                await asyncio.gather(reader, return_exceptions=True)
                del reader
            del channel
            await settle(chance.randrange(3))
        for outcome in await asyncio.gather(*readers, return_exceptions=True):
            assert isinstance(outcome, SessionEnded), outcome
        await settle()
        gc.collect()
        assert router.stats().routes == router.stats().pending == 0
        await server.wait_sessions(0)


@pytest.mark.requirement("contract:X3", "D-45")
async def test_closing_the_router_ends_the_wait_of_everybody_and_closes_the_socket_once() -> None:
    server = BareServer()
    async with asyncio.timeout(5), server.routed() as router:
        channel = await server.open(router)
        waiting = [
            asyncio.ensure_future(channel.recv()),
            asyncio.ensure_future(router.request("ping")),
            asyncio.ensure_future(router.create_session()),
        ]
        await settle()
        await asyncio.gather(router.aclose(), router.aclose())
        for outcome in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(outcome, RouterStopped)
            assert outcome.cause is None
        with pytest.raises(EOFError):
            await server.hear_of("the end")


@pytest.mark.requirement("D-44")
async def test_a_builder_brings_its_own_handlers_and_limits_to_a_router() -> None:
    def greet(params: Any, context: Any) -> str:
        return f"hello, {params['name']}"

    builder: Builder = Connection.builder().name("mine").on_request("greet", greet)
    server = FakeCliServer()
    async with asyncio.timeout(5), routed(server, sockets, builder=builder) as router:
        _, session = await opened(router, server)
        assert await session.connection.request("greet", {"name": "Ada"}) == "hello, Ada"
        assert "mine" in repr(router)
