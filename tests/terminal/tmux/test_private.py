"""The server that tests use is theirs alone, and leaves nothing."""

import asyncio
from pathlib import Path

import psutil
import pytest

from bullpen.testing.tmux import PrivateTmux, eventually

pytestmark = pytest.mark.tmux


async def test_nothing_is_left_of_it_not_even_what_ignored_the_hang_up() -> None:
    async with PrivateTmux() as tmux:
        pane = await tmux.new_pane("trap '' HUP TERM; echo ready; sleep 1000")
        await tmux.wait_for(pane, "ready")
        pids = [tmux.pid, *map(int, (await tmux.run("list-panes", "-aF", "#{pane_pid}")).split())]
        directory = Path(tmux.target.socket_path).parent
        assert directory.exists()
    assert not directory.exists()

    async def all_ended() -> bool:
        return not await asyncio.to_thread(lambda: any(map(_is_running, pids)))

    await eventually(all_ended)


def _is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_a_hanging_server_is_ended_too() -> None:
    tmux = PrivateTmux()
    await tmux.start()
    tmux.hang()
    await tmux.stop()
    assert tmux.pid == 0


async def test_it_is_never_the_server_of_whoever_runs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMUX", f"{tmp_path}/theirs,1,0")
    async with PrivateTmux() as tmux:
        assert str(tmp_path) not in tmux.target.socket_path
        answer = await tmux.run("display-message", "-p", "#{socket_path}")
        assert answer == tmux.target.socket_path


async def test_a_program_written_in_python_runs_in_a_pane() -> None:
    async with PrivateTmux() as tmux:
        source = "import sys; print('hello', sys.argv[1]); sys.stdin.read()"
        pane = await tmux.new_program(source, 'it\'s "me"; $HOME')
        await tmux.wait_for(pane, 'hello it\'s "me"; $HOME')
