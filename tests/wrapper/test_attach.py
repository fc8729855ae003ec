"""Whoever attaches sees exactly what the agent's terminal shows, and harms nobody."""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.profiles import load
from bullpen.connection import AddressError, Connection, Context, SocketTransport
from bullpen.terminal.emulators import open_emulator
from bullpen.terminal.pty import PtyProcess
from bullpen.testing.tmux import eventually
from bullpen.wrapper import attach as attach_module
from bullpen.wrapper import terminal as terminal_module
from bullpen.wrapper.attach import Attachments, picture
from bullpen.wrapper.attaching import (
    AskInfo,
    AskInterrupt,
    AskStop,
    AskWait,
    Ended,
    Input,
    OpenReply,
    OpenView,
    Resize,
    Shown,
)
from bullpen.wrapper.reading import LineReader
from bullpen.wrapper.status import LineStatus, compile_idle
from bullpen.wrapper.terminal import AgentTerminal
from bullpen.wrapper.viewer import DetachKeys
from bullpen.wrapper.watching import Watch

SECONDS = 20
DUMMY = (*load("dummy", Path("/nowhere")).command, "0")
SIZE = "import os; print(os.get_terminal_size(0), flush=True)"


class NoDrafts:
    has_draft = False


class Room(NamedTuple):
    """A program on its terminal, and the socket to attach by."""

    terminal: AgentTerminal
    watch: Watch
    attachments: Attachments
    path: Path
    stopped: asyncio.Event
    interrupted: asyncio.Event


@asynccontextmanager
async def room(
    *command: str, home: Path, follows_size: bool = True, paints: bool = False
) -> AsyncIterator[Room]:
    terminal = AgentTerminal(80, 24, shows=None, paints=paints)
    reader = LineReader(LineStatus(compile_idle("> $")), terminal.context, NoDrafts())
    watch = terminal.watcher = Watch(terminal, reader)
    stopped, interrupted = asyncio.Event(), asyncio.Event()

    async def interrupt() -> None:
        interrupted.set()

    attachments = Attachments(
        terminal,
        watch,
        name="claude",
        profile="dummy",
        pid=os.getpid(),
        follows_size=follows_size,
        interrupt=interrupt,
        stop=stopped.set,
    )
    path = home / "agent.sock"
    watch.begin()
    async with await PtyProcess.spawn(command or DUMMY) as process:
        terminal.process = process
        watch.started()
        await terminal.load()
        running = asyncio.create_task(terminal.run(process))
        try:
            async with attachments.serve(path):
                yield Room(terminal, watch, attachments, path, stopped, interrupted)
        finally:
            await process.terminate(seconds=0)
            async with asyncio.timeout(SECONDS):
                await running
            watch.end()
            terminal.close()


class Viewer:
    """Somebody attached, without a terminal."""

    def __init__(self) -> None:
        self.seen = b""
        self.ended: Ended | None = None
        self.opened: OpenReply | None = None
        self._changed = asyncio.Event()
        self.connection: Connection | None = None

    def shown(self, shown: Shown, _: Context) -> None:
        self.seen += shown.data
        self._changed.set()

    def end(self, ended: Ended, _: Context) -> None:
        self.ended = ended
        self._changed.set()

    async def until(self, text: bytes) -> None:
        async with asyncio.timeout(SECONDS):
            while text not in self.seen:
                self._changed.clear()
                await self._changed.wait()

    async def until_ended(self) -> Ended:
        async with asyncio.timeout(SECONDS):
            while self.ended is None:
                self._changed.clear()
                await self._changed.wait()
        return self.ended

    async def say(self, what: Input | Resize) -> None:
        assert self.connection is not None
        await self.connection.notify(what)


@asynccontextmanager
async def viewer(
    path: Path, *, columns: int = 80, rows: int = 24, is_read_only: bool = False
) -> AsyncIterator[Viewer]:
    view = Viewer()
    builder = (
        Connection.builder().on_notification(Shown, view.shown).on_notification(Ended, view.end)
    )
    async with builder.connect(SocketTransport.unix(str(path))) as connection:
        view.connection = connection
        view.opened = await connection.request(OpenView(columns, rows, is_read_only))
        view.seen = view.opened.paint
        yield view


