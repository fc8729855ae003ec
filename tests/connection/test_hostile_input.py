"""Whatever bytes arrive, the connection has one answer to them and reads on."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bullpen.connection import (
    ACP,
    Connection,
    ConnectionClosed,
    ContentLengthFramer,
    Context,
    Limits,
    LineFramer,
    RemoteProtocolError,
)
from bullpen.errors import BullpenError
from bullpen.jsonrpc.errors import FramingLostError
from tests.connection.peers import StreamPeer, settle

pytestmark = pytest.mark.usefixtures("no_escaped_errors")

PROBE = b'{"id":"probe","method":"echo","params":"still here"}'


def echo(params: Any, context: Context) -> Any:
    return params


# The table of errors


@pytest.mark.requirement("T-05", "error:invalid-json", "error:invalid-envelope", "L-34", "L-36")
@pytest.mark.parametrize(
    ("line", "id_", "code"),
    [
        (b"Welcome to agent 1.0!", None, -32700),
        (b'{"id":1,"method":"echo"', None, -32700),
        (b'{"id":1,"method":"\xff"}', None, -32700),
        (b'{"id":1,"method":"echo","params":"\xff"}', None, -32700),
        (b'{"id":1,"method":"echo","params":NaN}', None, -32700),
        (b"[" * 100_000, None, -32700),
        (
            b'{"id":1,"method":"echo","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            None,
            -32700,
        ),
        (b'{"id":' + b"9" * 5000 + b',"method":"echo"}', None, -32700),
        (b'{"id":1,"method":"echo","params":' + b"9" * 5000 + b"}", 1, -32602),
        (b"17", None, -32600),
        (b"null", None, -32600),
        (b'"text"', None, -32600),
        (b"[]", None, -32600),
        (b"{}", None, -32600),
        (b'{"id":5}', 5, -32600),
        (b'{"id":"five","method":5}', "five", -32600),
        (b'{"id":true,"method":"echo"}', None, -32600),
        (b'{"id":{},"method":"echo"}', None, -32600),
    ],
    ids=lambda value: repr(value)[:30],
)
async def test_what_is_no_request_is_answered_with_its_error_and_survived(
    line: bytes, id_: object, code: int
) -> None:
    peer = StreamPeer()
    async with (
        asyncio.timeout(5),
        Connection.builder().on_request("echo", echo).connect(peer) as connection,
    ):
        peer.say(line + b"\n" + PROBE + b"\n")
        await settle()
        answer, probe = peer.heard
        assert (answer["id"], answer["error"]["code"]) == (id_, code)
        assert (probe["id"], probe["result"]) == ("probe", "still here")
        assert not connection.is_closed


@pytest.mark.requirement("error:invalid-json", "error:invalid-envelope")
@pytest.mark.parametrize(
    "line",
    [
        b'{"id":1,"result":{"a":',
        b'{"id":1,"result":"\xff"}',
        b'{"id":1,"error":{"code":"x","message":"m"}}',
        b'{"id":1,"error":null}',
        b'{"result":1}',
        b'{"id":1.5,"result":1}',
    ],
)
async def test_a_garbled_response_is_ignored_without_an_answer(line: bytes) -> None:
    peer = StreamPeer()
    async with (
        asyncio.timeout(5),
        Connection.builder().on_request("echo", echo).connect(peer) as connection,
    ):
        caller = asyncio.create_task(connection.request("m"))
        await settle()
        peer.say(line + b"\n" + PROBE + b"\n")
        await settle()
        assert [message["id"] for message in peer.heard] == [1, "probe"]
        assert not caller.done()
        assert connection.stats().malformed == 1
        peer.say(b'{"id":1,"result":"at last"}\n')
        assert await caller == "at last"


@pytest.mark.requirement("error:invalid-json")
async def test_a_peer_that_speaks_something_else_altogether_is_given_up() -> None:
    peer = StreamPeer()
    builder = Connection.builder().limits(Limits(malformed_in_a_row=5)).on_request("echo", echo)
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m"))
        await settle()
        for _ in range(3):  # what makes sense in between counts afresh
            peer.say(b"nonsense\n" * 4 + PROBE + b"\n")
        await settle()
        assert not connection.is_closed
        peer.say(b"nonsense\n" * 5 + PROBE + b"\n")
        with pytest.raises(ConnectionClosed, match="5 frames in a row were not JSON-RPC"):
            await caller
        assert isinstance(connection.cause, RemoteProtocolError)
        await connection.wait_closed()
        assert not connection.is_clean


@pytest.mark.requirement("error:oversized", "L-32")
@pytest.mark.parametrize("make_framer", [LineFramer, ContentLengthFramer])
@pytest.mark.parametrize("piece", [7, 64, 10_000])
async def test_an_oversized_frame_is_answered_with_the_limit_and_skipped(
    make_framer: Callable[..., Any], piece: int
) -> None:
    peer = StreamPeer(framer=make_framer(limit=200))
    async with (
        asyncio.timeout(5),
        Connection.builder().on_request("echo", echo).connect(peer) as connection,
    ):
        phantom = b'{"id":"phantom","method":"echo"}'
        stream = make_framer().frame(
            [PROBE, phantom.rjust(1000), PROBE.replace(b"probe", b"second")]
        )
        for start in range(0, len(stream), piece):
            peer.say(stream[start : start + piece])
        await settle()
        frames = make_framer().feed(bytes(peer.written))
        answers = {answer["id"]: answer for answer in map(msgspec.json.decode, frames)}
        assert answers.keys() == {"probe", None, "second"}
        assert answers["probe"]["result"] == answers["second"]["result"] == "still here"
        assert answers[None]["error"]["code"] == -32600
        assert answers[None]["error"]["data"] == {"limit": 200}
        assert not connection.is_closed


@pytest.mark.requirement("error:bad-content-length", "L-38", "contract:X1", "contract:X2")
async def test_a_bad_content_length_header_closes_after_what_came_before_it() -> None:
    framer = ContentLengthFramer()
    peer = StreamPeer(framer=framer)
    async with (
        asyncio.timeout(5),
        Connection.builder().on_request("echo", echo).connect(peer) as connection,
    ):
        answered = asyncio.create_task(connection.request("m"))
        unanswered = asyncio.create_task(connection.request("m"))
        await settle()
        peer.written.clear()
        good = framer.frame([b'{"id":1,"result":"in time"}', PROBE])
        peer.say(good + b"Content-Length: many\r\n\r\n" + framer.frame([PROBE]))
        assert await answered == "in time"
        with pytest.raises(ConnectionClosed, match="framing lost") as caught:
            await unanswered
        assert isinstance(caught.value.cause, FramingLostError)
        await connection.wait_closed()
        assert peer.written.count(b"still here") == 1


@pytest.mark.requirement("L-35")
async def test_lone_surrogates_are_handled_and_sent_back_as_they_came() -> None:
    class Text(msgspec.Struct):
        text: str

    peer = StreamPeer()
    builder = (
        Connection.builder()
        .on_request("echo", echo)
        .on_request("typed", lambda params, context: params.text, params=Text)
    )
    async with asyncio.timeout(5), builder.connect(peer) as connection:
        peer.say(b'{"id":"\\ud83d","method":"echo","params":{"text":"cut \\ud83d"}}\n')
        peer.say(b'{"id":2,"method":"typed","params":{"text":"cut \\ud83d"}}\n')
        peer.say(b'{"id":3,"method":"\\ud83d"}\n')
        await settle()
        answers = {a["id"]: a for a in map(json.loads, peer.written.splitlines())}
        assert answers["\ud83d"]["result"] == {"text": "cut \ud83d"}
        assert answers[2]["result"] == "cut \ud83d"
        assert answers[3]["error"]["data"] == {"method": "\ud83d"}
        caller = asyncio.create_task(connection.request("m", "\ude00"))
        await settle()
        assert json.loads(peer.written.splitlines()[3])["params"] == "\ude00"
        peer.say(b'{"id":1,"result":"\\ude00"}\n')
        assert await caller == "\ude00"


# Fuzz

frames = st.sampled_from(
    [
        b'{"jsonrpc":"2.0","id":5,"method":"echo","params":{"a":[1,2.5e3,null,"\\u00e4\\n"]}}',
        b'{"jsonrpc":"2.0","method":"note","params":["x"]}',
        b'{"jsonrpc":"2.0","id":1,"result":{"deep":[[[[]]]]}}',
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[0]}}',
        b'[{"id":"b","method":"echo"},{"method":"note"},3,{"id":1,"result":0}]',
        b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}',
        b'{"id":6,"method":"wait"}',
        b'{"id":7,"method":"fail","params":"\\ud83d"}',
        '{"id":8,"method":"typed","params":{"x":1,"ä":"é"}}'.encode(),
        b"17",
        b"",
    ]
)


@st.composite
def spoilt(draw: st.DrawFn) -> bytes:
    """Return a frame with some bytes changed, left out or put in."""
    frame = bytearray(draw(frames))
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(frame)))
        match draw(st.integers(0, 2)):
            case 0:
                frame[place : place + 1] = draw(st.binary(max_size=1))
            case 1:
                frame[place:place] = draw(
                    st.binary(max_size=3) | st.sampled_from([b'"', b"}", b"\n"])
                )
            case _:
                del frame[place : place + draw(st.integers(1, 10))]
    return bytes(frame)


streams = st.lists(frames | spoilt() | st.binary(max_size=30), max_size=12)
cuts = st.lists(st.integers(0, 2000), max_size=12)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(stream), *(place % (len(stream) + 1) for place in places)})
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


async def fuzz(peer: StreamPeer, pieces: list[bytes]) -> bool:
    """Let a connection read pieces of a stream; return whether it is open afterwards.

    Whatever it is then: no exception has escaped, everybody who waited has heard once, and all it
    wrote is JSON.
    """

    async def wait(params: Any, context: Context) -> None:
        await asyncio.get_running_loop().create_future()

    def fail(params: Any, context: Context) -> None:
        raise ValueError(ascii(params))  # it is logged, and not every log takes lone surrogates

    loop = asyncio.get_running_loop()
    escaped: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: escaped.append(context))
    builder = (
        Connection.builder()
        .dialect(ACP)
        .limits(Limits(malformed_in_a_row=10_000, finish_seconds=0))
        .on_request("echo", echo)
        .on_request("wait", wait)
        .on_request("fail", fail)
        .on_request("typed", echo, params=dict[str, int])
        .on_notification("note", fail)
    )
    async with asyncio.timeout(10), builder.connect(peer) as connection:
        caller = asyncio.create_task(connection.request("m", timeout=None))
        delivered: list[Any] = []
        connection.send_request("m", None, delivered.append)
        await settle(3)
        for piece in pieces:
            peer.say(piece)
        await settle()
        is_open = not connection.is_closed
        if not is_open:
            assert isinstance(connection.cause, FramingLostError)
        await connection.aclose()
        await asyncio.wait([caller])
        error = caller.exception()
        assert error is None or isinstance(error, BullpenError | msgspec.ValidationError)
        assert len(delivered) == 1
        assert connection.stats().requests_pending == 0
    loop.set_exception_handler(None)
    assert escaped == []
    return is_open


@pytest.mark.requirement("T-05", "T-18", "error:invalid-json", "L-32", "L-34", "L-36")
@settings(max_examples=80)
@given(stream=streams, places=cuts)
@example(stream=[b'{"jsonrpc":"2.0","id":1,"result":' + b"9" * 290 + b"}"], places=[])
@example(stream=[b'{"id":1,"result":1e999}'], places=[3])
async def test_after_any_lines_at_all_the_next_good_one_is_read_and_answered(
    stream: list[bytes], places: list[int]
) -> None:
    peer = StreamPeer(framer=LineFramer(limit=300))
    assert await fuzz(peer, [*cut(b"\n".join(stream), places), b"\n" + PROBE + b"\n"])
    probes = [
        frame for frame in peer.heard if isinstance(frame, dict) and "probe" in frame.values()
    ]
    assert [probe["result"] for probe in probes] == ["still here"]


@pytest.mark.requirement("T-05", "T-18", "error:invalid-json", "L-34", "L-36")
@settings(max_examples=50)
@given(stream=streams, places=cuts)
async def test_after_any_counted_bodies_at_all_the_next_good_one_is_read_and_answered(
    stream: list[bytes], places: list[int]
) -> None:
    peer = StreamPeer(framer=ContentLengthFramer(limit=300))
    assert await fuzz(peer, cut(ContentLengthFramer().frame([*stream, PROBE]), places))
    answers = [msgspec.json.decode(f) for f in ContentLengthFramer().feed(bytes(peer.written))]  # type: ignore[arg-type]
    probes = [
        answer for answer in answers if isinstance(answer, dict) and "probe" in answer.values()
    ]
    assert [probe["result"] for probe in probes] == ["still here"]


@pytest.mark.requirement("error:bad-content-length", "L-38")
@settings(max_examples=50)
@given(stream=streams, noise=st.lists(st.binary(max_size=40), max_size=3), places=cuts)
async def test_noise_between_counted_frames_closes_or_is_read_over_but_never_hangs_or_escapes(
    stream: list[bytes], noise: list[bytes], places: list[int]
) -> None:
    framer = ContentLengthFramer()
    parts = [framer.frame([body]) for body in stream]
    for index, bytes_ in enumerate(noise):
        parts.insert(index * 2, bytes_)
    await fuzz(StreamPeer(framer=ContentLengthFramer(limit=300)), cut(b"".join(parts), places))
