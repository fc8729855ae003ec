"""Copilot CLI is read in the records of its sessions, and heard by its hooks, if there are any."""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.events import activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.sources import copilot_files
from bullpen.observe.sources.copilot import CopilotSource
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.copilot.recorded import SESSION, deliveries, lines_of, time_of

AT = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)
PID = 4711


class World:
    """A home of Copilot, its processes, and somebody who listens to the source."""

    def __init__(self, directory: Path) -> None:
        self.now = AT
        self.spool = directory / "spool"
        self.sessions = directory / ".copilot/session-state"
        self.proc = directory / "proc"
        self.proc.mkdir()
        self.said: list[Observation] = []
        self.source = self.make_source(directory)

    def make_source(self, directory: Path) -> CopilotSource:
        return CopilotSource(lambda: self.now, self.spool, directory / ".copilot", proc=self.proc)

    def run(self, pid: int = PID, *, start: int = 100, program: str = "/bin/copilot") -> None:
        """Let a process live."""
        process = self.proc / str(pid)
        process.mkdir()
        before = f"{pid} (Main) Thread) S 1 " + "0 " * 17
        (process / "stat").write_text(f"{before}{start} 0 0\n")
        (process / "cmdline").write_bytes(program.encode() + b"\0--foo\0")

    def kill(self, pid: int = PID) -> None:
        for each in ("stat", "cmdline"):
            (self.proc / str(pid) / each).unlink()
        (self.proc / str(pid)).rmdir()

    def open(
        self, session: str = "s", pid: int = PID, *, seconds: float = 0.0, **fields: str
    ) -> None:
        """Let a process open a session."""
        directory = self.sessions / session
        directory.mkdir(parents=True, exist_ok=True)
        lines = {"cwd": "/home/dev", "client_name": "github/cli", **fields}
        yaml = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (directory / "workspace.yaml").write_text(yaml)
        lock = directory / f"inuse.{pid}.lock"
        lock.write_text(f"{pid}\n")
        at = (AT + timedelta(seconds=seconds)).timestamp()
        os.utime(lock, (at, at))

    def close(self, session: str = "s", pid: int = PID) -> None:
        (self.sessions / session / f"inuse.{pid}.lock").unlink()

    def write(self, *lines: bytes, session: str = "s") -> None:
        with (self.sessions / session / "events.jsonl").open("ab") as file:
            file.writelines(lines)

    def event(self, kind: str, seconds: float, session: str = "s", **data: Any) -> None:
        at = AT + timedelta(seconds=seconds)
        self.now = max(self.now, at)
        event = {"type": kind, "data": data, "id": f"{kind}@{seconds}", "timestamp": _iso(at)}
        self.write(json.dumps(event).encode() + b"\n", session=session)

    async def hear(self, name: str, seconds: float, session: str = "s", **fields: Any) -> None:
        at = AT + timedelta(seconds=seconds)
        self.now = max(self.now, at)
        payload = {
            "hook_event_name": name,
            "sessionId": session,
            "timestamp": int(at.timestamp() * 1000),
            **fields,
        }
        origin = Origin(pid=PID, tmux_pane="%3")
        await self.source.deliver(payload, at + timedelta(milliseconds=20), origin)

    @property
    def types(self) -> list[str]:
        return [each.event_type for each in self.said]

    @property
    def states(self) -> list[str]:
        return states_of(self.said)


def _iso(at: datetime) -> str:
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def states_of(said: list[Observation]) -> list[str]:
    """What the agent was doing, by what was said and is the latest of its session."""
    states: list[str] = []
    latest: dict[str, datetime] = {}
    for each in said:
        activity = activity_of(each.event_type)
        at = latest.get(each.session_key)
        if activity is None or (at is not None and each.observed_at < at):
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


# ------------------------------------------------------------------------------------- the records


async def test_a_session_that_was_opened_is_told_with_where_it_is(world: World) -> None:
    world.run()
    world.open()
    await world.source.look()
    [said] = world.said
    assert said == Observation(
        event_id=said.event_id,
        provider=Provider.COPILOT,
        source_kind=SourceKind.COPILOT,
        tier=EvidenceTier.DETERMINISTIC,
        observed_at=AT,
        session_key="copilot:s",
        event_type="session.started",
        source_event_id=said.event_id,
        payload={},
        origin=Origin(pid=PID, process_start="100", cwd="/home/dev"),
    )


async def test_nothing_is_said_as_long_as_nothing_happens(world: World) -> None:
    world.run()
    world.open()
    for _ in range(3):
        await world.source.look()
    assert world.types == ["session.started"]


async def test_a_recorded_session_is_told_without_any_hook(world: World) -> None:
    """The record grows a few lines at a time, as it did."""
    lines = lines_of("events-without-hooks.jsonl")
    world.run()
    world.open(seconds=915)
    for number in range(0, len(lines), 2):
        await world.source.look()
        world.write(*lines[number : number + 2])
    await world.source.look()
    assert world.states == [
        *("idle", "running", "waiting_approval", "running", "idle"),
        *("running", "waiting_approval", "idle"),
        *("running", "idle", "running", "error"),
        *("running", "waiting_input", "running", "idle", "exited"),
    ]
    assert len({each.event_id for each in world.said}) == len(world.said)
    assert all(each.source_event_id for each in world.said)
    assert world.source.version == "1.0.102"


