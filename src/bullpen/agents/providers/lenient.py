"""Reading JSON that agent programs write, as it is, not as it should be.

A program that cuts a text inside an emoji writes a lone surrogate, which strict readers refuse and
which no UTF-8 can carry on. Here such characters, and bytes that are no UTF-8, become U+FFFD: what
the rest of the line says is worth more than they are.
"""

import json
from typing import Any

import msgspec

__all__ = ["decode_leniently"]


def decode_leniently(data: bytes) -> Any:
    """Return the value that is written there.

    Raises:
        ValueError: it is no JSON.
    """
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return _decode_patiently(data)


def _decode_patiently(data: bytes) -> Any:
    try:
        return _clean(json.loads(data.decode(errors="replace"), parse_constant=_refuse))
    except RecursionError as error:
        raise ValueError("the nesting is too deep") from error


def _clean(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [_clean(each) for each in value]
        case dict():
            return {_clean(key): _clean(each) for key, each in value.items()}
    return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
