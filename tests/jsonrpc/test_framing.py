"""Framing must not depend on how the operating system happens to cut the stream."""

import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bullpen.jsonrpc.errors import FrameTooLongError, FramingLostError
from bullpen.jsonrpc.framing import (
    MAX_HEADER_BYTES,
    ContentLengthFramer,
    Framer,
    LineFramer,
)

MakeFramer = Callable[..., Framer]
both_framers = pytest.mark.parametrize("make_framer", [LineFramer, ContentLengthFramer])

# What a stream is made of, and what it is spoilt with: cuts between these are the interesting ones.
line_pieces = st.sampled_from(
    [b"\n", b"\r", b"\r\n", b" ", b"\t", b"{}", b'"a"', b"x" * 9, b"\xff"]
)
header_pieces = st.sampled_from(
    [
        b"Content-Length: 2\r\n\r\n{}",
        b"content-length:3\r\nContent-Type: a\r\n\r\n[1]",
        b"Content-Length: 0\r\n\r\n",
        b"Content-Length: 12\r\n\r\nabcdefghijkl",
        b"Content-Length: x\r\n\r\n",
        b"Content-Length: 2",
        b"\r\n",
        b"\r",
        b"{}",
    ]
)


def frames_of(framer: Framer, pieces: Iterable[bytes]) -> list[str]:
    """Return what a stream in these pieces gives; errors are compared by their words."""
    return [repr(frame) for piece in pieces for frame in framer.feed(piece)]


def cut(stream: bytes, places: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(stream) + 1) for place in places}), len(stream)]
    return [stream[start:end] for start, end in itertools.pairwise(edges)]


@pytest.mark.requirement("T-18")
@given(pieces=st.lists(line_pieces, max_size=30), places=st.lists(st.integers(0, 200)))
@example(pieces=[b"\r\n", b"{}\n"], places=[1])
@example(pieces=[b" \n", b"{}\r\n\n"], places=[2])
def test_any_cut_of_a_stream_of_lines_gives_the_same_frames(
    pieces: list[bytes], places: list[int]
) -> None:
    stream = b"".join(pieces)
    assert frames_of(LineFramer(limit=8), cut(stream, places)) == frames_of(
        LineFramer(limit=8), [stream]
    )


@pytest.mark.requirement("T-18")
@given(pieces=st.lists(header_pieces, max_size=8), places=st.lists(st.integers(0, 400)))
def test_any_cut_of_a_stream_of_counted_frames_gives_the_same_frames(
    pieces: list[bytes], places: list[int]
) -> None:
    stream = b"".join(pieces)
    assert frames_of(ContentLengthFramer(limit=8), cut(stream, places)) == frames_of(
        ContentLengthFramer(limit=8), [stream]
    )


@both_framers
@given(data=st.lists(st.binary(max_size=40)), limit=st.integers(0, 20))
def test_no_bytes_at_all_make_a_framer_raise(
    make_framer: MakeFramer, data: list[bytes], limit: int
) -> None:
    framer = make_framer(limit=limit)
    for piece in data:
        for frame in framer.feed(piece):
            assert isinstance(frame, FrameTooLongError | FramingLostError) or len(frame) <= limit


@pytest.mark.requirement("T-16", "T-18")
@both_framers
def test_frames_cut_at_every_byte_are_the_frames_that_were_written(make_framer: MakeFramer) -> None:
    payloads = [b'{"id":1}', b'{"name":"\xc3\xa4"}', b"[1,2]", b'"\\n"']
    stream = make_framer().frame(payloads)
    for place in range(len(stream) + 1):
        framer = make_framer()
        assert framer.feed(stream[:place]) + framer.feed(stream[place:]) == payloads
    framer = make_framer()
    assert [frame for byte in stream for frame in framer.feed(bytes([byte]))] == payloads


@pytest.mark.requirement("T-16")
def test_a_line_ends_with_exactly_one_newline_and_holds_no_other() -> None:
    assert LineFramer().frame([b'{"id":1}', b'{"id":2}']) == b'{"id":1}\n{"id":2}\n'


@pytest.mark.requirement("T-16")
@given(value=st.recursive(st.text() | st.integers(), st.lists, max_leaves=5))
def test_a_payload_that_was_pretty_printed_still_goes_on_one_line(value: object) -> None:
    pretty = json.dumps(value, indent=2).encode()
    lines = LineFramer().frame([pretty, b"1", pretty]).split(b"\n")
    assert [json.loads(line) for line in lines[:3]] == [value, 1, value]
    assert lines[3:] == [b""]


@pytest.mark.requirement("T-18")
def test_crlf_and_blank_lines_are_tolerated() -> None:
    stream = b'\n\r\n{"id":1}\r\n\n\r\n{"id":2}\n\n'
    assert [json.loads(f) for f in LineFramer().feed(stream) if isinstance(f, bytes)] == [
        {"id": 1},
        {"id": 2},
    ]


def test_a_line_waits_for_its_newline() -> None:
    framer = LineFramer()
    assert framer.feed(b'{"id"') == []
    assert framer.feed(b":1}") == []
    assert framer.feed(b"\n") == [b'{"id":1}']


