"""Of a stream the newest is kept, and a cut has exactly what was written between its offsets."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.context import MAX_CUTS, OutputContext, plain_text

chunks = st.lists(st.binary(max_size=50))


@pytest.mark.requirement("S-25", "S-170")
@given(pieces=chunks, limit=st.integers(1, 60))
def test_the_newest_is_kept_with_its_offsets(pieces: list[bytes], limit: int) -> None:
    context = OutputContext(limit=limit)
    for piece in pieces:
        context.feed(piece)
    stream = b"".join(pieces)
    assert context.tail() == stream[-limit:]
    assert (context.start, context.end) == (max(len(stream) - limit, 0), len(stream))


@pytest.mark.requirement("S-25", "S-92", "S-170", "S-172")
def test_of_fifty_kilobytes_ten_are_kept_and_two_are_shown() -> None:
    context = OutputContext()
    for number in range(5000):
        context.feed(b"%08d\r\n" % number)
    assert len(context.text()) == 10_000
    assert context.text().startswith("00004000\r\n")
    assert len(context.text(2000)) == 2000
    assert context.text().endswith(context.text(2000))
    assert context.end == 50_000


@pytest.mark.requirement("S-171")
def test_a_pattern_further_back_than_the_tail_does_not_count() -> None:
    context = OutputContext()
    context.feed(b"> " + b"x" * 1500)
    assert not re.search(rb"> ", context.tail(1000))
    assert re.search(rb"> ", context.tail(2000))


@pytest.mark.requirement("S-25")
def test_text_begins_with_a_whole_character() -> None:
    context = OutputContext(limit=10)
    context.feed("日本語で".encode())
    assert context.text() == "本語で"
    assert context.text(4) == "で"
    whole = OutputContext()
    whole.feed(b"\x80first")  # nothing lies before it, so it is shown as what it is
    assert whole.text() == "\N{REPLACEMENT CHARACTER}first"


@given(pieces=chunks, marks=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))))
def test_a_cut_has_what_was_written_between_its_offsets(
    pieces: list[bytes], marks: list[tuple[int, int]]
) -> None:
    context = OutputContext(limit=7)
    stream = b"".join(pieces)
    opened = {}
    cuts = []
    for number in range(31):
        for index, (first, last) in enumerate(marks[:MAX_CUTS]):
            if number == min(first, last):
                opened[index] = context.open_cut()
            if number == max(first, last) and index in opened:
                opened[index].close()
                cuts.append(opened[index])
        if number < len(pieces):
            context.feed(pieces[number])
    for cut in cuts:
        assert cut.data == cut.close() == stream[cut.begin : cut.end]
        assert cut.lost == 0


def test_replies_of_two_messages_are_not_mixed_however_long_they_are() -> None:
    context = OutputContext()
    replies = []
    for name in (b"a", b"b"):
        cut = context.open_cut()
        for _ in range(1000):
            context.feed(name * 1000)
        replies.append(cut.close())
        context.feed(b"> ")
    assert replies == [b"a" * 1_000_000, b"b" * 1_000_000]


def test_a_cut_beyond_measure_says_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bullpen.terminal.context.MAX_CUT_BYTES", 10)
    context = OutputContext()
    cut = context.open_cut()
    context.feed(b"0123456")
    context.feed(b"789abc")
    context.feed(b"d")
    assert (cut.close(), cut.lost) == (b"0123456789", 4)


def test_there_is_an_end_to_open_cuts() -> None:
    context = OutputContext()
    cuts = [context.open_cut() for _ in range(MAX_CUTS)]
    with pytest.raises(ValueError, match="open already"):
        context.open_cut()
    cuts[0].close()
    context.open_cut()


@given(pieces=chunks, limit=st.integers(1, 40), offset=st.integers(0, 100))
def test_what_was_written_since_an_offset_says_where_it_begins(
    pieces: list[bytes], limit: int, offset: int
) -> None:
    context = OutputContext(limit=limit)
    for piece in pieces:
        context.feed(piece)
    begin, data = context.since(offset)
    stream = b"".join(pieces)
    assert data == stream[begin:]
    assert begin == min(max(offset, len(stream) - limit, 0), len(stream))


def test_plain_text_is_what_was_said_without_how_it_was_painted() -> None:
    painted = b"\x1b]0;t\x07\x1b[1;31m[DUMMY]\x1b[0m You said: \xe6\x97\xa5\r\n\x1b[?25h> \x07"
    assert plain_text(painted) == "[DUMMY] You said: 日\n> "
