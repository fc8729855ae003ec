"""Requests and notifications reach their handlers, and every request gets exactly one answer."""

import asyncio
import contextvars
import gc
import logging
import threading
from collections.abc import Awaitable
from enum import Enum
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    DECLINED,
    Connection,
    Context,
    Declined,
    Error,
    Message,
    Notification,
    RemoteError,
    Request,
    Responder,
    Response,
    RpcError,
    TypedNotification,
    TypedRequest,
    channel_pair,
)
from bullpen.jsonrpc.errors import AlreadyAnsweredError
from tests.connection.peers import MessagePeer, StreamPeer, logged, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")


def echo(params: Any, context: Context) -> Any:
    return params


# Reaching a handler


@pytest.mark.requirement("T-04", "T-13")
async def test_a_method_reaches_its_own_handler_and_no_other() -> None:
    calls: list[tuple[str, Any]] = []
    builder = (
        Connection.builder()
        .on_request("a", lambda params, context: calls.append(("request a", params)))
        .on_request("b", lambda params, context: calls.append(("request b", params)))
        .on_notification("a", lambda params, context: calls.append(("notification a", params)))
    )
    peer = MessagePeer()
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "b", [1]), Notification("a", [2]), Request(2, "a", [3]))
        await settle()
        assert calls == [("request b", [1]), ("notification a", [2]), ("request a", [3])]


@pytest.mark.requirement("T-13")
async def test_a_handler_sees_method_id_connection_and_params_as_they_came() -> None:
    seen: list[Any] = []

    def look(params: Any, context: Context) -> None:
        seen.append((context.method, context.id, context.connection, params))

    def look_at_all(message: Message, context: Context) -> None:
        seen.append((context.method, context.id, context.connection, message))

    peer = MessagePeer()
    builder = Connection.builder().on_request("r", look).on_message(look_at_all)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        params = object()
        untyped = Notification("n", params)
        await peer.say(Request("x", "r", params), untyped)
        await settle()
        assert seen == [("r", "x", connection, params), ("n", None, connection, untyped)]


@pytest.mark.requirement("T-04")
@pytest.mark.parametrize("kind", ["plain function", "coroutine function", "returns an awaitable"])
async def test_a_handler_may_be_a_function_of_any_colour(kind: str) -> None:
    async def later(params: Any, context: Context) -> Any:
        await asyncio.sleep(0)
        return params

    def awaitable(params: Any, context: Context) -> Awaitable[Any]:
        return later(params, context)

    handler: Any = {"plain function": echo, "coroutine function": later}.get(kind, awaitable)
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", handler).connect(peer):
        await peer.say(Request(1, "m", "hello"))
        assert await peer.heard(1) == [Response(1, "hello")]


class Greet(TypedRequest[str]):
    METHOD = "greet"
    name: str
    times: int = 1


class Greeted(TypedNotification):
    METHOD = "greeted"
    name: str


@pytest.mark.requirement("T-39", "T-40", "T-53")
async def test_the_type_of_its_parameter_selects_the_method() -> None:
    async def greet(request: Greet, context: Context) -> str:
        return f"hello {request.name}" * request.times

    greeted: list[Greeted] = []
    builder = (
        Connection.builder()
        .on_request(Greet, greet)
        .on_notification(Greeted, lambda notification, context: greeted.append(notification))
    )
    left, right = channel_pair()
    async with asyncio.timeout(5), builder.connect(right), Connection.builder().connect(left) as us:
        assert await us.request(Greet("Ada")) == "hello Ada"
        assert await us.request("greet", {"name": "Bob", "times": 2}) == "hello Bobhello Bob"
        await us.notify(Greeted("Ada"))
        await us.notify("greeted", {"name": "Bob"})
        await settle()
        assert greeted == [Greeted("Ada"), Greeted("Bob")]


