"""What Copilot CLI tells its hooks, in its own words or in Claude's."""

from typing import Any

import pytest

from bullpen.agents.hooks import PROGRAMS
from bullpen.agents.providers.copilot.hooks import HOOK_EVENTS, translate
from bullpen.model.events import activity_of
from bullpen.model.states import Provider
from tests.agents.copilot.recorded import SESSION, payload_of


@pytest.mark.parametrize(
    ("event", "event_type", "details"),
    [
        ("sessionStart", "session.opened", {"source": "new"}),
        ("userPromptSubmitted", "prompt.submitted", {}),
        ("preToolUse", "tool.started", {"tool": "bash", "what": "touch x"}),
        ("Notification", "approval.requested", {"what": "Run command: touch x"}),
        ("postToolUse", "tool.completed", {"tool": "bash", "what": "touch x"}),
        ("agentStop", "turn.completed", {}),
        ("sessionEnd", "session.ended", {"reason": "user_exit"}),
    ],
)
def test_each_event_has_its_meaning(event: str, event_type: str, details: dict[str, Any]) -> None:
    hook = translate(payload_of(event))
    assert hook is not None
    assert hook.session_id == SESSION
    assert hook.cwd == "/home/dev/project"
    assert hook.fact.event_type == event_type
    assert {key: value for key, value in hook.fact.payload.items() if key != "hook"} == details
    assert hook.fact.at is not None
    assert hook.fact.source_event_id


def test_an_error_is_told_for_each_attempt_and_asserts_nothing() -> None:
    hook = translate(payload_of("errorOccurred"))
    assert hook is not None
    assert activity_of(hook.fact.event_type) is None
    assert "nope" in hook.fact.payload["message"]


def test_being_checked_is_not_being_asked() -> None:
    assert translate(payload_of("permissionRequest")) is None


def test_a_question_is_no_approval() -> None:
    asked = payload_of("preToolUse") | {"toolName": "ask_user", "toolArgs": {"message": "colour?"}}
    hook = translate(asked)
    assert hook is not None
    assert hook.fact.event_type == "question.asked"
    assert hook.fact.payload["what"] == "colour?"


def test_a_tool_that_failed_says_so() -> None:
    for result in ({"resultType": "failure"}, {"resultType": "denied"}):
        hook = translate(payload_of("postToolUse") | {"toolResult": result})
        assert hook is not None
        assert hook.fact.event_type == "tool.failed"


@pytest.mark.parametrize(
    ("payload", "event_type"),
    [
        ({"hook_event_name": "UserPromptSubmit", "prompt": "hi"}, "prompt.submitted"),
        (
            {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}},
            "tool.started",
        ),
        (
            {
                "hook_event_name": "PostToolUse",
                "tool_name": "Bash",
                "tool_result": {"result_type": "success"},
            },
            "tool.completed",
        ),
        ({"hook_event_name": "Stop", "stop_reason": "end_turn"}, "turn.completed"),
        ({"hook_event_name": "SessionEnd", "reason": "complete"}, "session.ended"),
    ],
)
def test_what_is_told_in_claudes_words_means_the_same(
    payload: dict[str, Any], event_type: str
) -> None:
    common = {"session_id": "s", "timestamp": "2026-11-15T14:21:10.205Z", "cwd": "/home/dev"}
    hook = translate(payload | common)
    assert hook is not None
    assert hook.session_id == "s"
    assert hook.fact.event_type == event_type
    assert hook.fact.at is not None


def test_every_event_we_install_has_a_meaning() -> None:
    assert set(PROGRAMS[Provider.COPILOT].events) == set(HOOK_EVENTS)


@pytest.mark.parametrize(
    "payload",
    [None, [], {}, {"hook_event_name": "agentStop"}, {"sessionId": "s"}, {"sessionId": 1}],
)
def test_what_is_no_hook_is_refused(payload: object) -> None:
    with pytest.raises(ValueError, match="none of copilot's hooks"):
        translate(payload)


@pytest.mark.parametrize("said", [None, "", 5, 1e300, float("nan"), "2026-11-15"])
def test_a_time_that_is_none_is_left_out(said: object) -> None:
    hook = translate(payload_of("agentStop") | {"timestamp": said})
    assert hook is not None
    assert hook.fact.at is None
