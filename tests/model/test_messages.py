"""A message has the seed's shapes on the wire, and loses nothing on it."""

import contextlib
import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.model.messages import (
    Message,
    MessageGroup,
    MessageMetadata,
    MessageType,
    Priority,
    decode_message,
    encode_message,
    message_size,
    read_message,
    wire_message,
)

T0 = datetime(2026, 2, 1, 14, 32, 10, tzinfo=UTC)

texts = st.text(st.characters(exclude_categories=["Cs"]))
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
times = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=9))]))
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
KNOWN = set(MessageMetadata.__struct_fields__)
metadata = st.builds(
    MessageMetadata,
    timestamp=st.none() | times,
    priority=st.sampled_from(Priority),
    task_id=st.none() | texts,
    correlation_id=st.none() | texts,
    retry_count=st.integers(0, 100),
    ttl=st.none() | st.integers(0, 10**6) | st.floats(0, 1e6),
    extra=st.dictionaries(texts.filter(lambda key: key not in KNOWN), json_values, max_size=3),
)
messages = st.builds(
    Message,
    id=names,
    from_agent=names,
    to_agent=names,
    type=st.sampled_from(MessageType),
    content=texts,
    thinking=st.none() | texts,
    metadata=metadata,
    timestamp=times,
    reply_to=st.none() | texts,
    idempotency_key=st.none() | names,
    origin=st.none() | texts,
    hops=st.integers(0, 100),
)


def read(value: object) -> Message:
    return read_message(value, sender="grand_boss", message_id="m1", now=T0)


@pytest.mark.requirement("O-20", "O-29")
@given(messages)
def test_a_message_is_the_same_after_the_wire(message: Message) -> None:
    assert decode_message(encode_message(message)) == message


@given(messages)
def test_its_size_is_what_it_has_on_the_wire(message: Message) -> None:
    assert message_size(message) == len(encode_message(message))


@pytest.mark.requirement("O-20", "O-21", "O-29")
def test_the_wire_has_the_names_of_the_seed() -> None:
    message = Message(
        id="m1",
        from_agent="grand_boss",
        to_agent="middle_manager",
        type=MessageType.TASK_REQUEST,
        content="タスクの分解をお願い",
        timestamp=T0,
    )
    assert json.loads(encode_message(message)) == {
        "id": "m1",
        "from": "grand_boss",
        "to": "middle_manager",
        "type": "task_request",
        "content": "タスクの分解をお願い",
        "thinking": None,
        "metadata": {"priority": "normal"},
        "timestamp": "2026-02-01T14:32:10Z",
        "reply_to": None,
    }


def test_what_is_ours_is_on_the_wire_where_it_says_something() -> None:
    message = Message(
        id="m2",
        from_agent="a",
        to_agent="b",
        content="",
        timestamp=T0,
        idempotency_key="k",
        origin="c",
        hops=2,
    )
    wire = wire_message(message)
    assert (wire["idempotency_key"], wire["origin"], wire["hops"]) == ("k", "c", 2)


@pytest.mark.requirement("O-13")
def test_the_example_of_the_seed_is_read() -> None:
    message = read(
        {
            "from": "grand_boss",
            "to": "middle_manager",
            "type": "task_request",
            "content": "タスクの分解をお願い",
            "thinking": "これは複雑なタスクだな...",
            "metadata": {"timestamp": "2026-02-01T14:32:10Z", "priority": "normal"},
            "beyond_the_schema": 1,
        }
    )
    assert message.metadata == MessageMetadata(timestamp=T0)
    assert (message.type, message.timestamp) == (MessageType.TASK_REQUEST, T0)
    assert message.thinking == "これは複雑なタスクだな..."


@pytest.mark.requirement("O-15", "O-21")
def test_a_recipient_and_a_text_are_enough() -> None:
    message = read({"to": "b", "content": "hello"})
    assert message == Message(
        id="m1", from_agent="grand_boss", to_agent="b", content="hello", timestamp=T0
    )
    assert (message.thinking, message.reply_to, message.type) == (None, None, MessageType.INFO)


def test_the_sender_is_who_is_said_to_be_and_not_what_is_claimed() -> None:
    assert read({"from": "user", "to": "b", "content": ""}).from_agent == "grand_boss"


