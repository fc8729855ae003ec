"""The transcripts that Claude Code writes: what was done in each session, as far as they tell.

Followed are the transcripts of sessions that a living process has registered (`sessions/`), from
their last lines on, and those that others (an SDK, an old version) have just written to. What was
written before we looked is history, of which the last state is told, with the time of its line.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.claude.paths import is_session_id, transcript_path
from bullpen.agents.providers.claude.sessions import CLOCK_SLACK, SessionFile
from bullpen.agents.providers.claude.transcript import TranscriptEvent, TranscriptReader
from bullpen.agents.tail import FileTail, TailBatch
from bullpen.model.events import SESSION_ENDED, activity_of
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Provider, SourceKind
from bullpen.observe.sources.blocking import BlockingLook
from bullpen.observe.sources.claude_files import PROC, SessionFiles
from bullpen.observe.sources.port import Now, Source, SourceTrouble

__all__ = ["ClaudeTranscript"]

LAST_LINES: Final = 200  # enough to find the state of a session and what it is called
RECENT: Final = timedelta(minutes=15)
BETWEEN_SCANS: Final = timedelta(seconds=15)
READS_PER_LOOK: Final = 8  # of what has been added to one transcript; the rest waits
MOST_FILES: Final = 20_000  # looked at in one scan
MOST_FOLLOWED: Final = 500
SESSIONS_REMEMBERED: Final = 1000
_SUFFIX: Final = ".jsonl"


class _Followed:
    """A transcript that is followed."""

    def __init__(self, session_id: str, tail: FileTail, file: SessionFile | None) -> None:
        self.session_id = session_id
        self.tail = tail
        self.file = file  # whose process writes it; None if it has not registered
        self.reader = TranscriptReader()
        self.is_history = True  # what is read next was there before we looked
        self.has_spoken = False
        self.is_missing = False


class _Said(msgspec.Struct, frozen=True):
    """Something to tell of a session."""

    session_id: str
    event_id: str
    event: TranscriptEvent
    origin: Origin


class ClaudeTranscript(Source):
    """Tells what the lines say that are added to transcripts.

    Nothing is opened as long as nothing changes. A session that never registered ends for us when
    it has been silent for long; of the others `ClaudeSessions` knows better.
    """

    kind = SourceKind.CLAUDE_TRANSCRIPT
    interval_seconds = 0.5

    def __init__(self, now: Now, config: Path, *, proc: Path = PROC) -> None:
        super().__init__(now)
        self._config = config
        self._files = SessionFiles(config / "sessions", proc=proc)
        self._followed: dict[str, _Followed] = {}
        self._over: dict[str, datetime] = {}  # registered sessions, and when they were gone
        self._scanned_at: datetime | None = None
        self._look = BlockingLook(self._read)

    @property
    def is_calm(self) -> bool:
        return not self._followed

    async def look(self) -> None:
        try:
            said, troubles = await self._look.result()
        except OSError as error:
            raise SourceTrouble(f"cannot read the transcripts: {error}", is_down=True) from error
        for each in said:
            self._say(each)
        if troubles:
            raise SourceTrouble(f"not all transcripts are understood: {'; '.join(troubles)}")

    def _read(self) -> tuple[list[_Said], list[str]]:
        now = self._now()
        registered = {file.session_id: file for file in self._files.read()}
        self._follow_registered(registered, now)
        said: list[_Said] = []
        if self._scanned_at is None or not timedelta() <= now - self._scanned_at < BETWEEN_SCANS:
            said += self._scan(registered, now)
            self._scanned_at = now
        troubles: list[str] = []
        for followed in self._followed.values():
            try:
                for _ in range(READS_PER_LOOK):
                    batch = followed.tail.read_blocking()
                    said += self._understand(followed, batch, now, troubles)
                    if not batch.has_more:
                        break
            except OSError as error:
                troubles.append(f"{followed.session_id}: {error.strerror}")
        return said, troubles

    def _follow_registered(self, registered: dict[str, SessionFile], now: datetime) -> None:
        for session_id, followed in tuple(self._followed.items()):
            if followed.file is not None and session_id not in registered:
                # What it may still write is about a session that is over.
                del self._followed[session_id]
                self._over[session_id] = now
        while len(self._over) > SESSIONS_REMEMBERED:
            del self._over[next(iter(self._over))]
        for session_id, file in registered.items():
            self.version = file.version or self.version
            self._over.pop(session_id, None)
            if session_id in self._followed:
                self._followed[session_id].file = file
            elif is_session_id(session_id):
                path = transcript_path(self._config, file.cwd, session_id)
                self._follow(session_id, path, file)

    def _follow(self, session_id: str, path: Path, file: SessionFile | None) -> None:
        if len(self._followed) < MOST_FOLLOWED:
            tail = FileTail(path, last_lines=LAST_LINES)
            self._followed[session_id] = _Followed(session_id, tail, file)

    def _scan(self, registered: dict[str, SessionFile], now: datetime) -> list[_Said]:
        """Look through all projects for what is written by whoever has not registered."""
        knows_registration = self._files.exist
        missing = frozenset(each.session_id for each in self._followed.values() if each.is_missing)
        since = (now - RECENT).timestamp()
        recent: set[str] = set()
        for session_id, path, written_at in _transcripts(self._config / "projects", since, missing):
            followed = self._followed.get(session_id)
            if followed is not None and followed.is_missing:
                # The process has moved to another directory since.
                self._follow_again(followed, path)
            if session_id in registered or written_at < since:
                continue
            recent.add(session_id)
            over_at = self._over.get(session_id)
            is_over = over_at is not None and written_at <= (over_at + CLOCK_SLACK).timestamp()
            if followed is None and not is_over:
                self._follow(session_id, path, None)
                if self._scanned_at is None and knows_registration:
                    self._be_silent(session_id)
        return self._forget_silent(recent, knows_registration, now)

    def _follow_again(self, followed: _Followed, path: Path) -> None:
        followed.tail = FileTail(path, last_lines=LAST_LINES)
        followed.is_missing, followed.is_history = False, True

    def _be_silent(self, session_id: str) -> None:
        """Tell nothing of what is there: whose session it is, and if it is over, nobody knows."""
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.tail = FileTail(followed.tail.path, last_lines=0)

    def _forget_silent(
        self, recent: set[str], knows_registration: bool, now: datetime
    ) -> list[_Said]:
        said: list[_Said] = []
        for session_id, followed in tuple(self._followed.items()):
            if followed.file is None and session_id not in recent:
                del self._followed[session_id]
                if followed.has_spoken and knows_registration:
                    milliseconds = int(now.timestamp() * 1000)
                    event = TranscriptEvent(event_type=SESSION_ENDED, line_id="", at=now)
                    said.append(_Said(session_id, f"{milliseconds}-silent", event, Origin()))
        return said

    def _understand(
        self, followed: _Followed, batch: TailBatch, now: datetime, troubles: list[str]
    ) -> list[_Said]:
        followed.is_missing = batch.is_missing
        if batch.restarted:
            followed.reader = TranscriptReader()
        if batch.skipped:
            followed.reader.lose_track()
            troubles.append(f"{followed.session_id}: {batch.skipped} lines are too long")
        said: list[_Said] = []
        unreadable = 0
        for line in batch.lines:
            try:
                event = followed.reader.read(line.data)
            except NotUnderstood:
                unreadable += 1
                continue
            if event is not None:
                said.append(_say(followed, line.offset, event, now))
        if unreadable:
            troubles.append(f"{followed.session_id}: {unreadable} lines are no JSON")
        if followed.is_history or batch.restarted:
            said = _last_of(said, followed.file)
        followed.is_history = False
        followed.has_spoken = followed.has_spoken or bool(said)
        return said

    def _say(self, said: _Said) -> None:
        event = said.event
        self._emit(
            Observation(
                event_id=said.event_id,
                provider=Provider.CLAUDE,
                source_kind=self.kind,
                tier=self.kind.tier,
                observed_at=event.at or self._now(),
                session_key=f"{Provider.CLAUDE}:{said.session_id}",
                event_type=event.event_type,
                source_event_id=said.event_id,
                payload=event.details,
                origin=said.origin,
            )
        )


def _say(followed: _Followed, offset: int, event: TranscriptEvent, now: datetime) -> _Said:
    """Return what is to be told of a line, which is known by its own id or by its place."""
    file = followed.file
    origin = Origin(cwd=event.cwd)
    if file is not None:
        origin = Origin(pid=file.pid, process_start=file.process_start, cwd=file.cwd)
    at = min(event.at, now) if event.at else now
    event_id = event.line_id or f"{offset}-{event.event_type}"
    return _Said(followed.session_id, event_id, msgspec.structs.replace(event, at=at), origin)


def _last_of(said: list[_Said], file: SessionFile | None) -> list[_Said]:
    """Return the last state and the last title; a state of an earlier process is none of this."""
    since = file.started_at - CLOCK_SLACK if file is not None and file.started_at else None
    state = title = None
    for each in said:
        if each.event.title:
            title = each
        elif activity_of(each.event.event_type) is not None:
            state = each
    if state is not None and since is not None and state.event.at and state.event.at < since:
        state = None
    return [each for each in (title, state) if each is not None]


def _transcripts(
    projects: Path, since: float, wanted: frozenset[str]
) -> Iterator[tuple[str, Path, float]]:
    """Yield the session, place and time of transcripts written since then, and of those wanted.

    There may be thousands, most of them old: nothing is done with those but to ask for their time.
    """
    count = 0
    for directory in _entries(str(projects)):
        if not directory.is_dir():
            continue
        for entry in _entries(directory.path):
            if not entry.name.endswith(_SUFFIX):
                continue
            count += 1
            if count > MOST_FILES:
                return
            session_id = entry.name.removesuffix(_SUFFIX)
            with contextlib.suppress(FileNotFoundError):
                written_at = entry.stat().st_mtime
                is_recent = written_at >= since and is_session_id(session_id)
                if is_recent or session_id in wanted:
                    yield session_id, Path(entry.path), written_at


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
