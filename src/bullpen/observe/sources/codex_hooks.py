"""Codex's hooks, as their shim delivers them, or has left them while nobody listened.

A request to the model that failed is the end of a turn only if no other follows. Codex tries again
after a moment; so long such a failure is kept back, and what follows it takes its place.
"""

import asyncio
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bullpen.agents.providers.codex.facts import CodexFact, mapping, text
from bullpen.agents.providers.codex.hooks import Approvals, may_go_on, translate
from bullpen.model.observations import Origin
from bullpen.model.states import Provider, SourceKind
from bullpen.observe.sources.codex_facts import to_observation
from bullpen.observe.sources.codex_processes import PROC, CodexProcesses
from bullpen.observe.sources.port import Now, Source, SourceTrouble
from bullpen.observe.sources.spool import Spool, Spooled

__all__ = ["CodexHooks"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
# Codex waits 0.2, 0.4, 0.8 … seconds before it tries again.
KEPT_BACK: Final = timedelta(seconds=2)
MOST_KEPT_BACK: Final = 1000
PROCESSES_REMEMBERED: Final = 100


class _Heard(msgspec.Struct, frozen=True):
    """A fact, with all that is to be told with it."""

    fact: CodexFact
    event_id: str
    at: datetime
    origin: Origin


class CodexHooks(Source):
    """Tells what hooks tell, at once; looking finds what was spooled, and failures that stand.

    The id of an observation is made of the time, the process and the fact, so that a delivery which
    was both answered too late and spooled is known to be one.
    """

    kind = SourceKind.CODEX_HOOKS

    def __init__(self, now: Now, spool: Path, *, proc: Path = PROC) -> None:
        super().__init__(now)
        self._spool = Spool(spool, Provider.CODEX)
        self._processes = CodexProcesses(proc)
        self._is_server: dict[int, bool] = {}  # by the process that called a hook
        self._approvals = Approvals()
        self._kept_back: dict[str, _Heard] = {}  # by thread

    @property
    def is_calm(self) -> bool:
        # Hooks are heard at once; looking finds what was spooled, and tells what was kept back.
        return not self._kept_back

    async def look(self) -> None:
        troubles = await self._spool.empty(self._take)
        now = self._now()
        for thread_id, heard in tuple(self._kept_back.items()):
            if not heard.at <= now < heard.at + KEPT_BACK:
                del self._kept_back[thread_id]
                self._say(heard)
        if troubles:
            raise SourceTrouble("; ".join(troubles))

    async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:
        fact = translate(payload)
        if fact is None:
            raise SourceTrouble("this is none of codex's hooks")
        event_id = _event_id(fact, at, origin.pid)
        cwd = text(mapping(payload).get("cwd"))
        if await self._is_from_server(origin.pid):
            # It calls hooks in the environment of whoever started it, for whoever uses it.
            origin = Origin(cwd=cwd)
        elif cwd and not origin.cwd:
            origin = msgspec.structs.replace(origin, cwd=cwd)
        heard = _Heard(self._approvals.settle(fact), event_id, at, origin)
        self._release(heard)
        if may_go_on(heard.fact) and len(self._kept_back) < MOST_KEPT_BACK:
            self._kept_back[fact.thread_id] = heard
        else:
            self._say(heard)

    async def _take(self, spooled: Spooled) -> None:
        await self.deliver(spooled.payload, spooled.at, spooled.origin)

    def _release(self, heard: _Heard) -> None:
        """Let go of a failure: told if another turn has begun since, else the turn went on."""
        if heard.fact.event_type.startswith("subagent."):
            return
        kept = self._kept_back.pop(heard.fact.thread_id, None)
        if kept is not None and _turn(kept.fact) != _turn(heard.fact):
            self._say(kept)

    async def _is_from_server(self, pid: int) -> bool:
        if pid <= 0:
            return False
        if pid not in self._is_server:
            process = await asyncio.to_thread(self._processes.find, pid)
            if len(self._is_server) >= PROCESSES_REMEMBERED:
                self._is_server.clear()  # numbers are used again
            self._is_server[pid] = process is not None and process.is_server
        return self._is_server[pid]

    def _say(self, heard: _Heard) -> None:
        self._emit(
            to_observation(
                heard.fact,
                self.kind,
                event_id=heard.event_id,
                at=heard.at,
                origin=heard.origin,
            )
        )


def _turn(fact: CodexFact) -> str:
    return text(fact.payload.get("turn_id"))


def _event_id(fact: CodexFact, at: datetime, pid: int) -> str:
    microseconds = (at - EPOCH) // timedelta(microseconds=1)
    what = f"{fact.payload.get('hook')} {fact.thread_id} {fact.source_event_id}"
    return f"{microseconds}-{pid}-{zlib.crc32(what.encode(errors='replace')):08x}"
