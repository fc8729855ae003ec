"""Sending a message and staying with it: what became of it, as far as one wants to know.

A daemon that goes away meanwhile is asked again: the message has a key, so that it stays the same
message, and waiting begins with what is so already.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from bullpen.api.client import ANSWER_SECONDS, Client
from bullpen.api.errors import DaemonUnavailable
from bullpen.api.runtime import Paths
from bullpen.api.talk import (
    MailTrace,
    SendMessage,
    TraceMessage,
    WaitMessage,
    WaitMessageReply,
)
from bullpen.cli.speaking import ENDED, TIMEOUT

__all__ = ["Sent", "deliver"]

LOOK_SECONDS = 0.3  # how often somebody who looks on is told what is new
LONGEST_SECONDS = 24 * 3600.0  # for a daemon that knows by itself how long to wait
MOST_TRIES = 5

CODES = {"reached": 0, "timeout": TIMEOUT, "ended": ENDED}

R = TypeVar("R")

LookOn = Callable[[MailTrace], None]


class Sent(msgspec.Struct, frozen=True):
    """What became of a message, as of when we stopped looking."""

    trace: MailTrace
    is_new: bool = True
    waited: WaitMessageReply | None = None
    """None if nobody wanted to wait."""

    @property
    def exit_code(self) -> int:
        """The exit code for it."""
        return CODES[self.waited.outcome] if self.waited else 0

    @property
    def shortfall(self) -> str:
        """Why it did not come as far as was wanted, in words; empty if it did."""
        if self.waited is None or self.waited.outcome == "reached":
            return ""
        why = self.waited.reason
        if self.waited.outcome == "ended":
            return why or "it has ended"
        seconds = f"{self.waited.timeout_seconds:g}"
        return f"the time of {seconds} seconds is over{why and f': {why}'}"


async def deliver(
    paths: Paths,
    message: SendMessage,
    *,
    start: bool = True,
    until: str | None = None,
    timeout_seconds: float | None = None,
    look_on: LookOn | None = None,
) -> Sent:
    """Send a message, and wait until it has come so far, if that is wanted.

    Raises:
        RemoteError: it was refused.
        DaemonUnavailable: there is no daemon, or it goes away again and again.
    """
    key = message.idempotency_key or os.urandom(8).hex()
    keyed = msgspec.structs.replace(message, idempotency_key=key)
    began = time.monotonic()

    def remaining() -> float | None:
        if timeout_seconds is None:
            return None
        return max(0.0, timeout_seconds - (time.monotonic() - began))

    async def work(client: Client) -> Sent:
        reply = await client.request(keyed)
        name = reply.message.id
        waited = None
        if until is not None:
            request = WaitMessage(message_id=name, until=until, timeout_seconds=remaining())
            waited = await _wait(client, request, look_on)
            if timeout_seconds is not None:  # all of it, not what was left for the last connection
                waited = msgspec.structs.replace(waited, timeout_seconds=timeout_seconds)
        trace = await client.request(TraceMessage(name))
        if until is not None and look_on is not None:
            look_on(trace)
        is_new = reply.is_new or message.idempotency_key is None
        return Sent(trace, is_new, waited)

    return await _persist(paths, work, start=start)


async def _persist(paths: Paths, work: Callable[[Client], Awaitable[R]], *, start: bool) -> R:
    """Do something with a daemon, and again with the next one if it goes away meanwhile."""
    left = MOST_TRIES
    while True:
        async with Client.connect(paths, start=start) as client:
            try:
                return await work(client)
            except DaemonUnavailable:
                left -= 1
                if not left or not client.is_closed:
                    raise


async def _wait(client: Client, request: WaitMessage, look_on: LookOn | None) -> WaitMessageReply:
    seconds = LONGEST_SECONDS if request.timeout_seconds is None else request.timeout_seconds
    waiting = asyncio.ensure_future(client.request(request, timeout=seconds + ANSWER_SECONDS))
    try:
        while look_on is not None and not waiting.done():
            look_on(await client.request(TraceMessage(request.message_id)))
            await asyncio.wait([waiting], timeout=LOOK_SECONDS)
        return await waiting
    finally:
        if not waiting.done():
            waiting.cancel()
            await asyncio.wait([waiting])