async def test_a_viewer_sees_what_was_there_and_what_comes_and_types(home: Path) -> None:
    async with room(home=home) as agent:
        async with viewer(agent.path) as first:
            await first.until(b"> ")
            await first.say(Input("grüße\n".encode()))
            await first.until("You said: grüße\r\n> ".encode())
            async with viewer(agent.path) as second:
                await second.until("You said: grüße".encode())  # from before it came
                await second.say(Input(b"both\n"))
                await first.until(b"You said: both")
                await second.until(b"You said: both")
                assert agent.attachments.viewers == 2
        async with viewer(agent.path, is_read_only=True) as reader:
            assert not any(each.is_viewer for each in agent.terminal.subscriptions)
            await reader.say(Input(b"nobody hears this\n"))
            await reader.say(Resize(10, 10))
            await reader.connection.request(AskInfo())  # type: ignore[union-attr]
            assert (agent.terminal.columns, agent.terminal.rows) == (80, 24)
        assert b"nobody" not in agent.terminal.context.tail()


async def test_the_socket_is_for_its_owner_and_goes_with_the_agent(home: Path) -> None:
    async with room(home=home) as agent:
        assert stat.S_IMODE(agent.path.stat().st_mode) == 0o600
    assert not agent.path.exists()


async def test_a_socket_that_a_dead_wrapper_left_is_refused_and_replaced(home: Path) -> None:
    code = f"import os, socket; socket.socket(socket.AF_UNIX).bind({str(home / 'agent.sock')!r})"
    done = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", code)
    assert await done.wait() == 0
    with pytest.raises(AddressError):
        async with viewer(home / "agent.sock"):
            pass
    async with room(home=home) as agent, viewer(agent.path) as view:
        await view.until(b"> ")


async def test_the_end_is_told_after_the_last_words(home: Path) -> None:
    async with room(home=home) as agent, viewer(agent.path) as view:
        await view.until(b"> ")
        await view.say(Input(b"exit\n"))
        async with asyncio.timeout(SECONDS):
            await agent.terminal.process.wait()  # type: ignore[union-attr]
            while agent.terminal.subscriptions:
                agent.terminal.close()
        ended = await view.until_ended()
    assert b"[DUMMY] Bye" in view.seen
    assert ended == Ended("the agent has ended", 0)


@pytest.mark.requirement("S-26")
async def test_the_size_follows_the_last_who_came_or_changed_theirs(home: Path) -> None:
    code = f"import sys\nfor line in sys.stdin:\n    {SIZE}"
    async with (
        room(sys.executable, "-I", "-S", "-u", "-c", code, home=home) as agent,
        viewer(agent.path, columns=100, rows=30) as view,
    ):
        await view.say(Input(b"\n"))
        await view.until(b"columns=100, lines=30")
        await view.say(Resize(70, 20))
        await view.say(Input(b"\n"))
        await view.until(b"columns=70, lines=20")
        await view.say(Resize(10**6, -5))  # nobody has such a terminal
        await view.say(Input(b"\n"))
        await view.until(b"columns=1000, lines=1")
    async with room(home=home, follows_size=False) as agent, viewer(agent.path, columns=99) as view:
        assert (agent.terminal.columns, agent.terminal.rows) == (80, 24)
        assert view.opened is not None
        assert view.opened.columns == 80


async def test_a_picture_of_a_screen_paints_the_same_screen(home: Path) -> None:
    paint = (
        r"import sys; sys.stdout.write('\x1b[?1049h\x1b[?2004h\x1b[?25l\x1b[2J\x1b[3;5H"
        r"\x1b[31mred\x1b[m \u65e5\u672c\x1b[24;1Hlast row\x1b[7;9H\u2503here'); sys.stdout.flush()"
        "; sys.stdin.read()"
    )
    async with room(sys.executable, "-I", "-u", "-c", paint, home=home, paints=True) as agent:
        await eventually(lambda: b"here" in agent.terminal.context.tail())
        await eventually(lambda: agent.terminal.painted_end == agent.terminal.context.end)
        screen = agent.terminal.screen()
        async with viewer(agent.path) as view:
            copy = await asyncio.to_thread(open_emulator, 80, 24)
            assert view.opened is not None
            copy.feed(view.opened.paint)
            assert copy.screen() == screen
            assert agent.terminal.emulator is not None
            assert copy.modes == agent.terminal.emulator.modes
            assert copy.modes.bracketed_paste
            copy.close()


