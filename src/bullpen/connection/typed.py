"""Requests and notifications as types: the parameter's type selects the method.

class Greet(TypedRequest[str]):
    METHOD = "greet"
    name: str

answer = await connection.request(Greet(name="Ada"))      # a str
builder.on_request(Greet, handler)                        # handler(greet, context) -> str
"""

from functools import cache
from typing import Any, ClassVar, Generic, TypeVar, get_args

import msgspec

__all__ = ["TypedNotification", "TypedRequest", "result_type"]

R = TypeVar("R")


class TypedRequest(msgspec.Struct, Generic[R]):
    """The params of one method's requests; `R` is the type of its results."""

    METHOD: ClassVar[str]


class TypedNotification(msgspec.Struct):
    """The params of one method's notifications."""

    METHOD: ClassVar[str]


@cache
def result_type(request: type[TypedRequest[Any]]) -> Any:
    """Return the `R` a request type was declared with."""
    for base in getattr(request, "__orig_bases__", ()):
        arguments = get_args(base)
        if arguments:
            return arguments[0]
    return Any
