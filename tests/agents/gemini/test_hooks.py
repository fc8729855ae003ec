"""What Gemini CLI tells its hooks, and what of it means anything."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bullpen.agents.hooks import PROGRAMS
from bullpen.agents.providers.gemini.hooks import HOOK_EVENTS, translate
from bullpen.model.states import Provider
from tests.agents.gemini.recorded import payload_of


@pytest.mark.parametrize(
    ("event", "event_type", "details"),
    [
        ("SessionStart", "session.started", {"source": "startup"}),
        ("BeforeAgent", "prompt.submitted", {}),
        ("BeforeTool", "tool.started", {"tool": "run_shell_command", "what": "touch x"}),
        (
            "Notification",
            "approval.requested",
            {"tool": "Confirm Shell Command", "what": "touch x"},
        ),
        ("AfterTool", "tool.completed", {"tool": "run_shell_command", "what": "touch x"}),
        ("AfterAgent", "turn.completed", {}),
        ("SessionEnd", "session.ended", {"reason": "clear"}),
    ],
)
def test_each_event_has_its_meaning(event: str, event_type: str, details: dict[str, Any]) -> None:
    fact = translate(payload_of(event))
    assert fact is not None
    assert fact.event_type == event_type
    assert fact.payload == {"hook": event, **details}
    assert fact.session_id == "fbdf2f68-2601-44ba-b5b8-0ee999ab28d3"
    assert fact.cwd == "/home/dev/project"
    assert fact.transcript_path.endswith("fbdf2f68.jsonl")
    assert fact.at is not None
    assert fact.at.date() == datetime(2026, 11, 15, tzinfo=UTC).date()
    assert fact.source_event_id


def test_a_question_is_no_approval() -> None:
    asked = payload_of("Notification") | {"details": {"type": "ask_user", "title": "Ask User"}}
    fact = translate(asked)
    assert fact is not None
    assert fact.event_type == "question.asked"


def test_a_tool_that_failed_says_so() -> None:
    response = {"llmContent": "no", "error": {"message": "no such file"}}
    fact = translate(payload_of("AfterTool") | {"tool_response": response})
    assert fact is not None
    assert fact.event_type == "tool.failed"


def test_another_notification_asserts_nothing() -> None:
    fact = translate(payload_of("Notification") | {"notification_type": "Idle"})
    assert fact is not None
    assert fact.event_type == "notification.Idle"


def test_every_event_we_install_has_a_meaning_and_the_others_have_none() -> None:
    assert set(PROGRAMS[Provider.GEMINI].events) == set(HOOK_EVENTS)
    assert translate(payload_of("AfterAgent") | {"hook_event_name": "BeforeModel"}) is None


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        "text",
        {},
        {"hook_event_name": "AfterAgent"},
        {"hook_event_name": 3, "session_id": "s"},
        {"hook_event_name": "AfterAgent", "session_id": "s" * 1000},
    ],
)
def test_what_is_no_hook_is_refused(payload: object) -> None:
    with pytest.raises(ValueError, match="none of gemini's hooks"):
        translate(payload)


@pytest.mark.parametrize("said", [None, 1, "yesterday", "2026-11-15T14:12:54"])
def test_a_time_that_is_none_is_left_out(said: object) -> None:
    fact = translate(payload_of("AfterAgent") | {"timestamp": said})
    assert fact is not None
    assert fact.at is None
