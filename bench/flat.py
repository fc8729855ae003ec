"""What one event costs when it is routed to one of 1, 10, 100 or 1000 sessions.

The number of events is the same each time; they go to the sessions in turn.
"""

import functools

from bench.demultiplexing import queue_rate
from bench.feeder import feeder
from bench.figure import Figure
from bench.rounds import best_rates

__all__ = ["run"]

SESSIONS = (1, 10, 100, 1000)
TARGET = 1.2


async def run(quick: bool) -> list[Figure]:
    rounds, events = (1, 1000) if quick else (15, 50_000)
    with feeder() as path:
        measures = {
            str(sessions): functools.partial(queue_rate, path, sessions, events)
            for sessions in SESSIONS
        }
        best = await best_rates(rounds, measures)
    nanoseconds = {name: 1e9 / rate for name, rate in best.items()}
    return [
        Figure(
            row="flat",
            what=f"one event, {sessions} sessions",
            ours=nanoseconds[str(sessions)],
            theirs=nanoseconds["1"],
            unit="ns",
            against="1 session",
            at_most=TARGET,
        )
        for sessions in SESSIONS[1:]
    ]
