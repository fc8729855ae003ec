"""Messages are values: they cannot be changed, and they know no encoding."""

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

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


@pytest.mark.requirement("T-09")
@pytest.mark.parametrize(
    "message",
    [
        Request(1, "m", {}),
        Notification("m", {}),
        Response(1, {}),
        Response(1, error=Error(1, "m")),
        Malformed(Error(1, "m")),
        Batch([Request(1, "m", {})]),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_cannot_be_changed(message: Message) -> None:
    for name in ("id", "method", "params", "result", "error", "extra"):
        with pytest.raises(AttributeError):
            setattr(message, name, 1)


@pytest.mark.requirement("T-09")
def test_messages_are_equal_by_content() -> None:
    assert Request(1, "m", {"a": 1}) == Request(1, "m", {"a": 1})
    assert Request(1, "m") != Request(2, "m")
    a_notification: Message = Notification("m")
    assert a_notification != Request(None, "m")


@pytest.mark.requirement("T-09")
def test_a_response_holds_a_result_or_an_error_and_never_both_or_neither() -> None:
    with pytest.raises(ValueError, match="either a result or an error"):
        Response(1)
    with pytest.raises(ValueError, match="either a result or an error"):
        Response(1, 1, Error(1, "m"))
    assert Response(1, None).error is UNSET
    assert Response(1, error=Error(1, "m")).result is UNSET


class Point(msgspec.Struct):
    x: int


@pytest.mark.parametrize("value", [Raw(b'{"x":1}'), {"x": 1}], ids=["raw", "parsed"])
def test_a_value_becomes_the_type_that_is_asked_for(value: Any) -> None:
    assert decode_value(value, Point) == Point(1)
    assert decode_value(value) == {"x": 1}


@pytest.mark.requirement("T-17")
def test_a_value_that_has_the_type_already_is_not_copied() -> None:
    point, anything = Point(1), object()
    assert decode_value(point, Point) is point
    assert decode_value(anything) is anything


def test_missing_params_are_an_empty_object() -> None:
    assert decode_value(UNSET) == {}
    with pytest.raises(msgspec.ValidationError, match="missing required field `x`"):
        decode_value(UNSET, Point)


@pytest.mark.parametrize("value", [Raw(b'{"x":"1"}'), {"x": "1"}], ids=["raw", "parsed"])
def test_a_value_that_does_not_fit_is_refused_with_its_path(value: Any) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"at `\$.x`"):
        decode_value(value, Point)


@pytest.mark.requirement("L-35")
def test_a_lone_surrogate_is_read() -> None:
    assert decode_value(Raw(b'{"x":"\\ud83d"}')) == {"x": "\ud83d"}
    assert decode_value(Raw(b'["\\ud83d"]'), list[str]) == ["\ud83d"]