@pytest.mark.requirement("T-40", "error:unknown-notification")
async def test_nothing_is_ever_written_back_to_a_notification(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(params: Any, context: Context) -> Any:
        raise RpcError(-1, "for nobody") if params else ValueError("for nobody")

    def answer(params: Any, context: Context) -> Any:
        context.respond("for nobody")

    builder = (
        Connection.builder()
        .on_notification("fail", fail)
        .on_notification("answer", answer)
        .on_notification("typed", echo, params=int)
        .on_notification("result", lambda params, context: "for nobody")
        .on_request("after", echo)
    )
    peer = MessagePeer()
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(
            Notification("fail", True),
            Notification("fail", False),
            Notification("answer"),
            Notification("typed", "no number"),
            Notification("result"),
            Notification("unknown"),
            Notification("$/unknown"),
            Request(1, "after", "still here"),
        )
        await settle()
        assert peer.sent == [Response(1, "still here")]
        assert connection.stats().dropped_notifications == 2
    assert [record.levelname for record in logged(caplog)] == ["WARNING"] * 4
    assert not any("unknown" in record.getMessage() for record in logged(caplog))


# The chain


@pytest.mark.requirement("T-41")
async def test_a_catch_all_sees_what_nobody_before_it_claimed() -> None:
    seen: list[Message] = []

    def rest(message: Message, context: Context) -> str:
        seen.append(message)
        return "caught"

    builder = (
        Connection.builder()
        .on_request("claimed", echo)
        .on_notification("claimed", echo)
        .on_message(rest)
        .on_request("too late", echo)
    )
    peer = MessagePeer()
    async with asyncio.timeout(5), builder.connect(peer):
        unclaimed = (Request(2, "free"), Notification("free"), Request(3, "too late"))
        await peer.say(Request(1, "claimed", "mine"), Notification("claimed"), *unclaimed)
        await settle()
        assert seen == list(unclaimed)
        assert peer.sent == [Response(1, "mine"), Response(2, "caught"), Response(3, "caught")]


@pytest.mark.requirement("T-41")
async def test_a_handler_may_decline_or_rewrite_for_those_after_it() -> None:
    def rewrite(message: Message, context: Context) -> Declined:
        if isinstance(message, Request) and message.method == "old":
            return Declined(Request(message.id, "new", [*message.params, "rewritten"]))
        return DECLINED

    async def declines_later(params: Any, context: Context) -> Declined:
        await asyncio.sleep(0)
        return DECLINED

    builder = (
        Connection.builder()
        .on_message(rewrite)
        .on_request("new", declines_later)
        .on_request("new", echo)
    )
    peer = MessagePeer()
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "old", [1]), Request(2, "new", [2]), Request(3, "other"))
        await peer.say(Notification("nobody"))
        await settle()
        assert peer.responses == {
            1: Response(1, [1, "rewritten"]),
            2: Response(2, [2]),
            3: Response(3, error=Error(-32601, "Method not found: other", {"method": "other"})),
        }
        assert connection.stats().dropped_notifications == 1


@pytest.mark.requirement("T-41")
async def test_handlers_are_asked_one_by_one_until_the_first_claims() -> None:
    asked: list[str] = []

    def handler(name: str, outcome: Any) -> Any:
        def handle(params: Any, context: Context) -> Any:
            asked.append(name)
            return outcome

        return handle

    builder = (
        Connection.builder()
        .on_request("m", handler("first", DECLINED))
        .on_message(handler("second", DECLINED))
        .on_request("other", handler("never", "wrong"))
        .on_request("m", handler("third", "claimed"))
        .on_message(handler("never", "too late"))
    )
    peer = MessagePeer()
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "m"))
        assert await peer.heard(1) == [Response(1, "claimed")]
        assert asked == ["first", "second", "third"]


@pytest.mark.requirement("T-41")
async def test_a_chain_of_thousands_of_handlers_needs_no_deep_stack() -> None:
    builder = Connection.builder()
    for _ in range(3000):
        builder = builder.on_message(lambda message, context: DECLINED)
    builder = builder.on_request("m", echo)
    peer = MessagePeer()
    async with asyncio.timeout(10), builder.connect(peer):
        await peer.say(Request(1, "m", "at the end"))
        assert await peer.heard(1) == [Response(1, "at the end")]


# The table of errors


