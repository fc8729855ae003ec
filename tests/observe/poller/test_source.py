"""The poller over a tmux made of values: what it says of which look."""

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.states import EvidenceTier, HealthStatus, Provider, SourceKind
from bullpen.model.views import PaneState
from bullpen.observe.evaluate import Label
from bullpen.observe.reports import ServerReport
from bullpen.observe.sources.poller import MOST_FORMER, PollerSource
from bullpen.observe.sources.screens import PaneScreen
from bullpen.observe.sources.serve import SourceServer
from bullpen.terminal.tmux import (
    ProcessInfo,
    TmuxNoServer,
    TmuxProtocolError,
    TmuxServerGone,
    TmuxTimeout,
)
from bullpen.testing.tmux import eventually
from tests.observe.poller.looking import (
    RULES,
    Ear,
    FakeFinder,
    FakeProcesses,
    FakeServer,
    Time,
    listen,
    process,
    report,
)
from tests.terminal.recorded import SCREENS, agents, label_of, labels

IDLE = (SCREENS / "claude/claude_idle_fresh_120x40_1.txt").read_text()
APPROVAL = (SCREENS / "claude/claude_approval_bash_120x40_1.txt").read_text()


class World:
    """One server, a process table, and the poller that looks at them."""

    def __init__(self) -> None:
        self.time = Time()
        self.server = FakeServer()
        self.processes = FakeProcesses()
        self.finder = FakeFinder(self.server)

    def source(self, **options: Any) -> PollerSource:
        return PollerSource(
            self.time,
            RULES,
            finder=self.finder,
            processes=self.processes,
            make_runner=self.finder.runner,
            **{"refresh_seconds": 10.0, **options},
        )

    def put_agent(
        self, pane_id: str, screen: str = IDLE, *, name: str = "claude", **changes: Any
    ) -> None:
        """Put a pane there with an agent in it."""
        pid, tty = int(pane_id[1:]) + 100, f"/dev/none/{pane_id[1:]}"
        self.server.put(
            pane_id, screen, current_command=name, tty=tty, width=120, height=40, **changes
        )
        self.processes.processes = [
            each for each in self.processes.processes if each.pid != pid
        ] + [process(pid, name, tty=tty)]

    def put_shell(self, pane_id: str, screen: str = "$ ", **changes: Any) -> None:
        self.put_agent(pane_id, screen, name="bash", **changes)


@pytest.fixture
def world() -> World:
    return World()


async def looks(ear: Ear, world: World, count: int, *, seconds: float = 1.0) -> list[Observation]:
    """Look several times, a second apart; return all that was said."""
    said = []
    for _ in range(count):
        world.time.pass_by(seconds)
        said += await ear.look()
    return said


async def test_as_many_lines_above_a_screen_are_captured_as_is_set(world: World) -> None:
    world.put_agent("%7")
    ear = await listen(world.source(history_lines=7))
    await ear.look()
    assert ("capture-pane", "-p", "-t", "%7", "-S", "-7") in world.server.commands
    await ear.source.aclose()


@pytest.mark.requirement("PL-4", "PL-5", "TMX-8", "SIG-3", "DET-8")
async def test_an_agent_is_told_with_all_that_is_known_of_it(world: World) -> None:
    world.put_agent("%7", APPROVAL, title="✳ Fix it", current_path="/work", window_activity=1000)
    ear = await listen(world.source())
    [said, listed] = await ear.look()
    assert (said.event_type, said.provider) == ("activity.waiting_approval", Provider.CLAUDE)
    assert (said.source_kind, said.tier) == (SourceKind.POLLER, EvidenceTier.HEURISTIC)
    assert (said.pane_id, said.pane_generation, said.tmux_server) == ("%7", 1, "10.1000")
    assert said.pane_birth_ts == datetime.fromtimestamp(1_700_000_107, UTC)
    assert said.session_key == "pane:10.1000:%7:1"
    assert said.event_id.startswith("%7.1@10.1000:")
    assert (said.observed_at, said.confidence) == (world.time(), 1.0)
    told = report(said)
    assert told.provider is Provider.CLAUDE
    assert told.signature.inputs.provider_hint
    assert told.screen is not None
    assert told.screen.rule == "approval"
    assert told.screen.evidence
    assert (told.place.title, told.place.current_path) == ("✳ Fix it", "/work")
    assert told.place.tmux_socket == "/fake/tmux.sock"
    assert told.pids == (107,)
    assert told.agent is not None
    assert (told.agent.pid, told.agent.start) == (107, "s107")
    assert told.last_output_at == datetime.fromtimestamp(1000, UTC)
    assert (told.streak, told.no_agent_streak, told.is_front_shell) == (1, 0, False)
    assert listed.event_type == "pane.listed"
    await ear.source.aclose()


