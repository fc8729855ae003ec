"""A transcript says what was done; what may be waiting for somebody it leaves open."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.claude.transcript import TranscriptEvent, TranscriptReader
from bullpen.model.events import activity_of
from tests.agents.claude.recorded import lines


def read(recorded: Iterable[bytes]) -> list[TranscriptEvent]:
    reader = TranscriptReader()
    return [event for line in recorded if (event := reader.read(line)) is not None]


def states(events: Iterable[TranscriptEvent]) -> list[str]:
    """Return the activities, each once until it changes."""
    seen: list[str] = []
    for event in events:
        activity = activity_of(event.event_type)
        if activity is not None and (not seen or seen[-1] != activity):
            seen.append(activity)
    return seen


def line(kind: str, content: Any, **fields: Any) -> bytes:
    stop_reason = fields.pop("stop_reason", None)
    message = {"role": kind, "content": content, "stop_reason": stop_reason}
    return json.dumps({"type": kind, "uuid": "u", "message": message, **fields}).encode()


def tool_use(*ids: str) -> bytes:
    blocks = [{"type": "tool_use", "id": each, "name": "Bash", "input": {}} for each in ids]
    return line("assistant", blocks, stop_reason="tool_use")


def result(tool_use_id: str, **fields: Any) -> bytes:
    return line("user", [{"type": "tool_result", "tool_use_id": tool_use_id}], **fields)


DONE = line("assistant", [{"type": "text", "text": "done"}], stop_reason="end_turn")


def types(*recorded: bytes) -> list[str]:
    return [event.event_type for event in read(recorded)]


@pytest.mark.requirement("DET-9")
def test_a_recorded_run_goes_through_its_states() -> None:
    events = read(lines("transcript-turns.jsonl"))
    assert states(events) == [
        *("running", "idle", "running", "idle"),
        *("running", "idle"),  # an approval refused by Esc
        *("running", "idle", "running", "idle"),  # Esc while it speaks, and while a tool runs
        *("running", "error", "running", "rate_limited"),
    ]
    assert [each.event_type for each in events].count("turn.interrupted") == 3


def test_a_line_has_its_own_id_time_and_directory() -> None:
    prompt = next(
        each for each in read(lines("transcript-turns.jsonl")) if each.event_type != "session.named"
    )
    assert prompt == TranscriptEvent(
        event_type="prompt.submitted",
        line_id=prompt.line_id,
        at=datetime(2026, 11, 15, 14, 12, 57, 749_000, UTC),
        cwd="/home/dev/my.proj_1",
    )
    assert len(prompt.line_id) == 36


def test_an_error_is_told_with_its_kind() -> None:
    errors = [each.details for each in read(lines("transcript-turns.jsonl")) if each.details]
    assert {"error": "unknown", "status": 400} in errors
    assert {"error": "rate_limit", "status": 429} in errors


@pytest.mark.requirement("TTL-4")
def test_a_title_is_told_and_one_that_somebody_chose_stays() -> None:
    assert [each.title for each in read(lines("transcript-turns.jsonl")) if each.title] == [
        "Scripted title",
        "Scripted title",
    ]
    named = [
        b'{"type":"summary","summary":"first","leafUuid":"x"}',
        b'{"type":"ai-title","aiTitle":"made up","sessionId":"s"}',
        b'{"type":"summary","summary":"late","leafUuid":"x"}',
        b'{"type":"custom-title","customTitle":"chosen","sessionId":"s"}',
        b'{"type":"ai-title","aiTitle":"made up","sessionId":"s"}',
        b'{"type":"custom-title","customTitle":" ","sessionId":"s"}',
        b'{"type":"custom-title","customTitle":"chosen again","sessionId":"s"}',
    ]
    assert [each.title for each in read(named)] == ["first", "made up", "chosen", "chosen again"]


def test_commands_and_what_they_print_say_nothing() -> None:
    assert [each.event_type for each in read(lines("transcript-commands.jsonl"))] == [
        "session.named"
    ]


def test_what_a_subagent_does_says_nothing_about_the_session() -> None:
    assert read(lines("transcript-subagent.jsonl")) == []


def test_a_result_says_nothing_as_long_as_another_tool_is_open() -> None:
    assert types(tool_use("a"), tool_use("b", "c"), result("a"), result("c")) == [
        "tool.started",
        "tool.started",
    ]
    assert types(tool_use("a", "b"), result("a"), result("b")) == ["tool.started", "tool.completed"]


def test_recorded_tools_side_by_side_are_done_with_the_last() -> None:
    events = [
        each
        for each in read(lines("transcript-tools.jsonl"))
        if each.at and datetime(2026, 11, 15, 14, 14, 20, tzinfo=UTC) < each.at
    ]
    assert [each.event_type for each in events][:6] == [
        "prompt.submitted",
        *["tool.started"] * 3,
        "tool.failed",
        "turn.completed",
    ]


def test_a_refused_tool_is_told_by_the_line_after_it() -> None:
    marker = [{"type": "text", "text": "[Request interrupted by user for tool use]"}]
    assert types(
        tool_use("a", "b"),
        result("a", toolUseResult="User rejected tool use"),
        line("user", marker),
        result("z"),
    ) == ["tool.started", "turn.interrupted", "tool.completed"]


FAILED = line("assistant", [], isApiErrorMessage=True)


@pytest.mark.parametrize("after", [DONE, FAILED, line("user", "next prompt")])
def test_what_was_open_is_over_with_its_turn(after: bytes) -> None:
    assert types(tool_use("lost"), after, tool_use("a"), result("a"))[-1] == "tool.completed"


def test_whoever_missed_lines_takes_no_tool_for_open() -> None:
    reader = TranscriptReader()
    reader.read(tool_use("a", "b"))
    reader.lose_track()
    event = reader.read(result("b"))
    assert event is not None
    assert event.event_type == "tool.completed"


def test_a_turn_that_ends_while_a_subagent_works_is_not_the_end() -> None:
    launched = {"status": "async_launched", "agentId": "a1"}
    notice = "<task-notification>\n<task-id>a1</task-id>\n<status>completed</status>"
    assert types(
        tool_use("a"),
        result("a", toolUseResult=launched),
        DONE,
        line("user", notice, origin={"kind": "task-notification"}),
        DONE,
    ) == [
        "tool.started",
        "tool.completed",
        "activity.running",
        "prompt.submitted",
        "turn.completed",
    ]


@pytest.mark.parametrize(
    "uncertain",
    [
        line("assistant", [{"type": "text", "text": "so far"}]),
        line("assistant", [{"type": "text", "text": "cut"}], stop_reason="max_tokens"),
        line("assistant", [{"type": "text", "text": "I will"}], stop_reason="tool_use"),
        line("assistant", [{"type": "text", "text": "x"}], stop_reason="pause_turn"),
        line("user", "hook feedback", isMeta=True),
        line("user", "the story so far", isCompactSummary=True),
        line("user", "<command-name>/review</command-name>"),
        line("user", "<local-command-stdout>ok</local-command-stdout>"),
        line("user", "<bash-input>ls</bash-input>"),
        line("user", []),
        line("user", [{"type": "image"}]),
        line("user", None),
        line("user", "inside", isSidechain=True),
        b'{"type":"user"}',
        b'{"type":"user","message":"odd"}',
        b'{"type":"system","subtype":"turn_duration"}',
        b'{"type":"queue-operation","operation":"enqueue"}',
        b'{"type":"progress"}',
        b'{"type":"a kind of a later version"}',
    ],
)
def test_a_line_that_may_mean_anything_says_nothing(uncertain: bytes) -> None:
    assert types(uncertain) == []


def test_an_answer_that_the_program_wrote_itself_says_nothing() -> None:
    message = {"content": [], "stop_reason": "stop_sequence", "model": "<synthetic>"}
    assert types(json.dumps({"type": "assistant", "message": message}).encode()) == []


def test_a_pasted_prompt_of_several_blocks_is_one() -> None:
    blocks = [{"type": "text", "text": "look"}, {"type": "image", "source": {}}]
    assert types(line("user", blocks)) == ["prompt.submitted"]


@pytest.mark.parametrize(
    "bad",
    [b"", b'{"type":"user","mess', b"[]", b'{"uuid":"u"}', b'{"type":7}', b"\xff", b"[" * 100_000],
)
def test_what_is_no_line_is_not_understood_and_the_next_one_is_read(bad: bytes) -> None:
    reader = TranscriptReader()
    with pytest.raises(NotUnderstood, match="a line of a transcript: "):
        reader.read(bad)
    assert reader.read(DONE) is not None


def test_a_lone_surrogate_costs_one_character() -> None:
    [named] = read([b'{"type":"custom-title","customTitle":"half \\ud83d"}'])
    assert named.title == "half \ufffd"
    assert types(b'{"type":"user","message":{"content":"\\ud83d \xed\xa0\x80"}}') == [
        "prompt.submitted"
    ]


@pytest.mark.parametrize("timestamp", ["", "yesterday", 7, None])
def test_a_line_need_not_have_a_time(timestamp: object) -> None:
    [event] = read([line("user", "hi", timestamp=timestamp)])
    assert event.at is None


def test_a_time_without_a_zone_is_of_utc() -> None:
    [event] = read([line("user", "hi", timestamp="2026-11-15T14:00:00")])
    assert event.at == datetime(2026, 11, 15, 14, tzinfo=UTC)


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
    max_leaves=10,
)


@given(data=st.data())
def test_whatever_is_in_the_fields_it_is_told_or_left(data: st.DataObject) -> None:
    recorded = lines("transcript-tools.jsonl")
    value = json.loads(data.draw(st.sampled_from(recorded)))
    targets = [value, *(each for each in value.values() if isinstance(each, dict))]
    for target in targets:
        for key in data.draw(st.lists(st.sampled_from(sorted(target)))) if target else []:
            target[key] = data.draw(json_values)
    reader = TranscriptReader()
    try:
        reader.read(json.dumps(value).encode())
    except NotUnderstood:
        assert not isinstance(value.get("type"), str)
