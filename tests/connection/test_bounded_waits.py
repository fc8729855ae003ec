"""What a peer that does not read, or a transport that does not end, may cost: a bounded time."""

import asyncio

import pytest

from bullpen.connection import Connection, Message, Receiver, RequestTimeout, Transport
from bullpen.testing import create_mock_transport


@pytest.mark.requirement("contract:C2", "contract:B5")
async def test_the_timeout_of_a_request_covers_the_wait_to_send_it() -> None:
    transport, mock = create_mock_transport()
    async with asyncio.timeout(5), Connection.builder().connect(transport) as connection:
        mock.congest()
        with pytest.raises(RequestTimeout) as late:
            await connection.request("ask", timeout=0.01)
        assert late.value.method == "ask"
        assert connection.stats().requests_pending == 0
        assert mock.unreceived == ()
        mock.relieve()


@pytest.mark.requirement("contract:B5")
async def test_a_request_that_had_to_wait_is_sent_when_the_peer_reads_again() -> None:
    transport, mock = create_mock_transport()
    async with asyncio.timeout(5), Connection.builder().connect(transport) as connection:
        mock.congest()
        asking = asyncio.create_task(connection.request("ask", timeout=4))
        await asyncio.sleep(0)
        assert mock.unreceived == ()
        mock.relieve()
        mock.send_response((await mock.receive_request()).id, "answer")
        assert await asking == "answer"


class Endless(Transport):
    """A transport that never gets done with closing."""

    async def open(self, receiver: Receiver) -> None: ...

    def send(self, message: Message) -> None: ...

    async def close(self) -> None:
        await asyncio.Event().wait()


@pytest.mark.requirement("contract:X3")
async def test_a_transport_that_does_not_close_does_not_hold_the_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bullpen.connection.connection.TRANSPORT_SECONDS", 0.01)
    async with asyncio.timeout(5):
        connection = await Connection.builder().open(Endless())
        await connection.aclose()
    assert connection.is_closed
