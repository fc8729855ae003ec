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


def hook(name: str, **fields: object) -> CodexFact:
    fact = hooks.translate({"hook_event_name": name, "session_id": "s", "turn_id": "u", **fields})
    assert fact is not None
    return fact


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
        ("compact", [Activity.RUNNING, Activity.IDLE]),
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


def test_compacting_by_itself_is_a_part_of_a_turn() -> None:
    payload = {"hook_event_name": "PostCompact", "session_id": "s", "trigger": "auto"}
    fact = hooks.translate(payload)
    assert fact is not None
    assert activity_of(fact.event_type) is None


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
    }  # without a turn, which this one does not name


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


def test_what_a_hook_says_is_kept_with_it() -> None:
    turn = {"turn_id": "u", "transcript_path": "/rollout.jsonl"}
    assert hook("UserPromptSubmit", prompt="hello", **turn).payload == {
        "prompt": "hello",
        "hook": "UserPromptSubmit",
        **turn,
    }
    assert hook("SessionEnd", reason="other").payload["reason"] == "other"
    failed = hook("PostModelRequest", status="failed", error="high demand")
    assert failed.payload["error"] == "high demand"
    completed = hook("PostModelRequest", status="completed")
    assert completed.event_type == "hook.PostModelRequest"
    assert completed.payload["status"] == "completed"
    compacted = hook("PostCompact", trigger="auto")
    assert (compacted.event_type, compacted.payload["trigger"]) == ("hook.PostCompact", "auto")


def test_a_request_refused_for_usage_may_be_tried_again_as_well() -> None:
    refused = hook("PostModelRequest", status="failed", error="last status: 429 Too Many Requests")
    assert refused.event_type == "turn.rate_limited"
    assert hooks.may_go_on(refused)


def test_a_hook_names_the_tool_call_or_else_the_turn_it_is_about() -> None:
    tool, turn = PARTS["tool"][3], PARTS["tool"][0]
    assert [fact.source_event_id for fact in translated([tool, turn])] == [
        tool["tool_use_id"],
        turn["turn_id"],
    ]


def tool(name: str, command: str, **fields: object) -> CodexFact:
    return hook(name, tool_name="Bash", tool_input={"command": command}, **fields)


def settled(*facts: CodexFact) -> list[str]:
    approvals = hooks.Approvals()
    return [approvals.settle(fact).event_type for fact in facts]


def test_another_tool_that_is_done_is_no_answer_to_who_waits_for_permission() -> None:
    assert settled(
        tool("PreToolUse", "ls"),
        tool("PermissionRequest", "rm x"),
        tool("PreToolUse", "pwd"),
        tool("PostToolUse", "ls"),
        tool("PostToolUse", "rm x"),
        tool("PostToolUse", "pwd"),
    ) == [
        "tool.started",
        "approval.requested",
        "hook.PreToolUse",
        "hook.PostToolUse",
        "tool.completed",
        "tool.completed",
    ]


def test_of_two_that_wait_each_is_answered() -> None:
    assert settled(
        tool("PermissionRequest", "rm x"),
        tool("PermissionRequest", "rm y"),
        tool("PostToolUse", "rm y"),
        tool("PostToolUse", "rm x"),
    )[2:] == ["hook.PostToolUse", "tool.completed"]


@pytest.mark.parametrize(
    "name", ["PreModelRequest", "Stop", "Interrupt", "UserPromptSubmit", "SessionEnd"]
)
def test_nobody_waits_any_more_when_the_turn_went_on_or_ended(name: str) -> None:
    asked = tool("PermissionRequest", "rm x")
    assert settled(asked, hook(name), tool("PostToolUse", "ls"))[2] == "tool.completed"


def test_permission_given_to_a_subagent_is_told_of_its_parent() -> None:
    asked = tool("PermissionRequest", "rm x", agent_id="a")
    done = tool("PostToolUse", "rm x", agent_id="a")
    assert settled(asked, done) == ["approval.requested", "approval.granted"]
    stopped = hook("SubagentStop", agent_id="a")
    assert settled(asked, stopped, done) == [
        "approval.requested",
        "approval.granted",
        "subagent.PostToolUse",
    ]


def test_what_the_parent_does_is_no_answer_to_a_subagent() -> None:
    asked = tool("PermissionRequest", "rm x", agent_id="a")
    assert settled(asked, tool("PostToolUse", "rm x"), hook("PreModelRequest", agent_id="b")) == [
        "approval.requested",
        "hook.PostToolUse",
        "subagent.PreModelRequest",
    ]


def test_sessions_do_not_answer_for_each_other() -> None:
    asked = tool("PermissionRequest", "rm x")
    assert settled(asked, tool("PostToolUse", "ls", session_id="other"))[1] == "tool.completed"
