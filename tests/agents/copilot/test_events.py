"""The record of a session tells all that decides what its agent is doing."""

import json
from typing import Any

import pytest

from bullpen.agents.providers.copilot.events import SessionRecord
from bullpen.model.events import activity_of
from tests.agents.copilot.recorded import lines_of


def line(kind: str, agent: str = "", **data: Any) -> bytes:
    event = {"type": kind, "data": data, "id": "e", "timestamp": "2026-11-15T14:00:00Z"}
    return json.dumps(event | ({"agentId": agent} if agent else {})).encode()


def states_of(lines: list[bytes]) -> list[str]:
    record = SessionRecord()
    states: list[str] = []
    for each in lines:
        fact = record.read(each)
        activity = activity_of(fact.event_type) if fact else None
        if activity is not None and states[-1:] != [activity]:
            states.append(activity)
    return states


@pytest.mark.parametrize(
    ("name", "states"),
    [
        (
            "events-without-hooks.jsonl",
            [
                *("idle", "running", "waiting_approval", "running", "idle"),
                *("running", "waiting_approval", "idle"),  # refused
                *("running", "idle"),  # interrupted
                *("running", "error"),
                *("running", "waiting_input", "running", "idle", "exited"),
            ],
        ),
        (
            "events-side-by-side.jsonl",  # the first of two is allowed while the second waits
            [
                *("idle", "running", "waiting_approval", "running", "idle"),
                *("running", "waiting_approval", "idle", "running", "error", "exited"),
            ],
        ),
        (
            "events-killed-and-resumed.jsonl",  # with a subagent, and work in the background
            [
                *("idle", "running", "idle", "running", "idle"),
                *("running", "waiting_approval", "running", "idle", "running", "idle", "exited"),
            ],
        ),
    ],
)
def test_a_recorded_session_is_read_from_its_beginning_to_its_end(
    name: str, states: list[str]
) -> None:
    assert states_of(lines_of(name)) == states


def test_the_record_tells_of_which_program_it_is_and_where() -> None:
    record = SessionRecord()
    record.read(lines_of("events.jsonl")[0])
    assert (record.version, record.cwd) == ("1.0.102", "/home/dev/project")


def test_who_is_asked_is_known_by_the_request() -> None:
    request = {"kind": "shell", "fullCommandText": "rm -rf /"}
    fact = SessionRecord().read(
        line("permission.requested", requestId="r1", permissionRequest=request)
    )
    assert fact is not None
    assert fact.source_event_id == "r1"
    assert fact.payload["what"] == "rm -rf /"
    assert fact.payload["tool"] == "shell"


def test_one_answer_of_two_does_not_hide_that_somebody_is_asked() -> None:
    record = SessionRecord()
    record.read(line("permission.requested", requestId="r1"))
    record.read(line("permission.requested", requestId="r2"))
    told = []
    for each in [
        line("permission.completed", requestId="r1", result={"kind": "approved"}),
        line("tool.execution_complete", toolCallId="t1", success=True),
        line("permission.completed", requestId="r2", result={"kind": "approved"}),
    ]:
        fact = record.read(each)
        assert fact is not None
        told.append(fact.event_type)
    assert told == ["parallel.approval.granted", "parallel.tool.completed", "approval.granted"]


def test_a_subagent_says_nothing_about_the_session_but_that_somebody_is_asked() -> None:
    record = SessionRecord()
    record.read(line("assistant.turn_start"))
    assert record.read(line("assistant.turn_end", "sub")) is None
    assert record.read(line("user.message", "sub")) is None
    asked = record.read(line("permission.requested", "sub", requestId="r"))
    assert asked is not None
    assert asked.event_type == "approval.requested"
    answered = record.read(
        line("permission.completed", "sub", requestId="r", result={"kind": "approved"})
    )
    assert answered is not None
    assert answered.event_type == "approval.granted"


def test_a_refusal_lets_the_turn_go_on_and_a_cancellation_does_not() -> None:
    record = SessionRecord()
    for kind, event_type in [
        ("denied-interactively-by-user", "tool.failed"),
        ("cancelled", "approval.cancelled"),
        ("approved-for-session", "approval.granted"),
    ]:
        record.read(line("permission.requested", requestId="r"))
        fact = record.read(line("permission.completed", requestId="r", result={"kind": kind}))
        assert fact is not None
        assert fact.event_type == event_type


@pytest.mark.parametrize(
    ("error", "event_type"),
    [
        ({"errorType": "query", "statusCode": 400}, "turn.failed"),
        ({"errorType": "rate_limit"}, "turn.rate_limited"),
        ({"errorType": "query", "statusCode": 429}, "turn.rate_limited"),
    ],
)
def test_a_refusal_for_usage_is_told_from_other_errors(
    error: dict[str, Any], event_type: str
) -> None:
    fact = SessionRecord().read(line("session.error", message="no", **error))
    assert fact is not None
    assert fact.event_type == event_type


def test_compacting_is_work_only_in_a_turn() -> None:
    record = SessionRecord()
    record.read(line("user.message"))
    assert states_of([line("user.message"), line("session.compaction_complete")]) == ["running"]
    assert states_of([line("session.compaction_start"), line("session.compaction_complete")]) == [
        "running",
        "idle",
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'"text"',
        b"\xff",
        b'{"type": 1}',
        b'{"type": "assistant.turn_end", "data": []}',
        b'{"type": "session.usage_record", "data": {}}',
        b"[" * 100_000,
    ],
)
def test_other_lines_say_nothing(data: bytes) -> None:
    assert SessionRecord().read(data) is None


def test_a_lone_surrogate_and_missing_fields_do_no_harm() -> None:
    record = SessionRecord()
    fact = record.read(rb'{"type": "session.error", "data": {"message": "half \ud83d"}}')
    assert fact is not None
    assert fact.payload["message"] == "half �"
    assert fact.at is None
    assert fact.event_id
    for kind in ("permission.requested", "permission.completed", "tool.execution_start", "abort"):
        assert record.read(line(kind)) is not None
