"""Codex's hooks, delivered at once or left for later."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bullpen.model.events import activity_of
from bullpen.model.observations import Origin
from bullpen.model.states import Activity, EvidenceTier, Provider, SourceKind
from bullpen.observe.sources.codex_hooks import CodexHooks
from bullpen.observe.sources.port import SourceTrouble
from tests.agents.codex import recorded
from tests.observe.sources.codex_heard import Heard, Time

ORIGIN = Origin(pid=41, tmux_pane="%3", tmux_socket="/tmp/t.sock")


class Hooked:
    def __init__(self, home: Path) -> None:
        self.time = Time()
        self.heard = Heard()
        self.spool = home / "spool"
        self.proc = home / "proc"
        self.source = CodexHooks(self.time.now, self.spool, proc=self.proc)

    async def call(self, name: str, turn: str = "u1", origin: Origin = ORIGIN, **more: Any) -> None:
        payload = {
            "hook_event_name": name,
            "session_id": "t1",
            "turn_id": turn,
            "cwd": "/project",
            **more,
        }
        await self.source.deliver(payload, self.time.now(), origin)
        self.time.advance(0.05)


@pytest.fixture
async def hooked(home: Path) -> AsyncIterator[Hooked]:
    hooked = Hooked(home)
    await hooked.source.open(hooked.heard)
    yield hooked
    await hooked.source.aclose()


@pytest.mark.requirement("DET-9")
async def test_what_a_hook_tells_is_told_at_once(hooked: Hooked) -> None:
    at = hooked.time.now()
    await hooked.call("UserPromptSubmit", prompt="hello")
    [observation] = hooked.heard.observations
    assert observation.session_key == "codex:t1"
    assert observation.event_type == "prompt.submitted"
    assert (observation.provider, observation.source_kind) == (
        Provider.CODEX,
        SourceKind.CODEX_HOOKS,
    )
    assert observation.tier is EvidenceTier.DETERMINISTIC
    assert observation.observed_at == at
    assert observation.source_event_id == "u1"
    assert observation.payload["prompt"] == "hello"
    assert observation.origin == Origin(
        pid=41, tmux_pane="%3", tmux_socket="/tmp/t.sock", cwd="/project"
    )


async def test_all_that_was_done_in_a_terminal_is_told_in_its_order(hooked: Hooked) -> None:
    told: list[Activity] = []
    for entry in recorded.objects("hooks-terminal.jsonl"):
        at = datetime.fromtimestamp(entry["at"], UTC)
        while hooked.time.at < at:  # somebody looks every second
            hooked.time.at = min(
                at, max(hooked.time.at, at - timedelta(minutes=1)) + timedelta(seconds=1)
            )
            await hooked.source.look()
        if "hook" in entry:
            await hooked.source.deliver(entry["hook"], at, ORIGIN)
    for each in hooked.heard.observations:
        activity = activity_of(each.event_type)
        if activity is not None and (not told or told[-1] is not activity):
            told.append(activity)
    assert told == [
        *[Activity.RUNNING, Activity.IDLE],
        *[Activity.RUNNING, Activity.WAITING_APPROVAL, Activity.RUNNING, Activity.IDLE],
        *[Activity.RUNNING, Activity.WAITING_APPROVAL, Activity.IDLE],
        *[Activity.RUNNING, Activity.IDLE],  # a tool
        *[Activity.RUNNING, Activity.IDLE],  # interrupted
        *[Activity.RUNNING, Activity.ERROR],
        *[Activity.RUNNING, Activity.ERROR],  # once, though it was tried three times
        *[Activity.RUNNING, Activity.RATE_LIMITED],
        *[Activity.RUNNING, Activity.IDLE],  # compacted
        *[Activity.RUNNING, Activity.IDLE],  # a patch
        Activity.EXITED,
    ]


async def test_a_request_that_failed_is_told_when_no_other_follows(hooked: Hooked) -> None:
    await hooked.call("UserPromptSubmit")
    await hooked.call("PreModelRequest")
    failed_at = hooked.time.now()
    await hooked.call("PostModelRequest", status="failed", error="high demand")
    await hooked.source.look()
    assert hooked.heard.types() == ["prompt.submitted", "model.requested"]
    hooked.time.advance(2)
    await hooked.source.look()
    await hooked.source.look()
    assert hooked.heard.types() == ["prompt.submitted", "model.requested", "turn.failed"]
    assert hooked.heard.last("t1").observed_at == failed_at


@pytest.mark.parametrize("follows", ["PreModelRequest", "Interrupt", "Stop"])
async def test_a_request_that_failed_is_not_told_when_the_turn_went_on(
    hooked: Hooked, follows: str
) -> None:
    await hooked.call("PostModelRequest", status="failed", error="high demand")
    await hooked.call(follows)
    hooked.time.advance(60)
    await hooked.source.look()
    assert "turn.failed" not in hooked.heard.types()


async def test_a_subagent_does_not_make_up_for_a_failure(hooked: Hooked) -> None:
    await hooked.call("PostModelRequest", status="failed", error="high demand")
    await hooked.call("PreModelRequest", turn="u9", agent_id="a")
    hooked.time.advance(2)
    await hooked.source.look()
    assert hooked.heard.types() == ["subagent.PreModelRequest", "turn.failed"]


async def test_a_failure_is_told_before_the_turn_that_comes_after_it(hooked: Hooked) -> None:
    await hooked.call("PostModelRequest", status="failed", error="high demand")
    await hooked.call("UserPromptSubmit", turn="u2")
    assert hooked.heard.types() == ["turn.failed", "prompt.submitted"]


async def test_what_was_left_while_nobody_listened_is_found_and_removed(hooked: Hooked) -> None:
    def leave() -> None:
        hooked.spool.mkdir(mode=0o700)
        for number, name in enumerate(["UserPromptSubmit", "PermissionRequest"]):
            delivery = {
                "provider": "codex",
                "payload": {"hook_event_name": name, "session_id": "t1", "turn_id": "u1"},
                "at": hooked.time.now().timestamp() + number,
                "pid": 41,
                "tmux": "/tmp/t.sock,7,0",
                "tmux_pane": "%3",
                "cwd": "/project",
            }
            path = hooked.spool / f"codex-{number}-41.json"
            path.write_text(json.dumps(delivery))
        (hooked.spool / "claude-1-41.json").write_text("{}")

    leave()
    await hooked.source.look()
    assert hooked.heard.types("t1") == ["prompt.submitted", "approval.requested"]
    assert hooked.heard.last("t1").origin == Origin(
        pid=41, tmux_pane="%3", tmux_socket="/tmp/t.sock", cwd="/project"
    )
    assert [path.name for path in hooked.spool.iterdir()] == ["claude-1-41.json"]


async def test_a_delivery_heard_twice_has_one_id(hooked: Hooked) -> None:
    at = hooked.time.now()
    payload = {"hook_event_name": "Stop", "session_id": "t1", "turn_id": "u1"}
    for _ in range(2):
        await hooked.source.deliver(payload, at, ORIGIN)
    await hooked.source.deliver(payload, at + timedelta(seconds=1), ORIGIN)
    one, two, later = (each.event_id for each in hooked.heard.observations)
    assert one == two != later


@pytest.mark.parametrize("payload", [None, {}, {"hook_event_name": "Notification"}, "Stop"])
async def test_what_is_none_of_its_hooks_is_refused(hooked: Hooked, payload: object) -> None:
    with pytest.raises(SourceTrouble):
        await hooked.source.deliver(payload, hooked.time.now(), ORIGIN)
    assert hooked.heard.observations == []


async def test_a_hook_whose_process_is_not_known_is_still_in_its_pane(hooked: Hooked) -> None:
    await hooked.call("Stop", origin=Origin(tmux_pane="%3"))
    assert hooked.heard.last("t1").origin == Origin(tmux_pane="%3", cwd="/project")


def put_process(proc: Path, pid: int, *argv: str) -> None:
    directory = proc / str(pid)
    directory.mkdir(parents=True)
    (directory / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
    fields = " ".join(["S", *map(str, range(4, 30))])
    (directory / "stat").write_text(f"{pid} (codex (x)) {fields}")


async def test_a_server_calls_hooks_for_threads_that_are_not_in_its_terminal(
    hooked: Hooked,
) -> None:
    put_process(hooked.proc, 41, "codex", "app-server", "--listen", "unix://")
    put_process(hooked.proc, 42, "codex", "--model", "app-server-7")
    await hooked.call("Stop")
    assert hooked.heard.last("t1").origin == Origin(cwd="/project")
    await hooked.call("Stop", origin=Origin(pid=42, cwd="/elsewhere"))
    assert hooked.heard.last("t1").origin == Origin(pid=42, cwd="/elsewhere")
