"""Claude Code's hooks, as their shim delivers them, or has left them while nobody listened."""

import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.claude.hooks import ANSWERS, Approvals, HookEvent, translate
from bullpen.model.events import SESSION_ENDED, SESSION_NAMED, activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Activity, Provider, SourceKind
from bullpen.observe.sources.port import Now, Source, SourceTrouble
from bullpen.observe.sources.spool import Spool, Spooled

__all__ = ["ClaudeHooks"]

SESSIONS_REMEMBERED: Final = 1000
# Hooks are processes of their own: one that was started first may be heard second.
OVERTAKEN: Final = timedelta(seconds=1)
_OVER: Final = (Activity.IDLE, Activity.ERROR, Activity.RATE_LIMITED, Activity.EXITED)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Memory(msgspec.Struct):
    """What was heard of a session."""

    heard_at: datetime = EPOCH
    over_at: datetime = EPOCH
    """When a turn last began or ended: before it nobody is asked any more."""
    title: str = ""


class ClaudeHooks(Source):
    """Tells what hooks tell, at once; looking only finds what was spooled.

    The id of an observation is made of the time, the process and the fact, so that a delivery which
    was both answered too late and spooled is known to be one.
    """

    kind = SourceKind.CLAUDE_HOOKS

    def __init__(self, now: Now, spool: Path) -> None:
        super().__init__(now)
        self._spool = Spool(spool, Provider.CLAUDE)
        self._approvals = Approvals()
        self._memories: dict[str, _Memory] = {}  # the session heard of last is the last

    @property
    def is_calm(self) -> bool:
        return True  # hooks are heard at once; looking only finds what was spooled

    async def look(self) -> None:
        if troubles := await self._spool.empty(self._take):
            raise SourceTrouble("; ".join(troubles))

    async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:
        try:
            event = translate(payload)
        except NotUnderstood as error:
            raise SourceTrouble(str(error)) from error
        if event is None:
            return
        if event.cwd and not origin.cwd:
            origin = msgspec.structs.replace(origin, cwd=event.cwd)
        event_id = _event_id(event, at, origin.pid)
        memory = self._remember(event.session_id)
        if event.title and event.title != memory.title:
            memory.title = event.title
            details = {"title": event.title, "by": event.name}
            self._say(event, SESSION_NAMED, f"{event_id}-title", at, origin, details)
        event, at = self._in_order(event, memory, at)
        self._say(event, event.event_type, event_id, at, origin, event.details)
        if event.event_type == SESSION_ENDED:
            del self._memories[event.session_id]

    async def _take(self, spooled: Spooled) -> None:
        await self.deliver(spooled.payload, spooled.at, spooled.origin)

    def _in_order(
        self, event: HookEvent, memory: _Memory, at: datetime
    ) -> tuple[HookEvent, datetime]:
        """Return an event as it is to be told after all that was heard, and as of when."""
        activity = activity_of(event.event_type)
        is_asking = activity is not None and activity.is_waiting
        if at < memory.heard_at:
            if not _still_matters(event, memory, at, is_asking):
                return event, at  # it is late, and nothing follows from it any more
            if is_asking:
                at = memory.heard_at  # whoever overtook it has not answered for it
        memory.heard_at = max(memory.heard_at, at)
        if activity in _OVER or event.event_type == "prompt.submitted":
            memory.over_at = at
        return self._approvals.settle(event), at

    def _remember(self, session_id: str) -> _Memory:
        memory = self._memories.pop(session_id, None) or _Memory()
        self._memories[session_id] = memory
        if len(self._memories) > SESSIONS_REMEMBERED:
            del self._memories[next(iter(self._memories))]
        return memory

    def _say(
        self,
        event: HookEvent,
        event_type: str,
        event_id: str,
        at: datetime,
        origin: Origin,
        details: dict[str, Any],
    ) -> None:
        self._emit(
            Observation(
                event_id=event_id,
                provider=Provider.CLAUDE,
                source_kind=self.kind,
                tier=self.kind.tier,
                observed_at=at,
                session_key=f"{Provider.CLAUDE}:{event.session_id}",
                event_type=event_type,
                source_event_id=event.source_event_id,
                payload=details,
                origin=origin,
            )
        )


def _still_matters(event: HookEvent, memory: _Memory, at: datetime, is_asking: bool) -> bool:
    """Whether something that is heard late changes who is being asked."""
    if at <= memory.over_at:
        return False
    return memory.heard_at - at <= OVERTAKEN if is_asking else event.name in ANSWERS


def _event_id(event: HookEvent, at: datetime, pid: int) -> str:
    microseconds = (at - EPOCH) // timedelta(microseconds=1)
    fact = f"{event.name} {event.source_event_id} {event.agent_id} {event.tool}"
    return f"{microseconds}-{pid}-{zlib.crc32(fact.encode(errors='replace')):08x}"