@pytest.mark.requirement("T-05", "error:unknown-method", "L-4")
async def test_a_method_nobody_handles_is_answered_with_its_name() -> None:
    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().connect(peer) as connection:
        await peer.say(Request(1, "session/load"))
        error = Error(-32601, "Method not found: session/load", {"method": "session/load"})
        assert peer.sent == [Response(1, error=error)]
        assert not connection.is_closed


class Mood(Enum):
    GOOD = "good"
    BAD = "bad"


class Secret(msgspec.Struct, tag="s"):
    pass


class Open(msgspec.Struct, tag="o"):
    pass


class Form(msgspec.Struct):
    age: int = 0
    names: list[str] = []
    mood: Mood = Mood.GOOD
    size: Literal["small", "big"] = "small"
    level: Literal[1, 2] = 1
    part: Secret | Open | None = None


@pytest.mark.requirement("T-05", "T-39", "error:bad-params")
@pytest.mark.parametrize(
    ("params", "path"),
    [
        ('{"age":"hunter2"}', "$.age"),
        ('{"names":["a",{"hunter2":1}]}', "$.names[1]"),
        ('{"mood":"hunter2"}', "$.mood"),
        ('{"size":"hunter2"}', "$.size"),
        ('{"level":420}', "$.level"),
        ('{"part":{"type":"hunter2"}}', "$.part.type"),
        ('"hunter2"', ""),
    ],
)
@pytest.mark.parametrize("wire", ["stream", "channel"])
async def test_params_that_do_not_fit_are_refused_with_their_path_and_without_a_value(
    params: str, path: str, wire: str
) -> None:
    calls: list[Form] = []
    builder = Connection.builder().on_request("m", lambda p, c: calls.append(p), params=Form)
    if wire == "stream":
        stream = StreamPeer()
        async with asyncio.timeout(5), builder.connect(stream) as connection:
            stream.say(b'{"id":1,"method":"m","params":%b}\n' % params.encode())
            await settle()
            (response,) = stream.heard
            assert not connection.is_closed
        code, message, rest = response["error"]["code"], response["error"]["message"], response
    else:
        peer = MessagePeer()
        async with asyncio.timeout(5), builder.connect(peer) as connection:
            await peer.say(Request(1, "m", msgspec.json.decode(params)))
            await peer.heard(1)
            assert not connection.is_closed
        answer = peer.responses[1]
        assert isinstance(answer.error, Error)
        code, message, rest = answer.error.code, answer.error.message, answer
    assert code == -32602
    assert message.startswith("Invalid params: ")
    assert path in message
    assert "hunter2" not in repr(rest)
    assert "420" not in repr(rest)
    assert calls == []


@pytest.mark.requirement("ERR-9")
@pytest.mark.parametrize("params", ["null", "[]", "{}"])
async def test_no_params_may_be_said_in_several_ways(params: str) -> None:
    class Needy(msgspec.Struct):
        times: int

    peer = StreamPeer()
    builder = Connection.builder().on_request("m", lambda p, c: p.level, params=Form)
    builder = builder.on_request("n", lambda p, c: p.times, params=Needy)
    async with asyncio.timeout(5), builder.connect(peer):
        peer.say(b'{"id":1,"method":"m","params":%b}\n' % params.encode())
        peer.say(b'{"id":2,"method":"n","params":%b}\n' % params.encode())
        await settle()
        good, bad = peer.heard
    assert good["result"] == 1
    assert bad["error"]["code"] == -32602


@pytest.mark.requirement("error:bad-params", "L-34")
async def test_params_that_cannot_be_read_are_bad_params() -> None:
    peer = StreamPeer()
    builder = Connection.builder().on_request("m", echo).on_request("n", echo, params=int)
    async with asyncio.timeout(5), builder.connect(peer):
        peer.say(b'{"id":1,"method":"m","params":%b}\n' % (b"9" * 5000))
        peer.say(b'{"id":2,"method":"n","params":%b}\n' % (b"9" * 5000))
        peer.say(b'{"id":3,"method":"m","params":1e999}\n{"id":4,"method":"m","params":4}\n')
        await settle()
        *bad, good = peer.heard
        assert [answer["error"]["code"] for answer in bad] == [-32602] * 3
        assert good["result"] == 4


