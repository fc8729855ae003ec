"""A whole conversation on the mock, step by step: what happens when, without a clock of its own."""

import asyncio
from typing import Any

import pytest

from bullpen.connection import (
    ACP,
    Connection,
    ConnectionClosed,
    Context,
    Error,
    RequestTimeout,
    SendBufferFull,
    TransportClosed,
)
from bullpen.testing import ManualClock, create_mock_transport
from tests.connection.peers import settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


@pytest.mark.requirement("T-49", "T-36", "T-03")
async def test_a_conversation_with_every_message_where_the_test_puts_it() -> None:
    answered: list[Any] = []

    async def prompt(params: Any, context: Context) -> str:
        permission = await context.connection.request("permission", params)
        context.connection.send_notification("update", permission)
        return "end of turn"

    transport, mock = create_mock_transport()
    builder = (
        Connection.builder()
        .on_request("prompt", prompt)
        .on_request("initialize", lambda params, context: {"version": params})
        .on_notification("heard", lambda params, context: answered.append(params))
    )
    async with asyncio.timeout(5), builder.connect(transport) as connection:
        mock.send_request("initialize", 1)
        assert (await mock.receive_response()).result == {"version": 1}
        mock.send_request("prompt", "delete it?", id="turn")
        asked = await mock.receive_request()
        assert (asked.method, asked.params) == ("permission", "delete it?")
        assert mock.unreceived == ()
        mock.send_notification("heard", "while it waits")
        mock.send_response(asked.id, "allowed")
        assert (await mock.receive_notification()).params == "allowed"
        done = await mock.receive_response()
        assert (done.id, done.result) == ("turn", "end of turn")
        assert answered == ["while it waits"]
        caller = asyncio.create_task(connection.request("last"))
        await mock.receive_request()
        mock.close(TransportClosed("the mock hung up"))
        with pytest.raises(ConnectionClosed, match="the mock hung up"):
            await caller


@pytest.mark.requirement("T-49", "contract:C1", "contract:C2")
async def test_time_passes_only_when_the_test_says_so() -> None:
    clock = ManualClock()
    transport, mock = create_mock_transport()
    builder = Connection.builder().dialect(ACP).timeout(30).clock(clock)
    async with asyncio.timeout(5), builder.connect(transport) as connection:
        first = asyncio.create_task(connection.request("first"))
        request = await mock.receive_request()
        clock.advance(29.999)
        await settle()
        assert not first.done()
        mock.send_response(request.id, "just in time")
        assert await first == "just in time"
        second = asyncio.create_task(connection.request("second"))
        request = await mock.receive_request()
        clock.advance(30)
        assert await mock.receive_notification() == ACP.cancel(request.id)
        with pytest.raises(RequestTimeout):
            await second
        mock.send_response(request.id, error=Error(-32800, "request cancelled"))
        assert connection.stats().unknown_responses == 1
    assert clock.waiting == 0  # nothing of the connection is left in the clock


@pytest.mark.requirement("T-49", "contract:C2")
async def test_the_timers_of_answered_cancelled_and_abandoned_requests_are_called_off() -> None:
    clock = ManualClock()
    transport, mock = create_mock_transport()
    async with (
        asyncio.timeout(5),
        Connection.builder().clock(clock).timeout(None).connect(transport) as connection,
    ):
        abandoned = connection.send_request("m", None, lambda outcome: None, timeout=10)
        answered = asyncio.create_task(connection.request("m", timeout=10))
        cancelled = asyncio.create_task(connection.request("m", timeout=10))
        _, second, _ = [await mock.receive_request() for _ in range(3)]
        assert clock.waiting == 3
        connection.abandon(abandoned)
        assert clock.waiting == 2
        mock.send_response(second.id, None)
        assert clock.waiting == 1
        cancelled.cancel()
        await asyncio.wait([answered, cancelled])
        assert clock.waiting == 0


@pytest.mark.requirement("T-49", "contract:C2", "contract:X3")
async def test_the_default_timeout_goes_on_after_a_quiet_time_and_ends_with_the_connection() -> (
    None
):
    clock = ManualClock()
    transport, mock = create_mock_transport()
    builder = Connection.builder().timeout(30).clock(clock)
    async with asyncio.timeout(5), builder.connect(transport) as connection:
        answered = asyncio.create_task(connection.request("m"))
        mock.send_response((await mock.receive_request()).id, None)
        await answered
        clock.advance(1000)
        assert clock.waiting == 0
        late = asyncio.create_task(connection.request("m"))
        await mock.receive_request()
        clock.advance(30)
        with pytest.raises(RequestTimeout):
            await late
        open_ = asyncio.create_task(connection.request("m"))
        await mock.receive_request()
        assert clock.waiting == 1
        await connection.aclose()
        assert clock.waiting == 0
        with pytest.raises(ConnectionClosed):
            await open_


@pytest.mark.requirement("T-49", "contract:C2")
async def test_without_a_timeout_a_request_waits_as_long_as_it_takes() -> None:
    clock = ManualClock()
    transport, mock = create_mock_transport()
    builder = Connection.builder().timeout(None).clock(clock)
    async with asyncio.timeout(5), builder.connect(transport) as connection:
        caller = asyncio.create_task(connection.request("m"))
        request = await mock.receive_request()
        assert clock.waiting == 0
        clock.advance(10**9)
        mock.send_response(request.id, "at last")
        assert await caller == "at last"


@pytest.mark.requirement("T-49", "contract:B5", "contract:O1")
async def test_a_congested_transport_holds_who_can_wait_and_refuses_who_cannot() -> None:
    transport, mock = create_mock_transport()
    builder = Connection.builder().on_request("m", lambda params, context: params)
    async with asyncio.timeout(5), builder.connect(transport) as connection:
        mock.congest(full=True)
        waiting = asyncio.create_task(connection.notify("waits"))
        await settle()
        with pytest.raises(SendBufferFull):
            connection.send_notification("cannot wait")
        mock.send_request("m", "an answer needs no room")
        assert (await mock.receive_response()).result == "an answer needs no room"
        assert not waiting.done()
        mock.relieve()
        assert (await mock.receive_notification()).method == "waits"
        await waiting


@pytest.mark.requirement("T-49", "contract:X1", "contract:X3")
async def test_a_close_is_seen_by_the_mock_and_ends_all() -> None:
    async def wait(params: Any, context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    transport, mock = create_mock_transport()
    async with asyncio.timeout(5):
        connection = await Connection.builder().on_request("m", wait).open(transport)
        id_ = mock.send_request("m")
        await settle()
        closing = asyncio.create_task(connection.aclose())
        response = await mock.receive_response()
        assert (response.id, response.error) == (id_, Error(-32002, "shutting down"))
        await mock.wait_closed()
        await closing
        with pytest.raises(TransportClosed):
            await mock.receive()
