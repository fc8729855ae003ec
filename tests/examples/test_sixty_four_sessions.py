"""The live view shows all sessions in any window, and gives the terminal back as it was."""

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bullpen.connection.router import MessageRouter
from bullpen.testing.cli_server import FakeCliServer
from examples.sixty_four_sessions import Figures, Session, State, Style, View, Wire, choose_layout
from tests.examples.programs import ROOT, environment, run_example

NAME = "sixty_four_sessions.py"
WAIT_SECONDS = 30  # a hang, on however busy a machine
ENTER, LEAVE = "\x1b[?1049h\x1b[?25l\x1b[?7l", "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"

# The first terminal that the leader of a session opens is the one whose keys it hears.
IN_ITS_TERMINAL = """
import os, sys
os.close(os.open(os.ttyname(0), os.O_RDWR))
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, descriptor: int, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.output = ""
        self._descriptor = descriptor

    def resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, size)

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def read_until(self, pattern: str) -> str:
        """Wait until the output has something; return all there is."""
        deadline = time.monotonic() + WAIT_SECONDS
        while not re.search(pattern, self.output, re.DOTALL):
            left = deadline - time.monotonic()
            assert left > 0, f"{pattern!r} did not come:\n{self.output[-2000:]}"
            if select.select([self._descriptor], [], [], left)[0]:
                try:
                    self.output += os.read(self._descriptor, 2**16).decode(errors="replace")
                except OSError:  # the program has ended
                    assert re.search(pattern, self.output, re.DOTALL), self.output[-2000:]
        return self.output

    def read_to_end(self) -> str:
        while True:
            try:
                data = os.read(self._descriptor, 2**16)
            except OSError:
                break
            if not data:
                break
            self.output += data.decode(errors="replace")
        self.process.wait(WAIT_SECONDS)
        return self.output


@contextmanager
def in_a_terminal(*arguments: str, columns: int = 160, **variables: str) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    variables = {"TERM": "xterm", **variables}
    process = subprocess.Popen(
        [sys.executable, "-c", IN_ITS_TERMINAL, f"examples/{NAME}", *arguments],
        cwd=ROOT,
        env={k: v for k, v in environment().items() if k != "NO_COLOR"} | variables,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    terminal = Terminal(ours, process)
    terminal.resize(columns, 50)
    os.close(theirs)
    try:
        yield terminal
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def test_the_final_figures_are_whole_and_nothing_went_astray() -> None:
    done = run_example(NAME, "--sessions", "64", "--seconds", "2.5", "--speed", "5", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    figures = json.loads(done.stdout)
    assert figures["connections"] == 1
    assert figures["sessions_open"] == figures["most_sessions_open"] == 64
    assert figures["events"] > figures["tokens"] > 0
    assert figures["bytes"] > figures["events"]
    assert figures["unknown_events"] == figures["refused_requests"] == 0


def test_without_a_terminal_it_prints_a_line_each_second_and_a_summary() -> None:
    done = run_example(NAME, "--sessions", "8", "--seconds", "1.3")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert re.match(r"0:00  sessions \d open  events \d+  events/s", lines[0])
    assert re.match(r"0:01  sessions 8 open", lines[1])
    assert re.match(r"8 sessions over 1 connection for 1\.\d s", lines[2])
    assert "0 belonged to nobody" in lines[-1]


def test_help_shows_examples() -> None:
    done = run_example(NAME, "--help")
    assert done.returncode == 0
    assert "python examples/sixty_four_sessions.py --seconds 10" in done.stdout


@pytest.mark.parametrize("arguments", [("--sessions", "0"), ("--seconds", "-1"), ("--speed", "0")])
def test_numbers_that_make_no_sense_are_refused(arguments: tuple[str, str]) -> None:
    done = run_example(NAME, *arguments)
    assert done.returncode == 2
    assert "there must be" in done.stderr


def test_control_c_ends_it_at_once_and_gives_the_terminal_back() -> None:
    with in_a_terminal("--seconds", "60") as terminal:
        shown = terminal.read_until("parse-1.*ship-8.*64 open.*writing")
        assert shown.startswith(ENTER)
        assert "\x1b[32m" in shown
        terminal.type(b"\x03")
        left = terminal.read_to_end()
        assert terminal.process.returncode == 0
    ending = left[left.rindex(LEAVE) :]
    assert "64 sessions over 1 connection" in ending
    assert "Traceback" not in left


def test_it_ends_by_itself_and_follows_the_size_of_the_window() -> None:
    with in_a_terminal("--seconds", "3", "--speed", "3") as terminal:
        terminal.read_until("64 open")
        terminal.resize(80, 24)
        terminal.output = ""
        assert "64 sessions over 1 connection" in terminal.read_to_end()
        cleared = terminal.output[terminal.output.rindex("\x1b[2J") :]
        assert "\x1b[24;1H" in cleared
        assert "\x1b[25;1H" not in cleared
        assert terminal.process.returncode == 0


def test_no_color_means_none() -> None:
    with in_a_terminal("--seconds", "2", "--speed", "3", NO_COLOR="1") as terminal:
        output = terminal.read_to_end()
    styles = set(re.findall(r"\x1b\[[0-9;]*m", output))
    assert styles == {"\x1b[0m"}  # the one that puts the terminal back
    assert "● " in output
    assert "writing" in output


def test_it_gives_the_terminal_back_while_it_is_stopped() -> None:
    with in_a_terminal("--seconds", "60") as terminal:
        terminal.read_until("64 open")
        terminal.type(b"\x1a")  # Ctrl-Z
        terminal.read_until(r"\x1b\[\?1049l")
        _, status = os.waitpid(terminal.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        terminal.output = ""
        terminal.process.send_signal(signal.SIGCONT)
        terminal.read_until(r"\x1b\[\?1049h.*64 open")


def test_the_death_of_the_server_is_told_on_a_clean_terminal() -> None:
    with in_a_terminal("--seconds", "60") as terminal:
        found = re.search(r"process (\d+)", terminal.read_until(r"process \d+.*64 open"))
        assert found
        os.kill(int(found[1]), signal.SIGKILL)
        left = terminal.read_to_end()
        assert terminal.process.returncode == 1
    ending = left[left.rindex("\x1b[?1049l") :]
    assert "the server is gone" in ending
    assert "signal 9" in ending
    assert "Traceback" not in ending


@pytest.mark.parametrize("width", [20, 40, 80, 110, 160, 300])
@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize("count", [1, 7, 64, 300])
async def test_every_line_fits_into_the_window(width: int, height: int, count: int) -> None:
    async with (
        asyncio.timeout(5),
        FakeCliServer().connected() as transport,
        await MessageRouter.open(transport) as router,
    ):
        sessions = [Session(number, count, router, 1.0) for number in range(count)]
        assert len({session.name for session in sessions}) == count
        for number, session in enumerate(sessions):
            session.state = list(State)[number % len(State)]
            session.text = "a text of some length, which goes on and on and on"
            session.words = session.words_asked = 7
            session.samples.extend([9] * 20)
        figures = Figures(router, sessions, Wire())
        figures.take_sample()
        lines = View(figures, Style(is_coloured=False), "title", 60).lines(width, height)
    assert len(lines) == height
    if width >= 40:  # below that, the terminal cuts
        assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    if width >= 80 and height >= 24 and count == 64:
        assert all(f"{session.state.value[0]} {session.name}" in text for session in sessions)


@pytest.mark.parametrize(
    ("width", "height", "expected"),
    [(160, 42, (8, 4, True)), (160, 33, (8, 4, False)), (110, 32, (5, 2, False)),
     (80, 17, (4, 1, False)), (80, 3, (4, 1, False)), (5, 5, (1, 1, False))],
)  # fmt: skip
def test_the_roomiest_layout_in_which_all_fit_is_chosen(
    width: int, height: int, expected: tuple[int, int, bool]
) -> None:
    assert choose_layout([8] * 8, width, height) == expected
