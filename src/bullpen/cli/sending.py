"""Sending a message and staying with it: what became of it, as far as one wants to know.

A daemon that goes away meanwhile is asked again: the message has a key, so that it stays the same
message, and waiting begins with what is so already.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import msgspec

from bullpen.api.client import ANSWER_SECONDS, Client
from bullpen.api.errors import DaemonUnavailable
from bullpen.api.outputs import Hearing, Output
from bullpen.api.runtime import Paths
from bullpen.api.talk import (
    MailTrace,
    SendMessage,
    TaskChanged,
    TaskOutput,
    TraceMessage,
    WaitMessage,
    WaitMessageReply,
    WatchTasks,
)
from bullpen.cli.speaking import ENDED, TIMEOUT
from bullpen.connection import RemoteError
from bullpen.jsonrpc.errors import SHUTTING_DOWN

__all__ = ["Sent", "deliver"]

LOOK_SECONDS = 0.3  # how often somebody who looks on is told what is new
LONGEST_SECONDS = 24 * 3600.0  # for a daemon that knows by itself how long to wait
MOST_CONNECTIONS = 5
RETURN_SECONDS = 10.0  # how long a daemon that went away may take to be there again
RETRY_SECONDS = 0.1

CODES = {"reached": 0, "timeout": TIMEOUT, "ended": ENDED}

R = TypeVar("R")

LookOn = Callable[[MailTrace], None]
Listen = Callable[[Output], None]


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
    def is_for_many(self) -> bool:
        """Whether several were sent it, each of whom may answer."""
        return len(self.trace.deliveries) > 1

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
    listen: Listen | None = None,
    on_accepted: Callable[[str], None] = lambda _: None,
) -> Sent:
    """Send a message, and wait until it has come so far, if that is wanted.

    Who looks on is told what is new while it waits, and who listens what the agent says meanwhile.

    Raises:
        RemoteError: it was refused.
        DaemonUnavailable: there is no daemon, or it goes away again and again.
    """
    key = message.idempotency_key or os.urandom(8).hex()
    awaits = until == "answered"
    keyed = msgspec.structs.replace(message, idempotency_key=key, awaits=awaits)
    began = time.monotonic()
    accepted = ""

    def remaining() -> float | None:
        if timeout_seconds is None:
            return None
        return max(0.0, timeout_seconds - (time.monotonic() - began))

    hearing = Hearing()

    def hear(told: TaskChanged | TaskOutput) -> None:
        output = hearing.hear(told) if isinstance(told, TaskOutput) else None
        if listen is not None and output is not None:
            listen(output)

    async def work(client: Client) -> Sent:
        nonlocal accepted
        reply = await client.request(keyed)
        name = reply.message.id
        if not accepted:
            on_accepted(name)
        accepted = name
        waited = None
        if listen is not None:
            client.on_task(hear)
            await client.request(WatchTasks(task_ids=(name,)))
        if until is not None:
            request = WaitMessage(
                message_id=name,
                until=until,
                timeout_seconds=remaining(),
                take=awaits,
                secret=message.secret,
            )
            waited = await _wait(client, request, look_on)
            if timeout_seconds is not None:  # all of it, not what was left for the last connection
                waited = msgspec.structs.replace(waited, timeout_seconds=timeout_seconds)
        trace = await client.request(TraceMessage(name))
        if until is not None and look_on is not None:
            look_on(trace)
        is_new = reply.is_new or message.idempotency_key is None
        return Sent(trace, is_new, waited)

    try:
        return await _persist(paths, work, start=start)
    except DaemonUnavailable as error:
        if not accepted:
            raise
        kept = f"{accepted} is kept, and is delivered when there is a daemon again"
        raise DaemonUnavailable(f"{error}; {kept}") from error


async def _persist(paths: Paths, work: Callable[[Client], Awaitable[R]], *, start: bool) -> R:
    """Do something with a daemon, and again with the next one if it goes away meanwhile.

    It is not started a second time: somebody may have ended it on purpose.
    """
    left, patience = MOST_CONNECTIONS, 0.0
    while True:
        async with AsyncExitStack() as stack:
            client = await _connect(stack, paths, start=start, patience=patience)
            left -= 1
            try:
                return await work(client)
            except (DaemonUnavailable, RemoteError) as error:
                is_closing = isinstance(error, RemoteError) and error.code == SHUTTING_DOWN
                if not left or not (is_closing or client.is_closed):
                    raise
        start, patience = False, RETURN_SECONDS


async def _connect(stack: AsyncExitStack, paths: Paths, *, start: bool, patience: float) -> Client:
    until = time.monotonic() + patience
    while True:
        try:
            return await stack.enter_async_context(Client.connect(paths, start=start))
        except DaemonUnavailable:
            if time.monotonic() >= until:
                raise
        await asyncio.sleep(RETRY_SECONDS)


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