@pytest.mark.requirement("T-05", "error:rpc-error")
async def test_an_rpc_error_is_answered_as_it_was_raised(caplog: pytest.LogCaptureFixture) -> None:
    def fail(params: Any, context: Context) -> Any:
        raise RpcError(-17, "as given", {"why": [1]})

    async def pass_on(params: Any, context: Context) -> Any:
        raise RemoteError(-18, "from further away")

    peer = MessagePeer()
    builder = Connection.builder().on_request("fail", fail).on_request("pass on", pass_on)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "fail"), Request(2, "pass on"))
        assert await peer.heard(2) == [
            Response(1, error=Error(-17, "as given", {"why": [1]})),
            Response(2, error=Error(-18, "from further away")),
        ]
    assert logged(caplog) == []


@pytest.mark.requirement("T-05", "error:internal")
@pytest.mark.parametrize("debug", [False, True])
async def test_any_other_error_is_internal_with_a_number_to_find_it_by_in_the_log(
    debug: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(params: Any, context: Context) -> Any:
        raise LookupError("hunter2")

    peer = MessagePeer()
    builder = Connection.builder().name("agent").debug(debug).on_request("fail", fail)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "fail"))
        await peer.heard(1)
        assert not connection.is_closed
    error = peer.responses[1].error
    assert isinstance(error, Error)
    assert (error.code, error.message) == (-32603, "Internal error")
    assert ("hunter2" in repr(error)) is debug
    (record,) = logged(caplog)
    assert record.levelno == logging.ERROR
    assert error.data["correlation"] in record.getMessage()
    assert record.getMessage().startswith("agent: ")
    assert record.exc_info


@pytest.mark.requirement("T-05", "error:unserializable", "contract:I3")
@pytest.mark.parametrize("result", [object(), ["\ud800", object()]], ids=["object", "surrogate"])
async def test_a_result_that_cannot_be_written_is_answered_as_an_internal_error(
    result: Any,
) -> None:
    def fail(params: Any, context: Context) -> Any:
        raise RpcError(-1, "not writable either", result)

    peer = StreamPeer()
    builder = (
        Connection.builder()
        .on_request("return", lambda params, context: result)
        .on_request("respond", lambda params, context: context.respond(result))
        .on_request("raise", fail)
        .on_request("good", echo)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        for id_, method in enumerate(["return", "respond", "raise", "good"]):
            peer.say(b'{"id":%d,"method":"%b"}\n' % (id_, method.encode()))
        await settle()
        answers = {answer["id"]: answer for answer in peer.heard}
        assert [answers[id_]["error"]["code"] for id_ in range(3)] == [-32603] * 3
        assert answers[3]["result"] == {}
        assert len(peer.heard) == 4
        assert not connection.is_closed
        assert connection.stats().requests_running == 0


# One answer


@pytest.mark.requirement("contract:I3")
async def test_a_handler_may_answer_early_and_go_on_and_only_that_answer_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    go_on, at_end = asyncio.Event(), asyncio.Event()

    async def answers_early(params: Any, context: Context) -> str:
        context.respond("early")
        await go_on.wait()
        with pytest.raises(AlreadyAnsweredError, match="request 1 has already been answered"):
            context.respond("twice")
        with pytest.raises(AlreadyAnsweredError):
            context.fail(RpcError(-1, "twice"))
        at_end.set()
        return "late"

    async def fails_early(params: Any, context: Context) -> None:
        context.fail(RpcError(-2, "early"))
        raise ValueError("late")

    peer = MessagePeer()
    builder = Connection.builder().on_request("a", answers_early).on_request("b", fails_early)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "a"), Request(2, "b"))
        await settle()
        assert peer.sent == [Response(1, "early"), Response(2, error=Error(-2, "early"))]
        stats = connection.stats()
        assert (stats.requests_running, stats.requests_waiting) == (1, 0)
        go_on.set()
        await at_end.wait()
        await settle()
        assert len(peer.sent) == 2
    assert "late" in caplog.text  # a failure after the answer is not lost