@pytest.mark.requirement("PL-6", "TR-01")
async def test_every_pane_without_an_agent_is_told_of_too(world: World) -> None:
    world.put_agent("%1")
    for pane_id in ("%2", "%3", "%4"):
        world.put_shell(pane_id)
    ear = await listen(world.source())
    await ear.look()
    assert ear.state() == {"%1": "activity.idle"} | dict.fromkeys(
        ("%2", "%3", "%4"), "pane.unmanaged"
    )
    [said] = ear.of("%2")
    told = report(said)
    assert (said.provider, said.confidence) == (Provider.OTHER, 0.0)
    assert (told.provider, told.screen) == (None, None)
    assert (told.signature.signature_class, told.no_agent_streak) == ("none", 1)
    assert told.is_front_shell
    assert told.is_agent_gone


@pytest.mark.requirement("SIG-8", "SIG-9", "DET-5", "TR-17")
@pytest.mark.parametrize(
    ("command", "argv", "refusal"),
    [
        ("vim", ("vim", "x"), "signature_inconclusive"),
        ("node", ("node", "server.js"), "signature_guard_rejected"),
        ("bash", ("-bash",), "signature_inconclusive"),
    ],
)
async def test_a_title_makes_no_agent_and_why_is_told(
    world: World, command: str, argv: tuple[str, ...], refusal: str
) -> None:
    world.server.put("%1", current_command=command, title="Claude Code", tty="/dev/none/1")
    world.processes.processes = [process(101, *argv, tty="/dev/none/1")]
    ear = await listen(world.source())
    [said, _] = await ear.look()
    assert said.event_type == "pane.unmanaged"
    assert report(said).signature.refusal == refusal
    assert report(said).signature.inputs.title_match


@pytest.mark.requirement("SIG-4", "SIG-5", "DET-1", "DET-4")
@pytest.mark.parametrize(
    ("command", "screen", "confidence"),
    [("claude", "", 0.86), ("node", "Welcome to Claude Code v2", 0.78)],
)
async def test_the_weight_of_the_evidence_is_the_confidence(
    world: World, command: str, screen: str, confidence: float
) -> None:
    world.server.put("%1", screen, current_command=command)
    world.processes.is_broken = True
    ear = await listen(world.source())
    [said, _] = await ear.look()
    assert (said.provider, said.confidence) == (Provider.CLAUDE, confidence)
    assert report(said).signature.inputs.poller_match is (confidence == 0.78)
    assert report(said).pids is None


@pytest.mark.requirement("HYS-4", "TR-01")
async def test_an_agent_that_ended_is_told_twice_to_be_gone(world: World) -> None:
    world.put_agent("%1")
    ear = await listen(world.source())
    await ear.look()
    world.put_shell("%1")
    said = await looks(ear, world, 2)
    assert [each.event_type for each in said] == ["pane.unmanaged"] * 2
    assert [report(each).no_agent_streak for each in said] == [1, 2]
    assert {each.provider for each in said} == {Provider.CLAUDE}
    assert await looks(ear, world, 1) == []


async def test_a_stopped_agent_behind_its_shell_is_no_agent_and_not_gone(world: World) -> None:
    world.put_shell("%1")
    stopped = process(200, "claude", parent=101, tty="/dev/none/1")
    world.processes.processes.append(msgspec.structs.replace(stopped, is_foreground=False))
    ear = await listen(world.source())
    [said, _] = await ear.look()
    assert said.event_type == "pane.unmanaged"
    assert not report(said).is_agent_gone


