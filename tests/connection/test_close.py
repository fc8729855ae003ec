"""However a connection ends, nobody waits for ever and nothing of it is left."""

import asyncio
import contextlib
import gc
import random
import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    Connection,
    ConnectionClosed,
    Context,
    Limits,
    Message,
    Notification,
    Receiver,
    Request,
    Responder,
    Response,
    TransportClosed,
    TransportError,
    TransportReused,
    channel_pair,
)
from bullpen.connection import connection as connection_module
from tests.connection.peers import MessagePeer, StreamPeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


async def for_ever(params: Any, context: Context) -> None:
    await asyncio.get_running_loop().create_future()


# Those who wait


@pytest.mark.requirement("contract:X1", "T-14", "L-21", "L-22", "L-41")
@pytest.mark.parametrize("end", ["clean end", "failure", "own close"])
async def test_waiters_of_every_kind_fail_once_with_the_first_cause(end: str) -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        outcomes: list[Any] = []
        causes: list[Any] = []
        connection.on_close(causes.append)
        tasks = [
            asyncio.create_task(connection.request("plain")),
            asyncio.create_task(connection.request("timed", timeout=60)),
            asyncio.create_task(connection.request("hooked", on_result=outcomes.append)),
            asyncio.create_task(connection.request("patient", timeout=None)),
        ]
        connection.send_request("delivered", None, outcomes.append)
        await peer.heard(5)
        peer.is_congested = True
        closing = asyncio.create_task(connection.wait_closed())
        failure = TransportClosed("first")
        if end == "clean end":
            peer.end()
        elif end == "failure":
            peer.end(failure)
            peer.end(TransportClosed("second"))
        else:
            await connection.aclose()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        await closing
        assert [type(result) for result in results] == [ConnectionClosed] * 4
        assert [type(outcome) for outcome in outcomes] == [ConnectionClosed]
        assert causes == [connection.cause]
        assert {result.cause for result in (*results, *outcomes)} == {connection.cause}
        assert {result.__cause__ for result in results} == {connection.cause}
        if end == "failure":
            assert connection.cause is failure
        else:
            assert (connection.cause is None) is (end == "own close")
        assert connection.is_clean is (end != "failure")
        assert connection.stats().requests_pending == 0


@pytest.mark.requirement("contract:X1", "contract:B5")
@pytest.mark.parametrize("end", ["clean end", "own close"])
async def test_those_who_wait_for_the_peer_to_read_are_released(end: str) -> None:
    peer = StreamPeer(is_stuck=True)
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        connection.send_notification("fill", "x" * 100)
        callers = [
            asyncio.create_task(connection.request("m")),
            asyncio.create_task(connection.notify("m")),
        ]
        await settle()
        assert not any(caller.done() for caller in callers)
        if end == "clean end":
            peer.end()
        else:
            await connection.aclose()
        for outcome in await asyncio.gather(*callers, return_exceptions=True):
            assert isinstance(outcome, ConnectionClosed)


@pytest.mark.requirement("contract:X1", "L-22")
async def test_after_the_end_every_call_fails_at_once_with_the_cause() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        cause = TransportClosed("the wire was cut")
        peer.end(cause)
        work = asyncio.sleep(0)
        for call in (
            lambda: connection.send_notification("m"),
            lambda: connection.send_request("m", None, lambda outcome: None),
            lambda: connection.spawn(work),
        ):
            with pytest.raises(ConnectionClosed, match="connection closed: the wire was cut"):
                call()
        for waiting in (connection.request("m"), connection.notify("m")):
            with pytest.raises(ConnectionClosed) as caught:
                await waiting
            assert caught.value.cause is cause
        assert connection.is_closed
        assert repr(connection) == "<Connection 'connection' CLOSED: the wire was cut, 0 pending>"
        assert peer.sent == []


