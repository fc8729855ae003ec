"""What every transport promises, as a suite to run on one's own.

Subclass `TransportContract` in a test module and say how to make two connected ends:

    class TestMyTransport(TransportContract):
        @asynccontextmanager
        async def pair(self):
            yield MyTransport(...), MyTransport(...)

Every test is a plain function that runs an event loop of its own, so any runner will do. After
each, no task and no file descriptor may be left. `docs/howto/write-a-transport.md` shows it done.
"""

import asyncio
import gc
import unittest
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from bullpen.connection.builder import Builder
from bullpen.connection.context import Context
from bullpen.connection.errors import (
    ConnectionClosed,
    SendBufferFull,
    TransportClosed,
    TransportReused,
)
from bullpen.connection.transport import Transport
from bullpen.jsonrpc.errors import RemoteError, RpcError, UnserializableError
from bullpen.jsonrpc.wire import (
    Batch,
    Error,
    Message,
    Notification,
    Request,
    Response,
    decode_value,
)
from bullpen.testing.transports import Recorder

__all__ = ["TransportContract"]

TEST_SECONDS = 50.0  # for one test, all in all; what hangs is told from what is slow
ROUNDS = 20  # of the event loop, for whatever is about to happen to happen

SAMPLES: tuple[Message, ...] = (
    Request(1, "first", {"text": 'é\u2028"\\\n\0😀', "list": [1, 2.5, None, True, {}]}),
    Request("1", "a string is another id"),
    Request(None, "null", [1]),
    Notification("said", {}),
    Notification("$/unknown"),
    Response(99, {"nobody": "asked"}),
    Response("99", None),
    Response(None, error=Error(-32700, "Parse error")),
    Response(7, error=Error(1, "no", {"why": ["not"]})),
    Batch((Request(1, "a"), Notification("b", [1]), Response(2, "c"))),
)


def promise(check: Callable[[Any], Coroutine[Any, Any, None]]) -> Callable[[Any], None]:
    """Make a coroutine method into a test that checks for leftovers, too."""

    def test(self: Any) -> None:
        before = _open_descriptors()
        # Not in debug mode: two hundred senders would spend their time on tracebacks.
        asyncio.run(_bounded(check(self)), debug=False)
        gc.collect()
        assert _open_descriptors() <= before, "the test left file descriptors open"

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    test.__qualname__, test.__module__ = check.__qualname__, check.__module__
    return test


class End:
    """One end of the pair under test, and what it received."""

    def __init__(self, transport: Transport, recorder: Recorder | None = None) -> None:
        self.transport = transport
        self.recorder = recorder or Recorder()
        self.is_started = False

    async def start(self) -> None:
        self.is_started = True
        await self.transport.start(self.recorder)

    async def send_all(self, messages: list[Message] | tuple[Message, ...]) -> None:
        """Send as a polite sender does, who waits while the other end does not read."""
        for message in messages:
            while self.transport.is_congested:
                await self.transport.drain()
            self.transport.send(message)

    async def received(self, count: int) -> list[Message]:
        return [_plain(message) for message in await self.recorder.wait_for(count)]

    async def close(self) -> None:
        await self.transport.close()
        await self.recorder.stop_workers()
        if self.is_started:
            assert len(self.recorder.ends) == 1, "the end is reported once"
        assert not self.recorder.after_the_end, "nothing comes after the end"


