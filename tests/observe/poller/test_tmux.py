"""The poller over real tmux servers, which come, go, hang and talk nonsense."""

import asyncio
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from bullpen.model.states import Provider
from bullpen.observe.poll import ProcessMark
from bullpen.observe.sources.terminals import MOST_SERVERS, TmuxFinder, is_listening
from bullpen.terminal.tmux import TmuxTarget
from bullpen.testing.tmux import PrivateTmux, eventually
from tests.observe.poller.conftest import Watch
from tests.observe.poller.looking import Ear, report
from tests.terminal.recorded import SCREENS

pytestmark = pytest.mark.tmux

APPROVAL = SCREENS / "claude/claude_approval_bash_120x40_1.txt"
SHELL = "bash --norc --noprofile -i"
Link = Callable[[PrivateTmux, str], Awaitable[None]]


def program(name: str, screen: Path | None = None) -> str:
    """Return the command of a pane that runs a program of this name."""
    shown = f"head -c -1 {shlex.quote(str(screen))}; " if screen else ""
    return shlex.join(["bash", "-c", f"{shown}exec -a {name} sleep 1000"])


def is_agent(ear: Ear, pane_id: str) -> bool:
    """Whether a pane was last said to have an agent in it."""
    return ear.state().get(pane_id, "").startswith("activity.")


def agent_of(ear: Ear, pane_id: str) -> ProcessMark | None:
    """Return the process of the agent that was last said to be in a pane."""
    return report(ear.of(pane_id)[-1]).agent if is_agent(ear, pane_id) else None


async def look_until(ear: Ear, condition: Callable[[], bool]) -> None:
    """Look until something holds."""

    async def holds() -> bool:
        await ear.look()
        return condition()

    await eventually(holds)


@pytest.mark.requirement("PL-3", "PL-5", "PL-6", "TMX-6")
async def test_agents_and_others_are_told_apart(tmux: PrivateTmux, watch: Watch) -> None:
    agent = await tmux.new_pane(program("claude", APPROVAL), cwd="/tmp")
    bare = await tmux.new_pane(program("codex"))
    ear = await watch(tmux)
    await look_until(ear, lambda: ear.state().get(agent) == "activity.waiting_approval")
    await look_until(ear, lambda: agent_of(ear, agent) is not None and is_agent(ear, bare))
    assert ear.state()["%0"] == "pane.unmanaged"
    assert ear.of(bare)[-1].provider is Provider.CODEX
    said = ear.of(agent)[-1]
    told = report(said)
    assert said.provider is Provider.CLAUDE
    assert (told.place.current_path, told.place.session_name) == ("/tmp", "main")
    assert told.place.tmux_socket == tmux.target.socket_path
    assert told.agent is not None
    os.kill(told.agent.pid, 0)
    assert said.pane_birth_ts is not None
    assert abs((said.observed_at - said.pane_birth_ts).total_seconds()) < 60
    assert ear.trouble == ""
    assert ear.source.version


@pytest.mark.requirement("TG-7", "DET-2", "DET-3", "DET-5", "TR-07", "TR-17")
async def test_who_only_shows_the_words_of_agents_stays_unmanaged(
    tmux: PrivateTmux, watch: Watch, tmp_path: Path
) -> None:
    text = tmp_path / "claude code.md"
    shutil.copy(APPROVAL, text)
    quoted = shlex.quote(str(text))
    others = {
        "pager": f"less {quoted}",
        "console": f'{sys.executable} -i -c "print(open({str(text)!r}).read())"',
        "shell": f"cat {quoted}; printf '\\033]2;Claude Code\\033\\\\'; exec {SHELL}",
        "printed": "printf 'codex> claude code'; exec sleep 1000",
        "file": f"tail -f {quoted}",
    }
    if shutil.which("vim"):
        others["editor"] = f"vim -u NONE {quoted}"
    for name, command in others.items():
        await tmux.new_session(name, command)
    agent = await tmux.new_pane(program("claude", APPROVAL), cwd=tmp_path)
    ear = await watch(tmux)
    await look_until(ear, lambda: ear.state().get(agent) == "activity.waiting_approval")
    for _ in range(3):
        await ear.look()
    state = dict(ear.state())
    assert len(state) == len(others) + 2
    assert state.pop(agent) == "activity.waiting_approval"
    assert set(state.values()) == {"pane.unmanaged"}
    assert all(
        each.event_type in ("pane.unmanaged", "pane.listed")
        for each in ear.said
        if each.pane_id != agent
    )


