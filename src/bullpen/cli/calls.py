"""Asking the daemon, which is started if there is none and it may be."""

import asyncio
from typing import Any, TypeVar, overload

from bullpen.api.client import ANSWER_SECONDS, Client
from bullpen.api.runtime import Paths
from bullpen.cli.options import may_start, socket_path
from bullpen.connection import TypedRequest

__all__ = ["ask", "ask_all", "daemon_paths"]

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")


def daemon_paths() -> Paths:
    """Return where the daemon is that was named on the command line, or the usual one."""
    return Paths.resolve(socket=socket_path())


def ask(request: TypedRequest[R], *, timeout: float = ANSWER_SECONDS) -> R:
    """Return what the daemon answers."""

    async def work() -> R:
        async with Client.connect(paths, start=start) as client:
            return await client.request(request, timeout=timeout)

    paths, start = daemon_paths(), may_start()
    return asyncio.run(work())


@overload
def ask_all(first: TypedRequest[R], second: TypedRequest[S], /) -> tuple[R, S]: ...


@overload
def ask_all(
    first: TypedRequest[R], second: TypedRequest[S], third: TypedRequest[T], /
) -> tuple[R, S, T]: ...


def ask_all(*requests: TypedRequest[Any]) -> tuple[Any, ...]:
    """Return what the daemon answers to several requests, over one connection."""

    async def work() -> list[Any]:
        async with Client.connect(paths, start=start) as client:
            return [await client.request(each) for each in requests]

    paths, start = daemon_paths(), may_start()
    return tuple(asyncio.run(work()))
