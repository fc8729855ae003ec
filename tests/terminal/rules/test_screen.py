"""A screen is read as it was painted, whatever escape sequences it came with."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.rules.screen import Cursor, read_screen, width_of


def test_text_without_escapes_has_no_tones() -> None:
    screen = read_screen("one\ntwo\n\n")
    assert screen.lines == ("one", "two")
    assert not screen.has_tones
    assert screen.tone(0, 0) is None


def test_attributes_run_on_into_the_next_line() -> None:
    screen = read_screen("\x1b[2mfaint\nstill\x1b[0m plain")
    assert screen.lines == ("faint", "still plain")
    assert screen.tones == ("fffff", "fffffpppppp")


@pytest.mark.parametrize(
    ("code", "tone"),
    [
        ("2", "f"),
        ("38;5;246", "f"),
        ("38;2;128;128;128", "f"),
        ("90", "f"),
        ("38;2;238;238;238", "p"),
        ("37", "p"),
        ("1", "p"),
        ("7", "p"),
        ("48;5;1", "p"),
        ("31", "r"),
        ("38;5;1", "r"),
        ("38;2;224;108;117", "r"),
        ("38:2:224:108:117", "r"),
        ("38;5;220", "c"),
        ("34", "c"),
        ("38;2;92;156;245", "c"),
        ("38;5", "p"),
    ],
)
def test_colours_become_tones(code: str, tone: str) -> None:
    assert read_screen(f"\x1b[{code}mx").tones == (tone,)


def test_the_default_colour_ends_a_tone() -> None:
    assert read_screen("\x1b[31mr\x1b[39mp\x1b[2mf\x1b[22mp").tones == ("rpfp",)


def test_other_escape_sequences_leave_no_trace() -> None:
    content = "\x1b]0;title\x07a\x1b[?25l\x1b(Bb\x1b]8;;http://x\x1b\\c\x1b[2Kd\x0e"
    assert read_screen(content).lines == ("abcd",)


def test_no_break_spaces_are_spaces_and_lines_end_with_their_text() -> None:
    assert read_screen("❯\xa0\n x  ").lines == ("❯", " x")


def test_a_title_is_stripped_of_padding() -> None:
    assert read_screen("", title="◇  Ready (x)      ").title == "◇ Ready (x)"


def test_wide_characters_fill_two_cells() -> None:
    assert width_of("日本 a") == 6
    assert width_of("é") == 1


@given(st.text(max_size=200), st.booleans())
def test_any_text_is_a_screen(text: str, has_cursor: bool) -> None:
    screen = read_screen(text, cursor=Cursor(3, 500) if has_cursor else None)
    assert screen.end == len(screen.lines)
    assert [len(tone) for tone in screen.tones] in ([], [len(line) for line in screen.lines])
