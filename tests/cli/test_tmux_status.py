"""`bullpen tmux-status` is one line, quick, and never in anybody's way."""

import asyncio
import contextlib
import os
import shlex
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bullpen.cli import hot
from bullpen.cli.tmux_status import snippet
from bullpen.model.states import Activity
from bullpen.testing.daemon import FakeDaemon, agent_state, pane_state
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.cli.commands import PROGRAM, execute, invoke
from tests.cli.test_main import modules_after


@pytest.mark.requirement("CLI-6", "TR-60")
async def test_it_is_one_line_without_a_newline(daemon: FakeDaemon) -> None:
    daemon.set_pane(pane_state("%1"))
    daemon.set_agent(agent_state("claude-1", Activity.WAITING_INPUT))
    assert await execute("tmux-status") == (0, "A:1 U:1 ◆1", "")


@pytest.mark.requirement("CLI-1", "CLI-6")
@pytest.mark.parametrize(
    "words",
    [
        ["tmux-status", "-s"],
        ["tmux-status", "--socket-path"],
        ["-s", "", "tmux-status", "--socket-path"],
    ],
    ids=" ".join,
)
async def test_another_socket_can_be_named(words: list[str], home: Path) -> None:
    async with FakeDaemon(home / "other.sock", panes=[pane_state("%1")]) as other:
        words = [*words, other.socket_path]
        assert await execute(*words) == (0, "A:0 U:1", "")


@pytest.mark.requirement("CLI-6")
async def test_without_a_daemon_none_is_started_and_nothing_fails(home: Path) -> None:
    assert await execute("tmux-status") == (0, "-", "")
    assert await invoke("tmux-status") == (0, "-", "")
    assert not (home / "run/bullpen").exists()


def test_it_is_answered_with_the_standard_library_alone() -> None:
    loaded = modules_after("tmux-status")
    assert not loaded & {"click", "msgspec", "asyncio", "pathlib", "typing", "logging", "ssl"}
    allowed = {"bullpen.api.locations", "bullpen.cli.hot", "bullpen.cli.main"}
    rooms = {"bullpen", "bullpen.api", "bullpen.cli"}
    assert {each for each in loaded if each.startswith("bullpen")} == allowed | rooms


@contextlib.contextmanager
def answering(path: Path, answer: bytes) -> Iterator[None]:
    """Serve one peer at a socket with these very bytes."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            peer, _ = listening.accept()
            with peer, contextlib.suppress(ConnectionError):
                peer.recv(4096)
                peer.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            thread.join(10)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"nonsense\n",
        b"[]\n",
        b'{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"none"}}\n',
        b'{"jsonrpc":"2.0","id":1,"result":7}\n',
        b'{"jsonrpc":"2.0","id":1,"result":"a\\u001b[31m"}\n',
        b'{"jsonrpc":"2.0","id":1,"result":"a\\nb"}\n',
        b'{"jsonrpc":"2.0","id":1,"result":"\\ud800"}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\n",
        b"x" * (hot.MOST_BYTES + 100_000),
    ],
    ids=lambda answer: answer[:40].decode(errors="replace"),
)
def test_an_answer_that_makes_no_sense_is_none(answer: bytes, home: Path) -> None:
    path = home / "d.sock"
    with answering(path, answer):
        assert hot.tmux_status(["-s", str(path)]) == "-"


def test_a_daemon_that_hangs_is_not_waited_for(home: Path) -> None:
    path = home / "d.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        began = time.monotonic()
        assert hot.tmux_status(["-s", str(path)]) == "-"
        assert hot.ANSWER_SECONDS <= time.monotonic() - began < 10


def test_a_daemon_that_hangs_up_is_not_waited_for(home: Path) -> None:
    path = home / "d.sock"
    with answering(path, b'{"jsonrpc"'):
        began = time.monotonic()
        assert hot.ask(str(path), "tmux_status", timeout_seconds=50) is None
        assert time.monotonic() - began < 25


def test_what_is_no_socket_is_not_spoken_to(home: Path) -> None:
    (home / "file").write_text("hello", encoding="utf-8")
    (home / "link").symlink_to(home / "run")
    for name in ("file", "link", "nothing", "x" * 200):
        assert hot.tmux_status(["-s", str(home / name)]) == "-"


def test_the_socket_of_somebody_else_is_not_spoken_to(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = home / "d.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        listening.setblocking(False)
        monkeypatch.setattr(os, "getuid", lambda: 4_000_000)
        assert hot.tmux_status(["-s", str(path)]) == "-"
        with pytest.raises(BlockingIOError):  # nobody has come
            listening.accept()


@pytest.mark.parametrize("arguments", [["--help"], ["-s"], ["--snippet"], ["-s", "a", "--json"]])
def test_whatever_else_is_wanted_is_left_to_the_whole_command(arguments: list[str]) -> None:
    assert hot.tmux_status(arguments) is None


async def test_programs_get_the_line_too(daemon: FakeDaemon) -> None:
    assert (await invoke("tmux-status", "--json")).json == {"schema": 1, "line": "A:0 U:0"}


def test_the_lines_for_tmux_name_us_by_our_whole_path() -> None:
    assert snippet("/opt/bin/bullpen", None) == [
        "# bullpen: agents, other panes, and who waits; prefix + j goes to the next who waits",
        'if-shell -F "#{m:??,#{status-right-length}}" "set -g status-right-length 100"',
        (
            'if-shell -F "#{m:* tmux-status*,#{status-right}}" "" '
            r'"set -ga status-right \" #(/opt/bin/bullpen tmux-status)\""'
        ),
        'bind-key j run-shell "TMUX_PANE=#{pane_id} /opt/bin/bullpen pick"',
    ]


async def test_the_snippet_is_printed() -> None:
    done = await execute("tmux-status", "--snippet", "-s", "/tmp/other.sock")
    assert done.code == 0
    assert f"#({shlex.quote(PROGRAM)} tmux-status -s /tmp/other.sock)" in done.out


PROGRAM_FOR_TMUX = """#!{python}
import os, pathlib, sys
if sys.argv[1:] == ["tmux-status"]:
    print("A:7 " + __file__[-1])
