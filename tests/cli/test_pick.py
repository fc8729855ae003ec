"""`bullpen pick` goes round those who wait, and to each of them surely."""

import shlex
from typing import Any

import msgspec
import pytest

from bullpen.api.errors import NobodyError
from bullpen.api.places import next_agent
from bullpen.model.states import Activity
from bullpen.model.views import AgentState, PanePlace
from bullpen.testing.daemon import FakeDaemon, agent_state
from bullpen.testing.tmux import SILENT, PrivateTmux, eventually
from tests.cli.commands import PROGRAM, execute, invoke, show

SOCKET = "/tmp/tmux-0/default"
WAITS = Activity.WAITING_APPROVAL


def waiting(name: str, pane: str | None, **facts: Any) -> AgentState:
    return agent_state(name, WAITS, pane=pane, **facts)


ROUND = [
    waiting("c", "%3", window=2),
    waiting("a", "%5", window=1),
    waiting("b", "%1", window=1, index=1),
    waiting("elsewhere", None, pid=77),
]


@pytest.mark.parametrize(
    ("here", "name"), [("", "a"), ("%9", "a"), ("%5", "b"), ("%1", "c"), ("%3", "a")]
)
def test_the_next_is_the_one_behind_the_pane_one_is_in(here: str, name: str) -> None:
    assert next_agent(ROUND, SOCKET, here).name == name


def test_a_pane_of_the_same_name_on_another_server_is_another() -> None:
    assert next_agent(ROUND, "/tmp/other", "%5").name == "a"


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ([], "nobody waits"),
        (ROUND[3:], "nobody waits in tmux; outside of it: elsewhere (pid 77)"),
    ],
)
def test_where_nobody_is_to_go_to_that_is_said(agents: list[AgentState], message: str) -> None:
    with pytest.raises(NobodyError, match=message.replace("(", r"\(").replace(")", r"\)")):
        next_agent(agents, SOCKET, "")


async def test_the_pane_can_be_printed(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("busy", Activity.RUNNING, pane="%0"))
    daemon.set_agent(waiting("asks", "%7", index=1))
    assert (await show("pick", "--print")).out == "%7\n"
    assert (await show("pick", "--any", "--print")).out == "%0\n"
    assert (await show("pick", "--waiting", "--json")).json["agent"]["name"] == "asks"


async def test_outside_of_tmux_the_way_there_is_printed(daemon: FakeDaemon) -> None:
    daemon.set_agent(waiting("asks", "%7", window=3))
    printed = (await show("pick")).out
    assert shlex.split(printed) == [
        *("tmux", "-S", SOCKET, "attach-session", "-t", "$1"),
        *(";", "select-window", "-t", "$1:@3", ";", "select-pane", "-t", "%7"),
    ]


async def test_where_nobody_waits_it_fails(daemon: FakeDaemon) -> None:
    daemon.set_agent(agent_state("busy", Activity.RUNNING, pane="%0"))
    assert await execute("pick") == (1, "", "bullpen: nobody waits\n")


@pytest.mark.tmux
async def test_within_tmux_one_is_taken_there(daemon: FakeDaemon) -> None:
    async with PrivateTmux() as tmux, PrivateTmux() as terminal:
        far = await tmux.new_session("far")
        other = await tmux.run("split-window", "-d", "-P", "-F", "#{pane_id}", "-t", far, SILENT)
        daemon.set_agent(msgspec.structs.replace(waiting("a", far), place=await _place(tmux, far)))
        place = await _place(tmux, other)
        daemon.set_agent(msgspec.structs.replace(waiting("b", other), place=place))
        program = [tmux.executable, "-u", *tmux.target.arguments, "attach", "-t", "main"]
        await terminal.new_pane(shlex.join(["env", "-u", "TMUX", *program]))
        await eventually(lambda: _is_shown(tmux, "main"))
        await tmux.run("run-shell", shlex.join([PROGRAM, "pick"]))
        await eventually(lambda: _is_shown(tmux, far))
        await tmux.run("run-shell", shlex.join([PROGRAM, "pick"]))  # as from a key: no TMUX_PANE
        await eventually(lambda: _is_shown(tmux, other))
        await tmux.run("run-shell", shlex.join(["env", f"TMUX_PANE={other}", PROGRAM, "pick"]))
        await eventually(lambda: _is_shown(tmux, far))


async def _place(tmux: PrivateTmux, pane: str) -> PanePlace:
    form = "#{session_id} #{window_id} #{pane_index}"
    session, window, index = (await tmux.run("display", "-p", "-t", pane, form)).split()
    socket = tmux.target.socket_path
    return PanePlace(
        tmux_socket=socket, session_id=session, window_id=window, pane_index=int(index)
    )


async def _is_shown(tmux: PrivateTmux, what: str) -> bool:
    listed = await tmux.run("list-clients", "-F", "#{session_name} #{pane_id}")
    return what in listed.split()


async def test_what_tmux_says_against_it_is_told(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.set_agent(waiting("asks", "%7"))
    monkeypatch.setenv("TMUX", f"{SOCKET},1,0")
    done = await invoke("pick")
    assert done.code == 1
    assert done.err.startswith("bullpen: tmux could not go there: ")
