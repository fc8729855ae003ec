"""Panes as they are: listed whole, captured when they changed, told from those before them."""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bullpen.terminal.tmux import (
    Capture,
    ProcessInfo,
    ProcessReader,
    ProcessTable,
    TmuxExecutor,
    TmuxNotFound,
    TmuxPanes,
    TmuxProtocolError,
    TmuxServer,
)
from bullpen.terminal.tmux.backoff import Backoff
from bullpen.terminal.tmux.panes import capture_command
from bullpen.testing.tmux import FakeTmux, PrivateTmux, eventually
from tests.terminal.tmux.listed import pane, printed

real = pytest.mark.tmux


@real
@pytest.mark.requirement("TMX-4")
async def test_a_pane_is_listed_with_all_that_tmux_tells_of_it(
    tmux: PrivateTmux, tmp_path: Path
) -> None:
    pane_id = await tmux.new_pane("exec sleep 1000", cwd=tmp_path)
    server = TmuxServer(tmux.target)
    _, info = await TmuxPanes(server).list_panes()
    assert info.pane_id == pane_id
    assert info.server == server.identity
    assert (info.session_name, info.session_id, info.session_attached) == ("main", "$0", 0)
    assert (info.window_id, info.window_index, info.window_is_active) == ("@1", 1, False)
    assert (info.width, info.height, info.is_active) == (80, 24, True)
    assert (info.current_path, info.current_command) == (str(tmp_path), "sleep")
    assert (info.is_dead, info.is_alternate, info.mode, info.history_size) == (False, False, "", 0)
    assert (info.cursor_x, info.cursor_y, info.is_cursor_visible) == (0, 0, True)
    assert info.dead_status is None
    assert "sleep 1000" in info.start_command
    assert info.tty.startswith("/dev/")
    os.kill(info.pane_pid, 0)
    await server.aclose()


@real
@pytest.mark.requirement("TMX-4", "TR-49")
@pytest.mark.parametrize("make", [TmuxServer, TmuxExecutor])
async def test_panes_are_listed_whatever_they_are_called_and_whatever_the_locale(
    tmux: PrivateTmux, tmp_path: Path, make: Callable[..., Any]
) -> None:
    odd = tmp_path / os.fsdecode(b"tab\tnewline\n%end 1 2 1\n|\xf0\x9f\x90\x82;#{pid}\xff")
    odd.mkdir()
    pane_id = await tmux.new_pane(cwd=odd)
    await tmux.run("rename-session", "-t", "main", "s|\t\n\N{OX} ;\"'")
    await tmux.run("rename-window", "-t", pane_id, "w|\t\n\N{OX} ;")
    await tmux.show(pane_id, "\033]2;\N{BRAILLE PATTERN DOTS-124} Claude|\N{OX};#{pid}\033\\")
    await tmux.show("%0", b"\033]2;bad \xff\xfe title\033\\")
    locale = {**os.environ, "LC_ALL": "C", "LANG": "C"}
    runner = make(tmux.target, environment=locale)
    panes = TmuxPanes(runner)

    async def has_title() -> bool:
        return any("Claude" in each.title for each in await panes.list_panes())

    await eventually(has_title)
    first, second = await panes.list_panes()
    assert first.session_name == second.session_name == "s|\\t\\n\N{OX} ;\"'"
    assert second.window_name == "w|\\t\\n\N{OX} ;"
    assert second.title == "\N{BRAILLE PATTERN DOTS-124} Claude|\N{OX};#{pid}"
    assert os.fsencode(second.current_path).decode() == str(odd).encode(
        errors="surrogateescape"
    ).decode(errors="replace")
    await runner.aclose()


@real
@pytest.mark.requirement("TMX-5", "PL-2")
async def test_a_capture_has_fifty_lines_of_history_and_the_whole_screen(
    tmux: PrivateTmux,
) -> None:
    await tmux.show("%0", "".join(f"line {number}\r\n" for number in range(200)))
    await tmux.wait_for("%0", "line 199")
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)
    capture = (await panes.capture(["%0"]))["%0"]
    assert isinstance(capture, Capture)
    assert len(capture.lines) == 50 + 24
    assert capture.lines[0] == "line 127"
    assert capture.screen(24) == (*(f"line {number}" for number in range(177, 200)), "")
    await server.aclose()


