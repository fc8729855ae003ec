"""What came in one dialect is shown in the other."""

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from hypothesis import given
from hypothesis import strategies as st

from bullpen.servers.a2a.parts import as_a2a, as_seed
from tests.daemon.wrapping import wrapped
from tests.servers.a2a.house import linux_only, served

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**31), 2**31) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)
objects = st.dictionaries(st.sampled_from(["name", "mimeType", "uri", "bytes", "x"]), json_values)
seed_parts = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, st.text()),
    st.builds(lambda file: {"type": "file", "file": file}, objects),
    st.builds(lambda data: {"type": "data", "data": data}, objects),
)


@pytest.mark.requirement("a2a:across")
@pytest.mark.parametrize(
    ("a2a", "seed"),
    [
        ({"text": "hi"}, {"type": "text", "text": "hi"}),
        (
            {"url": "https://x/a.png", "filename": "a.png", "mediaType": "image/png"},
            {
                "type": "file",
                "file": {"uri": "https://x/a.png", "name": "a.png", "mimeType": "image/png"},
            },
        ),
        ({"data": {"key": 1}}, {"type": "data", "data": {"key": 1}}),
    ],
    ids=["text", "file", "data"],
)
def test_a_part_is_the_same_in_both(a2a: dict[str, Any], seed: dict[str, Any]) -> None:
    assert as_seed([a2a]) == [seed]
    assert as_a2a([seed]) == [a2a]
    assert as_seed([seed]) == [seed]
    assert as_a2a([a2a]) == [a2a]


def test_what_has_no_word_in_the_other_is_still_there() -> None:
    assert as_seed([{"data": None}]) == [{"type": "data", "data": {"value": None}}]
    assert as_seed([{"raw": "aGk=", "filename": "a"}]) == [
        {"type": "file", "file": {"bytes": "aGk=", "name": "a"}}
    ]
    assert as_a2a([{"type": "file", "file": {"id": 7}}]) == [{"data": {"id": 7}}]


@given(part=seed_parts)
def test_every_part_of_the_seed_is_one_of_a2a(part: dict[str, Any]) -> None:
    [told] = as_a2a([part])
    assert ParseDict(told, pb.Part()).WhichOneof("content") is not None


@linux_only
@pytest.mark.requirement("a2a:across")
async def test_a_task_of_one_dialect_is_looked_at_in_the_others(home: Path) -> None:
    async with served() as house, wrapped("codex"):
        web = house.web.at("codex")
        file = {"type": "file", "file": {"name": "a.png", "bytes": 7}}
        parts = [{"type": "text", "text": "look"}, file]
        sent = (await web.post("/tasks/send", {"message": {"parts": parts}})).body["task"]
        path = f"/a2a/rest/tasks/{sent['id']}"
        told = json.loads((await web.get(path, **{"A2A-Version": "1.0"})).raw)
        assert told["history"][0]["parts"] == [
            {"text": "look"},
            {"data": {"name": "a.png", "bytes": 7.0}, "filename": "a.png"},
        ]
        old = await web.get(f"/a2a/rest/v1/tasks/{sent['id']}")
        assert [*old.body["history"][0]["content"][1]] == ["data"]
        message = {"messageId": "1", "role": "ROLE_USER", "parts": [{"data": None}, {"text": "x"}]}
        body = {"message": message, "configuration": {"returnImmediately": True}}
        v1 = {"A2A-Version": "1.0", "Content-Type": "application/json"}
        answer = json.loads((await web.post("/a2a/rest/message:send", body, **v1)).raw)
        shown = (await web.get(f"/tasks/{answer['task']['id']}")).body
        assert shown["message"]["parts"] == [
            {"type": "data", "data": {"value": None}},
            {"type": "text", "text": "x"},
        ]
