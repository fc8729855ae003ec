"""Session files of the real program, and of versions that write them otherwise."""

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.providers.codex.facts import CodexFact
from bullpen.agents.providers.codex.rollout import Rollout, SessionMeta, read_meta
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from tests.agents.codex import recorded

META = SessionMeta(thread_id="t1", cwd="/project")


def entry(kind: str, at: str = "2026-11-15T14:06:45.860Z", **payload: Any) -> bytes:
    return json.dumps({"timestamp": at, "type": kind, "payload": payload}).encode()


def event(kind: str, **payload: Any) -> bytes:
    return entry("event_msg", type=kind, **payload)


def call(call_id: str, name: str = "exec_command") -> bytes:
    return entry("response_item", type="function_call", name=name, call_id=call_id)


def output(call_id: str) -> bytes:
    return entry("response_item", type="function_call_output", call_id=call_id, output="ok")


def facts(*lines: bytes, reader: Rollout | None = None) -> list[CodexFact]:
    reader = reader or Rollout(META)
    return [fact for line in lines if (fact := reader.feed(line)) is not None]


def types(*lines: bytes) -> list[str]:
    return [fact.event_type for fact in facts(*lines)]


def test_a_recorded_session_tells_every_turn_and_tool() -> None:
    lines = recorded.lines(recorded.rollout(recorded.TERMINAL).name)
    meta = read_meta(lines[0])
    assert meta is not None
    told = facts(*lines, reader=Rollout(meta))
    tool = ["turn.started", "tool.started", "tool.completed", "turn.completed"]
    assert [fact.event_type for fact in told] == [
        *["turn.started", "turn.completed"],
        *tool,  # permission was asked for, of which there is nothing in the file
        *["turn.started", "tool.started", "tool.completed", "turn.interrupted"],  # and refused
        *tool,
        *["turn.started", "turn.interrupted"],
        *["turn.started", "turn.failed"] * 2,
        *["turn.started", "turn.rate_limited"],
        *["turn.started", "turn.completed"],  # the conversation was compacted
        *tool,
    ]
    assert {fact.thread_id for fact in told} == {recorded.TERMINAL}
    assert told[0].at == datetime(2026, 11, 15, 14, 6, 45, 860_000, UTC)
    assert all(one.at <= two.at for one, two in pairwise(told) if one.at and two.at)
    assert (
        told[0].source_event_id
        == told[1].source_event_id
        == ("01a1df88-2c60-7cb3-9767-fa8961b9803d")
    )
    assert told[3].source_event_id == told[4].source_event_id == "call_140bd62b000010"


def test_a_file_says_whose_it_is() -> None:
    assert read_meta(recorded.lines(recorded.rollout(recorded.TERMINAL).name)[0]) == SessionMeta(
        thread_id=recorded.TERMINAL,
        cwd="/home/dev/demo/project",
        originator="codex-tui",
        source="cli",
        version="0.166.0",
    )


def test_the_file_of_a_subagent_is_nobodys() -> None:
    meta = read_meta(recorded.lines(recorded.rollout(recorded.SUBAGENT).name)[0])
    assert meta is not None
    assert meta.is_hidden


@pytest.mark.parametrize(
    "said",
    [
        {"thread_source": "thread_title"},
        {"thread_source": "subagent"},
        {"source": {"subagent": "review"}},
        {"parent_thread_id": "p"},
    ],
)
def test_a_thread_that_serves_another_is_nobodys(said: dict[str, Any]) -> None:
    meta = read_meta(entry("session_meta", id="t", **said))
    assert meta is not None
    assert meta.is_hidden


def test_what_a_file_says_may_stand_one_level_deeper() -> None:
    assert read_meta(entry("session_meta", meta={"id": "t", "cwd": "/p"}, git={})) == SessionMeta(
        thread_id="t", cwd="/p"
    )


@pytest.mark.parametrize(
    "line",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"type": "session_meta"}'],
)
def test_a_line_that_begins_no_file_says_nothing(line: bytes) -> None:
    assert read_meta(line) is None
    assert Rollout(META).feed(line) is None


def test_other_versions_have_other_names_for_a_turn() -> None:
    assert types(event("turn_started"), event("turn_complete")) == [
        "turn.started",
        "turn.completed",
    ]


def test_an_error_told_before_the_end_of_a_turn_is_how_it_ended() -> None:
    assert types(
        event("task_started"), event("error", message="no such model"), event("task_complete")
    ) == ["turn.started", "turn.failed", "turn.failed"]


def test_an_error_is_told_with_its_message() -> None:
    told = facts(event("error", message="sorry", codex_error_info="usage_limit_exceeded"))
    assert [(fact.event_type, fact.payload) for fact in told] == [
        ("turn.rate_limited", {"error": "sorry"})
    ]


@pytest.mark.parametrize(("role", "end"), [("assistant", "completed"), ("user", "failed")])
def test_an_error_after_which_the_agent_spoke_is_forgotten(role: str, end: str) -> None:
    assert types(
        event("error", message="sorry"),
        entry("response_item", type="message", role=role),
        entry("response_item", type="reasoning", role="assistant"),
        event("task_complete"),
    ) == ["turn.failed", f"turn.{end}"]


