"""Descriptors: what goes over the wire, and how its end is told."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bullpen.connection import (
    ContentLengthFramer,
    DescriptorTransport,
    LineFramer,
    Notification,
    Request,
    Response,
    SendBufferFull,
    TransportClosed,
)
from bullpen.jsonrpc.errors import FramingLostError
from bullpen.jsonrpc.framing import Framer
from bullpen.testing import Recorder


class Wire:
    """A transport on two pipes whose other ends the test holds."""

    def __init__(self, **options: Any) -> None:
        self.recorder = Recorder()
        read_fd, self.write_fd = os.pipe()
        self.read_fd, write_fd = os.pipe()
        os.set_blocking(self.read_fd, False)
        self.transport = DescriptorTransport(read_fd, write_fd, **options)

    def say(self, data: bytes) -> None:
        assert os.write(self.write_fd, data) == len(data)

    def hear(self) -> bytes:
        return os.read(self.read_fd, 2**20)

    def close_writing(self) -> None:
        os.close(self.write_fd)
        self.write_fd = -1

    def close_reading(self) -> None:
        os.close(self.read_fd)
        self.read_fd = -1


@asynccontextmanager
async def wire(**options: Any) -> AsyncIterator[Wire]:
    wire = Wire(**options)
    await wire.transport.start(wire.recorder)
    try:
        async with asyncio.timeout(5):
            yield wire
    finally:
        await wire.transport.close()
        for fd in {wire.read_fd, wire.write_fd} - {-1}:
            os.close(fd)


@pytest.mark.requirement("T-06", "T-16")
@pytest.mark.parametrize(
    ("framer", "expected"),
    [
        (LineFramer, '{"jsonrpc":"2.0","id":1,"method":"m","params":["é\\n"]}\n'),
        (
            ContentLengthFramer,
            'Content-Length: 55\r\n\r\n{"jsonrpc":"2.0","id":1,"method":"m","params":["é\\n"]}',
        ),
    ],
)
async def test_a_message_is_exactly_these_bytes(framer: type[Framer], expected: str) -> None:
    async with wire(framer=framer()) as peer:
        peer.transport.send(Request(1, "m", ["é\n"]))
        assert peer.hear() == expected.encode()


@pytest.mark.requirement("L-8", "L-33")
async def test_the_messages_of_one_round_are_written_in_one_piece() -> None:
    written: list[bytes] = []

    def tap(direction: str, data: bytes) -> None:
        written.append(data)

    async with wire(tap=tap) as peer:
        peer.transport.send(Notification("first"))  # at once: others may never come
        for n in range(100):
            peer.transport.send(Notification("next", [n]))
        await asyncio.sleep(0)
        assert len(written) == 2
        assert peer.hear() == b"".join(written)


@pytest.mark.requirement("contract:X2", "L-22")
async def test_what_came_before_a_broken_pipe_is_handed_up_before_the_end() -> None:
    async with wire() as peer:
        peer.say(b'{"method": "last"}\n')
        peer.close_reading()
        peer.close_writing()
        peer.transport.send(Notification("to nobody"))
        assert await peer.recorder.wait_end() is None
        assert peer.recorder.messages == [Notification("last")]


async def test_a_peer_that_reads_no_more_is_gone_though_it_could_still_speak() -> None:
    async with wire() as peer:
        peer.say(b'{"method": "last"}\n')
        peer.close_reading()
        peer.transport.send(Notification("to nobody"))
        peer.transport.send(Notification("to nobody either"))
        cause = await peer.recorder.wait_end()
        assert isinstance(cause, TransportClosed)
        assert str(cause) == "the peer is gone: Broken pipe"
        assert peer.recorder.messages == [Notification("last")]


async def test_a_peer_that_is_gone_while_much_waits_for_it_holds_nobody_up() -> None:
    async with wire() as peer:
        peer.transport.send(Notification("big", ["x" * 2**21]))
        assert peer.transport.is_congested
        waiting = asyncio.ensure_future(peer.transport.drain())
        await asyncio.sleep(0)
        peer.close_reading()
        await waiting
        assert isinstance(await peer.recorder.wait_end(), TransportClosed)


async def test_a_broken_pipe_while_paused_is_told_after_what_came_before() -> None:
    async with wire() as peer:
        peer.transport.pause()
        peer.say(b'{"method": "last"}\n')
        peer.close_reading()
        peer.transport.send(Notification("to nobody"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert peer.recorder.ends == []
        peer.transport.resume()
        assert isinstance(await peer.recorder.wait_end(), TransportClosed)
        assert peer.recorder.messages == [Notification("last")]


@pytest.mark.requirement("error:bad-content-length", "L-38")
async def test_lost_framing_is_the_end() -> None:
    async with wire(framer=ContentLengthFramer()) as peer:
        peer.say(b"Content-Length: 2\r\n\r\n{}Content-Length: many\r\n\r\n")
        assert isinstance(await peer.recorder.wait_end(), FramingLostError)
        assert len(peer.recorder.messages) == 1


@pytest.mark.requirement("T-18")
async def test_a_stream_cut_anywhere_gives_the_same_messages() -> None:
    stream = '{"method": "é"}\r\n\n{"id": 1, "result": 2}\n'.encode()
    for cut in range(len(stream)):
        async with wire() as peer:
            for piece in (stream[:cut], stream[cut:]):
                peer.say(piece)
                await asyncio.sleep(0)
            first, second = await peer.recorder.wait_for(2)
            assert first == Notification("é")
            assert isinstance(second, Response)


async def test_a_regular_file_is_read_to_its_end(home: Path) -> None:
    messages = home / "messages"
    messages.write_bytes(b'{"method": "line"}\n' * 50_000)
    recorder = Recorder()
    with (home / "answers").open("wb") as answers:
        transport = DescriptorTransport(os.open(messages, os.O_RDONLY), os.dup(answers.fileno()))
        await transport.start(recorder)
        transport.send(Notification("written"))
        async with asyncio.timeout(5):
            assert await recorder.wait_end() is None
        await transport.close()
    assert len(recorder.messages) == 50_000
    assert (home / "answers").read_bytes().count(b"\n") == 1


@pytest.mark.requirement("L-31", "contract:B5")
async def test_what_was_sent_counts_though_nobody_waits_for_it_any_more() -> None:
    async def send_and_give_up(transport: DescriptorTransport) -> None:
        for _ in range(50):
            transport.send(Notification("big", ["x" * 2**18]))
            draining = asyncio.ensure_future(transport.drain())
            await asyncio.sleep(0)
            draining.cancel()

    async with wire(max_unsent_bytes=2**22) as peer:
        with pytest.raises(SendBufferFull):
            await send_and_give_up(peer.transport)
        peer.transport.send(Response(1, "an answer has room of its own"))


async def test_a_descriptor_taken_by_somebody_else_after_the_close_is_left_alone() -> None:
    async with wire() as peer:
        peer.transport.send(Notification("first"))
        peer.transport.send(Notification("second"))  # to be written in the next round
        await peer.transport.close()
        others = os.pipe()  # most likely by the same numbers
        await asyncio.sleep(0)
        await peer.transport.close()
        os.set_blocking(others[0], False)
        with pytest.raises(BlockingIOError):
            os.read(others[0], 1)
        for fd in others:
            os.close(fd)
        assert peer.hear().count(b"\n") == 2


@pytest.mark.parametrize("refusal", [None, errno.EPERM, errno.EINVAL], ids=["none", "linux", "mac"])
async def test_what_cannot_be_watched_is_read_to_its_end(
    refusal: int | None, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # kqueue watches a regular file without ever telling its end, and no device for nothing.
    path = home / "messages"
    path.write_bytes(b'{"method": "line"}\n')
    fd = os.open(path if refusal is None else os.devnull, os.O_RDONLY)
    loop, watched = asyncio.get_running_loop(), []
    really = loop.add_reader

    def watch(each: int, *arguments: Any) -> None:
        if each != fd:
            return really(each, *arguments)
        watched.append(each)
        if refusal is not None:
            raise OSError(refusal, os.strerror(refusal))
        return None

    monkeypatch.setattr(loop, "add_reader", watch)
    recorder = Recorder()
    transport = DescriptorTransport(fd, os.open(os.devnull, os.O_WRONLY))
    await transport.start(recorder)
    async with asyncio.timeout(20):
        assert await recorder.wait_end() is None
    await transport.close()
    assert (len(recorder.messages), len(watched)) == ((1, 0) if refusal is None else (0, 1))
