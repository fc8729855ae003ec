"""A listener that keeps what it is told has what everybody else finds."""

from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.messages import MessageType
from bullpen.model.tasks import TaskState
from bullpen.servers.a2a.v1 import mapping
from bullpen.servers.a2a.v1.events import Event, Telling
from tests.servers.a2a.v1.tasks import answer, task


def keep(known: pb.Task, event: Event) -> None:
    """Do with an event what the specification says."""
    if isinstance(event, pb.TaskStatusUpdateEvent):
        known.status.CopyFrom(event.status)
        return
    assert isinstance(event, pb.TaskArtifactUpdateEvent)
    ids = [each.artifact_id for each in known.artifacts]
    if event.append:
        assert event.artifact.artifact_id in ids  # nothing is appended to what was never sent
        known.artifacts[ids.index(event.artifact.artifact_id)].parts.extend(event.artifact.parts)
    elif event.artifact.artifact_id in ids:
        known.artifacts[ids.index(event.artifact.artifact_id)].CopyFrom(event.artifact)
    else:
        known.artifacts.append(event.artifact)


def text_of(found: pb.Task) -> list[str]:
    return ["".join(part.text for part in each.parts) for each in found.artifacts]


@given(
    said=st.lists(st.text(max_size=5), max_size=5), end=st.text(max_size=5), agrees=st.booleans()
)
def test_chunks_and_the_rest_are_the_answer_whatever_was_said_on_the_way(
    said: list[str], end: str, agrees: bool
) -> None:
    telling = Telling([], task())
    known = telling.task()
    for text in said:
        for event in telling.say(text):
            keep(known, event)
    whole = "".join(said) + end if agrees else end
    over = task(TaskState.COMPLETED, answer(whole))
    for event in telling.change(over):
        keep(known, event)
    assert text_of(known) == [whole]
    assert known.status.state == pb.TaskState.TASK_STATE_COMPLETED
    assert telling.is_over
    assert telling.has_ended


@pytest.mark.requirement("pitfall:3")
def test_the_first_chunk_begins_the_artifact_and_the_next_ones_go_on() -> None:
    telling = Telling([], task())
    events = [*telling.say("a"), *telling.say("b")]
    chunks = [each for each in events if isinstance(each, pb.TaskArtifactUpdateEvent)]
    assert [each.append for each in chunks] == [False, True]
    assert type(events[0]) is pb.TaskStatusUpdateEvent  # it works, first


def test_who_comes_late_gets_the_rest_as_a_new_beginning_and_then_the_whole() -> None:
    shaped: dict[str, Any] = {"artifact_id": "x", "parts": [{"text": "2"}], "append": True}
    first = answer("1", MessageType.PROGRESS, artifact_id="x", parts=[{"text": "1"}])
    second = answer("2", MessageType.PROGRESS, id="r-2", **shaped)
    late = Telling([], task(TaskState.WORKING, first))
    known = late.task()
    assert text_of(known) == ["1"]
    for event in late.change(task(TaskState.WORKING, first, second)):
        keep(known, event)
    assert text_of(known) == ["12"]


def test_a_task_that_works_is_not_told_to_wait_again() -> None:
    first = answer("1", MessageType.PROGRESS, artifact_id="x", parts=[{"text": "1"}])
    telling = Telling([], task())
    events = [
        *telling.change(task(TaskState.SUBMITTED, first)),  # before it is known that it works
        *telling.change(task(TaskState.WORKING, first)),
        *telling.change(task(TaskState.COMPLETED, first, answer("2", id="r-2"))),
    ]
    states = [each.status.state for each in events if isinstance(each, pb.TaskStatusUpdateEvent)]
    assert states == [pb.TaskState.TASK_STATE_WORKING, pb.TaskState.TASK_STATE_COMPLETED]


def test_nothing_is_told_twice() -> None:
    telling = Telling([], task())
    working = task(TaskState.WORKING)
    assert len(list(telling.change(working))) == 1
    assert list(telling.change(working)) == []


def test_a_further_turn_goes_on_with_the_same_task() -> None:
    asked = task(TaskState.INPUT_REQUIRED, answer("which?", MessageType.PROGRESS, asks=True))
    telling = Telling([], asked)
    assert telling.is_over
    assert not telling.has_ended
    turn = task(id="m-2", a2a={"task_id": "m-1"})
    [event] = telling.go_on(turn)
    assert isinstance(event, pb.TaskStatusUpdateEvent)
    assert event.task_id == "m-1"
    assert event.status.state == pb.TaskState.TASK_STATE_SUBMITTED
    assert mapping.state_of(turn) == event.status.state
