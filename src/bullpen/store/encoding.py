"""How values become cells of a table, and back, without loss.

A write must not fail for what somebody else put into a value. Names of files and the words of
agents may hold lone surrogates, which SQLite does not take as text, and numbers from outside may be
longer than its integers: such a value is kept as bytes, which SQLite leaves alone in any column and
which are equal to nothing but themselves.
"""

import json
import math
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

__all__ = [
    "INTEGER",
    "JSON",
    "REAL",
    "TEXT",
    "TIME",
    "Cell",
    "Codec",
    "decode_json",
    "encode_json",
    "encode_text",
    "encode_time",
]

Cell: TypeAlias = str | bytes | int | float | None
T = TypeVar("T")

_encoder = msgspec.json.Encoder(enc_hook=repr)  # what is no JSON is at least described


class Codec(NamedTuple):
    """How the values of a column are kept. Nothing (None) is always NULL."""

    encode: Callable[[Any], Cell]
    decode: Callable[[Any], Any]


def encode_text(value: str) -> Cell:
    """Return text as SQLite takes it."""
    value = str(value)  # plain, where it is an enum
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "surrogatepass")
    return value


def encode_time(value: datetime) -> str:
    """Return a time as text whose order is that of the times. Without a zone it is taken as UTC."""
    if value.tzinfo is None:
        value = value.replace(tzinfo=UTC)
    try:
        value = value.astimezone(UTC)
    except OverflowError:  # within hours of the first or the last day there is
        value = value.replace(tzinfo=UTC)
    return value.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def encode_json(value: object) -> str:
    """Return a value as JSON. What cannot be JSON is described in words."""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:  # a lone surrogate, which only the standard library writes
        return json.dumps(msgspec.to_builtins(value, enc_hook=repr))
    except RecursionError:
        return json.dumps("nested too deeply to be kept")


def decode_json(text: str, kind: type[T]) -> T:
    """Return the value that was encoded.

    Raises:
        msgspec.MsgspecError, ValueError: it is no such value.
    """
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:  # a lone surrogate, or no JSON
        return msgspec.convert(json.loads(text), kind)


def _encode_integer(value: int) -> Cell:
    return int(value) if -(2**63) <= value < 2**63 else str(value).encode()


def _decode_text(cell: str | bytes) -> str:
    return cell.decode("utf-8", "surrogatepass") if isinstance(cell, bytes) else cell


def _decode_json(cell: str) -> Any:
    return decode_json(cell, object)


def _decode_real(cell: float | None) -> float:
    return math.nan if cell is None else cell  # SQLite has no NaN


TEXT = Codec(encode_text, _decode_text)
TIME = Codec(encode_time, datetime.fromisoformat)
INTEGER = Codec(_encode_integer, int)
REAL = Codec(float, _decode_real)
JSON = Codec(encode_json, _decode_json)
