"""`codex exec --json` prints events on a screen; what is no event is text like any other."""

import json

import pytest

from bullpen.agents.providers.codex.exec_json import ExecEvent, translate
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from tests.agents.codex import recorded


def events(name: str) -> list[ExecEvent]:
    said = (translate(line.decode()) for line in recorded.lines(name))
    return [event for event in said if event is not None]


@pytest.mark.requirement("CX-14")
def test_the_lines_of_a_run_become_events() -> None:
    assert [(event.event_type, event.session_id) for event in events("exec-bypass.jsonl")] == [
        ("thread.started", "01a1de60-1132-7352-9f88-3525683a15a7"),
        ("turn.started", None),
        ("tool.started", None),
        ("tool.completed", None),
        ("turn.completed", None),
    ]


def test_a_tool_is_told_with_its_command_and_how_it_ended() -> None:
    _, _, started, completed, _ = events("exec-bypass.jsonl")
    assert started.payload == {
        "tool": "command_execution",
        "item_id": "item_1",
        "command": "/bin/bash -lc 'sleep 2; echo out'",
    }
    assert (completed.payload["item_id"], completed.payload["exit_code"]) == ("item_1", 0)


@pytest.mark.parametrize(
    ("recording", "end"),
    [
        ("exec-hi.jsonl", Activity.IDLE),
        ("exec-err-400.jsonl", Activity.ERROR),
        ("exec-err-401.jsonl", Activity.ERROR),
        ("exec-err-429.jsonl", Activity.RATE_LIMITED),
        ("exec-err-500.jsonl", Activity.ERROR),
    ],
)
def test_the_last_line_tells_how_a_run_ended(recording: str, end: Activity) -> None:
    assert activity_of(events(recording)[-1].event_type) is end


def test_while_it_reconnects_nothing_is_asserted() -> None:
    told = events("exec-err-500.jsonl")
    assert [event.event_type for event in told[2:5]] == ["exec.error"] * 3
    assert activity_of("exec.error") is None
    assert told[2].payload["error"].startswith("Reconnecting... 1/2")


def test_what_no_encoding_can_carry_does_not_hide_a_line() -> None:
    event = translate('{"type": "error", "message": "\ud800"}')
    assert event is not None
    assert event.payload == {"error": "?"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "> Ask Codex to do anything",
        '{"type": "turn.started"',
        "[1, 2]",
        '{"kind": "turn.started"}',
        '{"type": ["turn.started"]}',
        '{"type": "item.completed", "item": "x"}',
        '{"type": "item.completed", "item": {"type": "reasoning", "text": "hmm"}}',
        "{" * 100_000,
    ],
)
def test_other_lines_say_nothing(line: str) -> None:
    assert translate(line) is None


@pytest.mark.parametrize("status", ["failed", "declined"])
@pytest.mark.parametrize(
    "kind",
    ["collab_tool_call", "command_execution", "file_change", "mcp_tool_call", "web_search"],
)
def test_a_tool_that_failed_is_told_so(kind: str, status: str) -> None:
    item = {"id": "item_1", "type": kind, "tool": "send_message", "status": status}
    event = translate(json.dumps({"type": "item.completed", "item": item}))
    assert event is not None
    assert event.event_type == "tool.failed"
    assert event.payload == {"tool": kind, "item_id": "item_1", "command": "send_message"}


def test_a_long_error_is_cut() -> None:
    event = translate(json.dumps({"type": "turn.failed", "error": {"message": "x" * 10_000}}))
    assert event is not None
    assert len(event.payload["error"]) == 500
