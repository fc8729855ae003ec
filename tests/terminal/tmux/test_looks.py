"""One look after another: what is the same stays the same, and costs next to nothing."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from bullpen.terminal.tmux import ProcessInfo, ProcessReader, ProcessTable, TmuxPanes, TmuxServer
from bullpen.terminal.tmux.generations import PaneGenerations
from bullpen.terminal.tmux.listing import PaneLists
from bullpen.terminal.tmux.processes import CALM_LAZY_READS, CALM_READS, LAZY_READS, parse_ps
from bullpen.terminal.tmux.target import ServerIdentity
from bullpen.testing.tmux import FakeTmux, PrivateTmux
from tests.terminal.tmux.listed import pane, printed

MARK = "|mark|"


def test_a_pane_that_is_listed_as_before_is_the_same_object() -> None:
    lists = PaneLists()
    [before, _] = lists.read(printed(pane("%1"), MARK) + printed(pane("%2"), MARK), MARK)
    [after, other] = lists.read(
        printed(pane("%1"), MARK) + printed(pane("%2", title="new"), MARK), MARK
    )
    assert after is before
    assert other == pane("%2", title="new")


def test_what_is_listed_no_more_is_not_remembered() -> None:
    lists = PaneLists()
    lists.read(printed(pane("%1"), MARK), MARK)
    lists.read(printed(pane("%2"), MARK), MARK)
    assert len(lists._known) == 1


def test_a_server_s_identity_is_one_word() -> None:
    assert str(ServerIdentity(10, 1000)) == "10.1000"


@pytest.mark.requirement("BND-8", "TR-12")
def test_a_pane_is_born_when_its_process_started_whoever_looks_and_whenever() -> None:
    table = ProcessTable([ProcessInfo(pid=300, parent_pid=1, group=300, argv=(), start_time=77.5)])
    first = PaneGenerations().update([pane(pane_pid=300)], 1000.0, table.born)
    second = PaneGenerations().update([pane(pane_pid=300)], 2000.0, table.born)
    assert first["%3"].birth == second["%3"].birth == 77.5
    unknown = PaneGenerations().update([pane(pane_pid=301)], 1000.0, table.born)
    assert unknown["%3"].birth == 1000.0


def test_the_panes_of_the_last_listing_are_known_each_once() -> None:
    generations = PaneGenerations()
    generations.update([pane("%1"), pane("%1", session_id="$2"), pane("%2")], 1.0)
    assert [each.pane_id for each in generations.instances] == ["%1", "%2"]
    generations.update([pane("%2")], 2.0)
    assert [each.pane_id for each in generations.instances] == ["%2"]


@pytest.mark.tmux
@pytest.mark.requirement("TMX-5")
async def test_a_screen_is_painted_when_somebody_asks_for_it(tmux: PrivateTmux) -> None:
    await tmux.show("%0", "plain \033[31mred\033[0m\r\n")
    await tmux.wait_for("%0", "red")
    server = TmuxServer(tmux.target)
    panes = TmuxPanes(server)
    snapshots = await panes.look()
    assert snapshots[0].painted == ()
    [painted] = await panes.paint(snapshots)
    assert painted.painted[0].startswith("plain \033[31mred")
    assert len(painted.painted) == painted.info.height
    assert painted.capture is snapshots[0].capture
    await tmux.new_pane()
    await tmux.run("kill-pane", "-t", "%0")
    assert await panes.paint(snapshots) == snapshots  # it is gone: there is nothing to add
    await server.aclose()


@pytest.mark.tmux
async def test_a_server_tells_its_version_while_it_is_connected(tmux: PrivateTmux) -> None:
    server = TmuxServer(tmux.target)
    assert server.version == ""
    await server.run("list-sessions")
    assert server.version[0].isdigit()
    await server.aclose()


async def test_nothing_is_asked_for_the_paint_of_no_pane() -> None:
    tmux = FakeTmux(lambda words: b"")
    assert await TmuxPanes(tmux).paint([]) == []
    assert tmux.commands == []


def test_when_a_process_started_is_told_as_the_system_counts_it() -> None:
    [process] = parse_ps(" 7 1 7 7 ttys001 Sun Nov 15 14:00:37 2026 claude\n")
    assert process.start == "Sun Nov 15 14:00:37 2026"


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@linux
async def test_the_start_of_a_process_is_the_number_the_kernel_has_for_it() -> None:
    table = await ProcessReader().read()
    stat = await asyncio.to_thread(Path(f"/proc/{os.getpid()}/stat").read_text)
    ours = table.get(os.getpid())
    assert ours is not None
    assert ours.start == stat.rpartition(")")[2].split()[19]


class FakeProc:
    """A /proc with a few processes, which counts how often each is read."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "stat").write_text("cpu 1\nbtime 1000\n")

    def put(self, pid: int, *, tty: int, parent: int = 1, start: int = 5) -> None:
        directory = self.root / str(pid)
        directory.mkdir(exist_ok=True)
        fields = ["S", parent, pid, pid, tty, pid, *[0] * 13, start, *[0] * 30]
        (directory / "stat").write_text(f"{pid} (x) {' '.join(map(str, fields))}\n")
        (directory / "cmdline").write_bytes(b"x\0")

    def end(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")


@linux
async def test_what_becomes_of_a_process_without_a_terminal_is_read_now_and_then(
    proc: FakeProc,
) -> None:
    proc.put(10, tty=0)
    proc.put(11, tty=34816)
    reader = ProcessReader(proc=proc.root)
    await reader.read()
    proc.put(10, tty=0, parent=2)
    proc.put(11, tty=34816, parent=2)
    looks = [await reader.read() for _ in range(LAZY_READS)]
    parents = [
        [each.parent_pid for each in (table.get(10), table.get(11)) if each] for table in looks
    ]
    assert [terminal for _, terminal in parents] == [2] * LAZY_READS
    lazy = [parent for parent, _ in parents]
    assert lazy[0] == 1 or lazy[1] == 1
    assert lazy[-1] == 2


@linux
async def test_a_calm_terminal_is_read_less_often_until_somebody_comes_or_goes(
    proc: FakeProc,
) -> None:
    async def parent() -> int:
        found = (await reader.read()).get(11)
        assert found is not None
        return found.parent_pid

    async def let_calm_down() -> None:
        for _ in range(CALM_READS + CALM_LAZY_READS + 1):  # and its turn was just now
            await parent()

    proc.put(11, tty=34816)
    reader = ProcessReader(proc=proc.root)
    for _ in range(CALM_READS + 1):
        await parent()
    proc.put(11, tty=34816, parent=2)
    looks = [await parent() for _ in range(CALM_LAZY_READS)]
    assert looks[0] == 1 or looks[1] == 1
    assert looks[-1] == 2
    await let_calm_down()
    proc.put(11, tty=34816, parent=3)
    proc.put(12, tty=34816)
    assert await parent() == 3
    await let_calm_down()
    proc.put(11, tty=34816, parent=4)
    proc.end(12)
    assert await parent() == 4


@linux
async def test_a_process_that_is_gone_or_has_another_s_id_is_noticed_at_once(
    proc: FakeProc, tmp_path: Path
) -> None:
    proc.put(10, tty=0)
    reader = ProcessReader(proc=proc.root)
    for number in range(2 * LAZY_READS):
        keep = tmp_path / f"kept{number}"  # so that the inode is not used again, as in /proc
        (proc.root / "10").rename(keep)
        assert (await reader.read()).get(10) is None
        proc.put(10, tty=0, start=100 + number)
        found = (await reader.read()).get(10)
        assert found is not None
        assert found.start == str(100 + number)
