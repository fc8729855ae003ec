"""What A2A says of a message is given back as it was; a task looks the same at every door."""

import base64
import json
from typing import Any

import msgspec
import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import ContentTypeNotSupportedError, InvalidParamsError
from google.protobuf.json_format import MessageToDict, ParseDict
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.messages import MessageType, Priority
from bullpen.model.tasks import TaskState
from bullpen.servers.a2a.v1 import mapping
from tests.servers.a2a.v1.tasks import answer, task

S = pb.TaskState

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
words = texts.filter(str.strip)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda each: st.lists(each, max_size=3) | st.dictionaries(texts, each, max_size=3),
    max_leaves=8,
)
parts = st.one_of(
    st.builds(lambda text: {"text": text}, words),
    st.builds(lambda text, name: {"text": text, "filename": name}, words, words),
    st.builds(lambda url: {"url": f"https://example.com/{url}"}, st.text("abc", max_size=5)),
    st.builds(lambda data: {"data": data}, values),
    st.builds(
        lambda text: {"raw": base64.b64encode(text.encode()).decode(), "mediaType": "text/plain"},
        words,
    ),
)


def message(*given: dict[str, Any], **more: Any) -> pb.Message:
    said = {"messageId": "c-1", "role": "ROLE_USER", "parts": list(given), **more}
    return ParseDict(said, pb.Message())


@given(
    sent=st.lists(parts, min_size=1, max_size=4),
    metadata=st.dictionaries(words, values, min_size=1, max_size=3),
    references=st.lists(words, max_size=2),
)
def test_a_message_comes_back_in_the_history_as_it_was_sent(
    sent: list[dict[str, Any]], metadata: dict[str, Any], references: list[str]
) -> None:
    given = message({"text": "."}, *sent, metadata=metadata, referenceTaskIds=references)
    text, kept = mapping.read_message(given)
    stored = json.loads(msgspec.json.encode(kept))  # as it is in the database
    found = mapping.task_of([task(content=text, a2a=stored)])
    [told] = found.history
    assert MessageToDict(told) == {
        **MessageToDict(given),
        "taskId": "m-1",
        "contextId": "m-1",
    }


def test_parts_stand_one_below_the_other_for_the_agent() -> None:
    text, _ = mapping.read_message(
        message(
            {"text": "look at"},
            {"url": "https://example.com/a.txt", "filename": "a.txt"},
            {"data": {"count": 42, "half": 0.5}},
            {"raw": base64.b64encode("grün".encode()).decode(), "mediaType": "text/plain"},
        )
    )
    assert text == ('look at\na.txt: https://example.com/a.txt\n{"count": 42, "half": 0.5}\ngrün')


@pytest.mark.parametrize(
    ("given", "refused"),
    [
        (message(), InvalidParamsError),
        (message({}), InvalidParamsError),
        (message({"text": "  "}), InvalidParamsError),
        (message({"text": "x"}, messageId=""), InvalidParamsError),
        (message({"text": "x"}, role="ROLE_AGENT"), InvalidParamsError),
        (message({"raw": "/w==", "mediaType": "image/png"}), ContentTypeNotSupportedError),
        (message({"raw": "/w==", "mediaType": "text/plain"}), ContentTypeNotSupportedError),
    ],
    ids=["no-parts", "unknown-part", "no-text", "no-id", "agent", "image", "not-utf8"],
)
def test_what_an_agent_cannot_read_is_refused(given: pb.Message, refused: type[Exception]) -> None:
    with pytest.raises(refused):
        mapping.read_message(given)


@pytest.mark.requirement("a2a:priority")
@pytest.mark.parametrize(
    ("metadata", "priority"),
    [
        ({}, Priority.NORMAL),
        ({mapping.PRIORITY: 5.0}, Priority.URGENT),
        ({mapping.PRIORITY: "4"}, Priority.HIGH),
        ({mapping.PRIORITY: "low"}, Priority.LOW),
    ],
    ids=["none", "number", "digits", "word"],
)
def test_the_priority_is_an_extension(metadata: dict[str, Any], priority: Priority) -> None:
    assert mapping.priority_of(metadata) is priority


