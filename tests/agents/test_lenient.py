"""JSON of agent programs is read as it is: one odd character costs that character, not the line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.agents.providers.lenient import decode_leniently

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@given(value=json_values)
def test_what_is_good_json_is_read_as_such(value: Any) -> None:
    assert decode_leniently(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a": ["cut \\ud83d"]}', {"a": ["cut \ufffd"]}),
        (b'{"\\udc00": "\\ud83d\\ude00 \\ud83d"}', {"\ufffd": "\U0001f600 \ufffd"}),
        (b'{"a": "\xed\xa0\x80 \xff"}', {"a": "\ufffd\ufffd\ufffd \ufffd"}),
    ],
    ids=["lone-surrogate", "in-a-key", "bad-utf-8"],
)
def test_a_character_that_is_none_is_replaced(data: bytes, expected: object) -> None:
    value = decode_leniently(data)
    assert value == expected
    json.dumps(value).encode()
    assert str(value).encode()


@pytest.mark.parametrize(
    "data",
    [b"", b'{"a": 1', b'{"a": 1}{', b"[NaN]", b"[" * 100_000, b"Welcome!"],
    ids=["empty", "torn", "extra", "nan", "deep", "banner"],
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - of whichever reader gave up
        decode_leniently(data)