@pytest.mark.requirement("HYS-4", "BND-7")
async def test_an_agent_that_is_killed_leaves_an_unmanaged_pane(
    tmux: PrivateTmux, watch: Watch
) -> None:
    script = f"(exec -a claude sleep 1000); exec {SHELL}"
    pane_id = await tmux.new_pane(shlex.join(["bash", "--norc", "-ic", script]))
    ear = await watch(tmux)
    await look_until(ear, lambda: agent_of(ear, pane_id) is not None)
    agent = agent_of(ear, pane_id)
    assert agent is not None
    os.kill(agent.pid, 9)
    await look_until(ear, lambda: ear.types(pane_id)[-2:] == ["pane.unmanaged"] * 2)
    streaks = [report(each).no_agent_streak for each in ear.of(pane_id)[-2:]]
    assert streaks == [1, 2]
    assert ear.of(pane_id)[-1].provider is Provider.CLAUDE


@pytest.mark.requirement("TMX-4", "TR-49")
async def test_names_may_be_anything(tmux: PrivateTmux, watch: Watch, tmp_path: Path) -> None:
    odd = tmp_path / "tab\tnewline\n|🐂;#{pid}"
    odd.mkdir()
    pane_id = await tmux.new_pane(program("claude"), cwd=odd)
    await tmux.run("rename-session", "-t", "main", "s|\t🐂 ;\"'")
    await tmux.run("rename-window", "-t", pane_id, "w|\n🐂")
    await tmux.show(pane_id, "\033]2;⠋ Claude|🐂;#{pid}\033\\")
    ear = await watch(tmux)
    await look_until(ear, lambda: report(ear.of(pane_id)[-1]).place.title.startswith("⠋"))
    place = report(ear.of(pane_id)[-1]).place
    assert place.current_path == str(odd)
    assert place.session_name == "s|\\t🐂 ;\"'"
    assert place.window_name == "w|\\n🐂"
    assert place.title == "⠋ Claude|🐂;#{pid}"


@pytest.mark.requirement("TR-13")
async def test_a_linked_window_is_told_of_once(tmux: PrivateTmux, watch: Watch) -> None:
    pane_id = await tmux.new_pane(program("claude"))
    await tmux.new_session("other")
    await tmux.run("link-window", "-s", pane_id, "-t", "other:7")
    ear = await watch(tmux)
    await look_until(ear, lambda: is_agent(ear, pane_id))
    ids = [each.pane_id for each in ear.said if each.observed_at == ear.said[-1].observed_at]
    assert ids.count(pane_id) == 1
    place = report(ear.of(pane_id)[-1]).place
    assert {place.session_name, *place.also_in} == {"main", "other"}


@pytest.mark.requirement("BND-8", "TMX-7", "TR-12")
async def test_a_respawned_pane_is_another(tmux: PrivateTmux, watch: Watch) -> None:
    ear = await watch(tmux)
    await ear.look()
    await tmux.run("respawn-pane", "-k", "-t", "%0", program("claude"))
    await look_until(ear, lambda: is_agent(ear, "%0"))
    assert ear.types("%0")[:2] == ["pane.unmanaged", "pane.closed"]
    first, last = ear.of("%0")[0], ear.of("%0")[-1]
    assert (first.pane_generation, last.pane_generation) == (1, 2)
    assert first.tmux_server == last.tmux_server


async def test_a_pane_that_remains_after_its_program_is_unmanaged(
    tmux: PrivateTmux, watch: Watch
) -> None:
    await tmux.run("set-option", "-g", "remain-on-exit", "on")
    pane_id = await tmux.new_pane(shlex.join(["bash", "-c", "exec -a claude cat"]))
    ear = await watch(tmux)
    await look_until(ear, lambda: is_agent(ear, pane_id))
    await tmux.run("send-keys", "-t", pane_id, "C-d")
    await look_until(ear, lambda: ear.state()[pane_id] == "pane.unmanaged")
    assert report(ear.of(pane_id)[-1]).place.is_dead