@pytest.mark.requirement("O-101")
@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {"to": "b"},
        {"content": "x"},
        {"to": "", "content": "x"},
        {"to": 1, "content": "x"},
        {"to": "b", "content": None},
        {"to": "b" * 257, "content": "x"},
        {"to": "b", "content": "x", "type": "gossip"},
        {"to": "b", "content": "x", "metadata": []},
        {"to": "b", "content": "x", "metadata": {"priority": "extreme"}},
        {"to": "b", "content": "x", "metadata": {"ttl": -1}},
        {"to": "b", "content": "x", "metadata": {"ttl": "soon"}},
        {"to": "b", "content": "x", "metadata": {"retry_count": -1}},
        {"to": "b", "content": "x", "metadata": {"timestamp": "yesterday"}},
        {"to": "b", "content": "x", "hops": -1},
    ],
)
def test_what_is_no_message_is_refused(value: object) -> None:
    with pytest.raises(msgspec.ValidationError):
        read(value)


@pytest.mark.requirement("O-101")
@given(json_values | st.dictionaries(st.sampled_from(["to", "content", "type"]), json_values))
def test_whatever_is_given_is_read_or_refused(value: object) -> None:
    with contextlib.suppress(msgspec.ValidationError):
        read(value)


@pytest.mark.requirement("O-24")
def test_keys_of_the_metadata_that_nobody_knows_are_kept() -> None:
    given_metadata = {"priority": "high", "task_id": "t", "colour": "red", "nested": {"a": [1]}}
    message = read({"to": "b", "content": "", "metadata": given_metadata})
    assert message.metadata.extra == {"colour": "red", "nested": {"a": [1]}}
    assert message.metadata.task_id == "t"
    assert wire_message(message)["metadata"] == given_metadata


def test_a_known_key_is_no_extra_one() -> None:
    with pytest.raises(ValueError, match="priority: not an extra key"):
        MessageMetadata(extra={"priority": "high"})


@pytest.mark.requirement("O-24")
def test_metadata_without_anything_has_the_defaults_of_the_seed() -> None:
    it = read({"to": "b", "content": "", "metadata": {}}).metadata
    assert (it.task_id, it.correlation_id, it.retry_count, it.ttl) == (None, None, 0, None)


def test_a_time_without_a_zone_is_utc() -> None:
    assert read({"to": "b", "content": "", "timestamp": "2026-02-01T14:32:10"}).timestamp == T0


def test_the_time_of_the_metadata_is_that_of_the_message_where_it_has_no_other() -> None:
    value = {"to": "b", "content": "", "metadata": {"timestamp": "2026-01-01T00:00:00"}}
    assert read(value).timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    assert read(value | {"timestamp": "2026-02-01T14:32:10Z"}).timestamp == T0


@pytest.mark.requirement("O-22", "O-23")
def test_there_are_ten_types_in_three_groups() -> None:
    groups = {
        group: [it.value for it in MessageType if it.group is group] for group in MessageGroup
    }
    assert groups == {
        MessageGroup.TASK: ["task_request", "task_response", "task_complete", "task_failed"],
        MessageGroup.INFORMATION: ["info", "progress", "error"],
        MessageGroup.CONTROL: ["ping", "pong", "shutdown"],
    }


@pytest.mark.requirement("O-25")
def test_there_are_four_priorities_and_only_the_highest_interrupts() -> None:
    ranks = {each.value: (each.rank, each.interrupts) for each in Priority}
    assert ranks == {
        "low": (1, False),
        "normal": (3, False),
        "high": (4, False),
        "urgent": (5, True),
    }


@pytest.mark.parametrize(
    ("ttl", "expires_at"),
    [(None, None), (0, T0), (1.5, T0 + timedelta(seconds=1.5)), (1e300, None)],
)
def test_a_ttl_counts_seconds_from_the_time_of_the_message(
    ttl: float | None, expires_at: datetime | None
) -> None:
    message = read({"to": "b", "content": "", "metadata": {"ttl": ttl}})
    assert message.expires_at == expires_at


def test_a_mark_tells_topics_from_agents() -> None:
    assert read({"to": "#builds", "content": ""}).topic == "builds"
    assert read({"to": "builds", "content": ""}).topic is None


@pytest.mark.parametrize("missing", ["id", "from", "timestamp"])
def test_what_was_kept_is_whole_or_refused(missing: str) -> None:
    wire = json.loads(encode_message(read({"to": "b", "content": ""})))
    del wire[missing]
    with pytest.raises(msgspec.ValidationError, match="an id, a sender and a time"):
        decode_message(json.dumps(wire))