@pytest.mark.parametrize("value", [0, 6, "soon", {}, [5]], ids=str)
def test_a_priority_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidParamsError):
        mapping.priority_of({mapping.PRIORITY: value})


def test_an_answer_is_an_artifact() -> None:
    found = mapping.task_of([task(TaskState.COMPLETED, answer("done"))])
    assert found.status.state == S.TASK_STATE_COMPLETED
    assert not found.status.HasField("message")
    assert [(each.name, each.parts[0].text) for each in found.artifacts] == [("answer", "done")]


def test_an_agent_may_say_how_its_answer_looks() -> None:
    shaped = answer("see file", parts=[{"url": "https://example.com/o.txt"}], name="o.txt")
    [artifact] = mapping.task_of([task(TaskState.COMPLETED, shaped)]).artifacts
    assert artifact.parts[0].url == "https://example.com/o.txt"
    wrong = answer("see file", parts=[{"raw": 7}])
    [artifact] = mapping.task_of([task(TaskState.COMPLETED, wrong)]).artifacts
    assert artifact.parts[0].text == "see file"


def test_a_refusal_is_a_task_that_was_rejected() -> None:
    refused = answer("not mine", MessageType.TASK_FAILED, is_refusal=True)
    found = mapping.task_of([task(TaskState.FAILED, refused, reason="not mine")])
    assert found.status.state == S.TASK_STATE_REJECTED
    assert found.status.message.parts[0].text == "not mine"
    assert not found.artifacts


def test_why_a_task_failed_is_the_message_of_its_status() -> None:
    found = mapping.task_of([task(TaskState.FAILED, reason="the agent has ended")])
    assert found.status.message.parts[0].text == "the agent has ended"
    assert found.status.message.role == pb.Role.ROLE_AGENT


def test_a_question_of_the_agent_is_one_and_a_dialog_is_not() -> None:
    asked = task(
        TaskState.INPUT_REQUIRED, answer("which?", MessageType.PROGRESS, asks=True), reason="which?"
    )
    assert mapping.is_question(asked)
    assert mapping.task_of([asked]).status.message.parts[0].text == "which?"
    dialog = task(TaskState.INPUT_REQUIRED, reason="the agent waits for an approval")
    assert not mapping.is_question(dialog)


def test_a_task_stands_where_its_last_turn_stands_and_remembers_all() -> None:
    first = task(
        TaskState.INPUT_REQUIRED,
        answer("which?", MessageType.PROGRESS, asks=True),
        a2a={"message_id": "c-1", "context_id": "mine"},
    )
    second = task(
        TaskState.COMPLETED,
        answer("done", to="m-2", id="r-2"),
        id="m-2",
        content="the left one",
        a2a={"message_id": "c-2", "task_id": "m-1"},
        seconds=1,
    )
    assert mapping.fold([second, first]) == {"m-1": [first, second]}
    found = mapping.task_of([first, second])
    assert (found.id, found.context_id) == ("m-1", "mine")
    assert found.status.state == S.TASK_STATE_COMPLETED
    assert [each.parts[0].text for each in found.history] == ["hello", "which?", "the left one"]
    assert {each.context_id for each in found.history} == {"mine"}
    shown = mapping.task_of([first, second], history_length=1, with_artifacts=False)
    assert [each.parts[0].text for each in shown.history] == ["the left one"]
    assert not shown.artifacts
    assert not mapping.task_of([first, second], history_length=0).history


@given(st.dictionaries(st.sampled_from(["parts", "task_id", "message_id"]), values))
def test_nothing_that_stands_in_the_metadata_breaks_a_task(extra: dict[str, Any]) -> None:
    mapping.task_of([task(TaskState.COMPLETED, answer("x", **extra), a2a=extra)])