@pytest.mark.requirement("MEM-4")
async def test_a_pane_that_stays_as_it_is_costs_a_listing_and_now_and_then_a_word(
    world: World,
) -> None:
    world.server.time = 3000  # long after the last output: one capture stands
    world.put_agent("%1")
    world.put_shell("%2")
    ear = await listen(world.source())
    await looks(ear, world, 5)
    world.server.commands.clear()
    said = await looks(ear, world, 20)
    assert len(said) == 4
    assert {words[0] for words in world.server.commands} == {"list-panes"}


async def test_every_word_has_a_number_of_its_own_also_after_a_restart(world: World) -> None:
    world.put_agent("%1")
    first = await listen(world.source())
    await looks(first, world, 30)
    second = await listen(world.source())
    await looks(second, world, 30)
    ids = [each.event_id for each in (*first.said, *second.said)]
    assert len(ids) == len(set(ids))
    numbers = [int(each.rpartition(":")[2]) for each in ids]
    assert numbers == sorted(numbers)


async def test_output_is_when_the_screen_was_last_seen_to_change(world: World) -> None:
    world.put_agent("%1", "one", window_activity=1000)
    ear = await listen(world.source())
    await looks(ear, world, 1)
    world.put_agent("%1", "two", window_activity=1001)
    [said] = await looks(ear, world, 1)
    changed_at = world.time()
    assert report(said).last_output_at == changed_at
    world.put_agent("%1", "two", window_activity=1002)  # a cursor blinked, or the pane beside it
    said = (await looks(ear, world, 12))[-1]
    assert report(said).last_output_at == changed_at


# --------------------------------------------------------------------------- panes come and go


async def test_all_panes_are_listed_at_first_and_every_minute(world: World) -> None:
    world.put_agent("%1")
    world.put_shell("%2")
    ear = await listen(world.source())
    await looks(ear, world, 1)
    world.server.take("%2")
    await looks(ear, world, 90)
    listings = [each for each in ear.said if each.event_type == "pane.listed"]
    listed = [msgspec.convert(each.payload, ServerReport) for each in listings]
    assert [[pane.pane_id for pane in each.panes] for each in listed] == [["%1", "%2"], ["%1"]]
    assert {each.server for each in listed} == {"10.1000"}
    assert {each.session_key for each in listings} == {"server:10.1000"}
    assert listed[0].panes[0] == ear.of("%1")[0].pane_instance_id


async def test_a_pane_that_is_gone_is_told_once(world: World) -> None:
    world.put_agent("%1")
    world.put_shell("%2")
    ear = await listen(world.source())
    await ear.look()
    world.server.take("%1")
    await looks(ear, world, 30)
    assert ear.types("%1") == ["activity.idle", "pane.closed"]
    [_, closed] = ear.of("%1")
    assert closed.pane_instance_id == ear.of("%1")[0].pane_instance_id
    assert closed.provider is Provider.CLAUDE
    assert closed.payload == {"reason": "it was closed"}
    assert len(ear.source) == 1


@pytest.mark.requirement("BND-8", "TMX-7")
async def test_a_respawned_pane_is_closed_and_another_one(world: World) -> None:
    world.put_agent("%1")
    ear = await listen(world.source())
    await ear.look()
    world.server.put("%1", "", pane_pid=999, current_command="zsh")
    world.processes.processes.append(process(999, "-zsh", tty="/dev/none/1"))
    await looks(ear, world, 1)
    assert ear.types("%1") == ["activity.idle", "pane.closed", "pane.unmanaged"]
    assert [each.pane_generation for each in ear.of("%1")] == [1, 1, 2]
    assert ear.of("%1")[1].payload == {"reason": "another program has its id"}
    assert report(ear.of("%1")[-1]).no_agent_streak == 1