class TransportContract:
    """The suite. What a transport cannot do is said by the attributes below."""

    carries_bytes = True
    """Whether messages are serialized on the way, so that JSON is all it can carry."""
    can_pause = True
    """Whether `pause` stops the handing up of messages."""
    can_congest = True
    """Whether it notices that the other end does not read."""
    can_half_close = False
    """Whether an end can say its last word and go on listening; see `half_close`."""
    can_flush = True
    """Whether what was sent before a close arrives; a terminal forgets it."""
    open_seconds = 0.05
    """How long opening may take while the other end says nothing."""
    close_seconds = 5.0
    """How long closing may take while the other end does not read."""

    senders = 200
    payload_bytes = 1_000_000

    def pair(self) -> AbstractAsyncContextManager[tuple[Transport, Transport]]:
        """Make two connected ends, not started; the first is the one that is looked at closely."""
        raise NotImplementedError

    async def half_close(self, far: Transport) -> None:
        """Have the far end say its last word, and go on listening."""
        raise NotImplementedError

    # Moving messages

    @promise
    async def test_messages_of_every_kind_arrive_unchanged_both_ways(self) -> None:
        async with self._both() as (near, far):
            for sender, receiver in ((near, far), (far, near)):
                await sender.send_all(SAMPLES)
                assert await receiver.received(len(SAMPLES)) == list(SAMPLES)

    @promise
    async def test_messages_arrive_in_the_order_sent_while_both_ends_send(self) -> None:
        count = 2000
        messages: list[Message] = [Notification("count", [n]) for n in range(count)]
        async with self._both() as (near, far):
            await asyncio.gather(near.send_all(messages), far.send_all(messages))
            assert await near.received(count) == messages
            assert await far.received(count) == messages

    @promise
    async def test_large_messages_of_many_concurrent_senders_arrive_whole(self) -> None:
        recorder = _PayloadRecorder(self.payload_bytes)
        async with self._both(far_recorder=recorder) as (near, far):

            async def send(n: int) -> None:
                text = chr(ord("a") + n % 26) * self.payload_bytes
                await near.send_all([Request(n, "big", [n, text])])

            await asyncio.gather(*(send(n) for n in range(self.senders)))
            arrived = await far.received(self.senders)
            assert sorted(m.id for m in arrived) == list(range(self.senders))  # type: ignore[union-attr, type-var]

    @promise
    async def test_both_ends_may_send_much_before_either_reads(self) -> None:
        size = 4 * 2**20
        async with self._both() as (near, far):
            for end in (near, far):
                end.transport.send(Notification("big", ["x" * size]))
            for end in (near, far):
                (message,) = await end.received(1)
                assert message == Notification("big", ["x" * size])

    @promise
    async def test_what_cannot_be_serialized_is_refused_and_the_next_message_arrives(self) -> None:
        if not self.carries_bytes:
            raise unittest.SkipTest("it carries any object")
        async with self._both() as (near, far):
            try:
                near.transport.send(Notification("bad", [object()]))
            except UnserializableError:
                pass
            else:
                raise AssertionError("an object JSON has no word for was taken")
            near.transport.send(Notification("good"))
            assert await far.received(1) == [Notification("good")]

    # Flow

    @promise
    async def test_while_paused_nothing_is_handed_up_and_nothing_is_lost(self) -> None:
        if not self.can_pause:
            raise unittest.SkipTest("it cannot pause")
        messages: list[Message] = [Notification("count", [n]) for n in range(100)]
        async with self._both() as (near, far):
            near.transport.pause()
            await far.send_all(messages)
            near.transport.send(Notification("meanwhile"))  # shows that there was time enough
            await far.received(1)
            await _rounds()
            assert near.recorder.messages == []
            near.transport.resume()
            assert await near.received(len(messages)) == messages

    @promise
    async def test_an_end_that_comes_while_paused_is_reported_after_the_messages(self) -> None:
        if not self.can_pause or not self.can_flush:
            raise unittest.SkipTest("it cannot pause, or forgets at the close")
        async with self._both() as (near, far):
            near.transport.pause()
            await far.send_all([Notification("last words")])
            await far.close()
            await _rounds()
            assert near.recorder.messages == []
            assert near.recorder.ends == []
            near.transport.resume()
            assert await near.received(1) == [Notification("last words")]
            assert await near.recorder.wait_end() is None

    @promise
    async def test_a_sender_can_wait_until_the_other_end_reads_again(self) -> None:
        async with self._congested() as (near, far, count):
            waiting = asyncio.ensure_future(near.transport.drain())
            await _rounds()
            assert not waiting.done()
            await far.start()
            await waiting
            assert not near.transport.is_congested
            assert len(await far.received(count)) == count

    @promise
    async def test_what_waits_for_a_peer_that_does_not_read_is_limited(self) -> None:
        async with self._congested() as (near, _, _):
            text = "x" * (self.payload_bytes if self.carries_bytes else 1)
            message = Notification("fill", [text])
            try:
                for _ in range(1_000_000):
                    near.transport.send(message)
            except SendBufferFull:
                pass
            else:
                raise AssertionError("it takes any number of messages nobody reads")
            near.transport.send(Response(1, None))  # answers have room of their own

    @promise
    async def test_whoever_waits_to_send_goes_on_when_the_transport_closes(self) -> None:
        async with self._congested() as (near, _, _):
            waiting = asyncio.ensure_future(near.transport.drain())
            await _rounds()
            assert not waiting.done()
            await near.close()
            await waiting

    # Opening

    @promise
    async def test_opening_does_not_wait_for_a_peer_that_stays_silent(self) -> None:
        loop = asyncio.get_running_loop()
        durations = []
        for _ in range(3):  # the machine may be busy; a transport that waits is slow every time
            async with self._both(start_far=False, start_near=False) as (near, _):
                began = loop.time()
                await near.start()
                durations.append(loop.time() - began)
        assert min(durations) < self.open_seconds

    @promise
    async def test_a_transport_serves_once(self) -> None:
        async with self._both() as (near, far):
            try:
                await near.transport.start(Recorder())
            except TransportReused:
                pass
            else:
                raise AssertionError("it was started twice")
            near.transport.send(Notification("still here"))
            assert await far.received(1) == [Notification("still here")]

    @promise
    async def test_nothing_can_be_sent_before_it_is_open(self) -> None:
        async with self._both(start_near=False, start_far=False) as (near, _):
            _refuses_to_send(near.transport)

    @promise
    async def test_one_that_was_never_opened_can_be_closed(self) -> None:
        async with self._both(start_near=False, start_far=False) as (near, far):
            await near.close()
            await far.close()

    # Ending

    @promise
    async def test_the_other_ends_close_is_a_clean_end_after_its_messages(self) -> None:
        if not self.can_flush:
            raise unittest.SkipTest("it forgets at the close")
        messages: list[Message] = [Notification("count", [n]) for n in range(500)]
        async with self._both() as (near, far):
            await far.send_all(messages)
            await far.close()
            assert await near.recorder.wait_end() is None
            assert await near.received(len(messages)) == messages

    @promise
    async def test_what_was_sent_before_our_close_arrives(self) -> None:
        if not self.can_flush:
            raise unittest.SkipTest("it forgets at the close")
        messages: list[Message] = [Notification("count", [n, "x" * 1000]) for n in range(200)]
        async with self._both() as (near, far):
            await near.send_all(messages)
            await near.close()
            assert await far.recorder.wait_end() is None
            assert await far.received(len(messages)) == messages

    @promise
    async def test_our_own_close_is_a_clean_end_too(self) -> None:
        async with self._both() as (near, far):
            await near.close()
            assert near.recorder.ends == [None]
            await far.recorder.wait_end()

    @promise
    async def test_nothing_can_be_sent_after_our_close(self) -> None:
        async with self._both() as (near, _):
            await near.close()
            _refuses_to_send(near.transport)

    @promise
    async def test_sending_to_one_that_is_gone_is_refused_or_forgotten(self) -> None:
        async with self._both() as (near, far):
            await far.close()
            await near.recorder.wait_end()
            for _ in range(3):
                try:
                    near.transport.send(Notification("anybody?"))
                except TransportClosed:
                    break
                await _rounds()

    @promise
    async def test_nothing_is_handed_up_once_it_was_closed(self) -> None:
        async with self._both() as (near, far):
            await far.send_all([Notification("late")] * 100)
            await near.close()
            count = len(near.recorder.messages)
            await _rounds()
            assert len(near.recorder.messages) == count
            assert near.recorder.after_the_end == []

    @promise
    async def test_the_last_word_of_one_end_leaves_the_other_its_own(self) -> None:
        if not self.can_half_close:
            raise unittest.SkipTest("it ends both ways at once")
        async with self._both() as (near, far):
            await far.send_all([Request(1, "last question")])
            await self.half_close(far.transport)
            assert await near.received(1) == [Request(1, "last question")]
            assert await near.recorder.wait_end() is None
            near.transport.send(Response(1, "answer"))
            await near.close()
            assert await far.received(1) == [Response(1, "answer")]

    # Closing

    @promise
    async def test_closing_is_idempotent_also_at_the_same_time(self) -> None:
        async with self._both() as (near, far):
            await near.send_all([Notification("before")])
            await asyncio.gather(near.transport.close(), near.transport.close())
            await near.transport.close()
            assert near.recorder.ends == [None]
            if self.can_flush:
                assert await far.received(1) == [Notification("before")]

    @promise
    async def test_a_peer_that_does_not_read_does_not_hold_the_close(self) -> None:
        async with self._congested() as (near, _, _):
            async with asyncio.timeout(self.close_seconds):
                await near.close()

    @promise
    async def test_a_close_that_is_cancelled_leaves_nothing_behind(self) -> None:
        async with self._congested() as (near, _, _):
            closing = asyncio.ensure_future(near.transport.close())
            await _rounds()
            closing.cancel()
            await asyncio.wait([closing])
            async with asyncio.timeout(self.close_seconds):
                await near.close()

    # The protocol on top

    @promise
    async def test_a_connection_gives_the_same_results_over_it(self) -> None:
        async with self.pair() as (near, far):
            heard: list[Any] = []
            serving = asyncio.ensure_future(_protocol(heard).serve_with(far))
            async with _protocol(heard).connect(near) as connection:
                many = [connection.request("echo", [n]) for n in range(300)]
                assert await asyncio.gather(*many) == [[n] for n in range(300)]
                await connection.notify("note", {"n": 1})
                assert await connection.request("nested", {"depth": 5}) == "bottom"
                assert await _error_of(connection.request("fail")) == (7, "no", {"why": "asked"})
                assert await _error_of(connection.request("absent")) == (
                    -32601,
                    "Method not found: absent",
                    {"method": "absent"},
                )
                assert heard == [{"n": 1}]
            await serving

    @promise
    async def test_a_connection_ends_the_same_way_over_it(self) -> None:
        async with self.pair() as (near, far):
            asked = asyncio.Event()

            async def never(_params: Any, _context: Context) -> None:
                asked.set()
                await asyncio.Event().wait()

            connection = await Builder().open(near)
            other = await Builder().on_request("never", never).open(far)
            waiting = asyncio.ensure_future(connection.request("never"))
            await asked.wait()
            await other.aclose()
            await connection.wait_closed()
            await asyncio.wait([waiting])
            # Whichever comes first: the answer that the other end shuts down, or its end.
            assert isinstance(waiting.exception(), RemoteError | ConnectionClosed)
            assert connection.is_clean
            assert isinstance(connection.cause, TransportClosed)
            late = await asyncio.gather(connection.request("late"), return_exceptions=True)
            assert isinstance(late[0], ConnectionClosed)
            await connection.aclose()

    # How the tests are made

    @asynccontextmanager
    async def _both(
        self,
        *,
        start_near: bool = True,
        start_far: bool = True,
        far_recorder: Recorder | None = None,
    ) -> AsyncIterator[tuple[End, End]]:
        async with self.pair() as (near_transport, far_transport):
            near, far = End(near_transport), End(far_transport, far_recorder)
            try:
                if start_near:
                    await near.start()
                if start_far:
                    await far.start()
                yield near, far
            finally:
                await near.close()
                await far.close()

    @asynccontextmanager
    async def _congested(self) -> AsyncIterator[tuple[End, End, int]]:
        """Have the near end send until it is told to wait, to a far end that is not started."""
        if not self.can_congest:
            raise unittest.SkipTest("it does not notice whether the other end reads")
        async with self._both(start_far=False) as (near, far):
            text = "x" * (2**16 if self.carries_bytes else 1)
            count = 0
            while not near.transport.is_congested:
                near.transport.send(Notification("fill", [text]))
                count += 1
                await asyncio.sleep(0)
            yield near, far, count