@pytest.mark.requirement("error:oversized", "L-32")
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_line_over_the_limit_is_skipped_to_its_end_and_the_next_is_read(size: int) -> None:
    framer = LineFramer(limit=8)
    stream = b'{"id":1}\n' + b"x" * 70 + b'\n{"id":2}\n'
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    before, too_long, after = [frame for piece in pieces for frame in framer.feed(piece)]
    assert (before, after) == (b'{"id":1}', b'{"id":2}')
    assert isinstance(too_long, FrameTooLongError)
    assert too_long.limit == 8


@pytest.mark.requirement("error:oversized")
@pytest.mark.parametrize("split", [0, 4, 8])
def test_a_frame_of_exactly_the_limit_passes(split: int) -> None:
    line, counted = LineFramer(limit=8), ContentLengthFramer(limit=8)
    assert line.feed(b"12345678"[:split]) + line.feed(b"12345678\n"[split:]) == [b"12345678"]
    assert counted.feed(b"Content-Length: 8\r\n\r\n12345678") == [b"12345678"]


@pytest.mark.requirement("error:oversized", "L-38")
@pytest.mark.parametrize(
    ("framer", "head", "tail"),
    [
        (LineFramer(limit=1000), b"", b"\n{}\n"),
        (
            ContentLengthFramer(limit=1000),
            b"Content-Length: %d\r\n\r\n" % (200 * 2**18),
            b"Content-Length: 2\r\n\r\n{}",
        ),
    ],
    ids=["line", "content-length"],
)
def test_what_is_skipped_is_not_held_in_memory(framer: Framer, head: bytes, tail: bytes) -> None:
    piece = b"x" * 2**18
    tracemalloc.start()
    try:
        frames = framer.feed(head)
        for _ in range(200):
            frames += framer.feed(piece)
        frames += framer.feed(tail)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(frames[0], FrameTooLongError)
    assert frames[1:] == [b"{}"]
    assert peak < 10 * len(piece)  # of 200 that went by


@pytest.mark.requirement("L-38")
def test_a_length_is_not_allocated_before_its_body_has_come() -> None:
    framer = ContentLengthFramer()
    tracemalloc.start()
    try:
        assert framer.feed(b"Content-Length: 60000000\r\n\r\n") == []
        assert framer.feed(b"Content-Length: ") == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 100_000


@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: 2\r\n\r\n",
        b"content-length:2\r\n\r\n",
        b"CONTENT-LENGTH:   2  \r\n\r\n",
        b"Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n\r\n",
        b"Content-Length: 2\r\nX-Other: a:b\r\n\r\n",
        b"Content-Length: 0002\r\n\r\n",
    ],
)
def test_a_header_is_read_in_any_case_with_others_around_it(header: bytes) -> None:
    assert ContentLengthFramer().feed(header + b"{}" + header + b"[]") == [b"{}", b"[]"]


def test_a_body_may_hold_what_looks_like_a_header() -> None:
    body = b"Content-Length: 2\r\n\r\n{}"
    framer = ContentLengthFramer()
    assert framer.feed(framer.frame([body, b"{}"])) == [body, b"{}"]


def test_an_empty_body_is_no_frame() -> None:
    stream = b"Content-Length: 0\r\n\r\nContent-Length: 2\r\n\r\n{}"
    assert ContentLengthFramer().feed(stream) == [b"{}"]


@pytest.mark.requirement("error:bad-content-length", "L-38")
@pytest.mark.parametrize(
    "header",
    [
        b"Content-Length: -2",
        b"Content-Length: +2",
        b"Content-Length: 2.0",
        b"Content-Length: 0x2",
        b"Content-Length: two",
        b"Content-Length: \xd9\xa2",  # two, in Arabic digits
        b"Content-Length:",
        b"Content-Length: 2, 2",
        b"Content-Length: 2\r\nContent-Length: 2",
        b"Content-Length 2",
        b"Content-Type: application/json",
        b"Content-Length: 2\r\nWelcome to the agent!",
        b"Content-Length: " + b"9" * 5000,
        b"",
    ],
)
def test_a_bad_header_loses_the_framing_once_and_for_all(header: bytes) -> None:
    framer = ContentLengthFramer()
    before, lost = framer.feed(framer.frame([b"{}"]) + header + b"\r\n\r\n" + framer.frame([b"1"]))
    assert before == b"{}"
    assert isinstance(lost, FramingLostError)
    assert framer.feed(framer.frame([b"{}"])) == []


@pytest.mark.requirement("error:bad-content-length", "L-38")
@pytest.mark.parametrize("size", [1000, 10 * MAX_HEADER_BYTES])
def test_a_header_that_never_ends_loses_the_framing(size: int) -> None:
    framer = ContentLengthFramer()
    stream = b"x" * (2 * MAX_HEADER_BYTES)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    (lost,) = [frame for piece in pieces for frame in framer.feed(piece)]
    assert isinstance(lost, FramingLostError)
    assert "does not end" in lost.reason


@pytest.mark.requirement("L-38")
def test_a_length_beyond_all_memory_is_skipped_like_any_other() -> None:
    framer = ContentLengthFramer()
    assert framer.feed(b"Content-Length: 999999999999999999\r\n\r\n" + b"x" * 1000) == []