def test_an_error_is_not_that_of_the_next_turn() -> None:
    error = event("error", message="sorry")
    assert types(error, event("task_started"), event("task_complete"))[2] == "turn.completed"
    ended = types(error, event("task_complete"), event("task_complete"))
    assert ended == ["turn.failed", "turn.failed", "turn.completed"]


def test_an_error_after_which_the_turn_went_on_is_forgotten() -> None:
    assert types(
        event("task_started"),
        event("error", message="could not compact"),
        call("c1"),
        output("c1"),
        event("task_complete"),
    ) == ["turn.started", "turn.failed", "tool.started", "tool.completed", "turn.completed"]


def test_a_turn_that_fails_when_the_limit_is_reached_was_refused_for_usage() -> None:
    limits: Any = {"primary": {"used_percent": 100.0}, "rate_limit_reached_type": None}
    failed = event("task_complete", error={"message": "sorry", "codex_error_info": "other"})
    assert types(event("task_started"), event("token_count", rate_limits=limits), failed) == [
        "turn.started",
        "turn.rate_limited",
    ]
    limits = {"rate_limit_reached_type": "rate_limit_reached"}
    assert types(event("token_count", rate_limits=limits), failed) == ["turn.rate_limited"]
    limits = {"primary": {"used_percent": 99.0}, "secondary": {"used_percent": "all"}}
    assert types(event("token_count", rate_limits=limits), failed) == ["turn.failed"]


@pytest.mark.parametrize(
    "info",
    [
        "usage_limit_exceeded",
        {"response_too_many_failed_attempts": {"http_status_code": 429}},
    ],
)
def test_usage_is_named_as_the_reason(info: object) -> None:
    error = {"message": "sorry", "codex_error_info": info}
    assert types(event("task_complete", error=error)) == ["turn.rate_limited"]


@pytest.mark.parametrize(
    "info", [None, 429, "other", {"other": {"http_status_code": 500}}, {"x": 1}]
)
def test_other_reasons_are_errors(info: object) -> None:
    error = {"message": "sorry", "codex_error_info": info}
    [fact] = facts(event("task_complete", error=error))
    assert (fact.event_type, fact.payload) == ("turn.failed", {"error": "sorry"})


def test_the_review_command_is_no_request_for_permission() -> None:
    assert types(event("entered_review_mode", target="main"), event("exited_review_mode")) == []


def test_a_question_is_told_until_it_is_answered() -> None:
    assert types(event("task_started"), call("c1", "request_user_input"), output("c1")) == [
        "turn.started",
        "question.asked",
        "tool.completed",
    ]


def test_the_end_of_a_tool_is_told_once_though_two_lines_say_it() -> None:
    item = {"type": "CommandExecution", "id": "c1", "status": "failed"}
    assert types(
        event("task_started"), call("c1"), event("item_completed", item=item), output("c1")
    ) == ["turn.started", "tool.started", "tool.failed"]


def test_what_goes_on_in_the_background_after_a_turn_is_not_told() -> None:
    assert types(
        event("task_started"), call("c1"), event("turn_aborted"), output("c1"), call("c2")
    ) == ["turn.started", "tool.started", "turn.interrupted"]


def test_a_turn_that_replaces_another_has_begun_already() -> None:
    assert types(
        event("task_started", turn_id="one"),
        event("task_started", turn_id="two"),
        event("turn_aborted", turn_id="one", reason="replaced"),
        call("c1"),
    ) == ["turn.started", "turn.started", "tool.started"]


def test_lines_from_the_midst_of_a_turn_tell_that_it_goes_on() -> None:
    [fact] = facts(output("c1"))
    assert activity_of(fact.event_type) is Activity.RUNNING


def test_a_name_given_to_the_thread_is_told() -> None:
    [fact] = facts(event("thread_name_updated", thread_name="Fix the tests"))
    assert (fact.event_type, fact.payload) == ("session.named", {"title": "Fix the tests"})


def test_the_directory_is_that_of_the_last_turn() -> None:
    reader = Rollout(META)
    reader.feed(entry("turn_context", cwd="/elsewhere"))
    assert reader.cwd == "/elsewhere"
    reader.feed(entry("turn_context", cwd=None))
    reader.feed(entry("session_meta", cwd=None))
    assert reader.cwd == "/elsewhere"
    reader.feed(entry("session_meta", cwd="/again"))
    assert reader.cwd == "/again"


def test_a_lone_surrogate_does_not_hide_a_line() -> None:
    line = rb'{"type":"event_msg","payload":{"type":"task_started","turn_id":"\ud800"}}'
    [fact] = facts(line)
    assert fact.event_type == "turn.started"
    assert fact.at is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KINDS = ["event_msg", "response_item", "turn_context", "session_meta", "compacted"]
TYPES = ["task_complete", "turn_aborted", "error", "item_completed", "token_count", "function_call"]
FIELDS = ["turn_id", "error", "item", "rate_limits", "call_id", "name", "cwd", "message", "reason"]


@given(
    kind=st.sampled_from(KINDS),
    event_type=st.sampled_from(TYPES),
    payload=st.dictionaries(st.sampled_from(FIELDS), json_values),
)
def test_whatever_stands_in_a_field_no_line_breaks_the_reader(
    kind: str, event_type: str, payload: dict[str, Any]
) -> None:
    reader = Rollout(META)
    line = json.dumps({"type": kind, "payload": {**payload, "type": event_type}}).encode()
    for _ in range(2):
        reader.feed(line)
    read_meta(line)
