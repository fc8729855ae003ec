"""Any writer and reader do."""

import asyncio
import socket
from typing import Any

import pytest

from bullpen.connection import (
    Connection,
    Notification,
    Response,
    StreamTransport,
    Transport,
    TransportClosed,
)
from bullpen.testing import Recorder


class Loopback:
    """A stream of one's own: what is written to it is read from it."""

    def __init__(self) -> None:
        self.closed = 0
        self.failure: Exception | None = None
        self._data: asyncio.Queue[bytes] = asyncio.Queue()

    def write(self, data: bytes) -> None:
        self._data.put_nowait(data)

    async def drain(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def read(self, n: int) -> bytes:
        return await self._data.get()

    async def close(self) -> None:
        self.closed += 1


@pytest.mark.requirement("T-28")
async def test_anything_that_reads_and_writes_can_be_spoken_over() -> None:
    stream, recorder = Loopback(), Recorder()
    transport = StreamTransport(stream, stream)
    await transport.start(recorder)
    transport.send(Notification("hello"))
    async with asyncio.timeout(5):
        assert await recorder.wait_for(1) == [Notification("hello")]
    await transport.close()
    assert stream.closed
    await recorder.stop_workers()


@pytest.mark.requirement("T-28", "T-43")
@pytest.mark.parametrize("way", ["transport", "pair", "from_streams"])
async def test_streams_are_given_outgoing_first_in_whichever_way(way: str) -> None:
    def greet(name: str, context: Any) -> str:
        return f"Hello {name}!"

    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=theirs)
    if way == "from_streams":
        serve = Connection.from_streams(writer, reader).on_request("greet", greet).serve()
    else:
        pair: Transport | tuple[asyncio.StreamWriter, asyncio.StreamReader] = (writer, reader)
        if way == "transport":
            pair = StreamTransport(writer, reader)
        serve = Connection.builder().on_request("greet", greet).serve_with(pair)
    serving = asyncio.ensure_future(serve)
    reader, writer = await asyncio.open_connection(sock=ours)
    async with Connection.builder().connect((writer, reader)) as connection:
        assert await connection.request("greet", "Ada") == "Hello Ada!"
    await serving  # which the end of input has ended cleanly


@pytest.mark.requirement("L-32")
async def test_the_line_limit_of_asyncio_does_not_matter() -> None:
    ours, theirs = socket.socketpair()
    recorder = Recorder()
    reader, writer = await asyncio.open_connection(sock=ours, limit=100)
    transport = StreamTransport(writer, reader)
    await transport.start(recorder)
    theirs.setblocking(False)
    await asyncio.get_running_loop().sock_sendall(
        theirs, b'{"id": 1, "result": "%b"}\n' % (b"x" * 1_000_000)
    )
    async with asyncio.timeout(5):
        (message,) = await recorder.wait_for(1)
    assert isinstance(message, Response)
    assert len(message.result) == 1_000_002
    await transport.close()
    theirs.close()


@pytest.mark.requirement("T-08")
async def test_a_reader_that_fails_is_no_clean_end() -> None:
    reader, recorder = asyncio.StreamReader(), Recorder()
    transport = StreamTransport(Loopback(), reader)
    await transport.start(recorder)
    reader.set_exception(ConnectionResetError("reset"))
    async with asyncio.timeout(5):
        cause = await recorder.wait_end()
    assert isinstance(cause, TransportClosed)
    assert str(cause) == "the peer is gone: reset"
    await transport.close()
    await recorder.stop_workers()


async def test_a_writer_that_fails_ends_it_after_what_can_still_be_read() -> None:
    writer, reader, recorder = Loopback(), asyncio.StreamReader(), Recorder()
    writer.failure = BrokenPipeError("broken")
    transport = StreamTransport(writer, reader)
    await transport.start(recorder)
    transport.send(Notification("to nobody"))
    reader.feed_data(b'{"method": "last"}\n')
    async with asyncio.timeout(5):
        cause = await recorder.wait_end()
    assert isinstance(cause, TransportClosed)
    assert str(cause) == "the peer is gone: broken"
    assert recorder.messages == [Notification("last")]
    transport.send(Notification("to nobody either"))
    await transport.close()
    await recorder.stop_workers()


async def test_the_end_of_reading_explains_a_writer_that_fails() -> None:
    writer, reader, recorder = Loopback(), asyncio.StreamReader(), Recorder()
    writer.failure = BrokenPipeError("broken")
    transport = StreamTransport(writer, reader)
    await transport.start(recorder)
    transport.send(Notification("to nobody"))
    for _ in range(5):
        await asyncio.sleep(0)
    reader.feed_eof()
    async with asyncio.timeout(5):
        assert await recorder.wait_end() is None
    await transport.close()
    await recorder.stop_workers()


@pytest.mark.requirement("contract:X3")
async def test_after_the_close_no_descriptor_waits_for_a_peer_to_read() -> None:
    ours, theirs = socket.socketpair()
    recorder = Recorder()
    reader, writer = await asyncio.open_connection(sock=ours)
    transport = StreamTransport(writer, reader)
    await transport.start(recorder)
    transport.send(Notification("big", ["x" * 2**22]))
    with theirs:
        await transport.close()
        await asyncio.sleep(0)
        assert ours.fileno() == -1
    await recorder.stop_workers()


async def test_a_writer_that_does_not_close_does_not_hold_the_close() -> None:
    class Stubborn(Loopback):
        async def close(self) -> None:
            await asyncio.Event().wait()

    stream, recorder = Stubborn(), Recorder()
    transport = StreamTransport(stream, stream)
    await transport.start(recorder)
    async with asyncio.timeout(5):
        await transport.close()
    await recorder.stop_workers()