@pytest.mark.requirement("contract:I3")
async def test_the_duty_to_answer_can_be_taken_out_of_the_handler() -> None:
    responders: list[Responder] = []
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", lambda p, c: responders.append(c.detach()))
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(*(Request(id_, "m") for id_ in "abc"))
        await settle()
        assert peer.sent == []
        a, b, c = responders
        assert ([r.id for r in responders], a.is_answered) == (["a", "b", "c"], False)
        b.respond("from outside")
        c.fail(RpcError(-1, "no"))
        a.answer(Response("a", None))
        assert peer.sent == [
            Response("b", "from outside"),
            Response("c", error=Error(-1, "no")),
            Response("a", None),
        ]
        with pytest.raises(AlreadyAnsweredError):
            b.respond("twice")
        assert b.is_answered


@pytest.mark.requirement("contract:I3", "L-4")
@pytest.mark.parametrize("where", ["at once", "in a cycle", "in another thread"])
async def test_a_responder_that_is_forgotten_answers_with_an_internal_error(where: str) -> None:
    kept: list[Any] = []

    def forget(params: Any, context: Context) -> None:
        responder = context.detach()
        if where == "in a cycle":
            cycle: list[Any] = [responder]
            cycle.append(cycle)
        elif where == "in another thread":
            kept.append(responder)

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", forget).connect(peer):
        await peer.say(Request(1, "m"))
        gc.collect()
        if where == "in another thread":
            thread = threading.Thread(target=kept.clear)
            thread.start()
            await asyncio.to_thread(thread.join)
        await peer.heard(1)
        error = Error(-32603, "the request was dropped")
        assert peer.sent == [Response(1, error=error)]


@pytest.mark.requirement("contract:I3")
async def test_a_responder_that_outlives_its_connection_does_no_harm() -> None:
    responders: list[Responder] = []
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", lambda p, c: responders.append(c.detach()))
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "m"), Request(2, "m"))
        await settle()
    assert {id_: r.error.code for id_, r in peer.responses.items() if r.error} == {
        1: -32002,
        2: -32002,
    }
    with pytest.raises(AlreadyAnsweredError):
        responders[0].respond("too late")
    responders.clear()
    await settle()
    assert len(peer.sent) == 2


@pytest.mark.requirement("contract:I3")
def test_a_responder_that_outlives_even_its_event_loop_does_no_harm() -> None:
    responders: list[Responder] = []

    async def serve() -> None:
        peer = MessagePeer()
        builder = Connection.builder().on_request("m", lambda p, c: responders.append(c.detach()))
        connection = await builder.open(peer)
        await peer.say(Request(1, "m"))
        await settle()
        assert connection.stats().requests_running == 0

    asyncio.run(serve())
    assert not responders[0].is_answered
    responders.clear()  # an error in a finalizer would be a warning
    gc.collect()


@pytest.mark.requirement("contract:I3")
async def test_the_back_channel_of_a_request_is_closed_once_its_handler_returned() -> None:
    contexts: list[Context] = []

    def keep(params: Any, context: Context) -> str:
        contexts.append(context)
        return "returned"

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", keep).connect(peer):
        await peer.say(Request(1, "m"))
        await peer.heard(1)
        with pytest.raises(AlreadyAnsweredError):
            contexts[0].respond("again")
        assert peer.sent == [Response(1, "returned")]


@pytest.mark.requirement("contract:I2", "contract:I3")
async def test_an_open_request_can_be_answered_by_its_id_the_oldest_first() -> None:
    responders: list[Responder] = []
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", lambda p, c: responders.append(c.detach()))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(*(Request(7, "m", n) for n in range(50)), Request("7", "m"))
        await settle()
        for _ in range(50):
            connection.respond(Response(7, None))
        assert [r.is_answered for r in responders] == [True] * 50 + [False]
        with pytest.raises(KeyError):
            connection.respond(Response(7, None))
        connection.respond(Response("7", None))
        assert len(peer.sent) == 51


@pytest.mark.requirement("contract:I2")
async def test_of_two_requests_with_one_id_the_older_is_answered_first() -> None:
    responders: list[Responder] = []
    peer = MessagePeer()
    builder = Connection.builder().on_request("m", lambda p, c: responders.append(c.detach()))
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        for _ in range(20):  # in a set their order would be chance
            responders.clear()
            await peer.say(*(Request(7, "m", n) for n in range(5)))
            await settle()
            for oldest in range(5):
                connection.respond(Response(7, None))
                answered = [responder.is_answered for responder in responders]
                assert answered == [index <= oldest for index in range(5)]


