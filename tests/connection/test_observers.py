"""An observer is told every step of every message, in order, and changes nothing."""

import asyncio
from typing import Any

import pytest

from bullpen.connection import (
    Connection,
    Context,
    Error,
    Limits,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    Stage,
    Trace,
    TransportClosed,
)
from tests.connection.peers import MessagePeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


@pytest.mark.requirement("T-21")
async def test_an_outgoing_request_is_seen_asked_for_given_an_id_and_sent() -> None:
    traces: list[Trace] = []

    def on_send(message: Message) -> None:
        traces.append(Trace("the transport", Stage.SENT, message))

    peer = MessagePeer(on_send)
    builder = Connection.builder().name("us").observe(traces.append)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m", 1))
        (request,) = await peer.heard(1)
        assert [(trace.connection, trace.stage) for trace in traces] == [
            ("us", Stage.REQUESTED),
            ("us", Stage.ASSIGNED),
            ("the transport", Stage.SENT),
            ("us", Stage.SENT),
        ]
        assert all(trace.message == request for trace in traces)
        traces.clear()
        response = Response(1, "result")
        await peer.say(response)
        assert traces == [
            Trace("us", Stage.RECEIVED, response),
            Trace("us", Stage.ROUTED, response),
        ]
        assert await caller == "result"


@pytest.mark.requirement("T-22", "T-13")
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
@pytest.mark.parametrize("message", [Request(1, "m"), Notification("m")], ids=["request", "note"])
async def test_an_incoming_message_is_seen_received_routed_and_handled(
    message: Message, waits: bool
) -> None:
    traces: list[tuple[Any, Message | None]] = []

    async def handle(params: Any, context: Context) -> None:
        traces.append(("handler", context.message))
        if waits:
            await asyncio.sleep(0)

    peer = MessagePeer()
    builder = (
        Connection.builder()
        .observe(lambda trace: traces.append((trace.stage, trace.message)))
        .on_request("m", handle)
        .on_notification("m", handle)
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(message)
        await settle()
        stages = [what for what, seen in traces if seen == message]
        assert stages == [Stage.RECEIVED, Stage.ROUTED, "handler", Stage.HANDLED]
        if isinstance(message, Request):
            assert (Stage.SENT, Response(1, None)) in traces


@pytest.mark.requirement("T-22")
async def test_what_a_route_takes_is_seen_routed() -> None:
    traces: list[Stage] = []
    peer = MessagePeer()
    builder = (
        Connection.builder()
        .observe(lambda trace: traces.append(trace.stage))
        .route(lambda message, context, size: True)
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Notification("n"))
        await peer.say(Request(1, "r"))
        assert traces == [Stage.RECEIVED, Stage.ROUTED] * 2


@pytest.mark.requirement("contract:B4", "contract:I2", "error:unknown-notification")
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Response(9, None), "nobody waits for it"),
        (Notification("unknown"), "no handler"),
        (Malformed(Error(-32600, "Invalid Request: garbled"), None, True), "Invalid Request"),
    ],
    ids=["response", "notification", "malformed"],
)
async def test_what_nobody_wants_is_seen_dropped_with_the_reason(
    message: Message, reason: str
) -> None:
    traces: list[Trace] = []
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().observe(traces.append).connect(peer):
        await peer.say(message)
        assert [trace.stage for trace in traces] == [Stage.RECEIVED, Stage.DROPPED]
        assert traces[1].message == message
        assert traces[1].detail.startswith(reason)


@pytest.mark.requirement("contract:B4")
async def test_an_answer_that_nobody_can_receive_any_more_is_seen_dropped() -> None:
    def on_send(message: Message) -> None:
        raise TransportClosed("gone")

    traces: list[Trace] = []
    peer = MessagePeer(on_send)
    builder = Connection.builder().observe(traces.append)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "unknown"))
        dropped = [trace for trace in traces if trace.stage is Stage.DROPPED]
        assert [(type(t.message), t.detail) for t in dropped] == [
            (Response, "the transport is closed")
        ]
        assert not connection.is_closed


@pytest.mark.requirement("contract:B4")
async def test_a_notification_over_the_limit_is_seen_dropped() -> None:
    traces: list[Trace] = []
    peer = MessagePeer()
    builder = (
        Connection.builder()
        .observe(traces.append)
        .on_notification("n", lambda params, context: None)
        .limits(Limits(waiting_notifications=1))
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(*(Notification("n", n) for n in range(3)))
        dropped = [trace for trace in traces if trace.stage is Stage.DROPPED]
        assert [(t.message.params, t.detail) for t in dropped] == [  # type: ignore[union-attr]
            (1, "too many wait"),
            (2, "shutting down"),
        ]


@pytest.mark.requirement("error:internal")
async def test_a_handler_that_fails_is_seen_with_what_it_raised() -> None:
    failure = ValueError("here")

    def fail(params: Any, context: Context) -> None:
        raise failure

    traces: list[Trace] = []
    peer = MessagePeer()
    builder = (
        Connection.builder().observe(traces.append).on_request("m", fail).on_notification("m", fail)
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "m"), Notification("m"))
        await settle()
        failed = [trace for trace in traces if trace.stage is Stage.FAILED]
        assert [(t.message, t.detail) for t in failed] == [
            (Request(1, "m"), failure),
            (Notification("m"), failure),
        ]
        assert Stage.HANDLED not in [trace.stage for trace in traces]


async def test_an_observer_that_fails_changes_nothing_for_anybody(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(trace: Trace) -> None:
        raise ValueError("in the observer")

    seen: list[Stage] = []
    peer = MessagePeer()
    builder = (
        Connection.builder()
        .observe(fail)
        .observe(lambda trace: seen.append(trace.stage))
        .on_request("echo", lambda params, context: params)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "echo", "hello"))
        assert await peer.heard(1) == [Response(1, "hello")]
        assert not connection.is_closed
        assert seen[0] is Stage.RECEIVED
    assert "an observer failed" in caplog.text


async def test_observed_or_not_a_connection_behaves_the_same() -> None:
    for observe in (False, True):
        peer = MessagePeer()
        builder = Connection.builder().on_request("echo", lambda params, context: params)
        if observe:
            builder = builder.observe(lambda trace: None)
        async with asyncio.timeout(5), builder.connect(peer) as connection:
            caller = asyncio.create_task(connection.request("m"))
            await peer.heard(1)
            await peer.say(Request("a", "echo", 1), Response(1, 2), Notification("x"))
            assert await caller == 2
            await settle()
            assert peer.sent == [Request(1, "m"), Response("a", 1)]
