"""Events of 64 sessions on one connection, from a second process over a Unix socket.

The reference is the least a program can do with the same bytes: a blocking `recv`, a split at the
newlines, `msgspec.json.decode` of each line. It is fed by the same process in the same run. Deltas
and the event that ends each turn count alike. The time is that of the receiving process: waiting
for the feeder costs neither side anything.
"""

import asyncio
import socket
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from bench.feeder import READ_BYTES, feeder
from bench.figure import Figure
from bench.rounds import best_rates
from bullpen.connection import SocketTransport
from bullpen.connection.channel import SessionChannel, SessionLimits
from bullpen.connection.router import MessageRouter

__all__ = ["queue_rate", "run"]

SESSIONS = 64
TARGET = 0.6


async def run(quick: bool) -> list[Figure]:
    rounds, events = (1, 640) if quick else (15, 64_000)
    with feeder() as path:
        best = await best_rates(
            rounds,
            {
                "bare": lambda: bare_rate(path, SESSIONS, events),
                "queued": lambda: queue_rate(path, SESSIONS, events),
                "read": lambda: read_rate(path, SESSIONS, events),
            },
        )
    return [
        Figure(
            row="demultiplexing",
            what=what,
            ours=best[name],
            theirs=best["bare"],
            unit="events/s",
            against="bare decode loop",
            at_least=target,
        )
        for name, what, target in (
            ("queued", f"events into the queues of {SESSIONS} sessions", TARGET),
            ("read", f"events read by {SESSIONS} tasks, each its own turn", None),
        )
    ]


async def bare_rate(path: str, sessions: int, events: int) -> float:
    """Return the pace of the bare loop. It blocks: nothing else is to run meanwhile."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        session_ids = [str(uuid.uuid4()) for _ in range(sessions)]
        _ask(connection, 1, "bench.prepare", {"sessions": session_ids, "events": events})
        began = time.process_time()
        decoded = _ask(connection, 2, "bench.stream", {})
        seconds = time.process_time() - began
    if decoded != events + sessions + 1:
        raise AssertionError(f"{decoded} messages instead of {events + sessions + 1}")
    return (events + sessions) / seconds


def _ask(connection: socket.socket, request_id: int, method: str, params: object) -> int:
    """Send a request and decode all that comes up to its response; return how many that were."""
    request = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    connection.sendall(msgspec.json.encode(request) + b"\n")
    decode, received, decoded = msgspec.json.decode, b"", 0
    message: dict[str, Any] = {}
    while "id" not in message:
        *lines, received = (received + connection.recv(READ_BYTES)).split(b"\n")
        for line in lines:
            message = decode(line)
        decoded += len(lines)
    return decoded


async def queue_rate(path: str, sessions: int, events: int) -> float:
    """Return the pace at which events reach the queues of their sessions."""
    async with open_sessions(path, sessions, events) as (router, channels):
        began = time.process_time()
        await router.request("bench.stream")
        seconds = time.process_time() - began
        delivered = sum(channel.stats().queued_events for channel in channels)
    if delivered != events + sessions:
        raise AssertionError(f"{delivered} events instead of {events + sessions}")
    return (events + sessions) / seconds


async def read_rate(path: str, sessions: int, events: int) -> float:
    """Return the pace at which a task for each session reads its turn."""
    async with open_sessions(path, sessions, events) as (router, channels):
        readers = [asyncio.create_task(channel.read_streaming()) for channel in channels]
        await asyncio.sleep(0)  # they wait for their events
        began = time.process_time()
        await router.request("bench.stream")
        answers = await asyncio.gather(*readers)
        seconds = time.process_time() - began
    if not all(answers):
        raise AssertionError("a session read nothing")
    return (events + sessions) / seconds


@asynccontextmanager
async def open_sessions(
    path: str, sessions: int, events: int
) -> AsyncIterator[tuple[MessageRouter, list[SessionChannel]]]:
    """Open sessions with room for all the events, which the feeder gets ready to send."""
    limits = SessionLimits(events=events + sessions, bytes=2**30)
    async with await MessageRouter.open(SocketTransport.unix(path)) as router:
        opened = [await router.create_session(limits=limits) for _ in range(sessions)]
        session_ids = [session_id for session_id, _ in opened]
        await router.request("bench.prepare", {"sessions": session_ids, "events": events})
        yield router, [channel for _, channel in opened]