if sys.argv[1:] == ["pick"]:
    pathlib.Path(__file__).with_name("picked").write_text(os.environ["TMUX_PANE"])
"""


@pytest.mark.tmux
@pytest.mark.parametrize("name", ["bullpen", "with space", "it's $HOME #S 50% %H!", 'a"b'])
async def test_tmux_understands_the_snippet(name: str, home: Path) -> None:
    program = home / name
    program.write_text(PROGRAM_FOR_TMUX.format(python=sys.executable), encoding="utf-8")
    program.chmod(0o700)
    (home / "conf").write_text("\n".join(snippet(str(program), None)) + "\n", encoding="utf-8")
    async with PrivateTmux() as tmux, PrivateTmux(width=100) as terminal:
        await tmux.run("source-file", str(home / "conf"))
        await tmux.run("source-file", str(home / "conf"))  # as people do who have changed it
        right = await tmux.run("show", "-gv", "status-right")
        assert right.count(" tmux-status") == 1
        await tmux.run("select-pane", "-T", "a title as agents have them, longer than is shown")
        attach = [tmux.executable, "-u", *tmux.target.arguments, "attach", "-t", "main"]
        shown = await terminal.new_pane(shlex.join(["env", "-u", "TMUX", *attach]))

        async def is_shown() -> bool:
            return f"A:7 {name[-1]}" in await terminal.screen(shown)

        await eventually(is_shown)
        await terminal.run("send-keys", "-t", shown, "C-b", "j")
        here = (await tmux.run("display-message", "-p", "-t", "main", "#{pane_id}")).strip()

        def picked_from() -> str:
            picked = home / "picked"
            return picked.read_text(encoding="utf-8") if picked.exists() else ""

        async def has_picked() -> bool:
            return await asyncio.to_thread(picked_from) == here

        await eventually(has_picked)


@pytest.mark.requirement("CLI-6")
async def test_a_bar_that_asks_often_gets_its_answer_each_time(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("claude-1"))
    answers = await asyncio.gather(
        *(asyncio.to_thread(hot.tmux_status, ["-s", daemon.socket_path]) for _ in range(20))
    )
    assert set(answers) <= {"A:1 U:0", "-"}  # the second, should the machine be very busy
    assert "A:1 U:0" in answers
