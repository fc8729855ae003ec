"""Looking changes nothing that a user could see."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator

import pytest

from bullpen.terminal.tmux import TmuxError, TmuxPanes, TmuxServer
from bullpen.testing.tmux import PrivateTmux, eventually

pytestmark = pytest.mark.tmux

SESSIONS = (
    "#{session_id} #{session_name} #{session_attached} #{session_windows} #{session_many_attached}"
)
WINDOWS = "#{window_id} #{window_name} #{window_width}x#{window_height} #{window_layout} #{@mine}"


@contextlib.contextmanager
def user(
    tmux: PrivateTmux, session: str, width: int, height: int
) -> Iterator[Callable[[int, int], None]]:
    """Somebody at a terminal who is attached to a session, and can change the terminal's size."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def resize(width: int, height: int) -> None:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        process.send_signal(signal.SIGWINCH)

    process = subprocess.Popen(
        [tmux.executable, "-u", *tmux.target.arguments, "attach", "-t", session],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        yield resize
    finally:
        process.kill()
        process.wait()
        os.close(ours)


async def seen(tmux: PrivateTmux) -> str:
    """All that a user is shown of sessions, windows and the environment of a session."""
    return "\n".join(
        [
            await tmux.run("list-sessions", "-F", SESSIONS),
            await tmux.run("list-sessions"),
            await tmux.run("list-windows", "-a", "-F", WINDOWS),
            *[
                await tmux.run("show-environment", "-t", session)
                for session in (await tmux.run("list-sessions", "-F", "#{session_id}")).split()
            ],
            await tmux.run("show-options", "-g"),
        ]
    )


@pytest.mark.requirement("tmux:unseen")
@pytest.mark.parametrize("policy", ["latest", "largest", "smallest", "manual"])
async def test_sessions_sizes_and_environments_stay_as_they_are(
    tmux: PrivateTmux, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tmux.new_session("other")
    await tmux.run("set-option", "-g", "window-size", policy)
    before = await seen(tmux)
    monkeypatch.setenv("DISPLAY", ":99")  # tmux would copy it into the session
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)
    assert len(await panes.look()) == 2
    assert await seen(tmux) == before
    await panes.look()
    await server.aclose()
    assert await seen(tmux) == before


@pytest.mark.requirement("tmux:unseen")
async def test_a_user_s_terminal_keeps_its_say_in_the_size(tmux: PrivateTmux) -> None:
    with user(tmux, "main", 132, 43) as resize:
        await eventually(lambda: _has_size(tmux, "132x42"))
        before = await seen(tmux)
        server = TmuxServer(tmux.target)
        await TmuxPanes(server).look()
        assert await seen(tmux) == before
        resize(100, 30)
        await eventually(lambda: _has_size(tmux, "100x29"))
        await server.aclose()
        assert await _has_size(tmux, "100x29")


async def _has_size(tmux: PrivateTmux, size: str) -> bool:
    return await tmux.run("list-windows", "-F", "#{window_width}x#{window_height}") == size


@pytest.mark.requirement("tmux:unseen")
async def test_a_session_does_not_count_as_attached_because_we_look(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target)
    [info] = await TmuxPanes(server).list_panes()
    assert info.session_attached == 0
    assert "(attached)" not in await tmux.run("list-sessions")
    await server.aclose()


@pytest.mark.requirement("tmux:unseen")
async def test_no_program_is_left_to_think_that_it_has_the_focus(tmux: PrivateTmux) -> None:
    await tmux.run("set-option", "-g", "focus-events", "on")
    program = (
        "import os,sys,tty; tty.setraw(0); sys.stdout.write('\\033[?1004hready '); "
        "sys.stdout.flush()\nwhile True: print(os.read(0, 99), flush=True)"
    )
    pane = await tmux.new_program(program)
    await tmux.run("select-window", "-t", pane)
    await tmux.wait_for(pane, "ready")
    server = TmuxServer(tmux.target)
    for _ in range(3):
        await server.run("list-panes", "-a")
    await tmux.run("send-keys", "-t", pane, "q")  # whatever was to come has come before this
    await tmux.wait_for(pane, "q'")
    told = await tmux.screen(pane)
    assert told.count("[I") < told.count("[O")  # the first is the answer to its own question
    await server.aclose()


@pytest.mark.requirement("tmux:unseen")
async def test_the_output_of_panes_is_not_sent_to_us(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target)
    await server.run("list-panes", "-a")
    assert server._client is not None
    flags = await tmux.run("list-clients", "-F", "#{client_flags}")
    assert {"ignore-size", "no-output", "control-mode", "suspended"} <= set(flags.split(","))
    read: list[bytes] = []
    feed = server._client._parser.feed

    def note(data: bytes) -> None:
        read.append(data)
        feed(data)

    server._client._parser.feed = note  # type: ignore[method-assign]
    await tmux.show("%0", "loud " * 1000)
    await tmux.wait_for("%0", "loud")
    await server.run("display-message", "-p", "x")
    assert b"loud" not in b"".join(read)
    await server.aclose()


async def test_somebody_who_sends_all_others_away_gets_rid_of_us_for_a_moment_only(
    tmux: PrivateTmux,
) -> None:
    server = TmuxServer(tmux.target)
    await server.run("list-panes", "-a")
    await tmux.run("detach-client", "-s", "main")

    async def is_back() -> bool:
        with contextlib.suppress(TmuxError):
            return (await server.run("list-panes", "-a", "-F", "#{pane_id}")).text == "%0"
        return False

    await eventually(is_back)
    await server.aclose()