# Tasks and context variables

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


@pytest.mark.requirement("contract:O3")
async def test_handlers_that_need_not_wait_share_a_task_and_one_that_waits_has_its_own() -> None:
    tasks: dict[int, asyncio.Task[Any] | None] = {}
    release = asyncio.Event()

    async def handle(params: int, context: Context) -> None:
        tasks[params] = asyncio.current_task()
        if params == 5:
            await release.wait()

    peer = MessagePeer()
    async with asyncio.timeout(5), Connection.builder().on_request("m", handle).connect(peer):
        await peer.say(Request(0, "m", 0))
        await settle()
        await peer.say(*(Request(n, "m", n) for n in range(1, 5)))
        assert len({tasks[n] for n in range(5)}) == 1
        await peer.say(*(Request(n, "m", n) for n in range(5, 10)))
        await settle()
        assert tasks[5] not in [tasks[n] for n in range(6, 10)]
        release.set()
        await settle()
        assert sorted(peer.responses) == list(range(10))


@pytest.mark.requirement("contract:O3")
@settings(max_examples=50)
@given(
    reads=st.lists(
        st.lists(
            st.tuples(st.booleans(), st.booleans(), st.integers(0, 2)), min_size=1, max_size=5
        ),
        max_size=8,
    )
)
@example(reads=[[(True, False, 0)], [(True, True, 0), (True, False, 0)]])
@example(reads=[[(False, True, 1), (False, False, 0)]])
async def test_what_a_handler_sets_in_context_variables_no_other_sees(
    reads: list[list[tuple[bool, bool, int]]],
) -> None:
    seen: list[str] = []

    async def handle(params: tuple[bool, int], context: Context) -> None:
        seen.append(variable.get())
        sets, waits = params
        if sets:
            variable.set("before waiting")
        for _ in range(waits):
            await asyncio.sleep(0)
            assert variable.get() == ("before waiting" if sets else "unset")
        if sets:
            variable.set("after waiting")

    peer = MessagePeer()
    builder = Connection.builder().on_request("m", handle).on_notification("m", handle)
    async with asyncio.timeout(5), builder.connect(peer):
        for read in reads:
            await peer.say(
                *(
                    Request(1, "m", (sets, waits)) if asks else Notification("m", (sets, waits))
                    for asks, sets, waits in read
                )
            )
        await settle(200)
        assert seen == ["unset"] * sum(map(len, reads))
    assert variable.get() == "unset"


@pytest.mark.requirement("contract:O3")
def test_handlers_are_kept_apart_where_no_variable_was_set_at_all() -> None:
    seen: list[str] = []

    def handle(params: Any, context: Context) -> None:
        seen.append(variable.get())
        variable.set("set")

    async def serve() -> None:
        assert len(contextvars.copy_context()) == 0
        peer = MessagePeer()
        async with Connection.builder().on_request("m", handle).connect(peer):
            for n in range(3):
                await peer.say(*(Request(3 * n + index, "m") for index in range(3)))
                await settle()

    contextvars.Context().run(asyncio.run, serve())
    assert seen == ["unset"] * 9


