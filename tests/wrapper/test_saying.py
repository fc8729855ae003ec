"""What a program says is told while it says it: each piece once, where it stands."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.wrapper.echoes import reply_of, said_so_far
from bullpen.wrapper.saying import Piece, Saying
from tests.wrapper.rooms import python, room, tui

IDLE = re.compile(rb"> $")
PIECEMEAL = """
import sys
from pathlib import Path
import time
def say(text): sys.stdout.write(text); sys.stdout.flush()
say("> ")
for line in sys.stdin:
    say("first\\nand se")
    while not Path("go").exists(): time.sleep(0.01)
    say("cond\\n> ")
"""


def test_what_was_told_is_not_told_again() -> None:
    saying = Saying(0.0)
    assert saying.see("one", 3, 0.2, 0.2) == Piece(0, "one")
    assert saying.see("one", 4, 0.4, 0.4) is None
    assert saying.see("one two", 7, 0.6, 0.6) == Piece(3, " two")


def test_what_is_gone_for_a_moment_is_no_news_and_what_is_different_begins_anew() -> None:
    saying = Saying(0.0)
    saying.see("one two", 7, 0.2, 0.2)
    assert saying.see("one", 8, 0.4, 0.4) is None
    assert saying.see("one two three", 9, 0.6, 0.6) == Piece(7, " three")
    assert saying.see("another", 10, 0.8, 0.8) == Piece(0, "another")


def test_it_is_looked_at_when_something_was_written_and_less_often_if_a_look_takes_long() -> None:
    saying = Saying(0.0)
    assert saying.due_in(0, 0.0) is None
    assert saying.due_in(1, 0.0) == pytest.approx(0.1)
    assert saying.due_in(1, 5.0) == 0
    saying.see("much", 1, 5.0, 5.5)
    assert saying.due_in(1, 5.5) is None
    assert saying.due_in(2, 5.5) == pytest.approx(10.0)


@given(
    words=st.lists(st.text(alphabet="ab >\n日é", max_size=9), max_size=4),
    end=st.integers(min_value=0, max_value=120),
    is_painted=st.booleans(),
)
def test_what_is_told_early_is_the_beginning_of_the_reply(
    words: list[str], end: int, is_painted: bool
) -> None:
    said = "\n".join(f"\x1b[1m{each}\x1b[0m" if is_painted else each for each in words)
    data = f"do it\r\n{said}\r\n$ ".encode()
    whole = reply_of(data, "do it", "$ ", re.compile(rb"\$ $"))
    early = said_so_far(data[:end], "do it", "$ ", re.compile(rb"\$ $"))
    assert whole.startswith(early)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"do it\r\n", ""),
        (b"do it\r\ndone\r\n>", "done"),
        (b"do it\r\ndone\r\n> ", "done"),
        (b"do it\r\ndone\r\n>>", "done\n>>"),
        (b"do it\r\none \x1b[3", "one"),
        (b"do it\r\none\xe6\x97", "one"),
        (b"something else", ""),
    ],
    ids=["echo", "half-a-prompt", "prompt", "no-prompt", "half-a-sequence", "half-a-sign", "other"],
)
def test_what_may_become_something_else_is_left_out(data: bytes, said: str) -> None:
    assert said_so_far(data, "do it", "> ", IDLE) == said


async def test_a_program_that_prints_lines_is_heard_before_it_is_done(home: Path) -> None:
    async with room(home) as place, place.wrapped(python(PIECEMEAL)):
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("go on")).outcome == "submitted"
        await daemon.until(lambda: daemon.said_of("m1:1") == "first\nand se", "the beginning")
        assert not daemon.answers
        (home / "go").touch()
        assert (await daemon.answer("m1:1")).text == "first\nand second"


async def test_a_program_that_paints_is_heard_by_whole_lines_before_it_is_done(home: Path) -> None:
    async with room(home) as place, place.wrapped(tui("--go", str(home / "go"))):
        daemon = place.daemon
        await daemon.until_ready()
        assert (await daemon.inject("piecemeal")).outcome == "submitted"
        await daemon.until(lambda: daemon.said_of("m1:1") == "one\ntwo", "the beginning")
        assert not daemon.answers
        (home / "go").touch()
        assert (await daemon.answer("m1:1")).text == "one\ntwo\nthr\nfour"
