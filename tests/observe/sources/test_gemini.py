"""Gemini CLI is heard by its hooks; how a turn has ended is read in its record."""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.events import activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.sources.gemini import SESSIONS_REMEMBERED, GeminiHooks
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.gemini.recorded import CHAT, deliveries

AT = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)
ORIGIN = Origin(pid=12, tmux_pane="%1", tmux_socket="/tmp/tmux.sock")


class World:
    """A source, somebody who listens to it, and the record of a session `s`."""

    def __init__(self, directory: Path) -> None:
        self.now = AT
        self.spool = directory / "spool"
        self.record = directory / "chat.jsonl"
        self.source = GeminiHooks(lambda: self.now, self.spool)
        self.said: list[Observation] = []

    async def hear(
        self, event: str, seconds: float = 0.0, *, session: str = "s", **more: Any
    ) -> None:
        at = AT + timedelta(seconds=seconds)
        self.now = max(self.now, at)
        payload = {
            "hook_event_name": event,
            "session_id": session,
            "cwd": "/home/dev",
            "transcript_path": str(self.record),
            "timestamp": at.isoformat(),
            **more,
        }
        # The shim is a little later than what it tells of.
        await self.source.deliver(payload, at + timedelta(milliseconds=20), ORIGIN)

    async def ask(self, seconds: float) -> None:
        await self.hear("BeforeAgent", seconds)
        await self.hear("BeforeTool", seconds + 0.1, tool_name="run_shell_command")
        await self.hear(
            "Notification",
            seconds + 0.2,
            notification_type="ToolPermission",
            details={"type": "exec", "command": "touch x"},
        )

    def write(self, kind: str, content: str, seconds: float) -> None:
        at = AT + timedelta(seconds=seconds)
        line = {"id": f"{kind}{seconds}", "timestamp": at.isoformat(), "type": kind}
        with self.record.open("a") as file:
            file.write(json.dumps({**line, "content": content}) + "\n")

    @property
    def types(self) -> list[str]:
        return [each.event_type for each in self.said]

    @property
    def states(self) -> list[str]:
        """What the agent was doing, by what was said and is the latest of its session."""
        states: list[str] = []
        latest: dict[str, datetime] = {}
        for each in self.said:
            activity = activity_of(each.event_type)
            if activity is None or each.observed_at < latest.get(each.session_key, AT):
                continue
            latest[each.session_key] = each.observed_at
            if states[-1:] != [activity]:
                states.append(activity)
        return states


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.source.open(made.said.append)
    return made


async def test_a_hook_is_told_at_once_with_where_it_comes_from(world: World) -> None:
    await world.hear("BeforeTool", tool_name="read_file", tool_input={"file_path": "a.py"})
    [said] = world.said
    assert said == Observation(
        event_id=said.event_id,
        provider=Provider.GEMINI,
        source_kind=SourceKind.GEMINI,
        tier=EvidenceTier.DETERMINISTIC,
        observed_at=AT,
        session_key="gemini:s",
        event_type="tool.started",
        source_event_id=f"BeforeTool:{AT.isoformat()}",
        payload={"hook": "BeforeTool", "tool": "read_file", "what": "a.py"},
        origin=Origin(pid=12, tmux_pane="%1", tmux_socket="/tmp/tmux.sock", cwd="/home/dev"),
    )


async def test_a_recorded_session_is_told_from_its_beginning_to_its_end(world: World) -> None:
    """The record grows between the hooks, as it did."""
    lines = CHAT.read_bytes().splitlines(keepends=True)
    written = 0
    for each in deliveries():
        at = datetime.fromtimestamp(each["at"], UTC)
        while written < len(lines) and _time_of(lines[written]) <= at:
            with world.record.open("ab") as file:
                file.write(lines[written])
            written += 1
        world.now = at
        if "mark" in each:
            await world.source.look()
            continue
        payload = each["payload"] | {"transcript_path": str(world.record)}
        await world.source.deliver(payload, at, Origin(pid=each["pid"]))
    assert world.states == [
        *("idle", "running", "waiting_approval", "running", "idle"),
        *("running", "waiting_approval", "idle"),  # refused
        *("running", "idle"),  # interrupted
        *("running", "error"),
        *("running", "waiting_input", "running", "idle"),
        "exited",  # the one before /clear, the next one being idle already; then that one
    ]
    ended = [each for each in world.said if each.event_type == "session.ended"]
    assert [each.session_key[:15] for each in ended] == ["gemini:fbdf2f68", "gemini:7acc3b95"]
    assert ended[0].payload["replaced_by"].startswith("gemini:7acc3b95")
    assert len({(each.session_key, each.event_id) for each in world.said}) == len(world.said)
    assert all(each.source_event_id for each in world.said)


def _time_of(line: bytes) -> datetime:
    said = json.loads(line)
    time = said.get("timestamp") or said.get("$set", {}).get("lastUpdated") or said.get("startTime")
    return datetime.fromisoformat(time) if time else datetime.min.replace(tzinfo=UTC)


async def test_an_approval_that_is_refused_ends_the_turn(world: World) -> None:
    await world.ask(1)
    world.write("info", "Request cancelled.", 3)
    await world.source.look()
    assert world.states == ["running", "waiting_approval", "idle"]
    assert world.types[-1] == "turn.interrupted"


