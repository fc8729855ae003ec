"""How deeply what peers send may be nested, so that it can be told again in every dialect."""

from typing import Any

__all__ = ["DEEPEST", "is_too_deep"]

DEEPEST = 28
"""Levels of what is kept of a message. protobuf reads no more than 100 messages within each other;
a level of JSON takes three of them, and what stands around a message in an answer the others."""


def is_too_deep(value: Any, deepest: int = DEEPEST) -> bool:
    """Whether there are more than so many objects and lists within each other."""
    level = [value] if isinstance(value, dict | list) else []
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return bool(level)
