"""The process table: who runs below a pane."""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from bullpen.terminal.tmux import (
    ProcessInfo,
    ProcessReader,
    ProcessTable,
    TmuxPanes,
    TmuxServer,
)
from bullpen.terminal.tmux import processes as module
from bullpen.terminal.tmux.processes import ProcessTableUnavailable, parse_ps, programs
from bullpen.testing.tmux import PrivateTmux, eventually


def process(pid: int, parent: int, *argv: str) -> ProcessInfo:
    return ProcessInfo(pid=pid, parent_pid=parent, group=pid, argv=argv)


def test_the_processes_below_one_come_parents_first_with_their_depth() -> None:
    table = ProcessTable(
        [process(4, 3), process(1, 0), process(3, 2), process(2, 1), process(5, 3)]
    )
    assert [(each.pid, each.depth) for each in table.below(2)] == [(2, 0), (3, 1), (4, 2), (5, 2)]
    assert table.below(99) == ()
    assert len(table) == 5


def test_a_circle_of_parents_is_walked_once() -> None:
    table = ProcessTable([process(1, 2), process(2, 1), process(0, 0)])
    assert [each.pid for each in table.below(1)] == [1, 2]
    assert table.below(0) == ()


@pytest.mark.requirement("TR-09")
@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (("claude",), ("claude",)),
        (("/usr/local/bin/codex", "--model", "x"), ("codex",)),
        (("-zsh",), ("zsh",)),
        (("node", "--no-warnings", "/opt/bin/gemini", "-p"), ("node", "gemini")),
        (("python3.11", "/x/agent.py"), ("python3.11", "agent.py")),
        (("vim", "claude.md"), ("vim",)),
        ((), ()),
    ],
)
def test_a_process_is_called_by_its_program_and_by_the_script_that_runs_in_it(
    argv: tuple[str, ...], names: tuple[str, ...]
) -> None:
    assert process(1, 0, *argv).names == names


def test_programs_are_found_by_name() -> None:
    table = [
        process(1, 0, "sh"),
        process(2, 1, "node", "/bin/codex"),
        process(3, 1, "grep", "codex"),
    ]
    assert [each.pid for each in programs(table, ["codex", "claude"])] == [2]


@pytest.mark.tmux
@pytest.mark.requirement("TMX-6", "PL-3", "TR-09")
async def test_an_agent_is_found_below_its_pane_and_in_no_other(tmux: PrivateTmux) -> None:
    by_name = await tmux.new_pane("exec bash -c 'exec -a claude sleep 1000'")
    by_child = await tmux.new_pane("bash -c 'exec -a codex sleep 1000'; true")
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)
    reader = ProcessReader()

    async def found() -> dict[str, list[str]]:
        snapshots = await panes.look(await reader.read())
        return {
            each.info.pane_id: [
                name
                for found in programs(each.processes or (), {"claude", "codex"})
                for name in found.names
            ]
            for each in snapshots
        }

    async def all_run() -> bool:
        return await found() == {"%0": [], by_name: ["claude"], by_child: ["codex"]}

    await eventually(all_run)
    await server.aclose()


@pytest.mark.tmux
async def test_a_pane_s_program_has_its_terminal_and_is_in_front(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target)
    [info] = await TmuxPanes(server).list_panes()
    table = await ProcessReader().read()
    found = table.get(info.pane_pid)
    assert found is not None
    assert (found.tty, found.is_foreground) == (info.tty, True)
    assert abs(found.start_time - info.session_created) < 5
    await server.aclose()


async def test_our_own_process_is_in_the_table_as_it_is() -> None:
    table = await ProcessReader().read()
    ours = table.get(os.getpid())
    assert ours is not None
    assert ours.parent_pid == os.getppid()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
