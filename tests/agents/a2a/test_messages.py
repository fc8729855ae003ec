"""Messages and tasks have the shapes of their dialect, and one shape here."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.a2a.card import Binding, Card, Dialect, local_card
from bullpen.agents.a2a.messages import (
    A2AMessage,
    A2ATask,
    RemoteState,
    fold,
    message_body,
    read_answer,
    read_error,
    text_of_artifacts,
    text_of_parts,
)

AT = "http://127.0.0.1:8100"


def card(dialect: Dialect, **more: Any) -> Card:
    binding = Binding.PATHS if dialect is Dialect.SEED else Binding.JSONRPC
    return Card(name="x", dialect=dialect, binding=binding, url=AT, **more)


@pytest.mark.requirement("S-06", "S-126")
def test_a_message_is_made_of_parts() -> None:
    message = A2AMessage.from_text("日本語")
    assert message == A2AMessage("user", ({"type": "text", "text": "日本語"},))
    assert message.text == "日本語"


@pytest.mark.requirement("S-06", "S-150")
def test_what_is_sent_has_the_shape_of_its_dialect() -> None:
    seed = {"message": {"role": "user", "parts": [{"type": "text", "text": "hi"}]}}
    assert message_body(card(Dialect.SEED), "hi", message_id="m-1", sender="bob") == seed
    local = message_body(local_card("claude", AT), "hi", message_id="m-1", sender="bob")
    assert local["message"] == seed["message"]
    assert local["metadata"] == {"response_mode": "silent", "sender": {"sender_id": "bob"}}
    assert message_body(card(Dialect.V03), "hi", message_id="m-1", context_id="c") == {
        "message": {
            "kind": "message",
            "messageId": "m-1",
            "contextId": "c",
            "role": "user",
            "parts": [{"kind": "text", "text": "hi"}],
        },
        "configuration": {"blocking": False},
    }
    assert message_body(card(Dialect.V10), "hi", message_id="m-1", task_id="t") == {
        "message": {
            "messageId": "m-1",
            "taskId": "t",
            "role": "ROLE_USER",
            "parts": [{"text": "hi"}],
        },
        "configuration": {"returnImmediately": True},
    }
    urgent = message_body(card(Dialect.V10, priority_uri="urn:p"), "hi", message_id="m", priority=5)
    assert urgent["metadata"] == {"urn:p": 5}
    assert urgent["message"]["extensions"] == ["urn:p"]


@pytest.mark.requirement("S-45")
@pytest.mark.parametrize(
    ("artifacts", "expected"),
    [
        ([{"type": "text", "data": "a"}, {"type": "text", "data": "b"}], "a\nb"),
        ([{"type": "text", "data": {"content": "a"}}], "a"),
        ([{"artifactId": "1", "parts": [{"kind": "text", "text": "a"}, {"text": "b"}]}], "ab"),
        ([{"parts": [{"data": {"k": 1}}]}], '{"k":1}'),
        ([{"parts": [{"url": "https://x/y", "filename": "y"}]}], "[file y https://x/y]"),
        ([{"parts": [{"kind": "file", "file": {"bytes": "aGk="}}]}], "[file without a name]"),
        ([{"parts": [{"kind": "hologram"}]}, {"type": "text", "data": "a"}], "a"),
        ([], ""),
    ],
    ids=["seed", "newer-seed", "parts", "data", "file", "bytes", "unknown", "none"],
)
def test_the_words_of_artifacts_are_joined(artifacts: list[dict[str, Any]], expected: str) -> None:
    assert text_of_artifacts(artifacts) == expected


@pytest.mark.requirement("S-127")
def test_a_task_of_the_seed_is_read() -> None:
    value = {
        "id": "t",
        "status": "working",
        "message": {"role": "user", "parts": []},
        "artifacts": [{"type": "text", "data": "a"}, 7],
        "created_at": "then",
        "updated_at": "now",
        "metadata": {"unheard": "of"},
    }
    task = read_answer({"task": value})
    assert task == A2ATask(
        id="t",
        status=RemoteState.WORKING,
        message=value["message"],  # type: ignore[arg-type]
        artifacts=({"type": "text", "data": "a"},),
        created_at="then",
        updated_at="now",
    )
    assert read_answer(value) == task
    assert task.text == "a"


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("input_required", RemoteState.INPUT_REQUIRED),
        ("input-required", RemoteState.INPUT_REQUIRED),
        ("TASK_STATE_INPUT_REQUIRED", RemoteState.INPUT_REQUIRED),
        ("TASK_STATE_REJECTED", RemoteState.REJECTED),
        ("cancelled", RemoteState.CANCELED),
        ("dreaming", RemoteState.UNKNOWN),
    ],
    ids=["seed", "0.3", "1.0", "rejected", "british", "unknown"],
)
def test_states_are_the_same_however_they_are_spelled(word: str, state: RemoteState) -> None:
    assert read_answer({"id": "t", "status": {"state": word}}).status is state


@pytest.mark.parametrize(
    "value",
    [
        {"message": {"role": "ROLE_AGENT", "parts": [{"text": "a"}], "contextId": "c"}},
        {"kind": "message", "role": "agent", "parts": [{"kind": "text", "text": "a"}]},
    ],
    ids=["1.0", "0.3"],
)
def test_a_message_for_an_answer_is_a_task_that_is_over(value: Any) -> None:
    task = read_answer(value)
    assert (task.id, task.status, task.text) == ("", RemoteState.COMPLETED, "a")


def test_what_an_agent_says_beside_its_artifacts_is_its_answer_if_there_are_none() -> None:
    said = {"state": "failed", "message": {"parts": [{"text": "no such file"}]}}
    assert read_answer({"id": "t", "status": said}).text == "no such file"
    history = [
        {"role": "user", "parts": [{"text": "q"}]},
        {"role": "agent", "parts": [{"text": "a"}]},
    ]
    assert read_answer({"id": "t", "status": "completed", "history": history}).text == "a"
    error = {"code": "E", "message": "went wrong"}
    assert read_answer({"id": "t", "status": "failed", "error": error}).text == "went wrong"


@pytest.mark.parametrize("dialect", ["0.3", "1.0"])
def test_a_task_becomes_what_its_events_say(dialect: str) -> None:
    def event(what: str, **told: Any) -> dict[str, Any]:
        told |= {"taskId": "t", "contextId": "c"}
        return {f"{what}Update": told} if dialect == "1.0" else {"kind": f"{what}-update", **told}

    begun = {"id": "t", "contextId": "c", "status": {"state": "submitted"}, "kind": "task"}
    task = fold(None, {"task": begun} if dialect == "1.0" else begun)
    events = [
        event("status", status={"state": "working"}),
        event("artifact", artifact={"artifactId": "1", "parts": [{"text": "one"}]}),
        event("artifact", artifact={"artifactId": "1", "parts": [{"text": " two"}]}, append=True),
        event("artifact", artifact={"artifactId": "2", "parts": [{"text": "x"}]}),
        event("artifact", artifact={"artifactId": "2", "parts": [{"text": "three"}]}),
        {"unheardOf": 1},
        None,
        event("status", status={"state": "completed"}),
    ]
    for each in events:
        task = fold(task, each)
    assert task is not None
    assert (task.status, task.text, task.context_id) == (
        RemoteState.COMPLETED,
        "one two\nthree",
        "c",
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"error": {"code": -32001, "message": "Task not found"}}, (-32001, "Task not found")),
        ({"detail": "Agent not running"}, (0, "Agent not running")),
        ({"detail": [{"msg": "field required"}, 4]}, (0, "field required")),
        ({"error": "no"}, (0, "no")),
        ({"result": {}}, None),
        ([], None),
    ],
    ids=["rpc", "seed", "fields", "plain", "none", "list"],
)
def test_errors_are_read(value: Any, expected: tuple[int, str] | None) -> None:
    assert read_error(value) == expected


KEYS = [
    *("id", "status", "state", "kind", "task", "message", "parts", "text", "artifacts"),
    *("statusUpdate", "artifactUpdate", "artifact", "data", "error", "history", "append"),
]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=14,
)


@given(JSON)
def test_whatever_an_agent_says_it_is_read_or_refused(value: Any) -> None:
    read_error(value)
    begun = A2ATask(id="t", status=RemoteState.WORKING)
    after = fold(begun, value)
    assert after is not None
    assert isinstance(after.text, str)
    try:
        task = read_answer(value)
    except ValueError:
        return
    assert isinstance(task.text, str)
    assert isinstance(task.status, RemoteState)


def test_parts_of_several_kinds_are_joined_by_lines() -> None:
    assert text_of_parts([{"type": "text", "text": "a"}, {}, {"text": "b"}]) == "a\nb"