@pytest.mark.requirement("contract:X1")
async def test_close_callbacks_all_run_in_order_with_the_first_cause_after_the_waiters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []

    def fail(cause: BaseException | None) -> None:
        seen.append(("second", cause))
        raise ValueError("in a callback")

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        connection.on_close(lambda cause: seen.append(("first", cause)))
        connection.on_close(fail)
        connection.on_close(lambda cause: seen.append(("third", cause)))
        connection.send_request("m", None, lambda outcome: seen.append("waiter"))
        cause = TransportClosed("gone")
        peer.end(cause)
        connection.on_close(lambda cause: seen.append(("late", cause)))
        await connection.wait_closed()
        assert seen == ["waiter", *((name, cause) for name in ("first", "second", "third", "late"))]
    assert "a close callback failed" in caplog.text


@pytest.mark.requirement("contract:X1", "error:response-hook")
async def test_a_delivery_that_fails_at_the_end_does_not_keep_others_waiting() -> None:
    def fail(outcome: object) -> None:
        raise LookupError

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        connection.send_request("m", None, fail)
        caller = asyncio.create_task(connection.request("m"))
        await peer.heard(2)
        peer.end()
        with pytest.raises(ConnectionClosed):
            await caller
        await connection.wait_closed()


# What came before the end


@pytest.mark.requirement("contract:X2", "L-22")
@pytest.mark.parametrize("cause", [None, TransportClosed("cut")], ids=["clean", "failure"])
async def test_a_response_that_came_before_the_end_is_delivered(cause: Exception | None) -> None:
    peer = StreamPeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        answered = asyncio.create_task(connection.request("m"))
        unanswered = asyncio.create_task(connection.request("m"))
        await settle()
        peer.say(b'{"id":1,"result":"in time"}\n')
        peer.end(cause)
        assert await answered == "in time"
        with pytest.raises(ConnectionClosed):
            await unanswered


@pytest.mark.requirement("contract:X2", "contract:B4")
@pytest.mark.parametrize("cause", [None, TransportClosed("cut")], ids=["clean", "failure"])
@pytest.mark.parametrize("waits", [False, True], ids=["at once", "after a wait"])
async def test_notifications_that_came_before_the_end_are_handled(
    cause: Exception | None, waits: bool
) -> None:
    handled: list[int] = []

    async def handle(params: int, context: Context) -> None:
        if waits:
            await asyncio.sleep(0)
        handled.append(params)

    peer = StreamPeer()
    builder = Connection.builder().on_notification("n", handle)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        peer.say(b"".join(b'{"method":"n","params":%d}\n' % n for n in range(20)))
        peer.end(cause)
        await connection.wait_closed()
        assert handled == list(range(20))


@pytest.mark.requirement("contract:X4", "L-23")
async def test_what_was_asked_before_the_end_of_input_is_still_answered() -> None:
    release = asyncio.Event()

    async def handle(params: int, context: Context) -> int:
        if params:
            await release.wait()
        return params

    peer = StreamPeer()
    builder = Connection.builder().on_request("m", handle).limits(Limits(finish_seconds=3600))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        peer.say(b"".join(b'{"id":%d,"method":"m","params":%d}\n' % (n, n) for n in range(4)))
        peer.end()
        await settle()
        assert connection.is_closed
        assert [message["id"] for message in peer.heard] == [0]
        release.set()
        await connection.wait_closed()  # and is not held up by the bound
        assert sorted(message["result"] for message in peer.heard) == [0, 1, 2, 3]


@pytest.mark.requirement("contract:X4")
async def test_more_was_asked_than_may_run_and_all_of_it_is_answered_after_the_end() -> None:
    async def handle(params: int, context: Context) -> int:
        await asyncio.sleep(0)
        return params

    peer = MessagePeer()
    limits = Limits(running_handlers=2, finish_seconds=3600)
    builder = Connection.builder().on_request("m", handle).limits(limits)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(*(Request(n, "m", n) for n in range(20)))
        peer.end()
        await connection.wait_closed()
        assert {id_: answer.result for id_, answer in peer.responses.items()} == {
            n: n for n in range(20)
        }


