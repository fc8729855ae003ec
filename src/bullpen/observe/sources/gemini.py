"""Gemini CLI by its hooks, and by the records of the sessions they tell of.

What hooks tell is told at once. Between them the record of each session is looked at: it tells of
turns that were cancelled, or failed, which the hooks do not. Without hooks there is nothing: the
record alone does not tell that somebody is asked.
"""

import asyncio
import contextlib
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bullpen.agents.providers.gemini.facts import GeminiFact
from bullpen.agents.providers.gemini.hooks import translate
from bullpen.agents.providers.gemini.transcript import read_line
from bullpen.agents.tail import FileTail
from bullpen.model.events import SESSION_ENDED, activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Provider, SourceKind
from bullpen.observe.sources.port import Now, Source, SourceTrouble
from bullpen.observe.sources.spool import Spool, Spooled

__all__ = ["GeminiHooks"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SESSIONS_REMEMBERED: Final = 200
CLOCKS_AGREE: Final = timedelta(seconds=60)  # else what a payload says of the time is not believed
NEXT_FOLLOWS: Final = timedelta(seconds=3)
_GOES_ON: Final = "clear"


class _Session(msgspec.Struct):
    """What is known of a session."""

    id: str
    origin: Origin = Origin()
    tail: FileTail | None = None
    heard_at: datetime = EPOCH
    outcome: str = ""
    """How the turn has ended, if that is known before the hook says that it has."""
    is_asking: bool = False
    is_ended: bool = False
    leaving: GeminiFact | None = None
    """It is over because another one follows in its place, which has not been heard of yet."""


class GeminiHooks(Source):
    """Tells what hooks tell, at once; looking finds what was spooled, and how turns have ended."""

    kind = SourceKind.GEMINI
    interval_seconds = 0.5

    def __init__(self, now: Now, spool: Path) -> None:
        super().__init__(now)
        self._spool = Spool(spool, Provider.GEMINI)
        self._sessions: dict[str, _Session] = {}  # the one heard of last is the last
        self._in_turn = asyncio.Lock()  # hooks and looks, one after the other

    @property
    def is_calm(self) -> bool:
        return all(each.is_ended for each in self._sessions.values())

    async def look(self) -> None:
        troubles = await self._spool.empty(self._take)
        for session in tuple(self._sessions.values()):
            async with self._in_turn:
                if session.leaving is not None and self._now() - session.heard_at > NEXT_FOLLOWS:
                    self._end(session, session.leaving)
                try:
                    await self._follow(session)
                except OSError as error:
                    troubles.append(str(error))
        if troubles:
            raise SourceTrouble("; ".join(troubles))

    async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:
        try:
            fact = translate(payload)
        except ValueError as error:
            raise SourceTrouble(str(error)) from error
        if fact is not None:
            async with self._in_turn:
                await self._hear(fact, at, origin)

    async def _take(self, spooled: Spooled) -> None:
        await self.deliver(spooled.payload, spooled.at, spooled.origin)

    async def _hear(self, fact: GeminiFact, at: datetime, origin: Origin) -> None:
        event_id = _event_id(fact, at, origin.pid)
        at = fact.at if fact.at is not None and abs(fact.at - at) < CLOCKS_AGREE else at
        session = self._remember(fact, origin)
        if at < session.heard_at:
            self._tell(fact, session, event_id, at)  # it is late: nothing follows from it any more
            return
        if fact.event_type == SESSION_ENDED:
            self._leave(fact, session, event_id, at)
            return
        if session.tail is None and fact.transcript_path.startswith("/"):
            session.tail = FileTail(fact.transcript_path, last_lines=0)  # from now on
        with contextlib.suppress(OSError):  # the next look says so
            await self._follow(session)  # a turn that is over may not be completed
        self._tell(self._settle(fact, session), session, event_id, at)
        if fact.event_type == "session.started":
            self._end_those_before(session)

    # ------------------------------------------------------------------------------ one session

    def _remember(self, fact: GeminiFact, origin: Origin) -> _Session:
        session = self._sessions.pop(fact.session_id, None) or _Session(id=fact.session_id)
        self._sessions[session.id] = session
        if len(self._sessions) > SESSIONS_REMEMBERED:
            del self._sessions[next(iter(self._sessions))]
        if fact.cwd and not origin.cwd:
            origin = msgspec.structs.replace(origin, cwd=fact.cwd)
        session.origin = origin
        return session

    def _settle(self, fact: GeminiFact, session: _Session) -> GeminiFact:
        """Return a fact as it is to be told after all that came before it."""
        session.is_ended, session.leaving = False, None
        if fact.event_type == "tool.started" and session.is_asking:
            # Of tools that are to run side by side each is asked for before any of them runs.
            return msgspec.structs.replace(fact, event_type="parallel.tool.started")
        activity = activity_of(fact.event_type)
        session.is_asking = activity is not None and activity.is_waiting
        if fact.event_type == "prompt.submitted":
            session.outcome = ""
        if fact.event_type == "turn.completed" and session.outcome:
            return msgspec.structs.replace(fact, event_type=session.outcome)
        return fact

    def _leave(self, fact: GeminiFact, session: _Session, event_id: str, at: datetime) -> None:
        """Take note that a session is over. The program says so up to three times."""
        if session.is_ended or session.leaving is not None:
            return
        session.heard_at = at
        if fact.payload.get("reason") == _GOES_ON:
            session.leaving = fact  # its pane is the next one's, and at no time nobody's
        else:
            self._end(session, fact, event_id)

    def _end_those_before(self, session: _Session) -> None:
        for other in tuple(self._sessions.values()):
            if other.leaving is not None and other.origin.pid == session.origin.pid:
                payload = {**other.leaving.payload, "replaced_by": _session_key(session.id)}
                self._end(other, msgspec.structs.replace(other.leaving, payload=payload))

    def _end(self, session: _Session, fact: GeminiFact, event_id: str = "") -> None:
        session.is_ended, session.leaving, session.tail = True, None, None
        event_id = event_id or _event_id(fact, session.heard_at, session.origin.pid)
        self._tell(fact, session, event_id, session.heard_at)

    async def _follow(self, session: _Session) -> None:
        """Tell what was added to a session's record.

        Raises:
            OSError: it cannot be read.
        """
        if session.tail is None:
            return
        for line in (await session.tail.read()).lines:
            fact = read_line(line.data, session.id)
            if fact is not None:
                session.outcome, session.is_asking = fact.event_type, False
                # What was heard in the meantime came from the same turn.
                at = max(fact.at or session.heard_at, session.heard_at)
                self._tell(fact, session, fact.source_event_id, at)

    def _tell(self, fact: GeminiFact, session: _Session, event_id: str, at: datetime) -> None:
        session.heard_at = max(session.heard_at, at)
        self._emit(
            Observation(
                event_id=event_id,
                provider=Provider.GEMINI,
                source_kind=self.kind,
                tier=self.kind.tier,
                observed_at=at,
                session_key=_session_key(fact.session_id),
                event_type=fact.event_type,
                source_event_id=fact.source_event_id,
                payload=fact.payload,
                origin=session.origin,
            )
        )


def _session_key(session_id: str) -> str:
    return f"{Provider.GEMINI}:{session_id}"


def _event_id(fact: GeminiFact, at: datetime, pid: int) -> str:
    microseconds = (at - EPOCH) // timedelta(microseconds=1)
    what = f"{fact.payload.get('hook')} {fact.source_event_id} {fact.payload.get('what')}"
    return f"{microseconds}-{pid}-{zlib.crc32(what.encode(errors='replace')):08x}"
