r"""Control mode reads the same however the stream is cut and whatever is on a screen."""

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.tmux.errors import TmuxProtocolError
from bullpen.terminal.tmux.protocol import (
    Block,
    ControlParser,
    Event,
    Notification,
    Stray,
    argument_words,
    command_line,
    escape_format,
    pane_output,
    quote,
    unescape,
)

lines = st.lists(
    st.one_of(
        st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")),
        st.sampled_from(
            [b"%end", b"%end 1 2 1 ", b" %end 7 7 1", b"%begin 1 1 1", b"%output %1 x", b"%exit"]
        ),
    ),
    max_size=4,
).map(lambda each: b"".join(line + b"\n" for line in each))
names = st.sampled_from(["sessions-changed", "output", "window-renamed"])
arguments = st.binary(max_size=12).map(lambda line: line.replace(b"\n", b""))
blocks = st.builds(
    Block,
    time=st.just(1_700_000_000),
    number=st.just(0),
    flags=st.sampled_from([0, 1]),
    is_error=st.booleans(),
    output=lines,
)
events = st.lists(
    st.one_of(
        blocks,
        st.builds(Notification, names, arguments),
        st.binary(max_size=9)
        .filter(lambda line: b"\n" not in line and not line.startswith(b"%"))
        .map(Stray),
    ),
    max_size=8,
).map(
    lambda each: [
        Block(event.time, number, event.flags, event.is_error, event.output)
        if isinstance(event, Block)
        else event
        for number, event in enumerate(each, 100)
    ]
)


def written(event: Event) -> bytes:
    """What tmux writes for an event."""
    if isinstance(event, Stray):
        return event.line + b"\n"
    if isinstance(event, Notification):
        return b"%" + event.name.encode() + b" " + event.arguments + b"\n"
    guard = f"{event.time} {event.number} {event.flags}\n".encode()
    end = b"%error " if event.is_error else b"%end "
    return b"%begin " + guard + event.output + end + guard


def parse(chunks: Iterable[bytes]) -> list[Event]:
    parser = ControlParser()
    found: list[Event] = []
    for chunk in chunks:
        parser.feed(chunk)
        found += parser.events()
    return found


@given(expected=events, size=st.integers(1, 64))
def test_any_cut_of_the_stream_yields_the_same_events(expected: list[Event], size: int) -> None:
    stream = b"".join(map(written, expected))
    assert parse(stream[at : at + size] for at in range(0, len(stream), size)) == expected


def test_a_block_has_what_its_command_printed_and_when() -> None:
    assert parse([b"%begin 1363006971 2 1\n0: ksh*\n\xff\xfe\n%end 1363006971 2 1\n"]) == [
        Block(1363006971, 2, 1, False, b"0: ksh*\n\xff\xfe\n")
    ]


def test_an_answer_is_told_from_the_command_line_s_own() -> None:
    first, second = parse([b"%begin 1 2 0\n%end 1 2 0\n%begin 1 3 1\nno\n%error 1 3 1\n"])
    assert isinstance(first, Block)
    assert isinstance(second, Block)
    assert (first.is_ours, second.is_ours, second.is_error) == (False, True, True)


def test_a_guard_of_other_numbers_on_a_screen_is_text() -> None:
    screen = b"%end 1 4 1\n%begin 1 6 1\n text %end 1 5 1\n%error 1 5 0\n%end 11 5 1\n"
    assert parse([b"%begin 1 5 1\n" + screen + b"%end 1 5 1\n"]) == [Block(1, 5, 1, False, screen)]


@pytest.mark.parametrize(
    "forged",
    [
        b"the rest\n",
        b"%begin 1 6 1\na forged screen\n%end 1 6 1\n",
        b"%begin 1 6 1\na forged screen\n",
    ],
    ids=["only-an-end", "a-whole-block", "the-begin-of-one"],
)
def test_a_screen_that_guesses_its_guard_is_found_out(forged: bytes) -> None:
    true_rest = b"%end 1 5 1\n%begin 1 6 1\nthe next screen\n%end 1 6 1\n"
    with pytest.raises(TmuxProtocolError):
        parse([b"%begin 1 5 1\nown screen\n%end 1 5 1\n" + forged + true_rest])