@pytest.mark.requirement("contract:X3", "contract:X4")
@pytest.mark.parametrize("has_idle_runner", [False, True])
async def test_the_end_of_input_waits_for_handlers_and_not_for_idle_tasks(
    has_idle_runner: bool,
) -> None:
    release = asyncio.Event()

    async def wait(params: Any, context: Context) -> str:
        await release.wait()
        return "done"

    peer = MessagePeer()
    builder = (
        Connection.builder()
        .on_request("wait", wait)
        .on_request("echo", lambda params, context: params)
        .limits(Limits(finish_seconds=3600))
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "wait"))
        if has_idle_runner:
            await peer.say(Request(2, "echo"))
            await settle()
        peer.end()
        await settle()
        release.set()
        await connection.wait_closed()
        assert peer.responses[1] == Response(1, "done")


@pytest.mark.requirement("contract:X3", "contract:I3")
async def test_a_handler_that_outstays_the_bound_is_cancelled_and_its_request_answered() -> None:
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", for_ever).limits(Limits(finish_seconds=0.01))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "m"))
        peer.end()
        await connection.wait_closed()
        error = peer.responses[1].error
        assert error
        assert (error.code, error.message) == (-32002, "shutting down")


@pytest.mark.requirement("contract:X1")
async def test_a_handler_waiting_for_a_peer_that_is_gone_learns_so() -> None:
    learnt: list[BaseException] = []

    async def ask_back(params: Any, context: Context) -> None:
        try:
            await context.connection.request("back")
        except ConnectionClosed as error:
            learnt.append(error)
            raise

    peer = MessagePeer()
    async with (
        asyncio.timeout(5),
        Connection.builder().on_request("m", ask_back).connect(peer) as c,
    ):
        await peer.say(Request(1, "m"))
        await peer.heard(1)
        peer.end()
        await c.wait_closed()
        assert len(learnt) == 1
        assert peer.responses[1].error


@pytest.mark.requirement("L-23", "contract:O1")
async def test_what_was_accepted_is_sent_before_the_close() -> None:
    received: list[Any] = []
    left, right = channel_pair()
    server = Connection.builder().on_notification("n", lambda params, c: received.append(params))
    async with asyncio.timeout(5), server.connect(right) as them:
        async with Connection.builder().connect(left) as us:
            for n in range(10):
                us.send_notification("n", n)
        await them.wait_closed()
    assert received == list(range(10))


# Closing


