"""Every emulator shows what a terminal shows, and so does tmux, which is one."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bullpen.terminal.emulator import Emulator, Modes
from bullpen.terminal.emulators import EmulatorMissing, open_emulator
from bullpen.terminal.ghostty import GhosttyEmulator
from bullpen.terminal.pyte_screen import PyteEmulator
from bullpen.terminal.rules.engine import decide
from bullpen.terminal.rules.load import load_rules
from bullpen.terminal.rules.screen import FAINT, PLAIN, RED, Cursor, Screen, read_screen
from bullpen.testing.tmux import PrivateTmux, eventually

RECORDINGS = Path(__file__).parents[1] / "recordings/streams"
NAMES = ("claude_s1_120x40", "claude_s3_120x40", "codex_s1_120x40")
WIDTH, HEIGHT = 120, 40

IMPLEMENTATIONS: Sequence[Callable[[int, int], Emulator]] = (GhosttyEmulator, PyteEmulator)
both = pytest.mark.parametrize("make", IMPLEMENTATIONS, ids=["ghostty", "pyte"])
recorded = pytest.mark.parametrize("name", NAMES)


def recording(name: str) -> bytes:
    return (RECORDINGS / f"{name}.raw").read_bytes()


def moments(name: str) -> Iterator[bytes]:
    """The recording up to several moments of it, the last one being its end."""
    data = recording(name)
    return (data[: len(data) * part // 6] for part in range(1, 7))


def comparable(screen: Screen) -> Screen:
    """A screen without the tones of blanks, which nobody sees."""
    tones = tuple(
        "".join(PLAIN if char == " " else tone for char, tone in zip(line, tones, strict=True))
        for line, tones in zip(screen.lines, screen.tones, strict=True)
    )
    return msgspec.structs.replace(screen, tones=tones)


def shown(make: Callable[[int, int], Emulator], *pieces: bytes) -> Screen:
    emulator = make(WIDTH, HEIGHT)
    for piece in pieces:
        emulator.feed(piece)
    screen = comparable(emulator.screen())
    emulator.close()
    return screen


@recorded
def test_all_show_the_same_at_every_moment_of_a_recording(name: str) -> None:
    for data in moments(name):
        ghostty, pyte = GhosttyEmulator(WIDTH, HEIGHT), PyteEmulator(WIDTH, HEIGHT)
        ghostty.feed(data)
        pyte.feed(data)
        assert comparable(ghostty.screen()) == comparable(pyte.screen())
        assert ghostty.modes == pyte.modes
        assert ghostty.take_answers() == pyte.take_answers()


async def has_title(tmux: PrivateTmux, pane: str, title: str) -> None:
    """Wait until a pane has a title, that is, has seen all that was written before it."""

    async def is_it() -> bool:
        return await tmux.run("display-message", "-p", "-t", pane, "#{pane_title}") == title

    await eventually(is_it)


@pytest.mark.tmux
@recorded
async def test_tmux_shows_the_same(name: str) -> None:
    async with PrivateTmux(width=WIDTH, height=HEIGHT) as tmux:
        for number, data in enumerate(moments(name)):
            pane = await tmux.new_pane()
            await tmux.show(pane, data + b"\x1b]2;end %d\x07" % number)
            await has_title(tmux, pane, f"end {number}")
            content = await tmux.run("capture-pane", "-p", "-e", "-t", pane)
            expected = comparable(read_screen(content))
            found = shown(GhosttyEmulator, data)
            assert found.lines == expected.lines
            assert found.tones == expected.tones


@both
@given(data=st.data())
@settings(max_examples=15)
def test_any_cut_of_the_stream_gives_the_same_screen(
    make: Callable[[int, int], Emulator], data: st.DataObject
) -> None:
    stream = recording("claude_s1_120x40")[:8000]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    pieces = [
        stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]
    assert shown(make, *pieces) == shown(make, stream)


@both
def test_a_stream_cut_into_single_bytes_gives_the_same_screen(
    make: Callable[[int, int], Emulator],
) -> None:
    stream = recording("codex_s1_120x40")[:12000]
    assert shown(make, *(stream[at : at + 1] for at in range(len(stream)))) == shown(make, stream)


SEQUENCES = st.sampled_from(
    [
        *(b"\x1b[", b"\x1b]", b"\x1bP", b"\x1b_", b"\x1b^", b"\x1bX", b"\x1b\\", b"\x07", b"\x18"),
        *(b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?47h", b"\x1b[?1047l", b"\x1b[!p", b"\x1bc"),
        *(b"\x1b[999999999999999999999@", b"\x1b[99999b", b"\x1b[4:3m", b"\x1b[38:2::1:2:3m"),
        *(b"\x1b[38;5m", b"\x1b[38m", b"\x1b[58:2m", b"\x1b[?1m", b"\x1b[>4;2m", b"\x1b[?996n"),
        *(
            b"\x1b[5;2r",
            b"\x1b[3;9r",
            b"\x1b[r",
            b"\x1b7",
            b"\x1b8",
            b"\x1b[s",
            b"\x1b[u",
            b"\x1bM",
        ),
        *(
            b"\x1b(0",
            b"\x1b)B",
            b"\x0e",
            b"\x0f",
            b"\t",
            b"\b",
            b"\n",
            b"\r",
            b"\x1b[Z",
            b"\x1b[3g",
        ),
        *(b"\x1b[999;999H", b"\x1b[L", b"\x1b[99M", b"\x1b[9P", b"\x1b[X", b"\x1b[S", b"\x1b[T"),
        *(
            "日本".encode(),
            "e\u0301".encode(),
            "\u200d".encode(),
            "👍🏽".encode(),
            b"\xe6\x97",
            b"\xff",
        ),
        *(b"\x1b[?6h", b"\x1b[?7l", b"\x1b[4h", b"\x1b[?3h", b"\x1b[?5h", b"\x1b#8", b"\x1b[<u"),
        *(b"\x1b[?2026$p", b"\x1b[>9u", b"\x1b[=1;2u", b"\x1b[<99u", b"\x1b]0;", b"\x1b]10;?\x07"),
    ]
)


@both
@given(pieces=st.lists(SEQUENCES | st.binary(max_size=20), max_size=40))
@settings(max_examples=150)
def test_hostile_bytes_never_raise(
    make: Callable[[int, int], Emulator], pieces: list[bytes]
) -> None:
    emulator = make(20, 5)
    for number, piece in enumerate(pieces):
        emulator.feed(piece)
        if number % 7 == 3:
            emulator.resize(number * 3, number)
    screen = emulator.screen()
    assert len(screen.lines) <= screen.height
    assert screen.cursor is not None
    assert screen.cursor.x < screen.width
    assert screen.cursor.y < screen.height
    assert isinstance(emulator.take_answers(), bytes)
    assert isinstance(emulator.modes, Modes)
    emulator.close()


@both
def test_what_follows_hostile_bytes_is_shown(make: Callable[[int, int], Emulator]) -> None:
    emulator = make(40, 5)
    source = random.Random(1)
    for _ in range(50):
        emulator.feed(source.randbytes(400))
    emulator.feed(b"\x18\x1b\\\x1bchello")
    assert emulator.screen().lines == ("hello",)


@both
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (b"\x1b[c", b"\x1b[?62;22c"),
        (b"\x1b[>c", b"\x1b[>1;0;0c"),
        (b"\x1b[5n", b"\x1b[0n"),
        (b"ab\r\nc\x1b[6n", b"\x1b[2;2R"),
        (b"\x1b[?996n", b"\x1b[?997;1n"),
        (b"\x1b[>q", b"\x1bP>|bullpen\x1b\\"),
        (b"\x1b[?u", b"\x1b[?0u"),
        (b"\x1b[>1u\x1b[?u", b"\x1b[?1u"),
        (b"\x1b[>1u\x1b[>5u\x1b[<u\x1b[?u", b"\x1b[?1u"),
        (b"\x1b[?2026$p", b"\x1b[?2026;2$y"),
        (b"\x1b[?2004h\x1b[?2004$p", b"\x1b[?2004;1$y"),
        (b"\x1b]10;?\x07", b"\x1b]10;rgb:ffff/ffff/ffff\x07"),
        (b"\x1b]11;?\x1b\\", b"\x1b]11;rgb:0000/0000/0000\x1b\\"),
        (b"plain \x1b[1mtext\x1b]0;title\x07", b""),
    ],
)
def test_a_question_is_answered_once(
    make: Callable[[int, int], Emulator], question: bytes, answer: bytes
) -> None:
    emulator = make(80, 24)
    for at in range(len(question)):
        emulator.feed(question[at : at + 1])
    assert emulator.take_answers() == answer
    assert emulator.take_answers() == b""


@both
@pytest.mark.parametrize(
    ("number", "modes"),
    [
        (2004, Modes(bracketed_paste=True)),
        (1049, Modes(alternate_screen=True)),
        (1000, Modes(mouse=True)),
        (1003, Modes(mouse=True)),
        (1004, Modes(focus_events=True)),
        (1, Modes(application_cursor=True)),
    ],
)
def test_a_mode_holds_until_it_is_taken_back(
    make: Callable[[int, int], Emulator], number: int, modes: Modes
) -> None:
    emulator = make(80, 24)
    emulator.feed(b"\x1b[?%dh" % number)
    assert emulator.modes == modes
    emulator.feed(b"\x1b[?%dl" % number)
    assert emulator.modes == Modes()


@both
def test_the_main_screen_comes_back_when_the_other_is_left(
    make: Callable[[int, int], Emulator],
) -> None:
    emulator = make(40, 5)
    emulator.feed(b"one\r\ntwo\x1b[?1049h\x1b[2J\x1b[Hother")
    assert emulator.screen().lines == ("other",)
    assert emulator.screen().is_alternate
    emulator.feed(b"\x1b[?1049l!")
    assert emulator.screen().lines == ("one", "two!")
    assert emulator.screen().is_alternate is False


@both
def test_a_screen_has_tones_cursor_title_and_size(make: Callable[[int, int], Emulator]) -> None:
    emulator = make(30, 4)
    emulator.feed(b"\x1b]2; a  title\x07\x1b[2mhint\x1b[0m \x1b[31mbad\x1b[m ok\r\n> \x1b[?25l")
    screen = comparable(emulator.screen())
    assert screen.lines == ("hint bad ok", ">")
    assert screen.tones == (FAINT * 4 + PLAIN + RED * 3 + PLAIN * 3, PLAIN)
    assert screen.cursor == Cursor(2, 1, is_visible=False)
    assert (screen.title, screen.width, screen.height) == ("a title", 30, 4)


@both
@pytest.mark.parametrize(
    ("colour", "tone"),
    [
        ("31", RED),
        ("38;5;196", RED),
        ("38;2;255;0;0", RED),
        ("38:2:255:0:0", RED),
        ("38:2::255:0:0", RED),
        ("38;5;245", FAINT),
        ("31;39", PLAIN),
        ("2;22", PLAIN),
        ("48;5;196", PLAIN),
        ("58;2;255;0;0", PLAIN),
        ("31;2", FAINT),
        ("1;4;7", PLAIN),
    ],
)
def test_every_way_to_name_a_colour_has_its_tone(
    make: Callable[[int, int], Emulator], colour: str, tone: str
) -> None:
    emulator = make(10, 2)
    emulator.feed(f"\x1b[{colour}mx\x1b[0my".encode())
    assert emulator.screen().tones == (tone + PLAIN,)


@both
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        ("日本語\x1b[1;3Hx", ("日x 語",)),  # half of a wide character is overwritten
        ("日本\x1b[1;2Hx", (" x本",)),
        ("e\u0301a", ("e\u0301a",)),
        ("0123456789ab", ("0123456789", "ab")),
        ("123456789日", ("123456789", "日")),
        ("0123456789\x1b[31m\x1b[mx", ("0123456789", "x")),  # still waiting to wrap
        ("0123456789\rx", ("x123456789",)),
        ("\x1b[?7l0123456789ab", ("012345678b",)),
        ("a\x1b[3bz", ("aaaaz",)),
        ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[3;1H\n\x1b[4;1Hx", ("1", "3", "", "x")),
        ("1\r\n2\r\n3\r\n4\x1b[2;3r\x1b[4;1H\nx", ("1", "2", "3", "x")),  # below what scrolls
        ("1\r\n2\r\n3\x1b[S", ("2", "3")),
        ("1\r\n2\x1b[T", ("", "1", "2")),
        ("1\r\n2\r\n\r\n4\x1b[1;1H\x1b[M", ("2", "", "4")),
        ("1\r\n\r\n3\x1b[1;1H\x1b[M", ("", "3")),
        ("abcdefghij\x1b[1;1H\x1b[@\x1b[P", ("abcdefghi",)),
        ("\x1b(0qx\x1b(B q", ("─│ q",)),
        ("a\x1bPsixel stuff\x1b\\b\x1b_app\x1b\\c\x1b]777;x\x07d", ("abcd",)),
        ("\x1b[38:2::255:0:0;4:3mred\x1b[?1mstill\x1b[>4;2m", ("redstill",)),
        ("ab\x1b[3J", ("ab",)),
        ("ab\x1b7\r\ncd\x1b8x\x1b8y", ("aby", "cd")),
    ],
)
def test_terminals_manners(
    make: Callable[[int, int], Emulator], data: str, lines: tuple[str, ...]
) -> None:
    emulator = make(10, 4)
    emulator.feed(data.encode())
    assert emulator.screen().lines == lines


@both
def test_a_program_that_paints_again_after_a_resize_is_shown_as_it_paints(
    make: Callable[[int, int], Emulator],
) -> None:
    emulator = make(40, 5)
    emulator.feed(b"\x1b[?1049hold\r\ntext")
    emulator.resize(60, 8)
    emulator.feed(b"\x1b[2J\x1b[8;60Hx\x1b[1;1Hnew")
    screen = emulator.screen()
    assert screen.lines == ("new", *[""] * 6, " " * 59 + "x")
    assert (screen.width, screen.height) == (60, 8)


def test_a_recorded_agent_is_read_by_its_rules_from_an_emulated_screen() -> None:
    rules = {provider.value: each for provider, each in load_rules().items()}
    seen = set()
    data = recording("claude_s1_120x40")
    emulator = open_emulator(WIDTH, HEIGHT)
    assert isinstance(emulator, GhosttyEmulator)
    for at in range(0, len(data), 500):
        emulator.feed(data[at : at + 500])
        seen.add(str(decide(emulator.screen(), rules["claude"]).activity))
    assert {"idle", "running"} <= seen


def test_without_ghostty_there_is_pyte_and_without_both_it_is_said_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("bullpen.terminal.ghostty", "bullpen.terminal.pyte_screen"):
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyghostty", None)
    emulator = open_emulator(10, 2)
    emulator.feed(b"hello")
    assert type(emulator).__name__ == "PyteEmulator"
    assert emulator.screen().lines == ("hello",)
    monkeypatch.delitem(sys.modules, "bullpen.terminal.pyte_screen")
    monkeypatch.setitem(sys.modules, "pyte", None)
    with pytest.raises(EmulatorMissing, match="pip install pyghostty"):
        open_emulator(10, 2)


@both
def test_a_sequence_without_end_costs_little_and_is_skipped(
    make: Callable[[int, int], Emulator],
) -> None:
    emulator = make(10, 2)
    emulator.feed(b"\x1b[" + b"1" * 200_000 + b"m\x1b]0;" + b"x" * 200_000 + b"\x07hello")
    assert emulator.screen().lines == ("hello",)
    assert len(emulator.screen().title) < 200_000


@both
def test_lines_that_left_the_screen_are_kept_until_they_are_erased(
    make: Callable[..., Emulator],
) -> None:
    emulator = make(20, 5, history=100)
    emulator.feed(b"".join(b"line %d\r\n" % number for number in range(8)))
    assert emulator.history() == ("line 0", "line 1", "line 2", "line 3")
    emulator.feed(b"\x1b[1;3r\x1b[3;1H\r\n\x1b[r")  # so Codex puts lines above what it paints
    assert emulator.history()[4:] == ("line 4",)
    emulator.feed(b"\x1b[2;4r\x1b[4;1H\r\n\x1b[r")  # the first line stays
    assert len(emulator.history()) == 5
    emulator.feed(b"\x1b[?1049h" + b"\r\n" * 10)
    assert emulator.history() == ()
    emulator.feed(b"\x1b[?1049l")
    assert len(emulator.history()) == 5
    emulator.feed(b"\x1b[3J")
    assert emulator.history() == ()
    emulator.close()


@both
def test_no_more_lines_are_kept_than_was_said(make: Callable[..., Emulator]) -> None:
    emulator = make(20, 5, history=2)
    emulator.feed(b"line\r\n" * 4 + b"a\r\nb\r\n\n\n\n\n")
    assert emulator.history() == ("a", "b")
    emulator.close()
    emulator = make(20, 5)
    emulator.feed(b"line\r\n" * 10)
    assert emulator.history() == ()
    emulator.close()


@both
def test_a_row_can_be_painted_again_elsewhere(make: Callable[..., Emulator]) -> None:
    emulator, other = make(20, 3), make(20, 3)
    emulator.feed("first\r\n\x1b[31mred\x1b[0m and 日本\r\n\x1b[2mfaint".encode())
    for row in range(3):
        other.feed(f"\x1b[{row + 1};1H\x1b[0m{emulator.painted(row)}\x1b[0m".encode())
    assert comparable(other.screen()).tones == comparable(emulator.screen()).tones
    assert other.screen().lines == emulator.screen().lines
    emulator.close()
    other.close()
