"""opencode is heard by our plugin in it."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.events import activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.sources.opencode import SESSIONS_REMEMBERED, OpencodeSource
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.opencode.recorded import deliveries

AT = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)
ORIGIN = Origin(pid=12, tmux_pane="%1")


class World:
    """A source, and somebody who listens to it."""

    def __init__(self, directory: Path) -> None:
        self.spool = directory / "spool"
        self.source = OpencodeSource(lambda: AT, self.spool)
        self.said: list[Observation] = []

    async def hear(self, name: str, seconds: float, session: str = "s", **more: Any) -> None:
        at = AT + timedelta(seconds=seconds)
        payload = {
            "hook_event_name": name,
            "session_id": session,
            "cwd": "/home/dev",
            "timestamp": int(at.timestamp() * 1000),
            **more,
        }
        await self.source.deliver(payload, at + timedelta(milliseconds=20), ORIGIN)

    @property
    def types(self) -> list[str]:
        return [each.event_type for each in self.said]

    def states(self, session: str = "") -> list[str]:
        states: list[str] = []
        for each in self.said:
            activity = activity_of(each.event_type)
            if activity is None or states[-1:] == [activity]:
                continue
            if not session or each.session_key == f"opencode:{session}":
                states.append(activity)
        return states


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    await made.source.open(made.said.append)
    return made


async def test_what_the_plugin_tells_is_told_at_once_with_where_it_is(world: World) -> None:
    await world.hear("permission.asked", 0, request_id="r1", tool="bash", what="touch x")
    [said] = world.said
    assert said == Observation(
        event_id=said.event_id,
        provider=Provider.OPENCODE,
        source_kind=SourceKind.OPENCODE,
        tier=EvidenceTier.DETERMINISTIC,
        observed_at=AT,
        session_key="opencode:s",
        event_type="approval.requested",
        source_event_id="r1",
        payload={"hook": "permission.asked", "tool": "bash", "what": "touch x"},
        origin=Origin(pid=12, tmux_pane="%1", cwd="/home/dev"),
    )


async def test_a_recorded_process_is_told_from_its_beginning_to_its_end(world: World) -> None:
    for each in deliveries():
        if "payload" in each:
            at = datetime.fromtimestamp(each["at"], UTC)
            await world.source.deliver(each["payload"], at, Origin(pid=each["pid"]))
    first, second = dict.fromkeys(each.session_key.partition(":")[2] for each in world.said)
    assert world.states(first) == [
        *("idle", "running", "waiting_approval", "running", "idle"),  # two side by side
        *("running", "waiting_approval", "running", "idle"),  # refused
        *("running", "waiting_approval", "running", "idle"),  # a subagent's
        *("running", "idle"),  # interrupted
        *("running", "error"),
        *("running", "waiting_input", "running", "idle"),
        "exited",  # left for the second
    ]
    assert world.states(second) == ["idle", "running", "idle", "exited"]
    named = [each.payload for each in world.said if each.event_type == "session.named"]
    assert named == [{"title": "Scripted title"}] * 2
    assert len({(each.session_key, each.event_id) for each in world.said}) == len(world.said)
    assert all(each.source_event_id for each in world.said)
    assert world.source.version == "1.18.33"


async def test_how_a_turn_was_broken_off_is_not_hidden_by_its_end(world: World) -> None:
    await world.hear("session.status", 1, status="busy")
    await world.hear("session.error", 2, error="APIError")
    await world.hear("session.status", 2.01, status="idle")
    assert world.states() == ["running", "error"]
    await world.hear("session.status", 3, status="busy")
    await world.hear("session.status", 4, status="idle")
    assert world.states() == ["running", "error", "running", "idle"]


async def test_one_answer_of_two_does_not_hide_that_somebody_is_asked(world: World) -> None:
    await world.hear("permission.asked", 1, request_id="r1")
    await world.hear("permission.asked", 1.1, request_id="r2")
    await world.hear("permission.replied", 2, request_id="r1", reply="once")
    assert world.states() == ["waiting_approval"]
    await world.hear("permission.replied", 3, request_id="r2", reply="once")
    assert world.states() == ["waiting_approval", "running"]


async def test_a_subagent_says_nothing_but_that_somebody_is_asked(world: World) -> None:
    await world.hear("session.status", 1, status="busy")
    await world.hear("session.created", 2, session="sub", parent_id="s", title="a task")
    await world.hear("session.created", 2, session="subsub", parent_id="sub", title="a task")
    await world.hear("session.status", 3, session="subsub", status="busy")
    await world.hear("permission.asked", 4, session="subsub", request_id="r")
    await world.hear("permission.replied", 5, session="subsub", request_id="r", reply="once")
    await world.hear("session.status", 6, session="sub", status="idle")
    assert world.states() == ["running", "waiting_approval", "running"]
    assert {each.session_key for each in world.said} == {"opencode:s"}


async def test_parents_that_go_in_a_circle_do_no_harm(world: World) -> None:
    await world.hear("session.created", 1, session="a", parent_id="b")
    await world.hear("session.created", 2, session="b", parent_id="a")
    await world.hear("permission.asked", 3, session="a", request_id="r")


async def test_a_session_that_works_on_is_not_over_when_another_begins(world: World) -> None:
    await world.hear("session.status", 1, session="s", status="busy")
    await world.hear("session.created", 2, session="t")
    assert "session.ended" not in world.types
    await world.hear("session.status", 3, session="s", status="idle")
    assert world.said[-1].session_key == "opencode:t"
    assert world.said[-1].event_type == "session.ended"  # for the other is the one that is used


async def test_the_end_of_the_process_ends_all_of_its_sessions(world: World) -> None:
    await world.hear("session.status", 1, session="s", status="busy")
    await world.hear("session.status", 1, session="t", status="busy")
    await world.hear("disposed", 2, session="*")
    ended = [each.session_key for each in world.said if each.event_type == "session.ended"]
    assert ended == ["opencode:s", "opencode:t"]
    await world.hear("disposed", 3, session="*")
    assert world.types.count("session.ended") == 2


async def test_a_delivery_that_was_spooled_as_well_is_known_as_the_same(world: World) -> None:
    payload = {"hook_event_name": "session.status", "session_id": "s", "status": "busy"}
    await world.source.deliver(payload, AT, Origin(pid=12))
    world.spool.mkdir()
    left = {"provider": "opencode", "payload": payload, "at": AT.timestamp(), "pid": 12}
    (world.spool / "opencode-1-2.json").write_text(json.dumps(left))
    await world.source.look()
    first, second = world.said
    assert first.event_id == second.event_id


async def test_what_comes_late_changes_nothing_that_is_known_since(world: World) -> None:
    await world.hear("permission.asked", 2, request_id="r")
    await world.hear("session.status", 1, status="busy")
    await world.hear("permission.replied", 3, request_id="r", reply="once")
    assert world.said[1].observed_at == AT + timedelta(seconds=1)
    assert world.types[-1] == "approval.granted"


@pytest.mark.parametrize("payload", [None, {}])
async def test_what_is_not_from_the_plugin_is_refused(world: World, payload: object) -> None:
    with pytest.raises(SourceTrouble, match="not from the plugin"):
        await world.source.deliver(payload, AT, ORIGIN)


async def test_no_more_is_remembered_than_there_is_room_for(world: World) -> None:
    for number in range(SESSIONS_REMEMBERED + 10):
        await world.hear("session.created", number / 100, session=f"s{number}")
        await world.hear("session.created", number / 100, session=f"c{number}", parent_id="p")
    assert len(world.source._sessions) == SESSIONS_REMEMBERED
    assert len(world.source._parents) == SESSIONS_REMEMBERED