async def test_of_what_was_before_we_came_only_the_last_is_told(world: World) -> None:
    world.run()
    world.open()
    world.event("user.message", 1)
    world.event("assistant.turn_start", 2)
    world.event("permission.requested", 3, requestId="r")
    await world.source.look()
    assert world.types == ["approval.requested"]
    world.event("permission.completed", 4, requestId="r", result={"kind": "approved"})
    await world.source.look()
    assert world.types[1:] == ["approval.granted"]


async def test_what_another_process_has_written_tells_nothing_of_this_one(world: World) -> None:
    world.run()
    world.open(seconds=100)
    world.event("user.message", 1)
    world.event("assistant.turn_start", 2)  # and then it was killed
    await world.source.look()
    assert world.types == ["session.started"]
    assert world.said[0].observed_at == AT + timedelta(seconds=100)


async def test_a_session_is_called_what_the_program_calls_it(world: World) -> None:
    world.run()
    world.open()
    await world.source.look()
    world.open(name="fix the tests")
    await world.source.look()
    await world.source.look()
    named = [each for each in world.said if each.event_type == "session.named"]
    assert [each.payload for each in named] == [{"title": "fix the tests"}]
    assert named[0].source_event_id


@pytest.mark.parametrize("how", ["closed", "killed", "shutdown"])
async def test_a_session_ends_once_however_it_ends(world: World, how: str) -> None:
    world.run()
    world.open()
    await world.source.look()
    if how == "shutdown":
        world.event("session.shutdown", 5)
    if how != "closed":
        world.kill()
    if how != "killed":
        world.close()
    for _ in range(3):
        await world.source.look()
    assert world.types == ["session.started", "session.ended"]


async def test_the_last_that_was_written_before_the_end_is_read(world: World) -> None:
    world.run()
    world.open()
    await world.source.look()
    world.event("session.error", 5, message="no")
    world.kill()
    await world.source.look()
    assert world.types == ["session.started", "turn.failed", "session.ended"]


async def test_a_session_gives_way_to_the_next_of_its_process(world: World) -> None:
    world.run()
    world.open("s")
    await world.source.look()
    world.open("t", seconds=5)
    world.event("session.shutdown", 6)
    world.close("s")
    await world.source.look()
    assert [(each.session_key, each.event_type) for each in world.said[1:]] == [
        ("copilot:t", "session.started"),
        ("copilot:s", "session.ended"),
    ]
    assert world.said[-1].payload["replaced_by"] == "copilot:t"


async def test_a_session_that_is_opened_again_is_told_again(world: World) -> None:
    world.run()
    world.open()
    world.event("session.start", 0)
    await world.source.look()
    world.close()
    world.event("session.shutdown", 5)
    await world.source.look()
    world.run(4712, start=200)
    world.open(pid=4712, seconds=50)
    world.event("session.resume", 50)
    await world.source.look()
    assert world.states == ["idle", "exited", "idle"]
    assert world.said[-1].origin == Origin(pid=4712, process_start="200", cwd="/home/dev")


@pytest.mark.parametrize("program", ["/usr/bin/vim", ""])
async def test_a_lock_of_a_process_that_is_another_now_is_no_session(
    world: World, program: str
) -> None:
    if program:
        world.run(program=program)
    world.open()
    await world.source.look()
    assert world.said == []


async def test_a_session_of_a_server_is_not_told(world: World) -> None:
    world.run()
    world.open(client_name="my-sdk")
    await world.source.look()
    world.kill()
    await world.source.look()
    assert world.said == []


async def test_a_home_that_is_not_there_or_odd_is_no_trouble(world: World) -> None:
    await world.source.look()
    world.sessions.mkdir(parents=True)
    (world.sessions / ".session-operation-locks").mkdir()
    (world.sessions / "a file").write_text("")
    (world.sessions / "dangling").symlink_to("nowhere")
    await world.source.look()
    assert world.said == []


async def test_a_record_that_cannot_be_read_is_trouble_and_the_rest_goes_on(world: World) -> None:
    world.run()
    world.open("s")
    world.open("t")
    (world.sessions / "s/events.jsonl").symlink_to("events.jsonl")
    with pytest.raises(SourceTrouble, match="cannot read a session's record"):
        await world.source.look()
    assert {each.session_key for each in world.said} == {"copilot:s", "copilot:t"}


async def test_directories_of_old_are_not_listed_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[str] = []
    locks_in = copilot_files._locks_in

    def count(directory: str) -> tuple[tuple[int, float], ...]:
        listed.append(Path(directory).name)
        return locks_in(directory)

    monkeypatch.setattr(copilot_files, "_locks_in", count)
    world.run()
    world.open("old")
    world.close("old")
    long_ago = AT.timestamp() - 10_000
    os.utime(world.sessions / "old", (long_ago, long_ago))
    world.open("new")
    for _ in range(3):
        await world.source.look()
    assert listed.count("old") == 1
    assert listed.count("new") == 3  # just now: another lock may come within the same tick