@pytest.mark.parametrize("word", [b"end", b"error"])
def test_an_end_without_a_begin_is_an_error(word: bytes) -> None:
    with pytest.raises(TmuxProtocolError, match="had not begun"):
        parse([b"%" + word + b" 1 5 1\n"])


def test_a_line_and_an_answer_without_an_end_are_given_up() -> None:
    with pytest.raises(TmuxProtocolError, match="a line is longer"):
        parse([b"x" * 2**19] * 3)
    parser = ControlParser(block_limit=100)
    parser.feed(b"%begin 1 1 1\n" + b"y\n" * 100)
    with pytest.raises(TmuxProtocolError, match="an answer is longer"):
        list(parser.events())


@given(st.binary())
def test_what_a_pane_printed_is_read_back_from_its_octal_form(data: bytes) -> None:
    escaped = b"".join(
        bytes((byte,)) if 32 <= byte < 128 and byte != 92 else f"\\{byte:03o}".encode()
        for byte in data
    )
    assert unescape(escaped) == data
    assert pane_output(Notification("output", b"%7 " + escaped)) == ("%7", data)
    assert pane_output(Notification("extended-output", b"%7 12 : " + escaped)) == ("%7", data)


def test_a_notification_that_is_no_output_has_none() -> None:
    assert pane_output(Notification("sessions-changed", b"")) is None


@given(st.binary(), st.integers(1, 8))
def test_no_input_at_all_does_anything_but_parse_or_fail_cleanly(data: bytes, size: int) -> None:
    parser = ControlParser()
    try:
        for at in range(0, len(data), size):
            parser.feed(data[at : at + size])
            list(parser.events())
    except TmuxProtocolError:
        pass


# --------------------------------------------------------------------------------------- quoting

words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)


def read_back(line: bytes) -> list[str]:
    """Read a line as tmux's grammar says: double quotes, and octal numbers behind backslashes."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    quoted = re.findall(r'"((?:[^"\\]|\\[0-7]{3})*)"', line.decode())
    return [re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), word) for word in quoted]


@given(st.lists(words, min_size=1))
def test_every_word_is_one_word_on_one_line(command: list[str]) -> None:
    assert read_back(command_line(command)) == command


@pytest.mark.parametrize("character", ["$", "~", "\\", '"', "\n", "\t", "\r", "\x1b", "\x7f"])
def test_what_tmux_would_expand_or_end_at_is_never_bare(character: str) -> None:
    assert character not in quote(f"a{character}b")[1:-1].replace("\\1", "").replace("\\0", "")


def test_a_word_that_came_from_invalid_utf8_goes_out_as_the_bytes_it_was() -> None:
    assert command_line(["x", b"\xff".decode(errors="surrogateescape")]) == b'"x" "\xff"\n'


def test_a_format_can_be_made_harmless() -> None:
    assert escape_format("#{pid} #(rm) ##") == "##{pid} ##(rm) ####"


@pytest.mark.parametrize("command", [[], [""], ["a", "b\0c"]], ids=["none", "empty", "null"])
def test_what_cannot_be_said_to_tmux_is_refused(command: list[str]) -> None:
    with pytest.raises(ValueError, match="tmux command"):
        command_line(command)
    with pytest.raises(ValueError, match="tmux command"):
        argument_words(command)


def test_an_argument_that_ends_with_a_semicolon_does_not_end_the_command() -> None:
    assert argument_words(["a", ";", "b;", "c\\;", "d;e"]) == ["a", "\\;", "b\\;", "c\\\\;", "d;e"]