# ------------------------------------------------------------------------------- several servers


@pytest.mark.requirement("PL-1", "TR-50")
async def test_a_server_that_starts_later_is_found_beside_the_one_that_was_named(
    tmux: PrivateTmux, another: PrivateTmux, watch: Watch, link: Link
) -> None:
    ear = await watch(tmux)
    await ear.look()
    assert set(ear.source.sockets) == {tmux.target.socket_path}
    await another.start(program("codex"))
    await link(another, "later")
    await look_until(ear, lambda: len(ear.source.sockets) == 2 and len(ear.source) == 2)
    servers = {each.tmux_server for each in ear.said if each.pane_id == "%0"}
    assert len(servers) == 2
    assert len({each.session_key for each in ear.of("%0")}) == 2


async def test_only_the_server_that_was_named_is_looked_at_if_so_told(
    tmux: PrivateTmux, another: PrivateTmux, watch: Watch, link: Link
) -> None:
    await another.start()
    await link(another, "other")
    ear = await watch(tmux, only=True)
    for _ in range(3):
        await ear.look()
    assert len(ear.source) == 1


def test_who_has_named_the_server_is_said_as_it_is() -> None:
    around = {"TMUX": "/tmp/other,1,0", "BULLPEN_TMUX_SOCKET_NAME": "named"}
    assert TmuxFinder(around).configured.source == "BULLPEN_TMUX_SOCKET_NAME"
    assert TmuxFinder(around, socket_name="mine").configured.source == "observe.tmux_socket"


async def test_a_server_under_two_names_is_one(tmux: PrivateTmux, watch: Watch, link: Link) -> None:
    await link(tmux, "alias")
    ear = await watch(tmux)
    await ear.look()
    assert len(ear.source) == 1


@pytest.mark.requirement("PL-1", "BND-8", "TR-12")
async def test_a_server_that_is_killed_and_started_anew_is_another_one(
    tmux: PrivateTmux, another: PrivateTmux, watch: Watch, link: Link
) -> None:
    await another.start()
    await link(another, "steady")
    pane_id = await tmux.new_pane(program("claude"))
    ear = await watch(tmux)
    await look_until(ear, lambda: len(ear.source) == 3)
    [server] = {each.tmux_server for each in ear.of(pane_id)}
    await tmux.kill()
    await look_until(ear, lambda: len(ear.source) == 1)
    closed = [each for each in ear.said if each.event_type == "pane.closed"]
    assert sorted((each.pane_id, each.tmux_server) for each in closed) == [
        ("%0", server),
        (pane_id, server),
    ]
    assert ear.trouble == ""
    before = len(ear.said)
    for _ in range(3):
        await ear.look()
    assert all(each.tmux_server != server for each in ear.said[before:])
    await tmux.start(program("claude"))
    await look_until(ear, lambda: any(each.pane_generation == 2 for each in ear.of("%0")))
    last = next(each for each in ear.of("%0") if each.pane_generation == 2)
    assert last.tmux_server not in (None, server)


async def test_a_connection_that_is_cut_costs_no_pane(tmux: PrivateTmux, watch: Watch) -> None:
    ear = await watch(tmux)
    await ear.look()
    listed = await tmux.run("list-clients", "-F", "#{client_name}")
    for client in listed.split():
        await tmux.run("detach-client", "-t", client)
    await look_until(ear, lambda: ear.trouble == "" and bool(ear.source.sockets))
    for _ in range(3):
        await ear.look()
    assert "pane.closed" not in ear.types("%0")


@pytest.mark.requirement("TMX-9", "PL-1")
async def test_a_server_that_hangs_is_skipped_and_seen_again_when_it_goes_on(
    tmux: PrivateTmux, another: PrivateTmux, watch: Watch, link: Link
) -> None:
    await another.start()
    await link(another, "other")
    ear = await watch(tmux, interval_seconds=0.1, timeout_seconds=0.5)
    await look_until(ear, lambda: len(ear.source) == 2)
    tmux.hang()
    try:
        await look_until(ear, lambda: tmux.target.socket_path in ear.trouble)
        pane_id = await another.new_pane(program("claude"))
        await look_until(ear, lambda: is_agent(ear, pane_id))
        assert "pane.closed" not in [each.event_type for each in ear.said]
        assert tmux.target.socket_path in ear.trouble
    finally:
        tmux.go_on()
    await look_until(ear, lambda: ear.trouble == "" and len(ear.source.sockets) == 2)


