"""What the SDK would read as something else is refused, whichever way it comes."""

from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from a2a.utils.errors import InvalidParamsError
from hypothesis import given
from hypothesis import strategies as st

from bullpen.servers.a2a.v1.input import check_query, check_shape
from tests.servers.a2a.v1.guests import Guest, House, house, text_message

CONFIG = {"url": "https://example.com/hook"}


@pytest.mark.requirement("a2a:strict")
@pytest.mark.parametrize(
    ("sent", "where"),
    [
        ({"message": []}, "message"),
        ({"message": {"messageId": "1", "role": "ROLE_USER", "parts": {}}}, "message.parts"),
        ({"message": {"messageId": "1", "role": "ROLE_USER"}}, "message.parts"),
        ({"message": {"messageId": None, "role": "ROLE_USER"}}, "message.messageId"),
        ({"message": {**text_message(), "metadata": []}}, "message.metadata"),
        ({"message": {**text_message(), "parts": [""]}}, "message.parts[0]"),
        ({"message": text_message(), "configuration": ""}, "configuration"),
        ({}, "message"),
        ([], "params"),
        (None, "params"),
    ],
)
def test_what_is_not_written_as_a_message_is_refused(sent: Any, where: str) -> None:
    with pytest.raises(InvalidParamsError) as refused:
        check_shape(sent, pb.SendMessageRequest)
    assert refused.value.message.startswith(f"{where}: ")


@pytest.mark.parametrize("authentication", [[], "", {}, {"credentials": "x"}])
def test_an_address_to_post_to_has_a_scheme_if_it_has_anything(authentication: Any) -> None:
    config = {**CONFIG, "authentication": authentication}
    with pytest.raises(InvalidParamsError):
        check_shape(config, pb.TaskPushNotificationConfig)


def test_what_may_be_missing_may_be_null_or_have_its_other_name() -> None:
    check_shape({**CONFIG, "authentication": None, "token": None}, pb.TaskPushNotificationConfig)
    message = {"message_id": "1", "role": "ROLE_USER", "parts": [{"text": "x"}]}
    check_shape({"message": message}, pb.SendMessageRequest)


@given(said=st.text(max_size=12) | st.integers().map(str))
def test_a_number_in_an_address_is_one_of_32_bits(said: str) -> None:
    try:
        fits = said.isascii() and said.lstrip("-").isdigit() and -(2**31) <= int(said) < 2**31
    except ValueError:
        fits = False
    try:
        check_query({"pageSize": said}, pb.ListTasksRequest)
    except InvalidParamsError:
        assert not fits or len(said) > 10
    else:
        assert fits


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("includeArtifacts", "null"),
        ("includeArtifacts", ""),
        ("historyLength", "2147483648"),
        ("historyLength", "1.5"),
        ("statusTimestampAfter", "yesterday"),
        ("statusTimestampAfter", "0000-01-01T00:00:00Z"),
    ],
)
def test_what_is_said_in_an_address_and_makes_no_sense_is_refused(name: str, said: str) -> None:
    with pytest.raises(InvalidParamsError):
        check_query({name: said}, pb.ListTasksRequest)


async def old_task(guest: Guest, agent: House, text: str = "hello") -> str:
    body = {"message": {"messageId": "o-1", "role": "ROLE_USER", "content": [{"text": text}]}}
    body["configuration"] = {"blocking": False}  # type: ignore[dict-item]
    sent = await guest.http.post("a2a/rest/v1/message:send", json=body)
    assert sent.status_code == 200, sent.text
    task_id = sent.json()["task"]["id"]
    assert isinstance(task_id, str)
    return task_id


@pytest.mark.requirement("pitfall:14")
async def test_what_is_wrong_by_0_3_is_refused_before_a_stream_begins() -> None:
    async with house() as (agent, guest):
        good = {"messageId": "o", "role": "ROLE_USER", "content": [{"text": "x"}]}
        wrongs: list[dict[str, Any]] = [
            {},
            {"message": {}},
            {"message": {**good, "role": None}},
            {"message": {**good, "content": [{}]}},
            {"message": {**good, "content": [{"file": {"fileWithBytes": "/w=="}}]}},
            {"message": {**good, "content": [{"file": {"fileWithBytes": "FwpELiUi"}}]}},
            {"message": {**good, "taskId": "none"}},
        ]
        for wrong in wrongs:
            for path in ("a2a/rest/v1/message:send", "a2a/rest/v1/message:stream"):
                answer = await guest.http.post(path, json=wrong)
                assert answer.status_code in (400, 404), (path, wrong, answer.text)
                assert answer.json()["error"]["code"] == answer.status_code
        file = {"kind": "file", "file": {"bytes": "x"}}
        params = {"message": {"messageId": "o", "role": "user", "parts": [file]}}
        for method in ("message/send", "message/stream"):
            asked = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            answer = await guest.http.post("a2a/jsonrpc", json=asked)
            assert answer.json()["error"]["code"] == -32602
        nothing = await guest.http.post("a2a/rest/v1/message:stream", content=b"")
        assert nothing.status_code == 400
        task_id = await old_task(guest, agent)
        wrong_length = await guest.http.get(
            f"a2a/rest/v1/tasks/{task_id}", params={"historyLength": 2**31}
        )
        assert wrong_length.status_code == 400
        assert (await guest.http.get("a2a/rest/v1/tasks")).status_code == 404  # 0.3 has no list
        await agent.reply("done")
        late = await guest.http.get(f"a2a/rest/v1/tasks/{task_id}:subscribe")
        assert late.status_code == 400
        asked = {"jsonrpc": "2.0", "id": 1, "method": "agent/getAuthenticatedExtendedCard"}
        for version in ({}, {"a2a-version": "0"}, {"a2a-version": "0.3"}):
            card = (await guest.http.get("a2a/rest/v1/card", headers=version)).json()
            assert (card["name"], card["preferredTransport"]) == (agent.agent.name, "JSONRPC")
            assert card["protocolVersion"].startswith("0.3")
            told = await guest.http.post("a2a/jsonrpc", json=asked, headers=version)
            assert told.json()["result"]["name"] == agent.agent.name
        for other in ("x", "1.0", "0x", "0.5"):
            told = await guest.http.post("a2a/jsonrpc", json=asked, headers={"a2a-version": other})
            assert told.json()["error"]["code"] == -32009
        for path, other in (("a2a/rest/v1/card", "0r"), ("a2a/rest/tasks", "1r")):
            refused = await guest.http.get(path, headers={"a2a-version": other})
            assert refused.json()["error"]["details"][0]["reason"] == "VERSION_NOT_SUPPORTED"