# --------------------------------------------------------------------------------------- the hooks


async def test_a_hook_is_told_at_once_and_not_again_by_the_record(world: World) -> None:
    world.run()
    world.open()
    await world.source.look()
    await world.hear("userPromptSubmitted", 1)
    assert world.types[1:] == ["prompt.submitted"]
    assert world.said[1].origin == Origin(pid=PID, process_start="100", tmux_pane="%3")
    await world.hear("preToolUse", 2, toolName="bash")
    world.event("user.message", 1.02)
    world.event("tool.execution_start", 1.9, toolName="bash")
    await world.source.look()
    assert world.types[2:] == ["tool.started"]


async def test_a_recorded_session_is_told_once_by_hooks_and_record_together(world: World) -> None:
    lines = lines_of("events.jsonl")
    steps = deliveries()
    pid = next(each["pid"] for each in steps if "pid" in each)
    world.run(pid)
    world.open(SESSION, pid, seconds=(steps[0]["at"] - AT.timestamp()))
    written = 0
    for each in steps:
        at = datetime.fromtimestamp(each["at"], UTC)
        behind = _iso(at - timedelta(milliseconds=20))  # the record is, a little
        start = written
        while written < len(lines) and time_of(lines[written]) <= behind:
            written += 1
        world.write(*lines[start:written], session=SESSION)
        world.now = at
        if "mark" in each:
            await world.source.look()
        else:
            await world.source.deliver(each["payload"], at, Origin(pid=pid, tmux_pane="%0"))
    ours = [each for each in world.said if each.session_key == f"copilot:{SESSION}"]
    assert states_of(ours) == [
        *("idle", "running", "waiting_approval", "running", "idle"),
        *("running", "waiting_approval", "idle"),  # refused
        *("running", "idle"),  # interrupted
        *("running", "error"),
        *("running", "waiting_input", "running", "idle", "exited"),
    ]


async def test_work_beside_somebody_who_is_asked_does_not_hide_it(world: World) -> None:
    world.run()
    world.open()
    await world.hear("userPromptSubmitted", 1)
    await world.hear("notification", 2, notification_type="permission_prompt", message="x")
    await world.hear("preToolUse", 2.1, toolName="bash")
    await world.hear("postToolUse", 2.2, toolName="view")
    assert world.states == ["running", "waiting_approval"]
    world.event("permission.requested", 2, requestId="r")
    await world.source.look()
    await world.hear("postToolUse", 2.5, toolName="view")
    assert world.states == ["running", "waiting_approval"]
    world.event("permission.completed", 3, requestId="r", result={"kind": "approved"})
    await world.source.look()
    assert world.states == ["running", "waiting_approval", "running"]
    await world.hear("agentStop", 4)
    assert world.states[-1] == "idle"


async def test_the_end_told_by_a_hook_waits_for_what_follows(world: World) -> None:
    world.run()
    world.open("s")
    await world.source.look()
    world.open("t", seconds=5)
    await world.hear("sessionEnd", 6, session="s", reason="user_exit")
    assert [(each.session_key, each.event_type) for each in world.said[1:]] == [
        ("copilot:t", "session.started"),
        ("copilot:s", "session.ended"),
    ]
    world.event("session.shutdown", 6, session="s")
    world.close("s")
    await world.source.look()
    assert world.types.count("session.ended") == 1


async def test_a_delivery_that_was_spooled_as_well_is_known_as_the_same(world: World) -> None:
    payload = {"hook_event_name": "agentStop", "sessionId": "s"}
    await world.source.deliver(payload, AT, Origin(pid=12))
    world.spool.mkdir()
    left = {"provider": "copilot", "payload": payload, "at": AT.timestamp(), "pid": 12}
    (world.spool / "copilot-1-2.json").write_text(json.dumps(left))
    await world.source.look()
    first, second = world.said
    assert first.event_id == second.event_id


@pytest.mark.parametrize("payload", [None, {}, {"sessionId": "s"}])
async def test_what_is_no_hook_is_refused(world: World, payload: object) -> None:
    with pytest.raises(SourceTrouble, match="none of copilot's hooks"):
        await world.source.deliver(payload, AT, Origin())
    assert world.said == []


async def test_a_delivery_nobody_understands_is_put_aside(world: World) -> None:
    world.spool.mkdir()
    (world.spool / "copilot-1-2.json").write_text("{")
    with pytest.raises(SourceTrouble, match="1 spooled deliveries were put aside"):
        await world.source.look()
    await world.source.look()


async def test_where_there_is_no_proc_the_number_of_a_process_must_do(world: World) -> None:
    world.proc.rmdir()
    world.open("mine", os.getpid())
    world.open("gone", 2**22 + 1)
    await world.source.look()
    assert {each.session_key for each in world.said} == {"copilot:mine"}
