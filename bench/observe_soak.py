"""A hundred thousand observations through gateway, projection and store, in one process.

Fifty panes change what they show, and ten sessions tell of tools and turns. Nothing may grow with
the observations that have been, except the file on the disk.
"""

import gc
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import msgspec
import psutil

from bench.figure import Figure
from bullpen.model.events import activity_event
from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.states import Activity, Provider, SignatureClass, SourceKind
from bullpen.model.views import PanePlace, SignatureInputs
from bullpen.observe.gateway import Gateway
from bullpen.observe.pipeline import Pipeline
from bullpen.observe.projection import Projection
from bullpen.observe.reports import PaneReport, ScreenReport, SignatureReport
from bullpen.store.store import Store

__all__ = ["run"]

PANES = 50
SESSIONS = 10
PER_TICK = PANES + SESSIONS
START = datetime(2026, 1, 1, tzinfo=UTC)
SHOWN = (Activity.RUNNING, Activity.WAITING_APPROVAL, Activity.IDLE)
SAID = ("turn.started", "tool.started", "turn.completed")
LOG_LIMIT = 10_000


class Clock:
    """A time that passes a second at a tick."""

    def __init__(self) -> None:
        self.at = START

    def __call__(self) -> datetime:
        return self.at


async def run(quick: bool) -> list[Figure]:
    total = 3_000 if quick else 100_000
    marks = {total * 20 // 100: 0.0, total * 60 // 100: 0.0, total: 0.0}
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        clock = Clock()
        store = await Store.open(Path(directory) / "state.db", now=clock())
        gateway = Gateway(clock, nonce="bench", owner_uid=0)
        pipeline = Pipeline(gateway, Projection(), store, clock)
        gateway.attach(SourceKind.POLLER, None)
        gateway.attach(SourceKind.CLAUDE_HOOKS, None)
        taken, pending = 0, sorted(marks)
        began = time.process_time()
        for batch in observations(clock, total):
            for kind in (SourceKind.POLLER, SourceKind.CLAUDE_HOOKS):
                gateway.ingest(kind, [each for each in batch if each.source_kind is kind])
            pipeline.fold()
            await pipeline.flush()
            taken += len(batch)
            while pending and taken >= pending[0]:
                marks[pending.pop(0)] = resident()
        rate = total / (time.process_time() - began)
        buffers = gateway.buffers()
        await store.aclose()
    early, middle, late = marks.values()
    return [
        Figure(
            row="observations-soak",
            what="resident after 60 % of the observations",
            ours=middle,
            theirs=early,
            unit="MiB",
            against="after 20 %, what is bounded is not full yet",
        ),
        Figure(
            row="observations-soak",
            what="resident after all of the observations",
            ours=late,
            theirs=middle,
            unit="MiB",
            against="after 60 %",
            at_most=1.02,
        ),
        Figure(
            row="observations-soak",
            what="observations held in the log at the end",
            ours=buffers["gateway.log"],
            theirs=LOG_LIMIT,
            unit="",
            against="its limit",
            at_most=1.0,
        ),
        Figure(
            row="observations-soak",
            what="observations taken, folded and kept",
            ours=rate,
            theirs=float(PER_TICK),
            unit="/s",
            against="50 panes and 10 sessions, each a second",
            at_least=1.0,
        ),
    ]


def observations(clock: Clock, total: int) -> Iterator[list[Observation]]:
    """Yield what is observed, tick by tick."""
    ids = count(1)
    for tick in range(-(-total // PER_TICK)):
        clock.at += timedelta(seconds=1)
        looks = [look(number, tick, f"e{next(ids)}", clock()) for number in range(PANES)]
        words = [said(number, tick, f"e{next(ids)}", clock()) for number in range(SESSIONS)]
        yield looks + words


def look(number: int, tick: int, event_id: str, at: datetime) -> Observation:
    pane = PaneInstanceId(f"%{number}", 1, START, "1.1")
    activity = SHOWN[(tick // 7 + number) % len(SHOWN)]
    report = PaneReport(
        place=PanePlace(tmux_socket="/tmp/t", session_name="main", title=f"title {tick}"),
        signature=SignatureReport(
            signature_class=SignatureClass.HEURISTIC,
            reason="the process in front is 'claude'",
            confidence=1.0,
            inputs=SignatureInputs(provider_hint=True),
        ),
        screen=ScreenReport(rule="rule", reason=f"it shows line {tick}"),
        pids=(1000 + number,),
        last_output_at=at,
    )
    return Observation(
        event_id=event_id,
        provider=Provider.CLAUDE,
        source_kind=SourceKind.POLLER,
        tier=SourceKind.POLLER.tier,
        observed_at=at,
        session_key=f"pane:1.1:%{number}:1",
        event_type=activity_event(activity),
        pane_id=pane.pane_id,
        pane_generation=pane.generation,
        pane_birth_ts=pane.birth_ts,
        tmux_server=pane.server,
        payload=msgspec.to_builtins(report),
    )


def said(number: int, tick: int, event_id: str, at: datetime) -> Observation:
    return Observation(
        event_id=event_id,
        provider=Provider.CLAUDE,
        source_kind=SourceKind.CLAUDE_HOOKS,
        tier=SourceKind.CLAUDE_HOOKS.tier,
        observed_at=at,
        session_key=f"claude:{number}-{tick // 100}",  # a new one now and then
        event_type=SAID[tick % len(SAID)],
        source_event_id=f"turn-{tick // 3}",
    )


def resident() -> float:
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20