@real
@pytest.mark.requirement("TMX-5")
async def test_a_process_per_command_is_started_with_the_words_of_the_command(
    tmux: PrivateTmux, fake_program: Callable[[str], None], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    fake_program(f'echo "$@" >> {log}; exec {tmux.executable} "$@"')
    captures = await TmuxPanes(TmuxExecutor(tmux.target)).capture(["%0"])
    assert isinstance(captures["%0"], Capture)
    assert log.read_text() == f"-u -S {tmux.target} capture-pane -p -t %0 -S -50\n"


@pytest.mark.requirement("TMX-5")
def test_a_capture_is_one_command() -> None:
    assert capture_command("%7") == ("capture-pane", "-p", "-t", "%7", "-S", "-50")


@real
@pytest.mark.requirement("TMX-5")
async def test_any_character_of_a_screen_is_captured(tmux: PrivateTmux) -> None:
    await tmux.show("%0", "\N{OX} \u3042\u3044 \N{BOX DRAWINGS LIGHT HORIZONTAL} e\u0301\r\n%end 1")
    await tmux.wait_for("%0", "%end 1")
    server = TmuxServer(tmux.target)
    capture = (await TmuxPanes(server).capture(["%0"]))["%0"]
    assert isinstance(capture, Capture)
    assert capture.lines[:2] == (
        "\N{OX} \u3042\u3044 \N{BOX DRAWINGS LIGHT HORIZONTAL} e\u0301",
        "%end 1",
    )
    await server.aclose()


@real
@pytest.mark.requirement("TMX-10", "PL-2")
async def test_a_pane_that_dies_between_list_and_capture_is_skipped_and_logged(
    tmux: PrivateTmux, caplog: pytest.LogCaptureFixture
) -> None:
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)
    doomed = await tmux.new_pane()
    captures = await panes.capture(["%0", "%99"])
    assert isinstance(captures["%0"], Capture)
    assert isinstance(captures["%99"], TmuxNotFound)

    list_all = panes._list

    async def list_then_kill() -> Any:
        listed = await list_all()
        await tmux.run("kill-pane", "-t", doomed)
        return listed

    panes._list = list_then_kill  # type: ignore[method-assign]
    with caplog.at_level(logging.INFO, "bullpen.terminal.tmux"):
        snapshots = await panes.look()
    assert [snapshot.info.pane_id for snapshot in snapshots] == ["%0"]
    assert f"pane {doomed} is skipped" in caplog.text
    await server.aclose()


@real
@pytest.mark.requirement("tmux:unchanged")
async def test_of_a_hundred_panes_only_those_that_changed_are_captured(
    tmux: PrivateTmux,
) -> None:
    await tmux.new_panes(99)
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)
    assert len(await panes.look()) == 100
    captured: list[str] = []
    capture = panes.capture

    async def counted(pane_ids: Any) -> Any:
        captured[:] = pane_ids
        return await capture(captured)

    panes.capture = counted  # type: ignore[method-assign]

    async def is_settled() -> bool:
        await panes.look()
        return not captured

    await eventually(is_settled)
    await tmux.show("%50", "changed")

    async def is_seen() -> bool:
        snapshots = await panes.look()
        return any("changed" in each.screen for each in snapshots)

    await eventually(is_seen)
    assert captured == ["%50"]
    await eventually(is_settled)
    await server.aclose()


@real
@pytest.mark.requirement("TR-66")
async def test_a_screen_that_is_repainted_in_place_is_seen_to_change(tmux: PrivateTmux) -> None:
    """As programs on the alternate screen do: no cursor moves, no history grows."""
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)
    await tmux.show("%0", "\033[?1049h")
    for number in range(12):
        await tmux.show("%0", f"\033[H\033[2Kframe {number}\033[5;5H")
        await tmux.wait_for("%0", f"frame {number}")
        [snapshot] = await panes.look()
        assert snapshot.screen[0] == f"frame {number}"
        assert snapshot.info.is_alternate
        await asyncio.sleep(0.11)  # so that frames fall into several seconds
    await server.aclose()


@real
@pytest.mark.parametrize(
    "change", ["resize", "clear-history", "respawn", "reset"], ids=lambda change: change
)
async def test_what_tmux_itself_does_to_a_screen_is_seen(tmux: PrivateTmux, change: str) -> None:
    await tmux.show("%0", "".join(f"{'x' * 60} {number}\r\n" for number in range(40)))
    await tmux.wait_for("%0", " 39")
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)

    async def is_settled() -> bool:
        [first] = await panes.look()
        [second] = await panes.look()
        return first.capture is second.capture

    await eventually(is_settled)
    commands = {
        "resize": ("resize-window", "-t", "main", "-x", "50", "-y", "20"),
        "clear-history": ("clear-history", "-t", "%0"),
        "respawn": ("respawn-pane", "-k", "-t", "%0", "echo respawned; exec cat"),
        "reset": ("send-keys", "-R", "-t", "%0"),
    }
    await tmux.run(*commands[change])
    expected = await tmux.run(*capture_command("%0"))
    [snapshot] = await panes.look()
    if change == "respawn":
        await tmux.wait_for("%0", "respawned")
        [snapshot] = await panes.look()
        expected = await tmux.run(*capture_command("%0"))
    assert "\n".join(snapshot.capture.lines) == expected
    await server.aclose()


