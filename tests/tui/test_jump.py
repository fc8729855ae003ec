"""Enter takes one to the pane, in a real tmux; from elsewhere the way there is told."""

import shlex
from pathlib import Path

import msgspec
import pytest

from bullpen.model.states import Activity
from bullpen.model.views import PanePlace
from bullpen.testing.daemon import FakeDaemon, agent_state
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.tui.boards import showing


async def test_outside_of_tmux_the_command_that_attaches_is_told(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("codex-1", Activity.WAITING_INPUT, pane="%7", window=3))
    async with showing(daemon.socket_path) as board:
        await board.shows("codex-1")
        await board.press("enter")
        await board.shows("attach with: tmux -S /tmp/tmux-0/default attach-session -t '$1' ';'")


async def test_who_is_outside_of_tmux_cannot_be_gone_to(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("codex-1"))
    async with showing(daemon.socket_path) as board:
        await board.shows("codex-1")
        await board.press("enter")
        await board.shows("codex-1 is outside of tmux")


@pytest.mark.tmux
async def test_within_tmux_one_is_taken_to_who_waits(daemon: FakeDaemon, tmp_path: Path) -> None:
    async with PrivateTmux() as tmux, PrivateTmux() as terminal:
        far = await tmux.new_session("far")
        form = "#{session_id} #{window_id}"
        session, window = (await tmux.run("display", "-p", "-t", far, form)).split()
        place = PanePlace(
            tmux_socket=tmux.target.socket_path,
            session_id=session,
            session_name="far",
            window_id=window,
        )
        daemon.set_agent(agent_state("codex-1", pane="%0", tmux_session="a"))
        asking = agent_state("codex-2", Activity.WAITING_INPUT, pane=far)
        daemon.set_agent(msgspec.structs.replace(asking, place=place))
        program = [tmux.executable, "-u", *tmux.target.arguments, "attach", "-t", "main"]
        await terminal.new_pane(shlex.join(["env", "-u", "TMUX", *program]))

        async def is_shown(what: str) -> bool:
            listed = await tmux.run("list-clients", "-F", "#{session_name} #{pane_id}")
            return what in listed.split()

        await eventually(lambda: is_shown("main"))
        # A tmux that notes what it is asked, and asks the real one.
        asked = tmp_path / "asked"
        fake = tmp_path / "tmux"
        note = f'printf "%s\\n" "$@" >{shlex.quote(str(asked))}'
        fake.write_text(f'#!/bin/sh\n{note}\nexec {tmux.executable} "$@"\n')
        fake.chmod(0o700)
        environment = {
            "TMUX": f"{tmux.target.socket_path},{tmux.pid},0",
            "TMUX_PANE": "%0",
            "PATH": f"{tmp_path}:/usr/bin:/bin",
        }
        async with showing(daemon.socket_path, environment=environment) as board:
            await board.shows("codex-1", "codex-2")
            await board.press("w", "enter")
            await eventually(lambda: is_shown(far))
            assert "attach with" not in board.screen
        assert asked.read_text().split("\n")[:-1] == [
            *("-S", tmux.target.socket_path, "switch-client", "-t", session),
            *(";", "select-window", "-t", f"{session}:{window}"),
            *(";", "select-pane", "-t", far),
        ]


async def test_what_tmux_says_against_it_is_told(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("codex-1", pane="%7"))
    environment = {"TMUX": "/tmp/tmux-0/default,1,0", "PATH": "/usr/bin:/bin"}
    async with showing(daemon.socket_path, environment=environment) as board:
        await board.shows("codex-1")
        await board.press("enter")
        await board.shows("tmux could not go there")
