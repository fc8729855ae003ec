"""Transports whose other end is the test: it sees what is sent and says what arrives, and when."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from bullpen.connection import Message, Receiver, Response, Transport, TransportClosed
from bullpen.connection.transports.frames import FrameTransport

__all__ = ["MessagePeer", "StreamPeer", "logged", "settle"]


class MessagePeer(Transport):
    """A peer that speaks in messages."""

    def __init__(self, on_send: Callable[[Message], object] | None = None) -> None:
        self.sent: list[Message] = []
        self.is_closed = False
        self._on_send = on_send
        self._receiver: Receiver | None = None
        self._news = asyncio.Event()

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver

    def send(self, message: Message) -> None:
        if self.is_closed:
            raise TransportClosed("the peer is closed")
        self.sent.append(message)
        self._news.set()
        if self._on_send is not None:
            self._on_send(message)

    async def close(self) -> None:
        self.is_closed = True
        self._receiver = None

    async def say(self, *messages: Message, size: int = 0) -> None:
        """Have messages arrive in one read: in a callback of the event loop, as reads are."""
        said = asyncio.get_running_loop().create_future()

        def read() -> None:
            self.say_now(*messages, size=size)
            said.set_result(None)

        asyncio.get_running_loop().call_soon(read)
        await said

    def say_now(self, *messages: Message, size: int = 0) -> None:
        """Have messages arrive here and now."""
        assert self._receiver is not None
        self._receiver.receive_burst(messages, [size] * len(messages))

    def end(self, cause: Exception | None = None) -> None:
        """Say the last word."""
        assert self._receiver is not None
        self._receiver.receive_end(cause)

    async def heard(self, count: int) -> list[Message]:
        """Wait until so many messages have been sent, and return them."""
        while len(self.sent) < count:
            self._news.clear()
            await self._news.wait()
        assert len(self.sent) == count, self.sent
        return self.sent

    @property
    def responses(self) -> dict[Any, Response]:
        """What has been answered so far, by id; there is one answer to an id."""
        answers = [message for message in self.sent if isinstance(message, Response)]
        by_id = {answer.id: answer for answer in answers}
        assert len(by_id) == len(answers), answers
        return by_id


class StreamPeer(FrameTransport):
    """A peer that speaks in bytes. While it is stuck, it takes none of what is written to it."""

    def __init__(self, *, is_stuck: bool = False, **options: Any) -> None:
        super().__init__(**options)
        self.written = bytearray()
        self._unread = bytearray()
        self._is_stuck = is_stuck

    async def open(self, receiver: Receiver) -> None:
        self._attach(receiver)

    async def close(self) -> None:
        self._flush()
        self._is_closing = True
        self._relieve()
        self._end(None)

    def say(self, data: bytes) -> None:
        """Have bytes arrive in one read."""
        asyncio.get_running_loop().call_soon(self._feed, data)

    def end(self, cause: Exception | None = None) -> None:
        """Have the stream end after what was said."""
        asyncio.get_running_loop().call_soon(self._end, cause)

    def read_again(self) -> None:
        """Take what was written meanwhile, and go on doing so."""
        self._is_stuck = False
        self.written += self._unread
        self._unread.clear()
        self._relieve()

    @property
    def heard(self) -> list[Any]:
        """What was written, line by line."""
        return [msgspec.json.decode(line) for line in self.written.splitlines()]

    def _write(self, data: bytes) -> None:
        if not self._is_stuck:
            self.written += data
            return
        self._unread += data
        self._back_up()

    def _unsent_bytes(self) -> int:
        return len(self._unread)


async def settle(rounds: int = 30) -> None:
    """Let everything that can run without something new from outside run to its end."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return what the connection logged; asyncio has its own things to say on a busy machine."""
    return [record for record in caplog.records if record.name.startswith("bullpen")]