@pytest.mark.requirement("contract:X3", "contract:I3")
async def test_closing_answers_every_open_request_once() -> None:
    responders: list[Responder] = []

    def route(message: Message, context: Context | None, size: int) -> bool:
        return isinstance(message, Request) and message.method == "routed"

    peer = MessagePeer()
    builder = (
        Connection.builder()
        .on_request("running", for_ever)
        .on_request("detached", lambda params, context: responders.append(context.detach()))
        .limits(Limits(running_handlers=2))
        .route(route)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(
            Request("detached", "detached"),
            Request("routed", "routed"),
            Request("running 1", "running"),
            Request("running 2", "running"),
            Request("queued", "running"),
        )
        await settle()
        assert connection.stats().requests_waiting == 1
    codes = {id_: answer.error.code for id_, answer in peer.responses.items() if answer.error}
    assert codes == dict.fromkeys(
        ["detached", "routed", "running 1", "running 2", "queued"], -32002
    )
    assert peer.is_closed


@pytest.mark.requirement("contract:X3")
async def test_a_close_of_our_own_does_not_wait_for_handlers_to_finish() -> None:
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", for_ever).limits(Limits(finish_seconds=3600))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "m"))
        await connection.aclose()
        assert 1 in peer.responses


@pytest.mark.requirement("contract:X3")
async def test_closing_twice_or_from_many_places_at_once_is_closing() -> None:
    peer = MessagePeer()
    async with (
        asyncio.timeout(5),
        Connection.builder().on_request("m", for_ever).connect(peer) as c,
    ):
        await peer.say(Request(1, "m"))
        await asyncio.gather(*(c.aclose() for _ in range(5)), c.wait_closed())
        assert peer.is_closed
        await c.aclose()
        await c.wait_closed()
        assert len(peer.responses) == 1


@pytest.mark.requirement("contract:X3")
async def test_a_close_whose_caller_is_cancelled_goes_on() -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def linger(params: Any, context: Context) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            asked.set()
            await release.wait()

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", linger).connect(peer) as c:
        await peer.say(Request(1, "m"))
        closing = asyncio.create_task(c.aclose())
        await asked.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert not peer.is_closed
        release.set()
        await c.wait_closed()
        assert peer.is_closed


@pytest.mark.requirement("contract:X3", "contract:I3")
@pytest.mark.parametrize("kind", ["request", "request answered before", "notification"])
@pytest.mark.parametrize("others", [0, 3])
async def test_a_handler_may_close_its_own_connection(kind: str, others: int) -> None:
    closed = asyncio.Event()

    async def close(params: Any, context: Context) -> str:
        if kind == "request answered before":
            context.respond("goodbye")
        await context.connection.aclose()
        closed.set()
        return "too late"

    peer = MessagePeer()
    builder = (
        Connection.builder()
        .on_request("close", close)
        .on_notification("close", close)
        .on_request("m", for_ever)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(*(Request(n, "m") for n in range(others)))
        await peer.say(
            Notification("close") if kind == "notification" else Request("closer", "close")
        )
        await connection.wait_closed()
        await closed.wait()
        await settle()
        answers = peer.responses
        if kind == "request":
            assert answers.pop("closer").error.code == -32002  # type: ignore[union-attr]
        elif kind != "notification":
            assert answers.pop("closer") == Response("closer", "goodbye")
        assert sorted(answers) == list(range(others))


@pytest.mark.requirement("contract:X3")
async def test_spawned_work_may_close_its_connection() -> None:
    closed: list[bool] = []

    async def close(connection: Connection) -> None:
        await connection.aclose()
        closed.append(True)

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        connection.spawn(close(connection))
        await connection.wait_closed()
        await settle()
        assert closed == [True]


@pytest.mark.requirement("contract:X3", "L-23")
async def test_a_handler_that_refuses_to_be_cancelled_holds_the_close_no_longer_than_the_bound(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection_module, "CLOSE_SECONDS", 0.01)
    release = asyncio.Event()
    begun: list[Any] = []

    async def refuse(params: Any, context: Context) -> str:
        begun.append(params)
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()
        return "at last"

    peer = MessagePeer()
    builder = (
        Connection.builder().name("stubborn").on_request("m", refuse).on_notification("m", refuse)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "m", 1), Notification("m", 2), Notification("m", 3))
        await settle()
        await connection.aclose()
        assert peer.is_closed
        assert "stubborn: stubborn:handlers does not end" in caplog.text
        release.set()
        await settle()
        assert begun == [1, 2]  # and what was queued behind them begins no more
        assert peer.sent == []  # an answer that nobody can receive any more is dropped


@pytest.mark.requirement("contract:X3", "contract:I3")
async def test_what_arrives_while_it_closes_is_refused_and_starts_nothing() -> None:
    begun: list[Any] = []
    asked, release = asyncio.Event(), asyncio.Event()

    async def linger(params: Any, context: Context) -> None:
        begun.append(params)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            asked.set()
            await release.wait()

    peer = MessagePeer()
    builder = Connection.builder().on_request("m", linger).on_notification("m", linger)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "m", 1))
        closing = asyncio.create_task(connection.aclose())
        await asked.wait()
        await peer.say(Request(2, "m", 2), Notification("m", 3), Response(9, None))
        await settle()
        assert peer.responses[2].error.code == -32002  # type: ignore[union-attr]
        release.set()
        await closing
        assert begun == [1]
        assert connection.stats().dropped_notifications == 1