@pytest.mark.requirement("BND-8", "TR-12")
async def test_a_pane_known_from_before_a_restart_is_recognised(world: World) -> None:
    world.put_agent("%1")
    first = await listen(world.source())
    await first.look()
    [before] = first.of("%1")
    pane_id = before.pane_instance_id
    assert pane_id is not None
    earlier = msgspec.structs.replace(
        pane_id, generation=3, birth_ts=pane_id.birth_ts - timedelta(seconds=1.5)
    )
    place = report(before).place
    known = PaneState(pane_instance_id=earlier, place=place, updated_at=world.time())
    elsewhere = msgspec.structs.replace(
        known,
        pane_instance_id=msgspec.structs.replace(earlier, generation=9),
        place=msgspec.structs.replace(place, tmux_socket="/other"),
    )
    strange = msgspec.structs.replace(
        known, pane_instance_id=msgspec.structs.replace(earlier, generation=8, server="10.x")
    )
    second = await listen(world.source(known=[known, elsewhere, strange]))
    await second.look()
    assert second.of("%1")[0].pane_instance_id == earlier
    world.server.put("%1", "", pane_pid=999)
    await looks(second, world, 1)
    assert second.of("%1")[-1].pane_generation == 4


async def test_whoever_begins_to_look_later_finds_the_same_instances(world: World) -> None:
    world.put_agent("%1")
    instances = []
    for _ in range(2):
        ear = await listen(world.source())
        await looks(ear, world, 1, seconds=100)
        instances.append(ear.of("%1")[0].pane_instance_id)
    assert instances[0] == instances[1]


@pytest.mark.requirement("TR-13")
async def test_a_pane_of_a_linked_window_is_told_once_with_all_its_places(world: World) -> None:
    world.put_agent("%1", session_attached=0)
    world.server.links = [
        msgspec.structs.replace(world.server.panes["%1"], session_id="$2", session_name="other")
    ]
    ear = await listen(world.source())
    [said, _] = await ear.look()
    assert report(said).place.also_in == ("other",)
    world.server.links = []
    [said] = await looks(ear, world, 1)
    assert report(said).place.also_in == ()


class Listener:
    """Remembers what it was shown."""

    def __init__(self) -> None:
        self.screens: list[PaneScreen] = []
        self.forgotten: list[PaneInstanceId] = []

    def see(self, screen: PaneScreen) -> None:
        self.screens.append(screen)

    def forget(self, pane: PaneInstanceId) -> None:
        self.forgotten.append(pane)


async def test_whoever_listens_is_shown_every_screen_that_changed(world: World) -> None:
    listener = Listener()
    world.processes.is_broken = True
    world.put_agent("%1", "one", name="codex")
    world.server.put("%2", "Claude Code", current_command="node")
    world.server.put("%3", current_command="vim")
    ear = await listen(world.source(listeners=[listener]))
    await looks(ear, world, 3)
    shown = {each.pane.pane_id: (each.provider, each.has_process) for each in listener.screens}
    assert len(listener.screens) == 3
    assert shown == {
        "%1": (Provider.CODEX, True),
        "%2": (Provider.CLAUDE, False),
        "%3": (None, False),
    }
    world.put_agent("%1", "two", name="codex")
    await looks(ear, world, 1)
    assert len(listener.screens) == 4
    assert (listener.screens[-1].lines[0], listener.screens[-1].width) == ("two", 120)
    world.server.take("%1")
    await looks(ear, world, 1)
    assert [each.pane_id for each in listener.forgotten] == ["%1"]


async def test_nothing_is_remembered_of_panes_that_are_gone(world: World) -> None:
    ear = await listen(world.source())
    for number in range(200):
        world.put_agent(f"%{number}")
        await looks(ear, world, 1)
        world.server.take(f"%{number}")
        world.processes.processes.clear()
    await looks(ear, world, 1)
    assert len(ear.source) == 0
    [server] = ear.source._servers.values()
    assert not server._panes
    assert not server._skipped


# -------------------------------------------------------------------------------- what goes wrong