@pytest.fixture
def fake_tmux(home: Path) -> Callable[[str], dict[str, str]]:
    """Writes a program to be run instead of tmux."""

    def write(script: str) -> dict[str, str]:
        path = home / "fake-tmux"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return {"TMUX_BIN": str(path)}

    return write


@pytest.mark.requirement("TMX-9", "TR-63")
@pytest.mark.parametrize(
    "script",
    [
        "exec sleep 100",
        'case "$*" in *-V*) echo tmux 3.3a;; *) exec sleep 100;; esac',
        'case "$*" in *-V*) echo tmux 3.3a;; *) echo "%begin 1 2 3"; echo rubbish;; esac',
        "yes garbage | head -c 3000000",
        "head -c 100000 /dev/urandom",
        "exit 3",
    ],
    ids=["sleeps", "sleeps-later", "cut-off", "floods", "noise", "fails"],
)
async def test_a_tmux_that_is_none_is_a_trouble_and_nothing_worse(
    tmux: PrivateTmux,
    watch: Watch,
    fake_tmux: Callable[[str], dict[str, str]],
    script: str,
) -> None:
    environment = await asyncio.to_thread(fake_tmux, script)
    ear = await watch(tmux, environment=environment, interval_seconds=0.1, timeout_seconds=0.3)
    async with asyncio.timeout(20):
        await look_until(ear, lambda: tmux.target.socket_path in ear.trouble)
        for _ in range(5):
            await ear.look()
            assert ear.trouble
    assert not [each for each in ear.said if each.pane_id]
    assert not ear.is_down  # the processes of other terminals are still seen


# ---------------------------------------------------------------------------------------- finding


async def test_a_socket_that_a_dead_server_left_is_not_listened_on(
    tmux: PrivateTmux, home: Path
) -> None:
    assert await is_listening(tmux.target)
    tmux.hang()
    assert await is_listening(tmux.target)
    await tmux.kill()
    assert not await is_listening(tmux.target)
    assert not await is_listening(TmuxTarget(str(home / "none")))
    assert not await is_listening(TmuxTarget("/" + "x" * 300))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others refuse, then")
async def test_a_server_too_busy_to_take_a_connection_is_there(home: Path) -> None:
    path = str(home / "busy.sock")
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as stack:
        server.bind(path)
        server.listen(0)
        with suppress(BlockingIOError):
            for _ in range(100):
                client = stack.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(path)
            pytest.fail("it takes every connection")
        async with asyncio.timeout(5):
            assert await is_listening(TmuxTarget(path))


async def test_a_socket_of_somebody_else_is_left_alone_unless_it_was_named(
    tmux: PrivateTmux, home: Path, sockets: Path, link: Link, monkeypatch: pytest.MonkeyPatch
) -> None:
    await link(tmux, "other")
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    await asyncio.to_thread(sockets.rename, home / "tmux-54321")
    environment = {"TMUX_TMPDIR": str(home)}
    assert [each.target.source for each in await TmuxFinder(environment).find()] == ["default"]
    named = TmuxFinder(environment, socket_name=tmux.target.socket_path)
    assert [each.is_listening for each in await named.find()] == [True]


@pytest.mark.requirement("TMX-3")
async def test_the_configured_server_comes_first_and_bounds_are_kept(
    tmux: PrivateTmux, home: Path, sockets: Path, link: Link
) -> None:
    for number in range(MOST_SERVERS + 10):
        await link(tmux, f"name{number}")
    configured = str(home / "none.sock")
    environment = {"TMUX_TMPDIR": str(home), "BULLPEN_TMUX_SOCKET_PATH": configured}
    found = await TmuxFinder(environment).find()
    assert found[0].target.socket_path == configured
    assert not found[0].is_listening
    assert len(found) == 2  # all the others are one
    assert found[1].is_listening