@real
@pytest.mark.requirement("BND-8", "TMX-7", "PL-4", "TR-12", "Q3")
async def test_a_respawned_pane_and_one_of_a_new_server_are_new_generations(
    tmux: PrivateTmux,
) -> None:
    server = TmuxServer(tmux.target, backoff=Backoff(first_seconds=0, longest_seconds=0))
    panes = TmuxPanes(server, clock=lambda: 5.0)
    [first] = await panes.look()
    [same] = await panes.look()
    assert same.instance == first.instance
    assert (first.instance.generation, first.instance.birth) == (1, 5.0)
    await tmux.run("respawn-pane", "-k", "-t", "%0", "exec cat")
    [respawned] = await panes.look()
    assert respawned.instance.generation == 2
    await tmux.kill()
    await tmux.start()

    async def is_back() -> bool:
        try:
            return bool(await panes.look())
        except Exception:  # noqa: BLE001  (not yet)
            return False

    await eventually(is_back)
    [restarted] = await panes.look()
    assert restarted.info.pane_id == "%0"
    assert restarted.instance.generation == 3
    assert restarted.instance.server != first.instance.server
    await server.aclose()


@real
@pytest.mark.requirement("TR-13")
async def test_a_pane_in_linked_windows_is_listed_at_each_place(tmux: PrivateTmux) -> None:
    await tmux.new_session("second")
    await tmux.run("link-window", "-s", "main:0", "-t", "second:7")
    server = TmuxServer(tmux.target)
    snapshots = await TmuxPanes(server).look()
    places = [(each.info.session_name, each.info.window_index) for each in snapshots]
    assert places == [("main", 0), ("second", 0), ("second", 7)]
    assert snapshots[0].instance == snapshots[2].instance
    assert snapshots[0].capture is snapshots[2].capture
    await server.aclose()


@real
async def test_a_pane_whose_program_ended_is_listed_as_dead(tmux: PrivateTmux) -> None:
    await tmux.run("set-option", "-g", "remain-on-exit", "on")
    await tmux.new_pane("exit 3")
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)

    async def is_dead() -> bool:
        listed = (await panes.list_panes())[1]
        return listed.is_dead and listed.dead_status is not None  # which tmux learns a bit later

    before = (await panes.look())[1].instance
    await eventually(is_dead)
    after = (await panes.look())[1]
    assert (after.info.dead_status, after.instance) == (3, before)
    await server.aclose()


@real
@pytest.mark.requirement("TMX-8", "PL-3")
async def test_a_snapshot_has_all_that_one_look_tells(tmux: PrivateTmux) -> None:
    await tmux.show("%0", "on the screen")
    await tmux.wait_for("%0", "on the screen")
    server = TmuxServer(tmux.target)
    [snapshot] = await TmuxPanes(server).look(await ProcessReader().read())
    assert snapshot.info.pane_id == snapshot.instance.pane_id == "%0"
    assert snapshot.screen[0] == "on the screen"
    assert snapshot.processes is not None
    assert snapshot.processes[0].pid == snapshot.info.pane_pid
    assert snapshot.processes[0].argv == ("cat",)
    await server.aclose()


@pytest.mark.requirement("TMX-1", "TMX-8")
async def test_a_look_needs_no_tmux_but_a_runner() -> None:
    def answer(words: Any) -> bytes:
        if words[0] == "list-panes":
            mark = words[3][-18:]
            return printed(pane("%1", height=2), mark) + printed(pane("%2"), mark)
        if words[3] == "%2":
            raise TmuxNotFound("capture-pane", "can't find pane: %2")
        return b"history\n> ready\n\n"

    fake = FakeTmux(answer, time=3000)
    table = ProcessTable(
        [
            ProcessInfo(pid=300, parent_pid=1, group=300, argv=("sh",)),
            ProcessInfo(pid=301, parent_pid=300, group=301, argv=("claude",)),
        ]
    )
    panes = TmuxPanes(fake)
    [snapshot] = await panes.look(table)
    assert snapshot.screen == ("> ready", "")
    assert snapshot.processes is not None
    assert [each.argv for each in snapshot.processes] == [("sh",), ("claude",)]
    fake.commands.clear()
    await panes.look()
    assert [words[0] for words in fake.commands] == ["list-panes", "capture-pane"]  # only of %2


async def test_a_list_that_is_none_is_an_error_that_names_the_server() -> None:
    fake = FakeTmux(lambda words: b"lost server\n")
    with pytest.raises(TmuxProtocolError, match=r"/fake/tmux\.sock"):
        await TmuxPanes(fake).list_panes()
