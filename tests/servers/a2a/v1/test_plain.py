"""What is as plain as it can be is read in another way, and means and says the same."""

from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from bullpen.servers.a2a.v1.plain import read_plain
from tests.servers.a2a.v1.guests import house, text_message

words = st.text(st.characters(codec="utf-8"), max_size=20)
messages = st.fixed_dictionaries(
    {
        "messageId": words,
        "role": st.just("ROLE_USER"),
        "parts": st.lists(st.fixed_dictionaries({"text": words}), min_size=1, max_size=3),
    },
    optional={"contextId": words, "taskId": words},
)
configurations = st.fixed_dictionaries({}, optional={"returnImmediately": st.booleans()})


def asked(params: Any, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params, **more}


@given(
    st.fixed_dictionaries({"message": messages}, optional={"configuration": configurations}),
    st.integers(-(2**53) + 1, 2**53 - 1) | words,
)
def test_it_is_read_as_the_binding_reads_it(params: dict[str, Any], number: Any) -> None:
    found = read_plain(asked(params, id=number), "1.0")
    assert found is not None
    assert found.id == number
    meant = ParseDict(params, pb.SendMessageRequest())
    assert found.request.message == meant.message
    assert found.request.configuration == meant.configuration


HELLO = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hello"}]}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(asked({"message": HELLO}, id=True), id="a number that is none"),
        pytest.param(asked({"message": HELLO}, id=2**53 + 1), id="a number that is too large"),
        pytest.param(asked({"message": HELLO}, more=1), id="something beside it"),
        pytest.param(asked({"message": HELLO, "tenant": "x"}), id="a tenant"),
        pytest.param(asked({"message": HELLO, "metadata": {}}), id="something about it"),
        pytest.param(asked({"message": HELLO, "configuration": None}), id="nothing as a value"),
        pytest.param(asked({"message": HELLO | {"role": "ROLE_AGENT"}}), id="another role"),
        pytest.param(asked({"message": HELLO | {"parts": []}}), id="no part"),
        pytest.param(asked({"message": HELLO | {"parts": [{"data": {}}]}}), id="another part"),
        pytest.param(asked({"message": HELLO | {"parts": [{"text": 1}]}}), id="no text"),
        pytest.param(asked({"message": HELLO}, method="SendStreamingMessage"), id="a stream"),
        pytest.param([asked({"message": HELLO})], id="several"),
        pytest.param("hello", id="a word"),
    ],
)
def test_whatever_is_not_as_plain_is_left_to_the_binding(body: Any) -> None:
    assert read_plain(body, "1.0") is None


def test_another_version_is_left_to_it_too() -> None:
    assert read_plain(asked({"message": HELLO}), "0.3") is None
    assert read_plain(asked({"message": HELLO}), "") is None


@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"taskId": "m-nobody"}, id="no such task"),
        pytest.param({"messageId": ""}, id="no id"),
    ],
)
async def test_it_is_refused_in_the_same_words(more: dict[str, Any]) -> None:
    now = {"configuration": {"returnImmediately": True}}
    async with house() as (_, guest):
        message = text_message("hello") | more
        plain = await guest.rpc("SendMessage", {"message": message, **now})
        other = await guest.rpc("SendMessage", {"message": message, **now, "metadata": {}})
        assert plain["error"]
        assert plain == {**other, "id": plain["id"]}


async def test_it_is_answered_in_the_same_words() -> None:
    now = {"configuration": {"returnImmediately": True}}
    async with house() as (_, guest):
        message = text_message("hello")
        plain = await guest.rpc("SendMessage", {"message": message, **now})
        other = await guest.rpc("SendMessage", {"message": message, **now, "metadata": {}})
    assert plain["result"]["task"]["history"][0]["messageId"] == message["messageId"]
    for each in (plain, other):
        del each["id"]
        del each["result"]["task"]["status"]  # which may be another by then
    assert plain == other, "the same message again is the same task"
