"""Whatever is in a value, it comes back from a cell of SQLite as it was."""

import math
import sqlite3
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bullpen.store.encoding import (
    INTEGER,
    JSON,
    REAL,
    TEXT,
    TIME,
    Cell,
    Codec,
    decode_json,
    encode_json,
    encode_text,
    encode_time,
)
from tests.store.strategies import integers, json_values, texts, times


def through_sqlite(codec: Codec, value: object, affinity: str) -> Any:
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(f"CREATE TABLE t (cell {affinity})")
        connection.execute("INSERT INTO t VALUES (?)", [codec.encode(value)])
        (cell,) = connection.execute("SELECT cell FROM t").fetchone()
        return codec.decode(cell)
    finally:
        connection.close()


@given(value=texts)
def test_any_text_comes_back(value: str) -> None:
    assert through_sqlite(TEXT, value, "TEXT") == value


@given(value=integers)
def test_any_integer_comes_back(value: int) -> None:
    assert through_sqlite(INTEGER, value, "INTEGER") == value


@given(value=times)
def test_any_time_comes_back(value: datetime) -> None:
    assert through_sqlite(TIME, value, "TEXT") == value


@given(value=json_values)
def test_any_json_comes_back(value: object) -> None:
    assert through_sqlite(JSON, value, "TEXT") == value


@given(value=st.floats())
def test_any_float_comes_back(value: float) -> None:
    back = through_sqlite(REAL, value, "REAL")
    assert back == value or (math.isnan(back) and math.isnan(value))


@given(first=texts, second=texts)
def test_different_texts_are_different_cells(first: str, second: str) -> None:
    assert (encode_text(first) == encode_text(second)) is (first == second)


@given(first=times, second=times)
def test_times_as_text_are_in_the_order_of_the_times(first: datetime, second: datetime) -> None:
    assert (encode_time(first) < encode_time(second)) is (first < second)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00.000000Z"),
        (datetime(2026, 1, 31, 12), "2026-01-31T12:00:00.000000Z"),  # noqa: DTZ001 - the point
        (
            datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=2))),
            "2026-01-31T10:00:00.000000Z",
        ),
        (
            datetime.min.replace(tzinfo=timezone(timedelta(hours=2))),
            "0001-01-01T00:00:00.000000Z",
        ),
    ],
    ids=["utc", "naive", "elsewhere", "before the first day"],
)
def test_times_are_kept_in_utc(value: datetime, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert encode_time(value) == text
    finally:
        monkeypatch.undo()
        time.tzset()


def test_text_that_is_text_stays_readable() -> None:
    cells: list[Cell] = [encode_text("naïve 🦬"), encode_json({"a": "naïve 🦬"})]
    assert cells == ["naïve 🦬", '{"a":"naïve 🦬"}']


def test_what_is_no_json_is_described() -> None:
    day = datetime(2026, 1, 31, tzinfo=UTC)
    described = {"a": [1], "b": repr(object), "2026-01-31T00:00:00Z": "\ud83d"}
    assert decode_json(encode_json({"a": {1}, "b": object}), object) == {
        "a": [1],
        "b": repr(object),
    }
    assert decode_json(encode_json({"a": {1}, "b": object, day: "\ud83d"}), object) == described
    assert decode_json(encode_json({(1, 2): 3}), object) == {"(1, 2)": 3}


def test_what_is_nested_without_end_is_not_kept_and_does_no_harm() -> None:
    endless: list[object] = []
    endless.append(endless)
    assert decode_json(encode_json(endless), object) == "nested too deeply to be kept"


def test_what_is_no_json_is_not_decoded() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        decode_json("{", object)