class _PayloadRecorder(Recorder):
    """Looks at each large message and keeps its id only."""

    def __init__(self, payload_bytes: int) -> None:
        super().__init__()
        self._payload_bytes = payload_bytes

    def receive(self, message: Message, size: int) -> None:
        assert isinstance(message, Request)
        n, text = decode_value(message.params)
        assert text == text[0] * self._payload_bytes, "a payload is torn"
        super().receive(Request(n, message.method), size)


async def _bounded(check: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(TEST_SECONDS):
        await check
    await _rounds()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"the test left tasks behind: {left}"


async def _rounds() -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(0)


def _open_descriptors() -> int:
    return sum(1 for _ in Path("/dev/fd").iterdir())


def _plain(message: Message) -> Message:
    """Return a message with the values that its raw parts stand for."""
    if isinstance(message, Batch):
        return Batch(_plain(entry) for entry in message)  # type: ignore[misc]
    if isinstance(message, Response):
        if message.error is UNSET:
            return Response(message.id, decode_value(message.result))
        return message
    if isinstance(message, Request | Notification) and message.params is not UNSET:
        return msgspec.structs.replace(message, params=decode_value(message.params))
    return message


def _refuses_to_send(transport: Transport) -> None:
    try:
        transport.send(Notification("too early or too late"))
    except TransportClosed:
        return
    raise AssertionError("it takes a message while it is not open")


def _protocol(heard: list[Any]) -> Builder:
    """Return handlers for everything two peers do with each other."""

    def echo(params: Any, _context: Context) -> Any:
        return params

    def note(params: Any, _context: Context) -> None:
        heard.append(params)

    def fail(_params: Any, _context: Context) -> None:
        raise RpcError(7, "no", {"why": "asked"})

    async def nested(params: Any, context: Context) -> Any:
        if not params["depth"]:
            return "bottom"
        return await context.connection.request("nested", {"depth": params["depth"] - 1})

    return (
        Builder()
        .on_request("echo", echo)
        .on_request("fail", fail)
        .on_request("nested", nested)
        .on_notification("note", note)
    )


async def _error_of(asking: Coroutine[Any, Any, Any]) -> tuple[int, str, Any]:
    try:
        await asking
    except RemoteError as error:
        return error.code, error.message, error.data
    raise AssertionError("there was an answer, not an error")
