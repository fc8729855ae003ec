"""Copilot CLI, by the records it keeps of its sessions, and by its hooks where there are any.

The records tell everything, within half a second and a tenth. Hooks tell the better part of it at
once, and in which terminal. Both are told here as one: what the record says again is not repeated
if something newer is known already.
"""

import asyncio
import zlib
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bullpen.agents.providers.copilot.events import SessionRecord
from bullpen.agents.providers.copilot.facts import CopilotFact
from bullpen.agents.providers.copilot.hooks import CopilotHook, translate
from bullpen.model.events import SESSION_ENDED, SESSION_NAMED, activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Activity, Provider, SourceKind
from bullpen.observe.sources.blocking import BlockingLook
from bullpen.observe.sources.copilot_files import PROC, CopilotSessions, OpenSession
from bullpen.observe.sources.port import Now, Source, SourceTrouble
from bullpen.observe.sources.spool import Spool, Spooled

__all__ = ["CopilotSource"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SESSIONS_REMEMBERED: Final = 500
STARTS_WITHIN: Final = timedelta(seconds=2)  # its first event may be before its lock
CLOCKS_AGREE: Final = timedelta(seconds=60)  # else what a payload says of the time is not believed


class _Session(msgspec.Struct):
    """What is known of a session, by whatever means."""

    id: str
    record: SessionRecord
    origin: Origin = Origin()
    heard_at: datetime = EPOCH
    """Of when the latest is that was said of what it is doing."""
    title: str = ""
    asked_at: datetime | None = None
    """When a hook has told that somebody is asked, and the record has not told of an answer."""
    is_open: bool = False
    is_ended: bool = False


class CopilotSource(Source):
    """Tells what hooks tell, at once, and what the records of open sessions tell, at each look."""

    kind = SourceKind.COPILOT
    interval_seconds = 0.5

    def __init__(self, now: Now, spool: Path, directory: Path, *, proc: Path = PROC) -> None:
        super().__init__(now)
        self._spool = Spool(spool, Provider.COPILOT)
        self._files = CopilotSessions(directory / "session-state", proc=proc)
        self._read = BlockingLook(self._files.read)
        self._sessions: dict[str, _Session] = {}  # the one heard of last is the last
        self._in_turn = asyncio.Lock()  # hooks and looks, one after the other

    @property
    def is_calm(self) -> bool:
        return not any(each.is_open for each in self._sessions.values())

    async def look(self) -> None:
        troubles = await self._spool.empty(self._take)
        async with self._in_turn:
            troubles += await self._see()
        if troubles:
            raise SourceTrouble("; ".join(troubles))

    async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:
        try:
            hook = translate(payload)
        except ValueError as error:
            raise SourceTrouble(str(error)) from error
        if hook is not None:
            async with self._in_turn:
                await self._hear(hook, at, origin)

    async def _take(self, spooled: Spooled) -> None:
        await self.deliver(spooled.payload, spooled.at, spooled.origin)

    # ---------------------------------------------------------------------------------- the records

    async def _see(self) -> list[str]:
        """Look at the sessions' directories; return what was wrong with them."""
        try:
            seen = await self._read.result()
        except OSError as error:
            return [f"cannot read the sessions: {error}"]
        over: list[tuple[_Session, CopilotFact]] = []
        for each in seen.open:
            if each.workspace.is_terminal:
                over += self._follow(each)
        for each in seen.gone:
            if each.workspace.is_terminal:
                over += self._follow(each)
                over += self._close(each)
        # Last, so that what follows a session in its pane is there before it is over.
        pids = {each.pid: each.session_id for each in seen.open}
        for session, fact in over:
            self._end(session, fact, fact.event_id, pids.get(session.origin.pid, ""))
        return [seen.trouble] if seen.trouble else []

    def _follow(self, each: OpenSession) -> Iterable[tuple[_Session, CopilotFact]]:
        """Tell what is new of a session that is open; return what ends it, if anything does."""
        session = self._remember(each.session_id)
        session.origin = _merge(session.origin, each, session.record)
        facts = [fact for line in each.lines if (fact := session.record.read(line)) is not None]
        self.version = session.record.version or self.version
        if each.is_anew:
            session.is_open, session.is_ended = True, False
            facts = _latest(facts, each) or [_opened(each)]
        for fact in facts:
            if fact.event_type == SESSION_ENDED:
                yield session, fact
            else:
                self._say_newer(session, fact)
        self._name(session, each.workspace.name)

    def _close(self, each: OpenSession) -> Iterable[tuple[_Session, CopilotFact]]:
        """Return the end of a session that nobody has open any more, though it did not say so."""
        session = self._remember(each.session_id)
        session.is_open = False
        if not session.is_ended:
            at = self._now()
            name = f"gone:{each.pid}:{each.process_start}:{_microseconds(at)}"
            yield (
                session,
                CopilotFact(
                    event_type=SESSION_ENDED,
                    event_id=name,
                    source_event_id=name,
                    at=at,
                    payload={"reason": "gone"},
                ),
            )

    def _say_newer(self, session: _Session, fact: CopilotFact) -> None:
        """Tell what a record says, unless something newer has been told."""
        at = fact.at or self._now()
        activity = activity_of(fact.event_type)
        if activity is not None and at < session.heard_at:
            return
        if activity is not None and not activity.is_waiting:
            session.asked_at = None
        self._say(session, fact, fact.event_id, at)

    def _name(self, session: _Session, title: str) -> None:
        if title and title != session.title:
            session.title = title
            name = f"named:{zlib.crc32(title.encode(errors='replace')):08x}"
            fact = CopilotFact(
                event_type=SESSION_NAMED, source_event_id=name, payload={"title": title}
            )
            self._say(session, fact, f"{name}:{_microseconds(self._now())}", self._now())

    # ------------------------------------------------------------------------------------ the hooks

    async def _hear(self, hook: CopilotHook, at: datetime, origin: Origin) -> None:
        fact = hook.fact
        event_id = _event_id(fact, at, origin.pid)
        session = self._remember(hook.session_id)
        if fact.event_type == SESSION_ENDED or _is_beside_the_question(session, fact):
            await self._see()  # what follows the session, or whether there was an answer
        if fact.at is not None and abs(fact.at - at) < CLOCKS_AGREE:
            at = fact.at
        if hook.cwd and not origin.cwd:
            origin = msgspec.structs.replace(origin, cwd=hook.cwd)
        start = session.origin.process_start if session.origin.pid == origin.pid else ""
        session.origin = msgspec.structs.replace(origin, process_start=start)
        if fact.event_type == SESSION_ENDED:
            fact = msgspec.structs.replace(fact, at=at)
            self._end(session, fact, event_id, self._successor(session))
        elif at < session.heard_at:
            self._say(session, fact, event_id, at)  # it is late: nothing follows from it any more
        else:
            session.is_ended = False
            self._say(session, self._settle(session, fact, at), event_id, at)

    def _settle(self, session: _Session, fact: CopilotFact, at: datetime) -> CopilotFact:
        """Return what a hook has told as it is to be told after all that came before it."""
        if _is_beside_the_question(session, fact):
            return msgspec.structs.replace(fact, event_type=f"parallel.{fact.event_type}")
        activity = activity_of(fact.event_type)
        if activity is not None:
            session.asked_at = at if activity.is_waiting else None
        return fact

    def _successor(self, session: _Session) -> str:
        """Return the session that the same process has gone on with."""
        for other in self._sessions.values():
            if other.is_open and other is not session and other.origin.pid == session.origin.pid:
                return other.id
        return ""

    # ------------------------------------------------------------------------------------- telling

    def _remember(self, session_id: str) -> _Session:
        session = self._sessions.pop(session_id, None)
        session = session or _Session(id=session_id, record=SessionRecord())
        self._sessions[session_id] = session
        if len(self._sessions) > SESSIONS_REMEMBERED:
            del self._sessions[next(iter(self._sessions))]
        return session

    def _end(self, session: _Session, fact: CopilotFact, event_id: str, successor: str) -> None:
        """Tell that a session is over, once."""
        if session.is_ended:
            return
        session.is_ended, session.asked_at = True, None
        if successor and successor != session.id:
            payload = {**fact.payload, "replaced_by": _session_key(successor)}
            fact = msgspec.structs.replace(fact, payload=payload)
        self._say(session, fact, event_id, max(fact.at or self._now(), session.heard_at))

    def _say(self, session: _Session, fact: CopilotFact, event_id: str, at: datetime) -> None:
        if activity_of(fact.event_type) is not None:
            session.heard_at = max(session.heard_at, at)
        self._emit(
            Observation(
                event_id=event_id,
                provider=Provider.COPILOT,
                source_kind=self.kind,
                tier=self.kind.tier,
                observed_at=at,
                session_key=_session_key(session.id),
                event_type=fact.event_type,
                source_event_id=fact.source_event_id,
                payload=fact.payload,
                origin=session.origin,
            )
        )


def _is_beside_the_question(session: _Session, fact: CopilotFact) -> bool:
    """Tell whether something goes on while somebody is asked, and so does not show an answer."""
    is_waiting = session.asked_at is not None or session.record.is_waiting
    is_work = activity_of(fact.event_type) is Activity.RUNNING and not fact.is_answer
    return is_waiting and is_work and fact.event_type != "prompt.submitted"


def _merge(origin: Origin, each: OpenSession, record: SessionRecord) -> Origin:
    """Return where a session is, by its directory, and by its hooks if they are of the process."""
    if origin.pid != each.pid:
        origin = Origin(pid=each.pid)
    return msgspec.structs.replace(
        origin,
        process_start=each.process_start,
        cwd=record.cwd or each.workspace.cwd or origin.cwd,
    )


def _latest(facts: list[CopilotFact], each: OpenSession) -> list[CopilotFact]:
    """Return the last that tells what a session is doing: of what was before, nothing is news.

    What another process has written tells nothing of what this one is doing.
    """
    since = datetime.fromtimestamp(each.opened_at, UTC) - STARTS_WITHIN
    telling = [fact for fact in facts if activity_of(fact.event_type) is not None]
    return [fact for fact in telling[-1:] if fact.at is not None and fact.at >= since]


def _opened(each: OpenSession) -> CopilotFact:
    """Return what there is to say of a session in which nothing has happened yet."""
    name = f"opened:{each.pid}:{each.process_start}:{int(each.opened_at * 1000)}"
    return CopilotFact(
        event_type="session.started",
        event_id=name,
        source_event_id=name,
        at=datetime.fromtimestamp(each.opened_at, UTC),
    )


def _session_key(session_id: str) -> str:
    return f"{Provider.COPILOT}:{session_id}"


def _event_id(fact: CopilotFact, at: datetime, pid: int) -> str:
    what = f"{fact.payload.get('hook')} {fact.source_event_id} {fact.payload.get('what')}"
    return f"{_microseconds(at)}-{pid}-{zlib.crc32(what.encode(errors='replace')):08x}"


def _microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)
