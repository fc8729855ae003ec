"""The hooks of the real program, and what each says the agent is doing."""

from typing import Any

import pytest

from bullpen.agents.providers.codex import hooks
from bullpen.agents.providers.codex.facts import CodexFact
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from tests.agents.codex import recorded

PARTS = recorded.hooks("hooks-terminal.jsonl")


def translated(payloads: list[dict[str, Any]]) -> list[CodexFact]:
    facts = [hooks.translate(each) for each in payloads]
    return [fact for fact in facts if fact is not None]


def activities(payloads: list[dict[str, Any]]) -> list[Activity]:
    """Return what the agent is said to be doing, each change once."""
    asserted = [activity_of(fact.event_type) for fact in translated(payloads)]
    told = [each for each in asserted if each is not None]
    return [each for each, before in zip(told, [None, *told], strict=False) if each != before]


@pytest.mark.requirement("DET-9")
@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("plain", [Activity.RUNNING, Activity.IDLE]),
        (
            "approval",
            [Activity.RUNNING, Activity.WAITING_APPROVAL, Activity.RUNNING, Activity.IDLE],
        ),
        ("reject", [Activity.RUNNING, Activity.WAITING_APPROVAL, Activity.IDLE]),
        ("tool", [Activity.RUNNING, Activity.IDLE]),
        ("interrupt", [Activity.RUNNING, Activity.IDLE]),
        ("error", [Activity.RUNNING, Activity.ERROR]),
        ("429", [Activity.RUNNING, Activity.RATE_LIMITED]),
        ("compact", [Activity.RUNNING]),  # nothing tells of its end; the session file does
        ("patch", [Activity.RUNNING, Activity.IDLE]),
        ("quit", [Activity.EXITED]),
    ],
)
def test_each_thing_done_in_a_terminal_is_told(part: str, expected: list[Activity]) -> None:
    assert activities(PARTS[part]) == expected


def test_a_request_that_is_tried_again_has_not_ended_the_turn() -> None:
    facts = translated(PARTS["error500"])
    assert [fact.event_type for fact in facts] == [
        "prompt.submitted",
        *["model.requested", "turn.failed"] * 3,
    ]
    assert [hooks.may_go_on(fact) for fact in facts] == [False, *[False, True] * 3]


def test_a_message_sent_meanwhile_cancels_a_request_and_not_the_turn() -> None:
    payload = {"hook_event_name": "PostModelRequest", "session_id": "s", "status": "cancelled"}
    fact = hooks.translate(payload)
    assert fact is not None
    assert activity_of(fact.event_type) is None


@pytest.mark.parametrize("source", ["startup", "resume", "clear", "compact"])
def test_the_start_of_a_session_asserts_nothing_since_it_comes_within_a_turn(source: str) -> None:
    payload = {"hook_event_name": "SessionStart", "session_id": "s", "source": source}
    fact = hooks.translate(payload)
    assert fact is not None
    assert activity_of(fact.event_type) is None
    assert fact.payload["source"] == source


def test_a_question_waits_for_its_answer() -> None:
    payload = {
        "hook_event_name": "PreToolUse",
        "session_id": "s",
        "tool_name": "request_user_input",
        "tool_use_id": "call_1",
    }
    fact = hooks.translate(payload)
    assert fact is not None
    assert activity_of(fact.event_type) is Activity.WAITING_INPUT


def test_what_a_subagent_does_is_not_what_its_parent_does() -> None:
    payloads = recorded.hooks("hooks-subagent.jsonl")[""]
    inside = [each for each in payloads if "agent_id" in each]
    assert {hooks.agent_of(each) for each in inside} == {recorded.SUBAGENT}
    assert len(inside) == 5
    assert activities(inside) == []
    assert activities(payloads) == [Activity.RUNNING, Activity.IDLE, Activity.EXITED]


def test_permission_asked_for_in_a_subagent_is_asked_of_whoever_sits_before_its_parent() -> None:
    payload = {
        "hook_event_name": "PermissionRequest",
        "session_id": "parent",
        "agent_id": "child",
        "tool_name": "Bash",
        "tool_input": {"command": "rm x"},
    }
    fact = hooks.translate(payload)
    assert fact is not None
    assert (fact.thread_id, fact.event_type) == ("parent", "approval.requested")
    assert fact.payload == {
        "tool": "Bash",
        "command": "rm x",
        "agent_id": "child",
        "hook": "PermissionRequest",
    }


def test_each_hook_there_is_has_a_meaning() -> None:
    assert len(hooks.EVENTS) == 14
    for name in hooks.EVENTS:
        fact = hooks.translate({"hook_event_name": name, "session_id": "s"})
        assert fact is not None
        assert fact.payload["hook"] == name


@pytest.mark.parametrize(
    "payload",
    [
        None,
        [],
        {},
        {"hook_event_name": "Stop"},
        {"hook_event_name": "Stop", "session_id": 7},
        {"hook_event_name": "Notification", "session_id": "s"},
        {"hook_event_name": ["Stop"], "session_id": "s"},
    ],
)
def test_what_is_none_of_the_hooks_says_nothing(payload: object) -> None:
    assert hooks.translate(payload) is None


def test_a_hook_names_the_tool_call_or_else_the_turn_it_is_about() -> None:
    tool, turn = PARTS["tool"][3], PARTS["tool"][0]
    assert [fact.source_event_id for fact in translated([tool, turn])] == [
        tool["tool_use_id"],
        turn["turn_id"],
    ]
