"""opencode by the plugin that `bullpen hooks install opencode` puts into it.

Without it opencode keeps nothing that tells what it is doing: its database has messages, but not
that somebody is asked. Then its screen is all there is.
"""

import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec

from bullpen.agents.providers.opencode.hooks import EVERY_SESSION, OpencodeFact, translate
from bullpen.model.events import SESSION_ENDED, SESSION_NAMED, activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Activity, Provider, SourceKind
from bullpen.observe.sources.port import Now, Source, SourceTrouble
from bullpen.observe.sources.spool import Spool, Spooled

__all__ = ["OpencodeSource"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SESSIONS_REMEMBERED: Final = 500
CLOCKS_AGREE: Final = timedelta(seconds=60)  # else what a payload says of the time is not believed
_UNNAMED: Final = "New session - "
_BROKEN_OFF: Final = ("turn.interrupted", "turn.failed", "turn.rate_limited")
_ASKING: Final = ("approval.requested", "question.asked")
_ANSWERS: Final = ("approval.granted", "tool.failed", "question.answered")


class _Session(msgspec.Struct):
    """What is known of a session that is nobody's subagent."""

    id: str
    origin: Origin = Origin()
    heard_at: datetime = EPOCH
    activity: Activity | None = None
    asked: set[str] = msgspec.field(default_factory=set)
    """The requests that wait for an answer, its subagents' as well."""
    is_broken_off: bool = False
    """How the turn has ended was told; that it is over says less."""
    title: str = ""
    is_ended: bool = False


class OpencodeSource(Source):
    """Tells what the plugin tells, at once; looking only finds what was spooled."""

    kind = SourceKind.OPENCODE

    def __init__(self, now: Now, spool: Path) -> None:
        super().__init__(now)
        self._spool = Spool(spool, Provider.OPENCODE)
        self._sessions: dict[str, _Session] = {}  # the one heard of last is the last
        self._parents: dict[str, str] = {}

    @property
    def is_calm(self) -> bool:
        return True  # hooks are heard at once; looking only finds what was spooled

    async def look(self) -> None:
        if troubles := await self._spool.empty(self._take):
            raise SourceTrouble("; ".join(troubles))

    async def deliver(self, payload: Any, at: datetime, origin: Origin) -> None:
        try:
            fact = translate(payload)
        except ValueError as error:
            raise SourceTrouble(str(error)) from error
        if fact is None:
            return
        self.version = fact.version or self.version
        event_id = _event_id(fact, at, origin.pid)
        if fact.at is not None and abs(fact.at - at) < CLOCKS_AGREE:
            at = fact.at
        if fact.cwd:
            origin = msgspec.structs.replace(origin, cwd=fact.cwd)
        if fact.session_id == EVERY_SESSION:
            self._end_all(fact, event_id, at, origin.pid)
        else:
            self._hear(fact, event_id, at, origin)

    async def _take(self, spooled: Spooled) -> None:
        await self.deliver(spooled.payload, spooled.at, spooled.origin)

    def _hear(self, fact: OpencodeFact, event_id: str, at: datetime, origin: Origin) -> None:
        if fact.parent_id:
            self._adopt(fact.session_id, fact.parent_id)
        root = self._root_of(fact.session_id)
        is_subagents = root != fact.session_id
        if is_subagents and fact.event_type not in (*_ASKING, *_ANSWERS):
            return
        session = self._remember(root)
        session.origin = origin
        if not is_subagents and fact.title and not fact.title.startswith(_UNNAMED):
            self._name(session, fact, event_id, at)
        if fact.event_type == "session.updated":
            return
        told = self._settle(session, fact) if at >= session.heard_at else fact
        self._say(session, told, event_id, at)
        activity = activity_of(told.event_type)
        if activity is not None:
            session.activity, session.is_ended = activity, False
            self._end_those_before(session, at)

    def _settle(self, session: _Session, fact: OpencodeFact) -> OpencodeFact:
        """Return a fact as it is to be told after all that came before it."""
        event_type = fact.event_type
        if event_type in _ASKING:
            session.asked.add(fact.request_id)
            return fact
        if event_type in _ANSWERS:
            session.asked.discard(fact.request_id)
            event_type = "tool.completed" if event_type == "question.answered" else event_type
        if event_type == "turn.completed":
            session.asked.clear()
            if session.is_broken_off:
                event_type = "turn.ended"
        elif event_type in _BROKEN_OFF:
            session.asked.clear()
            session.is_broken_off = True
        elif activity_of(event_type) is not None:
            session.is_broken_off = False
            if session.asked:
                event_type = f"parallel.{event_type}"
        return msgspec.structs.replace(fact, event_type=event_type)

    # ----------------------------------------------------------------------------- whose it is

    def _adopt(self, child: str, parent: str) -> None:
        self._parents.pop(child, None)
        self._parents[child] = parent
        if len(self._parents) > SESSIONS_REMEMBERED:
            del self._parents[next(iter(self._parents))]

    def _root_of(self, session_id: str) -> str:
        for _ in range(10):  # nobody has so many parents, unless they go in a circle
            if session_id not in self._parents:
                break
            session_id = self._parents[session_id]
        return session_id

    def _remember(self, session_id: str) -> _Session:
        session = self._sessions.pop(session_id, None) or _Session(id=session_id)
        self._sessions[session_id] = session
        if len(self._sessions) > SESSIONS_REMEMBERED:
            del self._sessions[next(iter(self._sessions))]
        return session

    # ---------------------------------------------------------------------------------- ending

    def _end_those_before(self, session: _Session, at: datetime) -> None:
        """End what the same process has left for another session, unless it works on."""
        for other in tuple(self._sessions.values()):
            is_left = other is not session and other.origin.pid == session.origin.pid
            if is_left and not other.is_ended and other.activity is Activity.IDLE:
                self._end(other, at, {"replaced_by": _session_key(session.id)})

    def _end_all(self, fact: OpencodeFact, event_id: str, at: datetime, pid: int) -> None:
        for session in tuple(self._sessions.values()):
            if session.origin.pid == pid and not session.is_ended:
                self._end(session, at, fact.payload, event_id)

    def _end(
        self, session: _Session, at: datetime, payload: dict[str, Any], event_id: str = ""
    ) -> None:
        session.is_ended, session.activity = True, None
        session.asked.clear()
        name = f"{SESSION_ENDED}:{_microseconds(at)}:{session.origin.pid}"
        fact = OpencodeFact(
            event_type=SESSION_ENDED, session_id=session.id, source_event_id=name, payload=payload
        )
        self._say(session, fact, event_id or name, max(at, session.heard_at))

    # --------------------------------------------------------------------------------- telling

    def _name(self, session: _Session, fact: OpencodeFact, event_id: str, at: datetime) -> None:
        if fact.title != session.title:
            session.title = fact.title
            named = msgspec.structs.replace(
                fact, event_type=SESSION_NAMED, payload={"title": fact.title}
            )
            self._say(session, named, f"{event_id}-title", at)

    def _say(self, session: _Session, fact: OpencodeFact, event_id: str, at: datetime) -> None:
        if activity_of(fact.event_type) is not None:
            session.heard_at = max(session.heard_at, at)
        self._emit(
            Observation(
                event_id=event_id,
                provider=Provider.OPENCODE,
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


def _session_key(session_id: str) -> str:
    return f"{Provider.OPENCODE}:{session_id}"


def _event_id(fact: OpencodeFact, at: datetime, pid: int) -> str:
    what = f"{fact.payload.get('hook')} {fact.session_id} {fact.source_event_id}"
    return f"{_microseconds(at)}-{pid}-{zlib.crc32(what.encode(errors='replace')):08x}"


def _microseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(microseconds=1)