async def test_a_process_that_becomes_another_program_is_read_again(tmp_path: Path) -> None:
    # One each: whoever opens a pipe that another writer is about to close reads its end at once.
    gates = [tmp_path / "first", tmp_path / "second"]
    for gate in gates:
        os.mkfifo(gate)
    second = f"read second < {gates[1]}"  # the same program once more: only its arguments tell
    child = await asyncio.create_subprocess_exec(
        "sh", "-c", f"read first < {gates[0]}; exec sh -c '{second}; exec sleep 1000'"
    )
    reader = ProcessReader()

    async def arguments() -> tuple[str, ...]:
        found = (await reader.read()).get(child.pid)
        return found.argv if found is not None else ()

    for is_expected in (
        lambda argv: "read first" in argv[-1],
        lambda argv: argv[-1].startswith(second),
        lambda argv: argv == ("sleep", "1000"),
    ):

        async def is_read(is_expected: Callable[[tuple[str, ...]], bool] = is_expected) -> bool:
            argv = await arguments()
            return bool(argv) and is_expected(argv)

        await eventually(is_read)
        if gates:
            await asyncio.to_thread(gates.pop(0).write_text, "go\n")
    child.kill()
    await child.wait()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares the two")
def test_ps_tells_the_same_as_proc() -> None:
    by_ps = ProcessTable(module._read_ps()).get(os.getpid())
    by_proc = ProcessTable(ProcessReader()._read_proc()).get(os.getpid())
    assert by_ps is not None
    assert by_proc is not None
    assert by_ps.argv == tuple(" ".join(by_proc.argv).split())
    assert (by_ps.parent_pid, by_ps.group, by_ps.tty) == (
        by_proc.parent_pid,
        by_proc.group,
        by_proc.tty,
    )
    assert abs(by_ps.start_time - by_proc.start_time) <= 2


def test_the_lines_of_ps_are_read_and_others_left_out() -> None:
    text = (
        "  501     1   501     0 ??       Mon Nov  2 10:15:30 2026     /sbin/launchd\n"
        "  777   501   777   777 ttys003  Sun Nov 15 09:00:00 2026     node /opt/bin/gemini -p\n"
        "  778   777   777   777 ttys003  Sun Nov 15 09:00:01 2026     \n"
        "garbage\n"
        "  x     y     z     w   ttys003  Sun Nov 15 09:00:01 2026     sh\n"
    )
    first, second, third = parse_ps(text)
    assert (first.tty, first.is_foreground, first.argv) == ("", False, ("/sbin/launchd",))
    assert (second.tty, second.is_foreground) == ("/dev/ttys003", True)
    assert second.names == ("node", "gemini")
    assert third.argv == ()


@pytest.mark.requirement("TR-11")
async def test_a_table_that_cannot_be_read_is_an_error_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = ProcessReader(proc=tmp_path / "nowhere")
    with pytest.raises(ProcessTableUnavailable):
        await asyncio.to_thread(reader._read_proc)
    monkeypatch.setattr(module, "PS_FIELDS", ("no such field",))
    with pytest.raises(ProcessTableUnavailable):
        await asyncio.to_thread(module._read_ps)


@pytest.mark.requirement("TR-11")
async def test_ps_is_found_without_a_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert await asyncio.to_thread(module._read_ps)


def test_where_there_is_no_proc_the_table_is_that_of_ps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    ours = ProcessTable(ProcessReader(proc=Path("/nowhere"))._read()).get(os.getpid())
    assert ours is not None
    assert ours.parent_pid == os.getppid()


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/New_York"])
def test_the_dates_of_ps_are_the_same_wherever_one_is(
    zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", zone)
        time.tzset()
        ours = ProcessTable(module._read_ps()).get(os.getpid())
    time.tzset()
    assert ours is not None
    assert abs(ours.start_time - psutil.Process().create_time()) <= 2
    [process] = parse_ps(" 7 1 7 7 ttys001 Sun Nov 15 14:00:37 2026 claude\n")
    assert process.start_time == datetime(2026, 11, 15, 14, 0, 37, tzinfo=UTC).timestamp()