@pytest.mark.requirement("contract:X3", "T-15", "L-21")
async def test_the_end_is_noticed_while_spawned_work_keeps_sending() -> None:
    sent = 0

    async def chatter(connection: Connection) -> None:
        nonlocal sent
        while True:
            await connection.notify("tick")
            sent += 1
            await asyncio.sleep(0)

    peer = MessagePeer()
    serving: asyncio.Task[None]
    builder = Connection.builder().on_request(
        "start", lambda params, context: bool(context.connection.spawn(chatter(context.connection)))
    )
    async with asyncio.timeout(5):
        serving = asyncio.create_task(builder.serve_with(peer))
        await settle()
        await peer.say(Request(1, "start"))
        await settle()
        peer.end()
        await serving
    assert sent > 1
    assert peer.is_closed


class Failing(MessagePeer):
    """A transport that fails when it is opened, or when it is closed."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where

    async def open(self, receiver: Receiver) -> None:
        await super().open(receiver)
        if self._where == "open":
            raise TransportError("cannot open")

    async def close(self) -> None:
        await super().close()
        if self._where == "close":
            raise OSError("cannot close")


@pytest.mark.requirement("contract:X3")
async def test_a_transport_that_fails_to_close_does_not_keep_the_connection_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with asyncio.timeout(5), Connection.builder().connect(Failing("close")) as connection:
        pass
    assert connection.is_closed
    assert "the transport failed to close" in caplog.text


class Working(MessagePeer):
    """A transport with a worker of its own, which ends when it has been closed, or never."""

    def __init__(self, *, ends: bool) -> None:
        super().__init__()
        self.is_told = asyncio.Event()
        self._ends = ends

    async def open(self, receiver: Receiver) -> None:
        await super().open(receiver)
        receiver.run_worker(self._work(), "pump")

    async def close(self) -> None:
        await super().close()
        if self._ends:
            self.is_told.set()

    async def _work(self) -> None:
        await self.is_told.wait()


@pytest.mark.requirement("T-25", "T-38", "contract:X3")
@pytest.mark.parametrize("ends", [True, False])
async def test_a_worker_of_the_transport_ends_with_the_connection(ends: bool) -> None:
    transport = Working(ends=ends)
    builder = Connection.builder().name("us")
    async with asyncio.timeout(5), builder.connect(transport):
        await settle()
        (worker,) = [task for task in asyncio.all_tasks() if task.get_name() == "us:pump"]
    assert worker.done()


@pytest.mark.requirement("contract:X3")
async def test_a_transport_that_fails_to_open_is_closed_and_the_error_raised() -> None:
    transport = Failing("open")
    with pytest.raises(TransportError, match="cannot open"):
        await Connection.builder().open(transport)
    assert transport.is_closed


@pytest.mark.requirement("L-27", "T-25")
async def test_a_handle_that_escaped_retains_neither_the_transport_nor_what_it_holds() -> None:
    contexts: list[Context] = []
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", lambda p, context: contexts.append(context))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "m"))
        await settle()
    transport = weakref.ref(peer)
    del peer
    gc.collect()
    assert transport() is None
    assert contexts[0].connection is connection
    with pytest.raises(ConnectionClosed):
        await connection.request("m")


# Serving


@pytest.mark.requirement("T-42", "T-08")
async def test_serving_returns_at_a_clean_end_and_raises_at_a_failure() -> None:
    async with asyncio.timeout(5):
        for cause in (None, TransportClosed("cut"), OSError("input error")):
            peer = MessagePeer()
            serving = asyncio.create_task(Connection.builder().serve_with(peer))
            await settle()
            peer.end(cause)
            if cause is None:
                await serving
            else:
                with pytest.raises(ConnectionClosed) as caught:
                    await serving
                assert caught.value.cause is caught.value.__cause__ is cause
            assert peer.is_closed


@pytest.mark.requirement("T-42", "contract:X3")
async def test_serving_returns_when_a_handler_closes_and_closes_when_it_is_cancelled() -> None:
    async def close(params: Any, context: Context) -> None:
        await context.connection.aclose()

    async with asyncio.timeout(5):
        for end in ("closed", "cancelled"):
            peer = MessagePeer()
            builder = Connection.builder().on_request("close", close).on_request("m", for_ever)
            serving = asyncio.create_task(builder.serve_with(peer))
            await settle()
            await peer.say(Request(1, "m"))
            if end == "closed":
                await peer.say(Request(2, "close"))
                await serving
            else:
                serving.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await serving
            assert peer.is_closed
            assert 1 in peer.responses


@pytest.mark.requirement("T-42", "T-15")
async def test_serving_returns_cleanly_at_the_end_of_input_with_spawned_work_running() -> None:
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    def start(params: Any, context: Context) -> None:
        context.connection.spawn(work())

    peer = MessagePeer()
    async with asyncio.timeout(5):
        serving = asyncio.create_task(
            Connection.builder().on_request("start", start).serve_with(peer)
        )
        await settle()
        await peer.say(Request(1, "start"))
        await settle()
        peer.end()
        await serving
    assert ended == ["cancelled"]


# At any moment


@pytest.mark.requirement("contract:X1", "contract:X3", "contract:I3", "L-20", "L-22")
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
async def test_an_end_at_any_moment_leaves_nobody_waiting_and_nothing_behind(seed: int) -> None:
    chance = random.Random(seed)
    before = asyncio.all_tasks()

    async def handle(params: int, context: Context) -> int:
        for _ in range(chance.randrange(4)):
            match chance.randrange(5):
                case 0 if context.id is not None:
                    await context.connection.request("back")
                case 1:
                    context.connection.spawn(asyncio.sleep(3600))
                case 2 if chance.randrange(8) == 0:
                    await context.connection.aclose()
                case _:
                    await asyncio.sleep(0)
        return params

    peer = MessagePeer()
    builder = (
        Connection.builder()
        .dialect(ACP)
        .on_request("m", handle)
        .on_notification("m", handle)
        .limits(Limits(running_handlers=4, finish_seconds=0.001))
    )
    asked = 0
    async with asyncio.timeout(10), builder.connect(peer) as connection:
        callers: list[asyncio.Task[Any]] = []
        for _ in range(chance.randrange(40)):
            if connection.is_closed:
                break
            match chance.randrange(6):
                case 0:
                    callers.append(asyncio.create_task(connection.request("m")))
                case 1 | 2:
                    asked += 1
                    await peer.say(Request(asked, "m", asked))
                case 3:
                    await peer.say(Notification("m", 0))
                case 4 if callers:
                    chance.choice(callers).cancel()
                case _:
                    await settle(chance.randrange(3))
        match chance.randrange(3):
            case 0 if not peer.is_closed:
                peer.end()
            case 1 if not peer.is_closed:
                peer.end(TransportClosed("cut"))
            case _:
                await connection.aclose()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert all(
            isinstance(outcome, ConnectionClosed | asyncio.CancelledError) for outcome in outcomes
        )
        await connection.wait_closed()
        assert connection.stats().requests_pending == 0
        assert len(peer.responses) == asked  # each exactly once
    await settle()
    assert asyncio.all_tasks() == before


@pytest.mark.requirement("T-24")
async def test_a_transport_serves_one_connection_and_an_attempt_to_use_it_twice_harms_nobody() -> (
    None
):
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        with pytest.raises(TransportReused, match="MessagePeer has been used already"):
            await Connection.builder().open(peer)
        caller = asyncio.create_task(connection.request("m"))
        await peer.heard(1)
        await peer.say(Response(1, "still here"))
        assert await caller == "still here"