async def test_a_picture_has_what_is_not_painted_yet() -> None:
    terminal = AgentTerminal(80, 24, shows=None, paints=True)
    await terminal.load()
    await terminal._paint(b"painted")
    terminal.context.feed(b"painted and more")
    copy = await asyncio.to_thread(open_emulator, 80, 24)
    copy.feed(picture(terminal))
    assert copy.screen().lines[0] == "painted and more"
    copy.close()
    terminal.close()


async def test_a_viewer_that_does_not_read_is_sent_away_and_the_agent_goes_on(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attach_module, "SLOW_SECONDS", 0.2)
    monkeypatch.setattr(attach_module, "MAX_UNSENT_BYTES", 2**16)
    monkeypatch.setattr(terminal_module, "MOST_BEHIND", 2**18)
    flood = (
        "import sys; sys.stdin.readline()\n"
        "for _ in range(200): sys.stdout.write('x' * 65536)\n"
        "print('the end')"
    )
    async with room(sys.executable, "-I", "-S", "-u", "-c", flood, home=home) as agent:
        _, writer = await asyncio.open_unix_connection(str(agent.path))
        writer.write(
            b'{"jsonrpc":"2.0","id":1,"method":"attach.open","params":{"columns":80,"rows":24}}\n'
        )
        await eventually(lambda: agent.attachments.viewers == 1)
        await agent.terminal.write(b"\n")
        # The agent is not waited for, and the viewer is gone.
        await eventually(lambda: b"the end" in agent.terminal.context.tail())
        await eventually(lambda: agent.attachments.viewers == 0)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def test_it_can_be_asked_to_wait_to_interrupt_and_to_stop(home: Path) -> None:
    async with room(home=home) as agent:
        transport = SocketTransport.unix(str(agent.path))
        async with Connection.builder().connect(transport) as connection:
            info = await connection.request(AskWait(SECONDS), timeout=SECONDS + 5)
            assert info.is_ready
            assert (info.name, info.status, info.pid) == ("claude", "IDLE", os.getpid())
            assert await connection.request(AskInterrupt())
            assert agent.interrupted.is_set()
            assert await connection.request(AskStop())
            assert agent.stopped.is_set()
            await connection.notify(Input(b"from nobody who looks\n"))
            await connection.request(AskInfo())
        assert b"nobody" not in agent.terminal.context.tail()


async def test_waiting_for_an_agent_that_is_busy_ends_with_the_time(home: Path) -> None:
    async with room("sleep", "600", home=home) as agent:
        transport = SocketTransport.unix(str(agent.path))
        async with Connection.builder().connect(transport) as connection:
            info = await connection.request(AskWait(0.05))
    assert not info.is_ready
    assert info.status == "BUSY"


CTRL = DetachKeys.KEYS


@pytest.mark.parametrize(
    ("typed", "passed", "is_detached"),
    [
        ([b"abc"], b"abc", False),
        ([b"a\x1c\x1cb"], b"a", True),
        ([b"a\x1c", b"\x1cb"], b"a", True),
        ([b"\x1b[92;5u\x1b[92;5u"], b"", True),
        ([b"\x1c", b"x\x1c", b"y"], b"\x1cx\x1cy", False),
        ([b"\x1b[A\x1c\x1b[A\x1c"], b"\x1b[A\x1c\x1b[A", False),
    ],
    ids=["plain", "at-once", "in-two", "kitty", "single", "arrows"],
)
def test_the_keys_that_detach(typed: list[bytes], passed: bytes, is_detached: bool) -> None:
    keys = DetachKeys()
    outcomes = [keys.feed(data) for data in typed]
    assert b"".join(data for data, _ in outcomes) == passed
    assert any(is_over for _, is_over in outcomes) is is_detached


@given(st.lists(st.sampled_from([b"a", b"\x1c", b"\x1b", b"[92;5u", b"\x1b[92;5u"]), max_size=12))
def test_keys_that_do_not_detach_are_passed_on_but_for_one(parts: list[bytes]) -> None:
    typed = b"".join(parts)
    keys = DetachKeys()
    passed, is_detached = keys.feed(typed)
    if not is_detached:
        rest, _ = keys.feed(b"a")
        assert passed + rest == typed + b"a"
    else:
        assert typed.startswith(passed)
