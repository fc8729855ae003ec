"""Doubles of transports: a test is the peer, and decides when anything happens."""

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.connection import (
    Batch,
    Connection,
    ConnectionClosed,
    Context,
    Error,
    Malformed,
    Notification,
    RemoteError,
    Request,
    Response,
    SendBufferFull,
    TransportClosed,
)
from bullpen.testing import UnexpectedMessage, byte_pair, create_mock_transport


@pytest.mark.requirement("T-36", "T-54")
async def test_a_handler_is_tested_without_any_io() -> None:
    def initialize(params: dict[str, Any], context: Context) -> dict[str, Any]:
        return {"version": params["version"], "ready": True}

    transport, mock = create_mock_transport()
    async with Connection.builder().on_request("initialize", initialize).connect(transport):
        id = mock.send_request("initialize", {"version": 1})
        response = await mock.receive_response()
        assert response == Response(id, {"version": 1, "ready": True})


@pytest.mark.requirement("T-36")
async def test_what_is_sent_has_been_received_when_the_call_returns() -> None:
    seen: list[Any] = []

    def route(message: Any, context: Any, size: int) -> bool:
        seen.append(message)
        return False

    transport, mock = create_mock_transport()
    async with Connection.builder().route(route).connect(transport):
        mock.send_notification("now", [1])
        assert seen == [Notification("now", [1])]


@pytest.mark.requirement("T-36")
async def test_the_test_answers_when_it_pleases() -> None:
    transport, mock = create_mock_transport()
    async with Connection.builder().connect(transport) as connection:
        first, second = (asyncio.ensure_future(connection.request(m)) for m in ("a", "b"))
        a, b = await mock.receive_request(), await mock.receive_request()
        assert (a.method, b.method) == ("a", "b")
        mock.send_response(b.id, "second")
        assert await second == "second"
        assert not first.done()
        mock.send_response(a.id, error=Error(7, "no"))
        with pytest.raises(RemoteError):
            await first


async def test_everything_in_between_can_be_sent() -> None:
    transport, mock = create_mock_transport()
    async with Connection.builder().on_request("m", lambda *_: 1).connect(transport):
        mock.send_raw(Malformed(Error(-32700, "Parse error")))
        assert (await mock.receive_response()).id is None
        mock.send_raw(Batch((Request(1, "m"), Request(2, "m"))))
        assert await mock.receive() == Batch((Response(1, 1), Response(2, 1)))


async def test_what_comes_next_must_be_what_is_waited_for() -> None:
    transport, mock = create_mock_transport()
    async with Connection.builder().connect(transport) as connection:
        connection.send_notification("progress")
        assert mock.unreceived == (Notification("progress"),)
        with pytest.raises(UnexpectedMessage, match="expected a response, got Notification"):
            await mock.receive_response()
        connection.send_notification("progress")
        assert await mock.receive_notification() == Notification("progress")


async def test_what_was_sent_before_the_opening_comes_with_it() -> None:
    transport, mock = create_mock_transport()
    mock.send_request("m", id="early")
    async with Connection.builder().on_request("m", lambda *_: 1).connect(transport):
        assert await mock.receive_response() == Response("early", 1)


@pytest.mark.parametrize("cause", [None, TransportClosed("the cable was cut")])
async def test_the_end_is_clean_or_not_as_the_test_wants(cause: Exception | None) -> None:
    transport, mock = create_mock_transport()
    async with Connection.builder().connect(transport) as connection:
        asking = asyncio.ensure_future(connection.request("m"))
        await mock.receive_request()
        mock.close(cause)
        mock.close(ValueError("too late"))
        with pytest.raises(ConnectionClosed) as caught:
            await asking
        assert connection.is_clean is (cause is None)
        if cause is not None:
            assert caught.value.cause is cause
        await mock.wait_closed()
        assert mock.is_closed
        with pytest.raises(TransportClosed):
            mock.send_notification("too late")
        with pytest.raises(TransportClosed):
            await mock.receive()


async def test_senders_wait_for_as_long_as_the_test_wants() -> None:
    transport, mock = create_mock_transport()
    async with Connection.builder().connect(transport) as connection:
        mock.congest()
        telling = asyncio.ensure_future(connection.notify("m"))
        await asyncio.sleep(0)
        assert mock.unreceived == ()
        mock.relieve()
        await telling
        assert await mock.receive_notification() == Notification("m")


async def test_a_full_transport_refuses_all_but_answers() -> None:
    transport, mock = create_mock_transport()
    async with Connection.builder().on_request("m", lambda *_: 1).connect(transport) as connection:
        mock.congest(full=True)
        with pytest.raises(SendBufferFull):
            connection.send_notification("m")
        mock.send_request("m")
        assert (await mock.receive_response()).result == 1


async def test_it_shows_whether_the_connection_reads() -> None:
    heard: list[Any] = []
    transport, mock = create_mock_transport()
    builder = Connection.builder().on_notification("m", lambda n, _: heard.append(n))
    async with builder.connect(transport) as connection:
        connection.pause_reading()
        assert mock.is_paused
        mock.send_notification("m", 1)
        await asyncio.sleep(0)
        assert heard == []
        connection.resume_reading()
        await asyncio.sleep(0)
        assert heard == [1]


@pytest.mark.requirement("T-18", "T-49")
@pytest.mark.parametrize("cut", [1, 2, 7, 10_000])
async def test_a_stream_in_memory_arrives_in_pieces_of_any_length(cut: int) -> None:
    left, right = byte_pair(cut)
    server = Connection.builder().on_request("echo", lambda value, _: value)
    async with server.connect(left), Connection.builder().connect(right) as connection:
        assert await connection.request("echo", ["é", "x" * 100]) == ["é", "x" * 100]


@given(seed=st.integers())
async def test_a_stream_in_memory_can_be_cut_by_any_rule(seed: int) -> None:
    dice = random.Random(seed)

    def cut(data: bytes) -> Iterator[bytes]:
        while data:
            size = dice.randrange(20)
            yield data[:size]
            data = data[size:]

    left, right = byte_pair(cut)
    server = Connection.builder().on_request("echo", lambda value, _: value)
    async with server.connect(left), Connection.builder().connect(right) as connection:
        assert await connection.request("echo", ["é" * 50]) == ["é" * 50]