@pytest.mark.requirement("TR-11", "TR-63")
async def test_no_agent_is_lost_when_the_process_table_cannot_be_read(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put_agent("%1", name="node")
    world.processes.processes = [process(101, "node", "/bin/gemini", tty="/dev/none/1")]
    ear = await listen(world.source())
    await looks(ear, world, 1)
    world.processes.is_broken = True
    with caplog.at_level(logging.WARNING, logger="bullpen.observe"):
        await looks(ear, world, 15)
    assert set(ear.types("%1")) == {"activity.unknown"}
    assert {each.provider for each in ear.of("%1")} == {Provider.GEMINI}
    assert "cannot read /proc" in ear.trouble
    assert not ear.is_down
    assert len(caplog.records) == 1  # and not with every look
    world.put_shell("%1")  # tmux itself tells that another program is in front
    await looks(ear, world, 2)
    assert ear.types("%1")[-2:] == ["pane.unmanaged"] * 2
    assert not report(ear.of("%1")[-1]).is_agent_gone  # nobody could look
    world.processes.is_broken = False
    await looks(ear, world, 1)
    assert ear.trouble == ""


@pytest.mark.requirement("PL-2", "TMX-10", "Q11")
async def test_a_pane_that_cannot_be_captured_is_left_out_and_not_gone(world: World) -> None:
    world.put_agent("%1")
    world.put_agent("%2")
    ear = await listen(world.source())
    await ear.look()
    del world.server.screens["%1"]
    world.server.panes["%1"] = msgspec.structs.replace(
        world.server.panes["%1"], window_activity=3000
    )
    await looks(ear, world, 2)
    assert ear.trouble == ""
    await looks(ear, world, 1)
    assert "cannot capture %1" in ear.trouble
    await looks(ear, world, 10)
    assert len(ear.types("%2")) > len(ear.types("%1"))
    assert "pane.closed" not in ear.types("%1")
    world.server.screens["%1"] = APPROVAL
    await looks(ear, world, 1)
    assert ear.types("%1")[-1] == "activity.waiting_approval"
    assert ear.trouble == ""


@pytest.mark.requirement("PL-1", "TR-50")
@pytest.mark.parametrize(
    "error",
    [TmuxTimeout("list-panes", 5.0), TmuxProtocolError("not a pane"), RuntimeError("a bug")],
    ids=["hangs", "garbage", "bug"],
)
async def test_a_server_that_fails_is_skipped_and_what_was_said_stands(
    world: World, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    other = FakeServer("/fake/other.sock")
    other.put("%9", current_command="vim")
    world.finder.servers.append(other)
    world.put_agent("%1")
    ear = await listen(world.source())
    await ear.look()
    world.server.error = error
    await looks(ear, world, 15)
    assert ear.types("%1") == ["activity.idle"]
    assert len(ear.types("%9")) > 2
    assert "a bug" in ear.trouble or "/fake/tmux.sock" in ear.trouble or str(error) in ear.trouble
    assert not ear.is_down
    assert any(each.levelno >= logging.WARNING for each in caplog.records)
    world.server.error = None
    world.put_agent("%1", APPROVAL)
    await looks(ear, world, 1)
    assert ear.types("%1")[-1] == "activity.waiting_approval"
    assert ear.trouble == ""


async def test_when_nothing_at_all_can_be_seen_the_source_is_down(world: World) -> None:
    world.put_agent("%1")
    world.server.error = TmuxProtocolError("not a pane")
    world.processes.is_broken = True
    ear = await listen(world.source())
    await ear.look()
    assert ear.is_down


async def test_that_no_server_runs_is_no_trouble(world: World) -> None:
    world.finder.servers.clear()
    ear = await listen(world.source())
    assert await ear.look() == []
    assert ear.trouble == ""


@pytest.mark.parametrize(
    "error", [TmuxNoServer(), TmuxServerGone("it ended")], ids=["none", "gone"]
)
async def test_when_a_server_ends_all_its_panes_are_closed_and_then_it_is_quiet(
    world: World, error: Exception
) -> None:
    world.put_agent("%1")
    world.put_shell("%2")
    ear = await listen(world.source())
    await ear.look()
    world.server.error = error  # and nobody listens on its socket, which does not exist
    said = await looks(ear, world, 1)
    assert {each.pane_id: each.event_type for each in said} == {
        "%1": "pane.closed",
        "%2": "pane.closed",
    }
    assert ear.trouble == ""
    assert ear.source.sockets == ()
    assert await looks(ear, world, 30) == []


@pytest.mark.requirement("PL-1")
async def test_that_a_server_has_ended_is_in_the_log_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put_agent("%1")
    ear = await listen(world.source())
    await ear.look()
    world.finder.servers.clear()
    world.server.error = TmuxNoServer()
    with caplog.at_level(logging.WARNING, logger="bullpen.observe"):
        await looks(ear, world, 10)
    [said] = [each.getMessage() for each in caplog.records]
    assert said.startswith("no tmux runs at ")


async def test_a_server_that_hung_and_then_ended_leaves_no_pane(world: World) -> None:
    world.put_agent("%1")
    ear = await listen(world.source())
    await ear.look()
    world.server.error = TmuxTimeout("list-panes", 5.0)
    await looks(ear, world, 2)
    assert ear.types("%1") == ["activity.idle"]
    world.finder.servers.clear()
    await looks(ear, world, 2)
    assert ear.types("%1") == ["activity.idle", "pane.closed"]
    assert ear.trouble == ""


async def test_a_server_whose_socket_was_removed_is_looked_at_as_long_as_it_answers(
    world: World,
) -> None:
    world.put_agent("%1")
    ear = await listen(world.source())
    await ear.look()
    world.finder.servers.clear()
    await looks(ear, world, 30)
    assert "pane.closed" not in ear.types("%1")
    assert len(ear.types("%1")) > 3


async def test_servers_are_looked_for_at_every_other_look_and_at_each_while_there_is_none(
    world: World,
) -> None:
    world.put_agent("%1")
    ear = await listen(world.source())
    await looks(ear, world, 10)
    assert len(world.finder.asked) == 5
    assert world.finder.asked[-1] == {"/fake/tmux.sock"}
    world.server.error = TmuxNoServer()
    world.finder.servers.clear()
    world.finder.asked.clear()
    await looks(ear, world, 10)
    assert len(world.finder.asked) >= 9


async def test_not_all_servers_there_ever_were_are_remembered(world: World) -> None:
    ear = await listen(world.source())
    servers = [FakeServer(f"/fake/{number}.sock") for number in range(MOST_FORMER + 10)]
    for server in servers:
        world.finder.servers = [server]
        server.put("%1", current_command="vim")
        await looks(ear, world, 1, seconds=2)
        server.error = TmuxNoServer()
        await looks(ear, world, 1, seconds=2)
    assert len(ear.source) == 0
    assert len(ear.source._servers) <= MOST_FORMER + 1
    assert [each.is_closed for each in servers] == [True] * 9 + [False] * (MOST_FORMER + 1)
    await ear.source.aclose()
    assert all(each.is_closed for each in servers)


class HangingServer(FakeServer):
    """A server that does not answer until it is let go."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.go_on = asyncio.Event()
        self.waiting = 0

    async def run_many(self, *arguments: Any, **options: Any) -> Any:
        self.waiting += 1
        await self.go_on.wait()
        return await super().run_many(*arguments, **options)


@pytest.mark.requirement("TMX-9")
async def test_a_server_that_hangs_keeps_nobody_waiting(world: World) -> None:
    hanging = HangingServer("/fake/hangs.sock")
    hanging.put("%5", current_command="vim")
    world.finder.servers.append(hanging)
    world.put_agent("%1")
    ear = await listen(world.source(interval_seconds=0.05))
    await ear.look()
    assert ear.types("%1") == ["activity.idle"]
    assert "/fake/hangs.sock: tmux has not answered in time" in ear.trouble
    async with asyncio.timeout(5):
        await looks(ear, world, 15)
    assert len(ear.types("%1")) > 2
    assert hanging.waiting == 1
    hanging.go_on.set()
    async with asyncio.timeout(5):
        while "%5" not in ear.state() or ear.trouble:
            await looks(ear, world, 1)
            await asyncio.sleep(0)
    await ear.source.aclose()


async def test_closing_ends_a_look_that_hangs(world: World) -> None:
    hanging = HangingServer("/fake/hangs.sock")
    world.finder.servers = [hanging]
    ear = await listen(world.source(interval_seconds=0.05))
    await ear.look()
    async with asyncio.timeout(5):
        await ear.source.aclose()
        await ear.source.aclose()
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.requirement("MEM-1", "PL-0")
async def test_it_is_served_like_any_source(world: World) -> None:
    world.put_agent("%1")
    source = world.source(interval_seconds=0.01)
    async with SourceServer(source, world.time) as server, asyncio.timeout(5):
        await eventually(
            lambda: server.buffered > 1 and server.health().status is HealthStatus.HEALTHY
        )
    assert source.interval_seconds == 0.01


# ------------------------------------------------------------------------------ what is on screen


async def test_a_screen_is_painted_only_where_that_decides(world: World) -> None:
    failed = label_of("opencode/014_error-http-400_120x40")
    world.put_agent(
        "%1",
        (SCREENS / failed.file).read_text(),
        painted=(SCREENS / failed.ansi_file).read_text(),
        name="opencode",
        cursor_x=(failed.cursor or (0, 0))[0],
        cursor_y=(failed.cursor or (0, 0))[1],
    )
    world.put_agent("%2", APPROVAL)
    ear = await listen(world.source())
    await ear.look()
    assert ear.state() == {"%1": "activity.error", "%2": "activity.waiting_approval"}
    painted = [words[-1] for words in world.server.commands if "-e" in words]
    assert painted == ["%1"]


async def test_every_recorded_pane_is_told_for_what_it_is(world: World) -> None:
    numbered = {f"%{number}": label for number, label in enumerate(labels(), start=1)}
    for pane_id, label in numbered.items():
        put_recorded(world, pane_id, label)
    ear = await listen(world.source(interval_seconds=30))
    await ear.look()
    state = ear.state()
    wrong = {
        label.file: (label.activity, state[pane_id])
        for pane_id, label in numbered.items()
        if label in agents() and state[pane_id] != f"activity.{label.activity}"
    }
    assert not wrong
    false = [
        label.file
        for pane_id, label in numbered.items()
        if label.activity == "none" and state[pane_id] != "pane.unmanaged"
    ]
    assert not false


def put_recorded(world: World, pane_id: str, label: Label) -> None:
    """Put a recorded pane there, with the processes that were below it."""
    tty, pid = f"/dev/none/{pane_id[1:]}", 10_000 * int(pane_id[1:])
    x, y = label.cursor or (label.cursor_x or 0, label.cursor_y or 0)
    content = (SCREENS / label.file).read_text(encoding="utf-8", errors="replace")
    world.server.put(
        pane_id,
        content,
        painted=(SCREENS / label.ansi_file).read_text(encoding="utf-8", errors="replace"),
        current_command=label.current_cmd or "",
        title=label.pane_title or "",
        tty=tty,
        pane_pid=pid,
        width=label.width,
        height=max(label.height, content.count("\n") + 1),
        cursor_x=x,
        cursor_y=y,
        is_cursor_visible=label.cursor_visible,
    )
    rows = [(each.argv or (), each.depth) for each in label.procs or ()]
    if not rows and label.argv and label.procs is None:
        rows = [(label.argv, 0)]
    if not any(depth for _, depth in rows):  # then they were recorded as a chain
        rows = [(argv, depth) for depth, (argv, _) in enumerate(rows)]
    above: dict[int, int] = {-1: 1}
    for number, (argv, depth) in enumerate(rows):
        above[depth] = pid + number
        world.processes.processes.append(
            ProcessInfo(
                pid=pid + number,
                parent_pid=above[depth - 1],
                group=pid,
                argv=argv,
                tty=tty,
                start_time=1.0,
                is_foreground=argv == label.argv or label.argv is None,
            )
        )
    if not rows:
        world.server.put(pane_id, content, is_dead=label.procs is not None and not label.argv)
