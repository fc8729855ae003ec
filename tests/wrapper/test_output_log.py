"""What an agent wrote is kept as plain text, however it came, and never for ever."""

import asyncio
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.terminal.context import plain_text
from bullpen.terminal.pty import PtyProcess
from bullpen.testing.tmux import eventually
from bullpen.wrapper import terminal as terminal_module
from bullpen.wrapper.output_log import OutputLog, PlainText, former
from bullpen.wrapper.terminal import AgentTerminal

PIECES = [
    *("plain ", "日本", "\r\n", "\r", "\x1b[31m", "\x1b[m", "\x1b[?2004h", "\x1b[2J"),
    *("\x1b]0;a title\x07", "\x1b]8;;http://x\x1b\\", "\x1bP1$r\x1b\\", "\x1b(B", "\x1b7", "\x07"),
]


def plain(*chunks: bytes) -> str:
    text = PlainText()
    return "".join(text.feed(chunk) for chunk in chunks) + text.close()


@given(st.lists(st.sampled_from(PIECES)), st.integers(1, 7))
def test_the_text_is_the_same_however_the_stream_is_cut(pieces: list[str], size: int) -> None:
    stream = "".join(pieces).encode()
    whole = plain_text(stream).replace("\r", "\n")
    assert plain(stream) == whole
    assert plain(*(stream[i : i + size] for i in range(0, len(stream), size))) == whole


def test_broken_bytes_and_endless_sequences_are_text_in_the_end() -> None:
    assert plain(b"a\xff", b"b") == "a�b"
    assert plain("é".encode()[:1]) == "�"
    assert "tail" in plain(b"\x1b]" + b"x" * 10_000, b"\n" + b"y" * 5000 + b"\x07tail")


async def logged(code: str, path: Path, *, max_bytes: int = 5_000_000) -> AgentTerminal:
    """Run a program to its end with a log."""
    terminal = AgentTerminal(80, 24, shows=None, paints=False)
    command = [sys.executable, "-I", "-S", "-u", "-c", code]
    async with await PtyProcess.spawn(command) as process:
        terminal.process = process
        async with OutputLog(path, max_bytes=max_bytes).keeping(terminal):
            async with asyncio.timeout(30):
                await terminal.run(process)
    return terminal


@pytest.mark.requirement("S-142")
async def test_all_that_is_written_is_in_the_log_and_only_its_owner_may_read_it(home: Path) -> None:
    path = home / ".local/state/bullpen/logs/claude.log"
    await logged(r"for i in range(3): print(f'\x1b[3{i}mline {i}\x1b[m')", path)
    assert path.read_text() == "line 0\nline 1\nline 2\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    await logged("print('again')", path)
    assert path.read_text() == "line 0\nline 1\nline 2\nagain\n"


@pytest.mark.requirement("S-142")
async def test_a_log_that_is_full_is_put_aside(home: Path) -> None:
    path = home / "logs/claude.log"
    code = "import sys\nfor i in range(3000): print(f'line {i}'); sys.stdin.readline() if 0 else 0"
    await logged(code, path, max_bytes=4096)
    files = [each for each in (former(path), path) if each.exists()]
    assert former(path) in files
    assert sum(each.stat().st_size for each in files) < 2 * 4096 + 2**16
    assert "".join(each.read_text() for each in files).endswith("line 2998\nline 2999\n")


async def test_what_the_disk_is_too_slow_for_is_counted_in_the_log(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal_module, "MOST_BEHIND", 1000)
    path = home / "logs/claude.log"
    terminal = AgentTerminal(80, 24, shows=None, paints=False)
    async with OutputLog(path).keeping(terminal):
        for data in (b"early\n", b"x" * 900, b"y" * 900):  # nobody had time to write any of it
            for subscription in tuple(terminal.subscriptions):
                subscription.put(data)
            terminal.context.feed(data)
        await eventually(lambda: asyncio.to_thread(path.exists))
        for subscription in tuple(terminal.subscriptions):
            subscription.put(b"late\n")
        terminal.context.feed(b"late\n")
    assert path.read_text() == "\n[… 1806 bytes are left out here …]\nlate\n"


async def test_a_log_that_cannot_be_written_holds_up_nobody(home: Path) -> None:
    (home / "logs").touch()
    terminal = await logged("print('hi')", home / "logs" / "claude.log")
    assert terminal.context.text() == "hi\r\n"
