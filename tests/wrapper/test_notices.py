"""Notices are put between what a program writes, never into it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.wrapper.notices import is_between, line_notice, reply_lines, row_notice


@pytest.mark.parametrize(
    "whole",
    [
        b"\x1b[38;5;12m",
        b"\x1b]2;a title\x07",
        b"\x1b]2;a title\x1b\\",
        b"\x1bP+q5463\x1b\\",
        b"\x1b7",
        b"\x1b(B",
        "日".encode(),
        "ü".encode(),
        "🙂".encode(),
    ],
    ids=["csi", "osc-bell", "osc", "dcs", "short", "charset", "three-bytes", "two", "four"],
)
def test_inside_a_sequence_or_a_character_is_not_between(whole: bytes) -> None:
    for cut in range(1, len(whole)):
        assert not is_between(b"text" + whole[:cut]), whole[:cut]
    assert is_between(b"text" + whole)
    assert is_between(b"text")
    assert is_between(b"")


@given(st.binary(max_size=50))
def test_whatever_was_written_there_is_an_answer(tail: bytes) -> None:
    assert is_between(tail) in (True, False)


def test_under_lines_the_prompt_and_what_was_begun_are_shown_again() -> None:
    assert line_notice("note", b"hi\r\n> dra") == b"\r\x1b[Knote\r\n> dra"
    assert line_notice("two\nlines", b"hi\r\n> x\b \b") == b"\r\x1b[Ktwo\r\nlines\r\n> "


def test_on_a_screen_it_is_one_row_that_fits() -> None:
    data = row_notice("\x1b[31m日本語 and more\x1b[0m", 8, 24)
    assert data == "\x1b7\x1b[24;1H\x1b[0m\x1b[2K\x1b[31m日本語 \x1b[0m\x1b[0m\x1b8".encode()


def test_a_reply_cannot_paint() -> None:
    assert reply_lines("bob", "\x1b[2Jgone\r\nnot") == "\x1b[36m[← bob]\x1b[0m\ngone\nnot"