@pytest.mark.parametrize("looks_first", [True, False], ids=["record-first", "hook-first"])
async def test_a_turn_that_failed_is_not_completed(world: World, looks_first: bool) -> None:
    await world.hear("BeforeAgent", 1)
    world.write("error", "[API Error: boom]", 2)
    if looks_first:
        await world.source.look()
    await world.hear("AfterAgent", 2.001)
    assert world.states == ["running", "error"]
    await world.hear("BeforeAgent", 5)
    await world.hear("AfterAgent", 6)
    assert world.states == ["running", "error", "running", "idle"]


async def test_a_record_that_is_written_after_the_hook_still_counts(world: World) -> None:
    await world.hear("BeforeAgent", 1)
    await world.hear("AfterAgent", 2.002)
    world.write("error", "[API Error: boom]", 2)
    await world.source.look()
    assert world.states == ["running", "idle", "error"]


async def test_what_the_record_says_is_told_once(world: World) -> None:
    await world.hear("BeforeAgent", 1)
    world.write("error", "[API Error: boom]", 2)
    for _ in range(3):
        await world.source.look()
    assert world.types == ["prompt.submitted", "turn.failed"]


async def test_what_was_recorded_before_we_came_is_not_told(world: World) -> None:
    world.write("error", "[API Error: long ago]", -100)
    await world.hear("BeforeAgent", 1)
    await world.source.look()
    assert world.types == ["prompt.submitted"]


async def test_a_tool_announced_while_somebody_is_asked_does_not_hide_it(world: World) -> None:
    await world.ask(1)
    await world.hear("BeforeTool", 1.5, tool_name="run_shell_command")
    assert world.states == ["running", "waiting_approval"]
    assert world.types[-1] == "parallel.tool.started"
    await world.hear("AfterTool", 4)
    await world.hear("BeforeTool", 5)
    assert world.states == ["running", "waiting_approval", "running"]
    assert world.types[-1] == "tool.started"


async def test_the_end_of_a_session_is_told_once_though_it_is_said_three_times(
    world: World,
) -> None:
    await world.hear("SessionStart")
    for seconds in (1, 1.02, 1.05):
        await world.hear("SessionEnd", seconds, reason="exit")
    assert world.types == ["session.started", "session.ended"]
    await world.hear("SessionStart", 9, source="resume")
    await world.hear("SessionEnd", 10, reason="exit")
    assert world.types[2:] == ["session.started", "session.ended"]


async def test_a_session_gives_way_to_the_next_only_when_that_is_there(world: World) -> None:
    await world.hear("SessionStart")
    await world.hear("SessionEnd", 1, reason="clear")
    assert world.types == ["session.started"]
    await world.hear("SessionStart", 1.05, session="t", source="clear")
    assert [(each.session_key, each.event_type) for each in world.said[1:]] == [
        ("gemini:t", "session.started"),
        ("gemini:s", "session.ended"),
    ]


async def test_a_session_that_nothing_follows_ends_all_the_same(world: World) -> None:
    await world.hear("SessionStart")
    await world.hear("SessionEnd", 1, reason="clear")
    world.now = AT + timedelta(seconds=60)
    await world.source.look()
    assert world.types == ["session.started", "session.ended"]


async def test_a_delivery_that_was_spooled_as_well_is_known_as_the_same(world: World) -> None:
    payload = {"hook_event_name": "BeforeAgent", "session_id": "s"}
    await world.source.deliver(payload, AT, Origin(pid=12))
    world.spool.mkdir()
    left = {"provider": "gemini", "payload": payload, "at": AT.timestamp(), "pid": 12}
    (world.spool / "gemini-1-2.json").write_text(json.dumps(left))
    await world.source.look()
    first, second = world.said
    assert first.event_id == second.event_id
    assert list(world.spool.iterdir()) == []


async def test_what_comes_late_changes_nothing_that_is_known_since(world: World) -> None:
    await world.hear("BeforeAgent", 1)
    world.write("error", "[API Error: boom]", 2)
    await world.source.look()
    await world.hear("BeforeAgent", 1)  # the same, from the spool
    await world.hear("AfterAgent", 2.5)
    assert world.states == ["running", "error"]


async def test_a_clock_that_is_off_is_not_believed(world: World) -> None:
    await world.hear("BeforeAgent", timestamp="1999-12-31T23:59:59Z")
    assert world.said[0].observed_at == AT + timedelta(milliseconds=20)


@pytest.mark.parametrize("payload", [None, {}, {"hook_event_name": "BeforeAgent"}])
async def test_what_is_no_hook_is_refused(world: World, payload: object) -> None:
    with pytest.raises(SourceTrouble, match="none of gemini's hooks"):
        await world.source.deliver(payload, AT, ORIGIN)
    assert world.said == []


async def test_an_event_that_means_nothing_is_passed_over(world: World) -> None:
    await world.hear("BeforeModel")
    assert world.said == []


async def test_a_record_that_cannot_be_read_is_trouble_and_no_more(world: World) -> None:
    await world.hear("BeforeAgent", 1)
    world.record.symlink_to(world.record)
    with pytest.raises(SourceTrouble):
        await world.source.look()
    await world.hear("AfterAgent", 2)
    assert world.states == ["running", "idle"]


async def test_a_record_that_is_gone_is_no_trouble(world: World) -> None:
    shutil.copy(CHAT, world.record)
    await world.hear("BeforeAgent", 1)
    world.record.unlink()
    await world.source.look()
    assert world.types == ["prompt.submitted"]


async def test_no_more_sessions_are_remembered_than_there_is_room_for(world: World) -> None:
    for number in range(SESSIONS_REMEMBERED + 10):
        await world.hear("BeforeAgent", number / 100, session=f"s{number}")
    assert len(world.source._sessions) == SESSIONS_REMEMBERED
