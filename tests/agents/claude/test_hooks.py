"""Claude Code's hooks in our words: what happened, to which session, and what it does not say."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.claude.hooks import (
    HOOK_EVENTS,
    SESSIONS_REMEMBERED,
    Approvals,
    HookEvent,
    translate,
)
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from tests.agents.claude.recorded import by_event, deliveries

# What each recorded variant says; None where the event means nothing to us.
MEANINGS = {
    "SessionStart:startup": "session.started",
    "SessionStart:resume": "session.started",
    "SessionStart:clear": "session.started",
    "SessionStart:compact": "session.compacted",
    "SessionEnd:prompt_input_exit": "session.ended",
    "SessionEnd:other": "session.ended",
    "SessionEnd:clear": "session.left",
    "UserPromptSubmit": "prompt.submitted",
    "PreToolUse": "tool.started",
    "PreToolUse:in_subagent": "subagent.tool.started",
    "PermissionRequest": "approval.requested",
    "PermissionRequest:in_subagent": "approval.requested",
    "PostToolUse": "tool.completed",
    "PostToolUse:in_subagent": "subagent.tool.completed",
    "PostToolUseFailure": "tool.failed",
    "PostToolBatch": "model.requested",
    "Notification:permission_prompt": "notification.permission_prompt",
    "Notification:idle_prompt": "notification.idle_prompt",
    "Stop": "turn.completed",
    "Stop:background_running": "turn.completed",
    "StopFailure:server_error": "turn.failed",
    "StopFailure:authentication_failed": "turn.failed",
    "StopFailure:unknown": "turn.failed",
    "StopFailure:rate_limit": "turn.rate_limited",
    "SubagentStart": "subagent.started",
    "SubagentStop": "subagent.stopped",
    "PreCompact": "compaction.started",
    "PostCompact": "turn.completed",
    "MessageDisplay": None,
    "TaskCreated": None,
    "InstructionsLoaded": None,
}


def payload(name: str, **fields: Any) -> dict[str, Any]:
    return {"hook_event_name": name, "session_id": "s", "prompt_id": "p", **fields}


def event(name: str, **fields: Any) -> HookEvent:
    found = translate(payload(name, **fields))
    assert found is not None
    return found


@pytest.mark.requirement("DET-9")
@pytest.mark.parametrize("variant", sorted(MEANINGS))
def test_each_recorded_variant_has_its_meaning(variant: str) -> None:
    found = translate(by_event()[variant])
    assert (found and found.event_type) == MEANINGS[variant]


def test_every_recorded_variant_is_in_the_table() -> None:
    assert set(by_event()) == set(MEANINGS)


@pytest.mark.requirement("SIG-1", "SRC-6")
@pytest.mark.parametrize("variant", sorted(name for name, kind in MEANINGS.items() if kind))
def test_each_event_names_its_session_and_the_fact(variant: str) -> None:
    recorded = by_event()[variant]
    found = translate(recorded)
    assert found is not None
    assert found.session_id == recorded["session_id"]
    assert found.cwd == recorded["cwd"]
    assert found.transcript_path == recorded["transcript_path"]
    assert found.source_event_id
    assert found.details["hook"] == recorded["hook_event_name"]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tool_use_id": "toolu_1"}, "toolu_1"),
        ({}, "p"),
        ({"prompt_id": ""}, "SessionStart:s"),
        ({"prompt_id": 7}, "SessionStart:s"),
    ],
)
def test_a_fact_is_named_by_the_program_if_it_has_a_name(
    fields: dict[str, Any], expected: str
) -> None:
    assert event("SessionStart", **fields).source_event_id == expected


def test_a_question_is_not_an_approval_and_a_plan_is() -> None:
    questions = {"questions": [{"question": "Which?"}]}
    asked = event("PermissionRequest", tool_name="AskUserQuestion", tool_input=questions)
    assert asked.event_type == "question.asked"
    assert asked.details["what"] == "Which?"
    plan = event("PermissionRequest", tool_name="ExitPlanMode", tool_input={"plan": "do it"})
    assert plan.event_type == "approval.requested"
    assert event("Elicitation", message="name?").event_type == "question.asked"


@pytest.mark.parametrize("variant", ["Notification:permission_prompt", "Notification:idle_prompt"])
def test_a_notification_comes_late_and_only_confirms(variant: str) -> None:
    found = translate(by_event()[variant])
    assert found is not None
    assert activity_of(found.event_type) is None
    assert found.details["confirms"] in ("waiting", "idle")


@pytest.mark.parametrize(
    ("tasks", "activity", "is_background"),
    [
        ([], Activity.IDLE, False),
        ([{"type": "shell", "status": "running"}], Activity.IDLE, True),
        ([{"type": "monitor", "status": "running"}], Activity.IDLE, True),
        ([{"type": "subagent", "status": "running"}], Activity.RUNNING, True),
        ([{"type": "workflow", "status": "pending"}], Activity.RUNNING, True),
        ([{"type": "subagent", "status": "completed"}], Activity.IDLE, False),
        (None, Activity.IDLE, False),
        (["odd", {}, {"type": [], "status": "running"}], Activity.IDLE, True),
    ],
)
def test_a_turn_that_ends_while_subagents_work_is_not_the_end(
    tasks: object, activity: Activity, is_background: bool
) -> None:
    found = event("Stop", background_tasks=tasks)
    assert activity_of(found.event_type) is activity
    assert found.details.get("background", False) is is_background


@pytest.mark.parametrize("name", sorted(HOOK_EVENTS))
def test_inside_a_subagent_only_a_dialog_says_anything_about_the_session(name: str) -> None:
    found = event(name, agent_id="a1", tool_name="Bash")
    if name in ("PermissionRequest", "Elicitation"):
        assert activity_of(found.event_type) is not None
    else:
        assert activity_of(found.event_type) is None
        assert found.event_type.startswith("subagent.")


def test_the_end_of_a_subagent_never_ends_the_session() -> None:
    assert activity_of(event("SubagentStop").event_type) is None


def test_a_session_that_is_left_for_another_does_not_end_the_program() -> None:
    for reason in ("clear", "resume"):
        assert activity_of(event("SessionEnd", reason=reason).event_type) is None
    for reason in ("logout", "other", "prompt_input_exit", ""):
        assert activity_of(event("SessionEnd", reason=reason).event_type) is Activity.EXITED


def test_an_interrupted_tool_ends_the_turn() -> None:
    assert event("PostToolUseFailure", is_interrupt=True).event_type == "turn.interrupted"


def test_a_compaction_on_the_way_goes_on_and_one_by_command_ends() -> None:
    assert activity_of(event("PostCompact", trigger="auto").event_type) is Activity.RUNNING
    assert activity_of(event("PostCompact", trigger="manual").event_type) is Activity.IDLE


@pytest.mark.requirement("TTL-4")
def test_a_named_session_tells_its_name() -> None:
    found = translate(by_event()["SessionStart:resume"])
    assert found is not None
    assert found.title == "my-agent"


def test_a_prompt_that_the_program_gives_itself_is_marked() -> None:
    woken = event("UserPromptSubmit", prompt="<task-notification>\n<task-id>b1</task-id>")
    assert woken.details["is_automatic"]
    assert "is_automatic" not in event("UserPromptSubmit", prompt="hello").details


def test_details_are_short_and_on_one_line() -> None:
    long = event("PreToolUse", tool_name="Bash", tool_input={"command": "echo\n" + "x" * 5_000_000})
    assert len(long.details["what"]) == 200
    assert "\n" not in long.details["what"]
    just = event("PreToolUse", tool_name="Bash", tool_input={"command": "x" * 200})
    assert just.details["what"] == "x" * 200


@pytest.mark.requirement("SIG-2")
@pytest.mark.parametrize(
    "garbage",
    [
        None,
        [],
        "Stop",
        7,
        {},
        {"hook_event_name": "Stop"},
        {"session_id": "s"},
        {"hook_event_name": 1, "session_id": "s"},
        {"hook_event_name": "Stop", "session_id": ["s"]},
        {"hook_event_name": "Stop", "session_id": "s" * 129},
        {"hook_event_name": "Stop", "session_id": "a\nb"},
    ],
    ids=repr,
)
def test_what_is_no_payload_is_refused_with_a_reason(garbage: object) -> None:
    with pytest.raises(NotUnderstood, match="a hook's payload: "):
        translate(garbage)


def test_an_id_may_be_long() -> None:
    assert event("Stop", session_id="s" * 128).session_id == "s" * 128


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@given(data=st.data())
def test_whatever_is_in_the_fields_it_is_told_or_refused(data: st.DataObject) -> None:
    variant = data.draw(st.sampled_from(sorted(MEANINGS)))
    recorded = by_event()[variant]
    for key in data.draw(st.lists(st.sampled_from(sorted(recorded)))):
        recorded[key] = data.draw(json_values)
    try:
        found = translate(recorded)
    except NotUnderstood:
        return
    assert found is None or (found.session_id and found.source_event_id)


def told(payloads: Iterable[dict[str, Any]]) -> list[str]:
    """Return what is told of payloads that come one after the other."""
    approvals = Approvals()
    found = (translate(each) for each in payloads)
    return [approvals.settle(each).event_type for each in found if each is not None]


def states(types: Iterable[str]) -> list[str]:
    """Return the activities, each once until it changes."""
    seen: list[str] = []
    for each in types:
        activity = activity_of(each)
        if activity is not None and (not seen or seen[-1] != activity):
            seen.append(activity)
    return seen


def test_a_recorded_run_goes_through_its_states() -> None:
    run = [each["payload"] for each in deliveries("hooks-turns.jsonl")]
    assert states(told(run)) == [
        *("idle", "running", "idle"),
        *("running", "waiting_approval", "running", "idle"),
        *("running", "waiting_approval"),  # refused by Esc: no hook tells
        "running",  # twice ended by Esc: no hook tells
        *("error", "running", "rate_limited"),
        "idle",  # after /clear
        "exited",
    ]


def test_a_subagent_that_asks_lets_the_session_wait_until_it_goes_on() -> None:
    assert told(
        [
            payload("PreToolUse", tool_name="Agent"),
            payload("SubagentStart", agent_id="a"),
            payload("PreToolUse", agent_id="a", tool_name="Bash"),
            payload("PermissionRequest", agent_id="a", tool_name="Bash"),
            payload("PostToolUse", agent_id="a", tool_name="Bash"),
            payload("PostToolBatch", agent_id="a"),
            payload("SubagentStop", agent_id="a"),
            payload("PostToolUse", tool_name="Agent"),
        ]
    ) == [
        "tool.started",
        "subagent.started",
        "subagent.tool.started",
        "approval.requested",
        "approval.granted",
        "subagent.model.requested",
        "subagent.stopped",
        "tool.completed",
    ]


def test_a_tool_at_work_beside_one_that_waits_says_nothing() -> None:
    asked = payload("PermissionRequest", tool_name="WebFetch")
    done = payload("PostToolUse", tool_name="WebFetch")
    beside = [
        payload("PreToolUse", tool_name="Bash"),
        payload("PostToolUse", tool_name="Bash"),
        payload("PreToolUse", agent_id="a", tool_name="Bash"),
        payload("Notification", notification_type="permission_prompt"),
    ]
    types = told([asked, asked, *beside, done, *beside, done])
    assert [activity_of(each) for each in types] == [
        *[Activity.WAITING_APPROVAL] * 2,
        *[None] * 9,
        Activity.RUNNING,
    ]
    assert types[3] == "parallel.tool.completed"
    assert types[5] == "notification.permission_prompt"
    assert types[-1] == "tool.completed"


def test_another_use_of_the_tool_that_waits_is_no_answer() -> None:
    asked = payload("PermissionRequest", tool_name="Bash")
    begun, done = (payload(name, tool_name="Bash") for name in ("PreToolUse", "PostToolUse"))
    assert told([asked, begun, done]) == [
        "approval.requested",
        "parallel.tool.started",
        "tool.completed",
    ]


def test_recorded_tools_side_by_side_wait_until_the_last_is_answered() -> None:
    run = [each["payload"] for each in deliveries("hooks-tools.jsonl")]
    fetches = [each for each in run if each.get("prompt_id", "").startswith("072bc0d6")]
    assert states(told(fetches)) == ["running", "waiting_approval", "running", "idle"]


@pytest.mark.parametrize(
    "over",
    [
        payload("UserPromptSubmit"),
        payload("Stop"),
        payload("StopFailure"),
        payload("SessionStart"),
        payload("PostToolBatch"),
        payload("PermissionDenied", tool_name="Bash"),
        payload("PostToolUseFailure", tool_name="Read", is_interrupt=True),
    ],
    ids=lambda each: str(each["hook_event_name"]),
)
def test_nobody_is_asked_any_more_once_the_turn_goes_on(over: dict[str, Any]) -> None:
    asked = payload("PermissionRequest", tool_name="Bash")
    types = told([asked, over, payload("PreToolUse", tool_name="Bash")])
    assert activity_of(types[1]) is not None
    assert types[2] == "tool.started"


def test_sessions_do_not_wait_for_each_other() -> None:
    asked = payload("PermissionRequest", tool_name="Bash")
    other = payload("PostToolUse", tool_name="Read") | {"session_id": "other"}
    assert told([asked, other])[1] == "tool.completed"


def test_not_everything_is_remembered_for_ever() -> None:
    approvals = Approvals()
    for number in range(SESSIONS_REMEMBERED + 1):
        asked = payload("PermissionRequest", tool_name="Bash") | {"session_id": f"s{number}"}
        found = translate(asked)
        assert found is not None
        approvals.settle(found)
    later = event("PreToolUse", tool_name="Read")
    oldest, next_oldest = (replace(later, session_id=name) for name in ("s0", "s1"))
    assert approvals.settle(oldest).event_type == "tool.started"
    assert approvals.settle(next_oldest).event_type == "parallel.tool.started"