class Alike:
    """Equal to all of its kind."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Alike)

    def __hash__(self) -> int:
        return 1


holder: contextvars.ContextVar[Any] = contextvars.ContextVar("holder")


@pytest.mark.requirement("contract:O3")
async def test_not_even_a_value_equal_to_the_one_it_replaces_is_seen_by_another_handler() -> None:
    seen: list[Any] = []

    def handle(params: Any, context: Context) -> None:
        seen.append(holder.get())
        holder.set(Alike())

    ours = Alike()
    token = holder.set(ours)
    try:
        peer = MessagePeer()
        async with asyncio.timeout(5), Connection.builder().on_request("m", handle).connect(peer):
            for n in range(3):
                await peer.say(Request(n, "m"), Request(-n - 1, "m"))
            await settle()
            assert [value is ours for value in seen] == [True] * 6
    finally:
        holder.reset(token)


@pytest.mark.requirement("contract:O3")
@pytest.mark.parametrize("wire", ["message", "stream", "channel"])
async def test_handlers_see_the_context_variables_of_whoever_opened_the_connection(
    wire: str,
) -> None:
    seen: list[str] = []
    builder = Connection.builder().on_request("m", lambda p, c: seen.append(variable.get()))

    async def under(value: str, work: Any) -> Any:
        variable.set(value)
        return await work

    async with asyncio.timeout(5):
        if wire == "message":
            peer = MessagePeer()
            connection = await asyncio.create_task(under("opener", builder.open(peer)))
            await asyncio.create_task(under("sender", peer.say(Request(1, "m"), Request(2, "m"))))
        elif wire == "stream":
            stream = StreamPeer()
            connection = await asyncio.create_task(under("opener", builder.open(stream)))
            stream.say(b'{"id":1,"method":"m"}\n{"id":2,"method":"m"}\n')
        else:
            left, right = channel_pair()
            connection = await asyncio.create_task(under("opener", builder.open(right)))
            async with Connection.builder().connect(left) as us:
                await asyncio.create_task(under("sender", us.request("m")))
                await asyncio.create_task(under("sender", us.request("m")))
        await settle()
        await connection.aclose()
    assert seen == ["opener", "opener"]


@pytest.mark.requirement("L-42")
async def test_a_handler_that_waits_is_not_collected_with_the_garbage() -> None:
    done: list[str] = []

    async def wait_for_nobody_else(params: Any, context: Context) -> str:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[str] = loop.create_future()
        loop.call_later(0.01, future.set_result, "found")
        done.append(await future)
        return done[0]

    peer = MessagePeer()
    builder = Connection.builder().on_request("m", wait_for_nobody_else)
    async with asyncio.timeout(5), builder.connect(peer):
        await peer.say(Request(1, "m"))
        for _ in range(3):
            gc.collect()
        assert await peer.heard(1) == [Response(1, "found")]


# The builder


@pytest.mark.requirement("T-37", "T-47")
async def test_one_builder_serves_many_connections_at_once() -> None:
    builder = Connection.builder().on_request("echo", echo)
    left, right = channel_pair()
    stream, peer = StreamPeer(), MessagePeer()
    async with (
        asyncio.timeout(5),
        builder.connect(right),
        builder.connect(stream),
        builder.connect(peer),
        Connection.builder().connect(left) as us,
    ):
        stream.say(b'{"id":1,"method":"echo","params":"stream"}\n')
        await peer.say(Request(1, "echo", "message"))
        assert await us.request("echo", "channel") == "channel"
        await settle()
        assert stream.heard[0]["result"] == "stream"
        assert peer.sent == [Response(1, "message")]


@pytest.mark.requirement("T-37")
async def test_a_builder_is_not_changed_by_what_is_built_on_it() -> None:
    base = Connection.builder()
    base.name("other").on_request("m", echo).dialect(ACP).debug().timeout(1)
    peer = MessagePeer()
    async with asyncio.timeout(5), base.connect(peer) as connection:
        assert connection.name == "connection"
        await peer.say(Request(1, "m"))
        assert isinstance(peer.responses[1].error, Error)


@pytest.mark.requirement("T-38")
async def test_its_name_is_in_the_names_of_its_tasks_and_in_its_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names: list[str] = []

    def handle(params: Any, context: Context) -> None:
        task = asyncio.current_task()
        assert task is not None
        names.append(task.get_name())
        raise ValueError

    peer = MessagePeer()
    builder = Connection.builder().name("agent 7").on_request("m", handle)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        await peer.say(Request(1, "m"))
        connection.spawn(asyncio.sleep(0), name="look around")
        names += [task.get_name() for task in asyncio.all_tasks()]
        await settle()
        assert "agent 7" in repr(connection)
    assert {"agent 7:handlers", "agent 7:look around"} <= set(names)
    assert all(record.getMessage().startswith("agent 7: ") for record in logged(caplog))
    assert logged(caplog)
