"""What hooks deliver is told at once, in an order that makes sense, and once."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.events import activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.sources.claude_hooks import SESSIONS_REMEMBERED, ClaudeHooks
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.claude.recorded import by_event, deliveries

AT = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)
ORIGIN = Origin(pid=12, cwd="/home/dev", tmux_pane="%1", tmux_socket="/tmp/tmux.sock")


class Listener:
    """A source with somebody who listens."""

    def __init__(self, spool: Path) -> None:
        self.source = ClaudeHooks(lambda: AT, spool)
        self.said: list[Observation] = []

    async def open(self) -> "Listener":
        await self.source.open(self.said.append)
        return self

    async def hear(self, name: str, seconds: float = 0.0, **fields: Any) -> None:
        payload = {"hook_event_name": name, "session_id": "s", "prompt_id": "p", **fields}
        await self.source.deliver(payload, AT + timedelta(seconds=seconds), ORIGIN)

    @property
    def types(self) -> list[str]:
        return [each.event_type for each in self.said]


@pytest.fixture
async def listener(tmp_path: Path) -> Listener:
    return await Listener(tmp_path / "spool").open()


@pytest.mark.requirement("SRC-6", "SIG-1")
async def test_a_delivery_is_told_with_all_that_makes_it_deterministic(listener: Listener) -> None:
    await listener.source.deliver(by_event()["PreToolUse"], AT, ORIGIN)
    [said] = listener.said
    assert said == Observation(
        event_id=said.event_id,
        provider=Provider.CLAUDE,
        source_kind=SourceKind.CLAUDE_HOOKS,
        tier=EvidenceTier.DETERMINISTIC,
        observed_at=AT,
        session_key="claude:8687ba09-6dac-4c20-ae5b-b84ff22da284",
        event_type="tool.started",
        source_event_id="toolu_fake000134",
        payload={"hook": "PreToolUse", "tool": "Bash", "what": "touch newfile.txt"},
        origin=ORIGIN,
    )
    assert said.event_id


@pytest.mark.requirement("SRC-6", "DET-9")
async def test_a_recorded_run_is_told_from_its_beginning_to_its_end(listener: Listener) -> None:
    for each in deliveries("hooks-turns.jsonl"):
        at = datetime.fromtimestamp(each["at"], UTC)
        await listener.source.deliver(each["payload"], at, Origin(pid=each["pid"]))
    states = [activity for each in listener.types if (activity := activity_of(each)) is not None]
    assert [
        state for index, state in enumerate(states) if states[index - 1 : index] != [state]
    ] == [
        *("idle", "running", "idle", "running", "waiting_approval", "running", "idle"),
        *("running", "waiting_approval", "running", "error", "running", "rate_limited"),
        *("idle", "exited"),
    ]
    assert len({each.event_id for each in listener.said}) == len(listener.said)


async def test_an_event_that_means_nothing_is_not_told(listener: Listener) -> None:
    await listener.hear("MessageDisplay", delta="hello")
    assert listener.said == []


async def test_the_directory_is_the_agents_if_the_shim_knows_none(listener: Listener) -> None:
    payload = by_event()["Stop"]
    await listener.source.deliver(payload, AT, Origin(pid=12))
    assert listener.said[0].origin == Origin(pid=12, cwd=payload["cwd"])


@pytest.mark.requirement("SIG-2")
@pytest.mark.parametrize("garbage", [None, [], {"hook_event_name": "Stop"}], ids=repr)
async def test_what_is_no_payload_is_a_trouble_and_the_next_is_told(
    listener: Listener, garbage: object
) -> None:
    with pytest.raises(SourceTrouble, match="a hook's payload") as caught:
        await listener.source.deliver(garbage, AT, ORIGIN)
    assert not caught.value.is_down
    await listener.hear("Stop")
    assert listener.types == ["turn.completed"]


async def test_the_same_delivery_has_the_same_id_and_another_has_another(
    listener: Listener,
) -> None:
    await listener.hear("Stop")
    await listener.hear("Stop")
    await listener.hear("Stop", 0.000001)
    await listener.hear("SessionStart")
    first, again, *others = [each.event_id for each in listener.said]
    assert first == again
    assert len({first, *others}) == 3


@pytest.mark.requirement("TTL-4")
async def test_a_title_is_told_when_it_changes(listener: Listener) -> None:
    await listener.hear("SessionStart", session_title="reviewer")
    await listener.hear("UserPromptSubmit", 1, session_title="reviewer")
    await listener.hear("UserPromptSubmit", 2, session_title="writer")
    await listener.hear("Stop", 3)
    titles = [each.payload["title"] for each in listener.said if each.event_type == "session.named"]
    assert titles == ["reviewer", "writer"]
    assert len({each.event_id for each in listener.said}) == len(listener.said)


async def test_a_tool_beside_one_that_waits_says_nothing(listener: Listener) -> None:
    await listener.hear("PermissionRequest", 0, tool_name="WebFetch")
    await listener.hear("PostToolUse", 1, tool_name="Bash")
    assert listener.types == ["approval.requested", "parallel.tool.completed"]


async def test_a_request_that_was_overtaken_is_told_as_of_now(listener: Listener) -> None:
    await listener.hear("PreToolUse", 0, tool_name="WebFetch")
    await listener.hear("PostToolUse", 1.02, tool_name="Bash")
    await listener.hear("PermissionRequest", 1.0, tool_name="WebFetch")
    await listener.hear("PostToolUse", 1.5, tool_name="Bash")
    assert listener.types == [
        "tool.started",
        "tool.completed",
        "approval.requested",
        "parallel.tool.completed",
    ]
    assert listener.said[2].observed_at == AT + timedelta(seconds=1.02)


@pytest.mark.parametrize(
    ("name", "at"),
    [("Stop", 1.1), ("UserPromptSubmit", 1.1), ("PostToolUse", 5.0)],
    ids=["turn-over", "turn-begun", "long-ago"],
)
async def test_a_request_that_nobody_waits_for_any_more_stays_late(
    listener: Listener, name: str, at: float
) -> None:
    await listener.hear(name, at, tool_name="Bash")
    await listener.hear("PermissionRequest", 1.0, tool_name="WebFetch")
    assert listener.said[1].observed_at == AT + timedelta(seconds=1)
    await listener.hear("PreToolUse", 6, tool_name="Bash")
    assert listener.types[2] == "tool.started"


async def test_an_answer_that_was_overtaken_is_an_answer(listener: Listener) -> None:
    await listener.hear("PermissionRequest", 1, tool_name="Bash")
    await listener.hear("PreToolUse", 7, tool_name="Read")
    await listener.hear("PostToolUse", 5, tool_name="Bash")
    await listener.hear("PermissionRequest", 8, tool_name="Write")
    await listener.hear("PostToolUse", 9, tool_name="Write")
    assert listener.types == [
        "approval.requested",
        "parallel.tool.started",
        "tool.completed",
        "approval.requested",
        "tool.completed",
    ]
    assert listener.said[2].observed_at == AT + timedelta(seconds=5)
    await listener.hear("PostToolUse", 6, tool_name="Read")
    await listener.hear("PermissionRequest", 8.5, tool_name="Write")
    assert listener.said[-1].observed_at == AT + timedelta(seconds=9)


async def test_what_comes_late_changes_nothing_of_what_is_known(listener: Listener) -> None:
    await listener.hear("PermissionRequest", 1, tool_name="WebFetch")
    await listener.hear("Stop", 0)  # of the turn before
    await listener.hear("PostToolUse", 2, tool_name="Bash")
    assert listener.types[2] == "parallel.tool.completed"


async def test_not_every_session_is_remembered_for_ever(listener: Listener) -> None:
    for number in range(SESSIONS_REMEMBERED + 1):
        await listener.hear("SessionStart", session_id=f"s{number}", session_title="t")
    listener.said.clear()
    await listener.hear("UserPromptSubmit", 1, session_id="s0", session_title="t")
    await listener.hear("UserPromptSubmit", 1, session_id="s500", session_title="t")
    assert listener.types == ["session.named", "prompt.submitted", "prompt.submitted"]


async def test_what_was_spooled_is_told_with_its_time_and_place(tmp_path: Path) -> None:
    listener = await Listener(tmp_path).open()
    for number, each in enumerate(deliveries("hooks-turns.jsonl")):
        (tmp_path / f"claude-{number:03}.json").write_text(json.dumps(each))
    await listener.source.look()
    await listener.source.look()
    assert len(listener.said) == 22
    first = listener.said[0]
    recorded = deliveries("hooks-turns.jsonl")[0]
    assert first.observed_at == datetime.fromtimestamp(recorded["at"], UTC)
    assert first.origin == Origin(
        pid=recorded["pid"],
        cwd="/home/dev/my.proj_1",
        tmux_pane="%1",
        tmux_socket="/tmp/tmux.sock",
    )
    assert list(tmp_path.glob("*.json")) == []  # noqa: ASYNC240 - a directory of our own


async def test_a_delivery_that_was_also_spooled_is_the_same(tmp_path: Path) -> None:
    listener = await Listener(tmp_path).open()
    recorded = deliveries("hooks-turns.jsonl")[0]
    at = datetime.fromtimestamp(recorded["at"], UTC)
    await listener.source.deliver(recorded["payload"], at, Origin(pid=recorded["pid"]))
    (tmp_path / "claude-1.json").write_text(json.dumps(recorded))
    await listener.source.look()
    first, again = listener.said
    assert first.event_id == again.event_id


async def test_a_spooled_payload_of_five_megabytes_is_told(tmp_path: Path) -> None:
    listener = await Listener(tmp_path).open()
    payload = by_event()["PostToolUse"] | {"tool_response": "x" * 5_000_000}
    content = {"provider": "claude", "payload": payload, "at": 1794734159.5, "pid": 1}
    (tmp_path / "claude-1.json").write_text(json.dumps(content))
    await listener.source.look()
    assert listener.types == ["tool.completed"]
    assert len(str(listener.said[0].payload)) < 1000


async def test_spooled_garbage_is_put_aside_and_said(tmp_path: Path) -> None:
    listener = await Listener(tmp_path).open()
    (tmp_path / "claude-1.json").write_text('{"payload": {"hook_event_name": "Stop"}, "at": 1}')
    (tmp_path / "claude-2.json").write_text("{")
    stop = {"payload": {"hook_event_name": "Stop", "session_id": "s"}, "at": 1}
    (tmp_path / "claude-3.json").write_text(json.dumps(stop))
    with pytest.raises(SourceTrouble, match="2 spooled deliveries"):
        await listener.source.look()
    assert listener.types == ["turn.completed"]
    await listener.source.look()


async def test_a_spool_that_cannot_be_read_is_a_trouble(tmp_path: Path) -> None:
    (tmp_path / "spool").write_text("no directory")
    listener = await Listener(tmp_path / "spool").open()
    with pytest.raises(SourceTrouble, match="spooled"):
        await listener.source.look()
