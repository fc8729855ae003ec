"""The codec: every frame is some message, and every message can be read back."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from bullpen.jsonrpc.codec import classify_message, decode_frame, encode_message
from bullpen.jsonrpc.errors import (
    INVALID_REQUEST,
    PARSE_ERROR,
    LocalProtocolError,
    UnserializableError,
)
from bullpen.jsonrpc.wire import (
    Batch,
    Error,
    Malformed,
    Message,
    Notification,
    Request,
    Response,
    decode_value,
)

any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | any_text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(any_text, inner, max_size=4),
    max_leaves=10,
)
ids = st.none() | st.integers() | any_text
optional_values = st.just(UNSET) | json_values
errors = st.builds(Error, st.integers(), any_text, optional_values)
requests = st.builds(Request, ids, any_text, optional_values)
notifications = st.builds(Notification, any_text, optional_values)
results = st.builds(Response, ids, json_values)
failures = st.builds(lambda id_, error: Response(id_, error=error), ids, errors)
messages = requests | notifications | results | failures


def parsed(message: Message) -> Message:
    """Return a message with its raw parts parsed, so that it can be compared."""
    if isinstance(message, Batch):
        return Batch(parsed(entry) for entry in message)  # type: ignore[misc]
    changes = {
        name: decode_value(value)
        for name in message.__struct_fields__
        if isinstance(value := getattr(message, name), Raw)
    }
    return msgspec.structs.replace(message, **changes)


@pytest.mark.requirement("T-16", "L-35")
@given(message=messages)
def test_what_is_encoded_is_one_line_of_json_and_decodes_to_the_same(message: Message) -> None:
    frame = encode_message(message)
    assert b"\n" not in frame
    assert json.loads(frame.decode("utf-8"))["jsonrpc"] == "2.0"
    assert parsed(decode_frame(frame)) == message


@given(entries=st.lists(messages, min_size=1, max_size=4))
def test_a_batch_is_read_back_entry_by_entry(entries: list[Any]) -> None:
    assert parsed(decode_frame(encode_message(Batch(entries)))) == Batch(entries)


@pytest.mark.requirement("T-05", "error:invalid-json")
@given(frame=st.binary())
def test_no_bytes_at_all_make_decoding_raise(frame: bytes) -> None:
    assert isinstance(decode_frame(frame), Message)


members = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": st.sampled_from([1, "1", None, True, 1.0, 1.5, [], {}, "\ud800", 10**40]),
        "method": st.sampled_from(["m", "\ud800", "", None, 5, ["m"]]),
        "params": st.sampled_from([{}, [], None, 1, "\udfff"]),
        "result": st.sampled_from([None, 1, {}, "\ud800"]),
        "error": st.sampled_from(
            [None, {}, "bad", {"code": 1, "message": "m"}, {"code": "1", "message": "m"}, [1]]
        ),
        "extra": st.just("ignored"),
    },
)


@pytest.mark.requirement("error:invalid-envelope")
@given(value=members)
def test_the_short_cut_for_common_frames_judges_as_the_careful_way_does(value: Any) -> None:
    frame = json.dumps(value).encode()
    assert parsed(decode_frame(frame)) == classify_message(value)


@pytest.mark.requirement("contract:I1", "T-09")
@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        ('{"id":1,"method":"m"}', Request(1, "m")),
        ('{"id":-7,"method":"m","params":[1]}', Request(-7, "m", [1])),
        ('{"id":"1","method":"m","params":null}', Request("1", "m", None)),
        ('{"id":"","method":""}', Request("", "")),
        ('{"id":null,"method":"m"}', Request(None, "m")),
        (f'{{"id":{2**80},"method":"m"}}', Request(2**80, "m")),
        ('{"method":"m"}', Notification("m")),
        ('{"method":"$/x","params":{"a":1}}', Notification("$/x", {"a": 1})),
        ('{"id":1,"result":null}', Response(1, None)),
        ('{"id":1,"result":1,"error":null}', Response(1, 1)),
        ('{"id":1,"error":{"code":-1,"message":"no"}}', Response(1, error=Error(-1, "no"))),
        (
            '{"id":1,"result":null,"error":{"code":-1,"message":"no","data":[2]}}',
            Response(1, error=Error(-1, "no", [2])),
        ),
        ('{"id":null,"error":{"code":-1,"message":"no"}}', Response(None, error=Error(-1, "no"))),
        ('{"jsonrpc":"1.0","id":1,"method":"m"}', Request(1, "m")),
        ('{"id":1,"id":2,"method":"a","method":"b"}', Request(2, "b")),
        (' {"method" : "m" } \r', Notification("m")),
        ('{"id":1,"method":"m","result":5,"error":"x"}', Request(1, "m")),
    ],
)
def test_an_envelope_is_known_by_its_members(frame: str, expected: Message) -> None:
    message = parsed(decode_frame(frame.encode()))
    assert message == expected
    if not isinstance(expected, Notification):
        assert type(message.id) is type(expected.id)  # type: ignore[union-attr]


@pytest.mark.requirement("contract:I1", "error:invalid-envelope", "L-36", "L-37")
@pytest.mark.parametrize(
    ("frame", "id_"),
    [
        ('{"id":true,"method":"m"}', None),
        ('{"id":1.0,"method":"m"}', None),
        ('{"id":1.5,"method":"m"}', None),
        ('{"id":1e400,"method":"m"}', None),
        ('{"id":{},"method":"m"}', None),
        ('{"id":[1],"method":"m"}', None),
        ('{"id":5,"method":7}', 5),
        ('{"id":"five","method":null}', "five"),
        ('{"method":["m"]}', None),
        ('{"id":5}', 5),
        ('{"id":5,"params":{}}', 5),
        ('{"jsonrpc":"2.0"}', None),
        ("{}", None),
        ("17", None),
        ('"text"', None),
        ("null", None),
        ("false", None),
        ("[]", None),
    ],
)
def test_json_that_is_no_envelope_is_malformed_with_the_id_that_could_be_read(
    frame: str, id_: object
) -> None:
    message = decode_frame(frame.encode())
    assert isinstance(message, Malformed)
    assert (message.error.code, message.id, message.is_response) == (INVALID_REQUEST, id_, False)


@pytest.mark.requirement("error:invalid-envelope")
@pytest.mark.parametrize(
    "frame",
    [
        '{"result":1}',
        '{"error":{"code":1,"message":"m"}}',
        '{"id":true,"result":1}',
        '{"id":1.0,"result":1}',
        '{"id":1,"error":null}',
        '{"id":1,"error":"bad"}',
        '{"id":1,"error":{"code":"1","message":"m"}}',
        '{"id":1,"error":{"code":1}}',
        '{"id":1,"result":1,"error":{"code":1,"message":"m"}}',
    ],
)
def test_a_garbled_response_is_known_as_one_so_that_nobody_answers_it(frame: str) -> None:
    message = decode_frame(frame.encode())
    assert isinstance(message, Malformed)
    assert (message.error.code, message.is_response) == (INVALID_REQUEST, True)


@pytest.mark.requirement("error:invalid-json", "L-34")
@pytest.mark.parametrize(
    "frame",
    [
        b"Welcome to agent 1.0!",
        b'{"id":1,"method":"m"',
        b'{"id":1,"method":"m"} trailing',
        b"{'id':1}",
        b'{"id":1,"method":"\xff"}',
        b'{"id":1,"method":"m","params":"\xff"}',
        b'{"id":1,"method":"m","params":"\xed\xa0\x80"}',
        b'{"id":1,"method":"m","params":NaN}',
        b'{"id":1,"method":"m","params":[Infinity,-Infinity]}',
        b'{"id":1,"method":"m","params":"\\x"}',
        b'{"id":1,"method":"m","params":"a\x01"}',
        b'{"id":1,"method":"m","params":01}',
        b'{"id":' + b"9" * 5000 + b',"method":"m"}',
        b'{"id":1,"method":"m","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"[" * 100_000,
        b"\xef\xbb\xbf{}",
        b"\x00",
    ],
    ids=lambda frame: repr(frame[:40]),
)
def test_what_is_not_json_is_a_parse_error(frame: bytes) -> None:
    message = decode_frame(frame)
    assert isinstance(message, Malformed)
    assert (message.error.code, message.id, message.is_response) == (PARSE_ERROR, None, False)


@pytest.mark.requirement("error:invalid-json")
@pytest.mark.parametrize(
    ("frame", "is_response"),
    [
        (b'{"id":1,"result":{"a":', True),
        (b'{"id":1,"error":{"code":1}', True),
        (b'{"id":1,"result":NaN}', True),
        (b'{"id":1,"method":"m","params":{"result":1', False),
    ],
)
def test_broken_json_that_looks_like_a_response_is_known_as_one(
    frame: bytes, is_response: bool
) -> None:
    message = decode_frame(frame)
    assert isinstance(message, Malformed)
    assert (message.error.code, message.is_response) == (PARSE_ERROR, is_response)


@pytest.mark.requirement("L-34")
def test_an_integer_of_5000_digits_in_the_params_leaves_the_envelope_readable() -> None:
    message = decode_frame(b'{"id":1,"method":"m","params":' + b"9" * 5000 + b"}")
    assert isinstance(message, Request)
    assert (message.id, message.method) == (1, "m")


def test_params_and_results_are_left_unparsed() -> None:
    request = decode_frame(b'{"id":1,"method":"m","params":{ "a" : 1 }}')
    response = decode_frame(b'{"id":1,"result":[ 1 ]}')
    assert isinstance(request, Request)
    assert isinstance(response, Response)
    assert (bytes(request.params), bytes(response.result)) == (b'{ "a" : 1 }', b"[ 1 ]")


def test_what_is_passed_on_unparsed_is_encoded_as_it_came() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{ "a" : 1.50 }}'
    assert encode_message(decode_frame(frame)) == frame


@pytest.mark.parametrize(
    "message",
    [Request(1, "m"), Notification("m")],
    ids=["request", "notification"],
)
def test_params_that_are_not_given_are_not_written(message: Message) -> None:
    assert "params" not in json.loads(encode_message(message))


def test_a_result_of_none_is_written_and_an_error_beside_it_is_not() -> None:
    assert json.loads(encode_message(Response(1, None))) == {
        "jsonrpc": "2.0",
        "id": 1,
        "result": None,
    }
    assert json.loads(encode_message(Response(1, error=Error(-1, "no")))) == {
        "jsonrpc": "2.0",
        "id": 1,
        "error": {"code": -1, "message": "no"},
    }


@pytest.mark.requirement("L-35")
@pytest.mark.parametrize(
    "message",
    [
        Response("\ud83d", Raw(b'{"cut":[1,null]}')),
        Request(1, "\ude00", Raw(b"[1]")),
        Batch([Response(1, Raw(b"1")), Response(2, {"\ud800": "\udfff"})]),
    ],
    ids=["id", "method", "batch"],
)
def test_a_lone_surrogate_beside_an_unparsed_part_can_be_forwarded(message: Message) -> None:
    frame = encode_message(message)
    assert frame.isascii()
    assert parsed(decode_frame(frame)) == parsed(message)


loop: list[Any] = []
loop.append(loop)


@pytest.mark.requirement("error:unserializable", "L-35")
@pytest.mark.parametrize(
    "value",
    [object(), {(1, 2): 3}, loop, ["\ud800", object()], ["\ud800", float("nan")], ["\ud800", loop]],
    ids=["object", "key", "loop", "surrogate+object", "surrogate+nan", "surrogate+loop"],
)
def test_what_json_has_no_word_for_is_our_own_fault_and_named(value: Any) -> None:
    for message in (Request(1, "m", value), Response(1, value), Batch([Response(1, value)])):
        with pytest.raises(UnserializableError, match="not serializable as JSON: ") as caught:
            encode_message(message)
        assert isinstance(caught.value, LocalProtocolError)
