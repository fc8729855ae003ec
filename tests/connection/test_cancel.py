"""Giving up a request: by its caller here, or by the peer that sent it."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    LSP,
    MCP,
    PLAIN,
    Connection,
    Context,
    Dialect,
    Error,
    Message,
    Notification,
    Request,
    Responder,
    Response,
    TransportClosed,
    channel_pair,
)
from bullpen.jsonrpc.errors import AlreadyAnsweredError
from tests.connection.peers import MessagePeer, StreamPeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")

CANCELLED = Error(-32800, "request cancelled")


def cancel(id_: Any) -> Notification:
    message = ACP.cancel(id_)
    assert message is not None
    return message


# By the caller


@pytest.mark.requirement("contract:C1", "T-14", "L-6")
@pytest.mark.parametrize("dialect", [ACP, LSP, MCP, PLAIN], ids=["acp", "lsp", "mcp", "plain"])
async def test_a_cancelled_caller_frees_its_waiter_and_tells_the_peer_in_its_dialect(
    dialect: Dialect,
) -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().dialect(dialect).connect(peer) as us:
        caller = asyncio.create_task(us.request("m"))
        await peer.heard(1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert us.stats().requests_pending == 0
        expected = dialect.cancel(1)
        assert peer.sent[1:] == ([] if expected is None else [expected])


@pytest.mark.requirement("contract:C1", "contract:I2", "L-22")
async def test_a_late_response_to_an_abandoned_request_is_dropped_and_closes_nothing() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as us:
        abandoned = asyncio.create_task(us.request("m"))
        await peer.heard(1)
        abandoned.cancel()
        await asyncio.wait([abandoned])
        await peer.say(Response(1, "late"), Response(1, error=CANCELLED))
        assert us.stats().unknown_responses == 2
        other = asyncio.create_task(us.request("m"))
        await peer.heard(3)
        await peer.say(Response(2, "in time"))
        assert await other == "in time"


@pytest.mark.requirement("contract:C1")
@pytest.mark.parametrize("first", ["response", "cancel"])
@pytest.mark.parametrize("rich", [False, True], ids=["plain", "with a hook and a timeout"])
async def test_a_caller_cancelled_in_the_round_in_which_its_response_arrives_is_cancelled_once(
    first: str, rich: bool
) -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as us:
        results: list[Any] = []
        options: dict[str, Any] = {"timeout": 5, "on_result": results.append} if rich else {}
        caller = asyncio.create_task(us.request("m", **options))
        await peer.heard(1)
        if first == "response":
            peer.say_now(Response(1, "just in time"))
            caller.cancel()
        else:
            caller.cancel()
            peer.say_now(Response(1, "too late"))
        with pytest.raises(asyncio.CancelledError):
            await caller
        await settle()
        assert us.stats().requests_pending == 0
        assert peer.sent[1:] == []  # a request that was answered needs no cancel
        assert len(results) == (rich and first == "response")


@pytest.mark.requirement("contract:C1")
async def test_a_caller_cancelled_while_the_peer_does_not_read_has_sent_nothing() -> None:
    peer = StreamPeer(is_stuck=True)
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as us:
        us.send_notification("fill", "x" * 100)
        await settle()
        caller = asyncio.create_task(us.request("m"))
        await settle()
        assert us.stats().requests_sent == 0  # it waits for the peer to read
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        peer.read_again()
        await settle()
        assert [message["method"] for message in peer.heard] == ["fill"]


@pytest.mark.requirement("contract:C1", "contract:B5")
async def test_telling_the_peer_does_not_wait_for_a_peer_that_does_not_read() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as us:
        caller = asyncio.create_task(us.request("m"))
        await peer.heard(1)
        peer.is_congested = True
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert peer.sent[1:] == [cancel(1)]


@pytest.mark.requirement("contract:C1")
async def test_a_transport_that_is_gone_does_not_change_what_a_cancelled_caller_gets() -> None:
    def fail(message: Message) -> None:
        if isinstance(message, Notification):
            raise TransportClosed("gone")

    peer = MessagePeer(fail)
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as us:
        caller = asyncio.create_task(us.request("m"))
        await peer.heard(1)
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert us.stats().requests_pending == 0


@pytest.mark.requirement("contract:C1")
async def test_a_request_with_a_delivery_is_cancelled_only_when_it_is_abandoned() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as us:
        delivered: list[Any] = []
        kept = us.send_request("m", None, delivered.append)
        given_up = us.send_request("m", None, delivered.append)
        us.abandon(given_up)
        us.abandon(given_up)
        assert peer.sent[2:] == [cancel(given_up)]
        await peer.say(Response(given_up, "late"), Response(kept, "kept"))
        assert delivered == [Response(kept, "kept")]
        us.abandon(kept)
        assert len(peer.sent) == 3


@pytest.mark.requirement("contract:C1", "contract:O1")
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
async def test_callers_cancelled_at_any_moment_leave_nothing_behind(seed: int) -> None:
    chance = random.Random(seed)
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().dialect(ACP).connect(peer) as us:
        callers = [
            asyncio.create_task(us.request("m", n, timeout=chance.choice([None, 60.0])))
            for n in range(20)
        ]
        open_ids: list[int] = []
        heard = 0
        for _ in range(60):
            for message in peer.sent[heard:]:
                if isinstance(message, Request):
                    assert isinstance(message.id, int)
                    open_ids.append(message.id)
            heard = len(peer.sent)
            match chance.randrange(4):
                case 0:
                    chance.choice(callers).cancel()
                case 1 if open_ids:
                    peer.say_now(Response(open_ids.pop(chance.randrange(len(open_ids))), "here"))
                case 2 if open_ids:
                    id_ = open_ids.pop(chance.randrange(len(open_ids)))
                    await peer.say(Response(id_, "here"))
                case _:
                    await settle(chance.randrange(3))
        await settle()
        pending = us.stats().requests_pending
        assert pending == sum(not caller.done() for caller in callers)
        for caller in callers:
            caller.cancel()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)
        assert all(
            outcome == "here" or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes
        )
        assert us.stats().requests_pending == 0
        cancels = [m.params["requestId"] for m in peer.sent if isinstance(m, Notification)]
        assert len(set(cancels)) == len(cancels)


# By the peer


@pytest.mark.requirement("contract:C3", "contract:I3")
@pytest.mark.parametrize("dialect", [ACP, LSP, MCP], ids=["acp", "lsp", "mcp"])
async def test_a_cancelled_request_is_interrupted_and_answered_as_its_dialect_wants(
    dialect: Dialect,
) -> None:
    interrupted: list[bool] = []

    async def wait(params: Any, context: Context) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            interrupted.append(context.cancel_requested)
            raise

    peer = MessagePeer()
    builder = Connection.builder().dialect(dialect).on_request("wait", wait)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request("x", "wait"))
        message = dialect.cancel("x")
        assert message is not None
        await peer.say(message)
        await peer.say(message)
        await settle()
        assert interrupted == [True]
        assert peer.sent == ([] if dialect is MCP else [Response("x", error=CANCELLED)])
        assert connection.stats().requests_running == 0


@pytest.mark.requirement("contract:C3", "contract:O3")
@settings(max_examples=30)
@given(data=st.data())
async def test_exactly_the_handler_of_the_cancelled_request_is_interrupted(
    data: st.DataObject,
) -> None:
    count = data.draw(st.integers(1, 12))
    read_size = data.draw(st.integers(1, count))
    victims = data.draw(st.sets(st.integers(0, count - 1)))
    release = asyncio.Event()
    interrupted: list[int] = []

    async def handle(params: int, context: Context) -> int:
        try:
            if params % 3:
                await release.wait()
        except asyncio.CancelledError:
            interrupted.append(params)
            raise
        return params

    peer = MessagePeer()
    builder = Connection.builder().dialect(ACP).on_request("m", handle)
    async with asyncio.timeout(5), builder.connect(peer):
        requests = [Request(n, "m", n) for n in range(count)]
        for start in range(0, count, read_size):
            await peer.say(*requests[start : start + read_size])
        await settle()
        for victim in victims:
            await peer.say(cancel(victim))
        release.set()
        await peer.heard(count)
        waiting = {victim for victim in victims if victim % 3}
        assert sorted(interrupted) == sorted(waiting)
        for n, response in peer.responses.items():
            expected = Response(n, error=CANCELLED) if n in waiting else Response(n, n)
            assert response == expected


@pytest.mark.requirement("contract:C3")
@pytest.mark.parametrize("dialect", [ACP, MCP], ids=["acp", "mcp"])
async def test_a_request_cancelled_before_its_handler_began_never_begins(dialect: Dialect) -> None:
    begun: list[Any] = []
    peer = MessagePeer()
    builder = Connection.builder().dialect(dialect).on_request("m", lambda p, c: begun.append(c.id))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        message = dialect.cancel(2)
        assert message is not None
        await peer.say(Request(1, "m"), Request(2, "m"), message, Request(3, "m"))
        await settle()
        assert begun == [1, 3]
        answers = dict(peer.responses)
        assert answers.pop(2, None) == (None if dialect is MCP else Response(2, error=CANCELLED))
        assert answers == {1: Response(1, None), 3: Response(3, None)}
        assert connection.stats().requests_waiting == 0


@pytest.mark.requirement("contract:C3", "contract:I3")
async def test_a_handler_that_will_not_be_interrupted_is_answered_with_what_it_returns() -> None:
    async def insist(params: Any, context: Context) -> str:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return "cleaned up"
        return "never"

    async def after(params: Any, context: Context) -> str:
        await asyncio.sleep(0)
        return "undisturbed"

    peer = MessagePeer()
    builder = (
        Connection.builder().dialect(ACP).on_request("insist", insist).on_request("after", after)
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "insist"))
        await peer.say(cancel(1), Request(2, "after"))
        await peer.heard(2)
        assert peer.responses == {1: Response(1, "cleaned up"), 2: Response(2, "undisturbed")}


@pytest.mark.requirement("contract:C3")
@pytest.mark.parametrize("insists", [False, True], ids=["it gives in", "it insists"])
async def test_after_a_cancelled_handler_the_next_finds_a_task_that_nobody_cancelled(
    insists: bool,
) -> None:
    cancelling: list[int] = []

    async def handle(params: str, context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        cancelling.append(task.cancelling())
        if params == "victim":
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if not insists:
                    raise

    peer = MessagePeer()
    builder = Connection.builder().dialect(ACP).on_request("m", handle)
    async with asyncio.timeout(5), builder.connect(peer):
        for n in range(3):
            await peer.say(Request(n, "m", "victim"))
            await settle()
            await peer.say(cancel(n))
            await settle()
            await peer.say(Request(-n - 1, "m", "next"))
            await settle()
        assert cancelling == [0] * 6
        assert len(peer.responses) == 6


@pytest.mark.requirement("contract:C3")
async def test_a_cancel_that_arrives_while_the_handler_is_on_the_stack_hits_nobody_else() -> None:
    """A transport that answers within `send` can cancel a handler that will not wait any more."""

    def on_send(message: Message) -> None:
        if isinstance(message, Notification) and message.method == "progress":
            peer.say_now(cancel(message.params))

    async def handle(params: str, context: Context) -> str:
        if params == "victim":
            context.connection.send_notification("progress", context.id)
            return "done before it was noticed"
        await asyncio.sleep(0)
        return "undisturbed"

    peer = MessagePeer(on_send)
    builder = Connection.builder().dialect(ACP).on_request("m", handle)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(0, "m", "warm up"))
        await settle()
        await peer.say(Request(1, "m", "victim"), Request(2, "m", ""), Request(3, "m", ""))
        await settle()
        await peer.say(Request(4, "m", ""))
        await settle()
        assert {id_: response.result for id_, response in peer.responses.items()} == {
            0: "undisturbed",
            1: "done before it was noticed",
            2: "undisturbed",
            3: "undisturbed",
            4: "undisturbed",
        }


@pytest.mark.requirement("contract:C3")
async def test_the_task_of_a_finished_handler_is_never_cancelled_for_another() -> None:
    finish = asyncio.Event()
    disturbed: list[Any] = []

    async def handle(params: Any, context: Context) -> Any:
        try:
            if params == "long":
                context.respond("early")  # the request is over, the handler is not
                await finish.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            disturbed.append(params)
            raise
        return params

    peer = MessagePeer()
    builder = Connection.builder().dialect(ACP).on_request("m", handle)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "m", "long"))
        await peer.say(cancel(1))  # answered already: nothing to cancel
        await peer.say(Request(2, "m", "short"))
        await peer.heard(2)
        await peer.say(cancel(2), cancel(1), cancel(99))
        finish.set()
        await settle()
        assert disturbed == []
        assert peer.responses == {1: Response(1, "early"), 2: Response(2, "short")}


@pytest.mark.requirement("contract:C3", "contract:I2")
async def test_a_completed_handler_does_not_take_a_reused_id_with_it() -> None:
    async def handle(params: str, context: Context) -> str:
        if params == "waits":
            await asyncio.get_running_loop().create_future()
        return params

    peer = MessagePeer()
    builder = Connection.builder().dialect(ACP).on_request("m", handle)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(7, "m", "waits"), Request(7, "m", "returns"))
        await peer.heard(1)
        await peer.say(cancel(7))
        assert await peer.heard(2) == [Response(7, "returns"), Response(7, error=CANCELLED)]


@pytest.mark.requirement("contract:C3", "contract:I2")
async def test_of_two_requests_with_one_id_the_oldest_is_cancelled_first() -> None:
    interrupted: list[int] = []

    async def wait(params: int, context: Context) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            interrupted.append(params)
            raise

    peer = MessagePeer()
    builder = Connection.builder().dialect(ACP).on_request("m", wait)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(*(Request(7, "m", n) for n in range(10)))
        for _ in range(10):
            await peer.say(cancel(7))
            await settle()
        assert interrupted == list(range(10))
        assert peer.sent == [Response(7, error=CANCELLED)] * 10


@pytest.mark.requirement("contract:C3", "L-37")
async def test_a_cancel_goes_by_type_and_value_of_the_id() -> None:
    async def wait(params: Any, context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    peer = StreamPeer()
    builder = Connection.builder().dialect(ACP).on_request("m", wait)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        peer.say(b'{"id":1,"method":"m"}\n')
        for id_ in (b'"1"', b"1.0", b"true", b"null", b"2", b"[1]"):
            peer.say(b'{"method":"$/cancel_request","params":{"requestId":%b}}\n' % id_)
        peer.say(b'{"method":"$/cancel_request"}\n')
        await settle()
        assert connection.stats().requests_running == 1
        assert peer.heard == []
        peer.say(b'{"method":"$/cancel_request","params":{"requestId":1}}\n')
        await settle()
        assert [message["error"]["code"] for message in peer.heard] == [-32800]


@pytest.mark.requirement("contract:C3", "contract:I3")
async def test_a_request_whose_duty_was_handed_on_is_answered_when_it_is_cancelled() -> None:
    responders: list[Responder] = []
    peer = MessagePeer()
    builder = (
        Connection.builder()
        .dialect(ACP)
        .on_request("m", lambda params, context: responders.append(context.detach()))
    )
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "m"))
        await settle()
        await peer.say(cancel(1))
        assert peer.sent == [Response(1, error=CANCELLED)]
        with pytest.raises(AlreadyAnsweredError):
            responders[0].respond("too late")


@pytest.mark.requirement("contract:C3", "contract:C5", "contract:I3")
async def test_who_took_over_the_duty_to_answer_may_be_told_of_the_cancel_and_answer_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cancelled: list[Any] = []
    responders: list[Responder] = []

    def take_over(params: str, context: Context) -> None:
        def on_cancel() -> None:
            cancelled.append(context.id)
            if params == "fails":
                raise ValueError

        responders.append(context.detach(on_cancel))

    peer = MessagePeer()
    builder = Connection.builder().dialect(ACP).on_request("m", take_over)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "m", "fails"), Request(2, "m", ""))
        await settle()
        await peer.say(cancel(1), cancel(2), cancel(2), Request(3, "m", ""))
        await settle()
        assert cancelled == [1, 2]
        assert len(responders) == 3
        assert peer.sent == []
        for responder in responders:
            responder.respond("what became of it")
        assert sorted(peer.responses) == [1, 2, 3]
        assert not connection.is_closed
    assert "cancelling 'm' failed" in caplog.text


@pytest.mark.requirement("contract:C3")
async def test_without_a_dialect_no_notification_cancels() -> None:
    async def wait(params: Any, context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", wait).connect(peer) as us:
        await peer.say(Request(1, "m"), cancel(1), Notification("", {"requestId": 1}))
        await settle()
        assert us.stats().requests_running == 1
        assert peer.sent == []


@pytest.mark.requirement("contract:C1", "contract:C3")
async def test_cancelling_here_interrupts_there() -> None:
    began, interrupted = asyncio.Event(), asyncio.Event()

    async def wait(params: Any, context: Context) -> None:
        began.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            interrupted.set()

    left, right = channel_pair()
    builder = Connection.builder().dialect(ACP)
    server = builder.on_request("wait", wait)
    async with asyncio.timeout(5), server.connect(right), builder.connect(left) as us:
        caller = asyncio.create_task(us.request("wait"))
        await began.wait()
        caller.cancel()
        await interrupted.wait()
        with pytest.raises(asyncio.CancelledError):
            await caller
        await settle()
        assert us.stats().unknown_responses == 1  # the answer to what nobody waits for
