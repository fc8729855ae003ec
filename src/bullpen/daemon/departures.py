"""Agents without a terminal that end without a word.

Who is in a pane, or in front of a terminal, is seen to leave. One that runs apart from both is
known by what it reports alone, and if it was killed it reports nothing. So its process is looked
for. Only one that has been seen can be missed: some programs let a process report for them that
ends at once.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from bullpen.agents.processes import is_running
from bullpen.api.errors import ApiError
from bullpen.model.events import SESSION_ENDED
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import EvidenceTier, Provider, SourceKind
from bullpen.observe.pipeline import Pipeline
from bullpen.observe.sources.port import Now

__all__ = ["Departures"]

LOOK_SECONDS = 5.0
MISSED_LOOKS = 2  # in a row: then the process is gone


class Departures:
    """Looks for the processes of agents that nobody else looks at, and says which are gone."""

    def __init__(
        self, pipeline: Pipeline, now: Now, *, is_there: Callable[[int], bool] = is_running
    ) -> None:
        self._pipeline = pipeline
        self._now = now
        self._is_there = is_there
        self._missed: dict[int, int] = {}  # of those that were seen

    async def run(self) -> None:
        """Look every so often, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Look once."""
        told = self._told()
        there = await asyncio.to_thread(self._which_are_there, tuple(told))
        self._missed = {pid: missed for pid, missed in self._missed.items() if pid in told}
        for pid, provider in told.items():
            if pid in there:
                self._missed[pid] = 0
            elif pid in self._missed:
                self._missed[pid] += 1
                if self._missed[pid] == MISSED_LOOKS:
                    self._tell(pid, provider)

    def _told(self) -> dict[int, Provider]:
        """Return the processes of agents that are in no pane, and whose they are."""
        return {
            each.origin.pid: each.provider
            for each in self._pipeline.projection.records.sessions.values()
            if each.agent is not None
            and each.origin.pid > 0
            and each.pane is None
            and not (each.is_process or each.is_wrapped or each.is_report)
        }

    def _which_are_there(self, pids: Iterable[int]) -> frozenset[int]:
        return frozenset(pid for pid in pids if self._is_there(pid))

    def _tell(self, pid: int, provider: Provider) -> None:
        key, now = f"process:{pid}:", self._now()
        gone = Observation(
            event_id=f"{key}{now.timestamp():.6f}",
            provider=provider,
            source_kind=SourceKind.POLLER,
            tier=EvidenceTier.HEURISTIC,
            observed_at=now,
            session_key=key,
            event_type=SESSION_ENDED,
            origin=Origin(pid=pid),
        )
        with contextlib.suppress(ApiError):  # processes are not to be looked at here
            self._pipeline.ingest(SourceKind.POLLER, [gone])
