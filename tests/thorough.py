"""What is tried only by who has the time: other programs, of what is tried with one already."""

import os
from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["IS_WANTED", "thoroughly"]

IS_WANTED = bool(os.environ.get("BULLPEN_THOROUGH"))


def thoroughly(always: Iterable[str], more: Iterable[str]) -> list[Any]:
    """Return the parameters of a test: some for everybody, and more for `make thorough`."""
    left_out = pytest.mark.skipif(
        not IS_WANTED, reason="`make thorough` tries it with more programs"
    )
    return [*always, *(pytest.param(each, marks=left_out) for each in more)]
