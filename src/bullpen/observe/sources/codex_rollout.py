"""Codex's session files: what was done in each thread, as far as they tell.

They are the one witness of a terminal interface that has no hooks and no shared server. Followed
are the files that were written to not long ago, of whatever date, and those that a process has
open. What was written before we looked is history, of which the last state is told, with the time
of its line; and that only if somebody has the file open, where this can be known: the last words of
a session that is over are not what any agent is doing.

That a session is over is not in its file. We know it when the process is gone that had it open.
"""

import contextlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from bullpen.agents.providers.codex.facts import CodexFact, clip, parse_object, text
from bullpen.agents.providers.codex.paths import (
    is_rollout,
    prompt_history,
    sessions_directory,
    thread_names,
)
from bullpen.agents.providers.codex.rollout import Rollout, SessionMeta, read_meta
from bullpen.agents.tail import LINE_LIMIT, FileTail, TailBatch
from bullpen.model.events import SESSION_ENDED, SESSION_NAMED, activity_of
from bullpen.model.observations import Origin
from bullpen.model.states import SourceKind
from bullpen.observe.sources.blocking import BlockingLook
from bullpen.observe.sources.codex_facts import to_observation
from bullpen.observe.sources.codex_processes import PROC, CodexProcess, CodexProcesses
from bullpen.observe.sources.port import Now, Source, SourceTrouble

__all__ = ["CodexRollout"]

RECENT: Final = timedelta(minutes=15)
BETWEEN_SCANS: Final = timedelta(seconds=30)
BETWEEN_SEARCHES: Final = timedelta(seconds=2)  # for whoever has a new file open
IS_NEW: Final = timedelta(minutes=1)
CLOCK_SLACK: Final = timedelta(seconds=2)
LAST_LINES: Final = 200
READS_PER_LOOK: Final = 8  # of what has been added to one file; the rest waits
MOST_FILES: Final = 50_000  # looked at in one scan
MOST_FOLLOWED: Final = 300
MOST_NAMES: Final = 2000
LEVELS: Final = 3  # year, month, day


class _Said(msgspec.Struct, frozen=True):
    """Something to tell of a thread."""

    fact: CodexFact
    event_id: str
    origin: Origin


class _Followed:
    """A file that is followed."""

    def __init__(self, path: str, written_at: datetime, *, is_silent: bool) -> None:
        self.path = path
        self.tail = FileTail(path, last_lines=0 if is_silent else LAST_LINES)
        self.written_at = written_at
        self.reader: Rollout | None = None  # until its first line is there
        self.real_cwds: dict[str, str] = {}
        self.holder: CodexProcess | None = None
        self.is_history = True  # what is read next may have been there before we looked
        self.has_spoken = False
        self.name = ""

    @property
    def origin(self) -> Origin:
        """Where the thread runs, as far as we know."""
        cwd = self._real_cwd()
        if self.holder is None or self.holder.is_server:
            return Origin(cwd=cwd)
        return Origin(pid=self.holder.pid, process_start=self.holder.start, cwd=cwd)

    def _real_cwd(self) -> str:
        cwd = self.reader.cwd if self.reader is not None else ""
        if cwd and cwd not in self.real_cwds:
            self.real_cwds[cwd] = os.path.realpath(cwd)
        return self.real_cwds.get(cwd, "")


class CodexRollout(Source):
    """Tells what the lines say that are added to session files.

    Files are opened only when they have changed, and all of them are looked through only now and
    then, or when there is a new one.
    """

    kind = SourceKind.CODEX_ROLLOUT

    def __init__(self, now: Now, home: Path, *, proc: Path = PROC) -> None:
        super().__init__(now)
        self._sessions = sessions_directory(home)
        self._names_tail = FileTail(thread_names(home), last_lines=MOST_NAMES)
        self._names: dict[str, tuple[str, int]] = {}  # and where in the file each stands
        self._processes = CodexProcesses(proc)
        self._holders: dict[str, CodexProcess] = {}
        self._searched_at: datetime | None = None
        self._followed: dict[str, _Followed] = {}
        self._ignored: set[str] = set()
        self._scanned_at: datetime | None = None
        # What changes when there is a new file, or a prompt in an old one; and when it changed.
        self._signs: dict[str, int] = {}
        self._prompts = str(prompt_history(home))
        self._is_scan_wanted = False
        self._look = BlockingLook(self._read)

    @property
    def is_calm(self) -> bool:
        return not self._followed

    async def look(self) -> None:
        try:
            said, troubles = await self._look.result()
        except OSError as error:
            raise SourceTrouble(
                f"cannot read codex's session files: {error}", is_down=True
            ) from error
        for each in said:
            self._emit(
                to_observation(
                    each.fact,
                    self.kind,
                    event_id=each.event_id,
                    at=self._now(),
                    origin=each.origin,
                )
            )
        if troubles:
            raise SourceTrouble(f"not all session files are understood: {'; '.join(troubles)}")

    # Everything below runs in a thread.

    def _read(self) -> tuple[list[_Said], list[str]]:
        now = self._now()
        said: list[_Said] = []
        troubles: list[str] = []
        horizon = self._scanned_at  # what happened before it is history
        if self._is_scan_due(now):
            said += self._scan(now)
        self._search(now)
        self._read_names()
        for followed in self._followed.values():
            try:
                said += self._read_one(followed, now, horizon, troubles)
            except OSError as error:
                troubles.append(f"{Path(followed.path).name}: {error.strerror}")
            said += self._check_holder(followed, now)
            said += self._check_name(followed)
        for path in self._ignored & self._followed.keys():
            del self._followed[path]
        return said, troubles

    # ------------------------------------------------------------------------- which files

    def _is_scan_due(self, now: datetime) -> bool:
        has_changed = any(_changed_at(path) != at for path, at in self._signs.items())
        # The file itself may be written a moment after its sign.
        is_wanted, self._is_scan_wanted = self._is_scan_wanted, has_changed
        if self._scanned_at is None or not timedelta() <= now - self._scanned_at < BETWEEN_SCANS:
            return True
        return has_changed or is_wanted

    def _scan(self, now: datetime) -> list[_Said]:
        """Look through all files: follow those that are new or in use, let go of the others."""
        is_first = self._scanned_at is None
        root = os.path.realpath(self._sessions)
        self._signs = _newest_directories(root) | {self._prompts: _changed_at(self._prompts)}
        self._find_holders(now)
        recent: set[str] = set()
        for path, written_at in _rollouts(root):
            if now - written_at > RECENT and path not in self._holders:
                continue
            recent.add(path)
            if path in self._followed:
                self._followed[path].written_at = written_at
            elif path not in self._ignored and len(self._followed) < MOST_FOLLOWED:
                # At first, what nobody has open is over, if that can be known.
                is_over = is_first and self._processes.can_tell and path not in self._holders
                self._followed[path] = _Followed(path, written_at, is_silent=is_over)
        self._scanned_at = now
        self._ignored &= recent
        gone = [self._followed.pop(path) for path in self._followed.keys() - recent]
        return [_ended(each, now, "silent") for each in gone if self._is_over(each)]

    def _is_over(self, followed: _Followed) -> bool:
        return self._processes.can_tell and followed.has_spoken and followed.reader is not None

    # ------------------------------------------------------------------------ who has them open

    def _find_holders(self, now: datetime) -> None:
        self._searched_at = now
        self._holders = self._processes.holders()

    def _search(self, now: datetime) -> None:
        """Look for whoever has the files open that are written to, if we do not know."""
        if self._searched_at is None or timedelta() <= now - self._searched_at < BETWEEN_SEARCHES:
            return
        if self._processes.can_tell and any(
            each.holder is None and now - each.written_at < IS_NEW
            for each in self._followed.values()
        ):
            self._find_holders(now)

    def _check_holder(self, followed: _Followed, now: datetime) -> Iterator[_Said]:
        """Tell where a thread runs once that is known, and that it is over when that is gone."""
        if followed.reader is None:
            return
        before = followed.holder
        if before is not None and not self._processes.is_alive(before):
            if self._holders.get(followed.path) == before:
                self._find_holders(now)
            followed.holder = None
            if followed.path not in self._holders:
                yield _ended(followed, now, f"{before.pid}-{before.start}")
        found = self._holders.get(followed.path)
        if found is not None and found != followed.holder and self._processes.is_alive(found):
            followed.holder = found
            yield _located(followed, now)

    # ------------------------------------------------------------------------------ what they say

    def _read_one(
        self,
        followed: _Followed,
        now: datetime,
        horizon: datetime | None,
        troubles: list[str],
    ) -> list[_Said]:
        if followed.reader is None and not self._begin(followed):
            return []
        said: list[_Said] = []
        lost = 0
        for _ in range(READS_PER_LOOK):
            batch = followed.tail.read_blocking()
            said += _understand(followed, batch, now)
            lost += batch.skipped + _take_unreadable(followed)
            if not batch.has_more:
                break
        if lost:
            name = Path(followed.path).name
            troubles.append(f"{name}: {lost} lines are too long or no JSON")
        if followed.is_history:
            followed.is_history = False
            said = _without_history(said, horizon)
        followed.has_spoken = followed.has_spoken or bool(said)
        return said

    def _begin(self, followed: _Followed) -> bool:
        """Read whose file it is; return whether it is one to be followed, and begun."""
        line = _first_line(followed.path)
        if line is None:
            return False
        meta = read_meta(line)
        if meta is None or meta.is_hidden:
            self._ignored.add(followed.path)
            return False
        self.version = meta.version or self.version
        followed.reader = Rollout(meta)
        followed.holder = self._holders.get(followed.path)
        return True

    # ------------------------------------------------------------------------------ their names

    def _read_names(self) -> None:
        for line in self._names_tail.read_blocking().lines:
            entry = parse_object(line.data) or {}
            thread_id, name = text(entry.get("id")), clip(entry.get("thread_name"))
            if thread_id and name:
                self._names.pop(thread_id, None)
                self._names[thread_id] = (name, line.offset)
        while len(self._names) > MOST_NAMES:
            del self._names[next(iter(self._names))]

    def _check_name(self, followed: _Followed) -> Iterator[_Said]:
        if followed.reader is None or not (followed.holder or followed.has_spoken):
            return
        thread_id = followed.reader.meta.thread_id
        name, offset = self._names.get(thread_id, ("", 0))
        if name and name != followed.name:
            followed.name = name
            fact = CodexFact(event_type=SESSION_NAMED, thread_id=thread_id, payload={"title": name})
            yield _Said(fact, f"name:{offset}", followed.origin)


def _understand(followed: _Followed, batch: TailBatch, now: datetime) -> list[_Said]:
    reader = followed.reader
    assert reader is not None
    if batch.restarted:
        followed.reader = reader = Rollout(reader.meta)
        followed.is_history = True
    position = followed.tail.position
    inode = position.inode if position is not None else 0
    said: list[_Said] = []
    for line in batch.lines:
        followed.written_at = now
        if (fact := reader.feed(line.data)) is not None:
            fact = msgspec.structs.replace(fact, at=min(fact.at or now, now))
            said.append(_Said(fact, f"{inode}:{line.offset}", followed.origin))
    return said


def _take_unreadable(followed: _Followed) -> int:
    assert followed.reader is not None
    count, followed.reader.unreadable = followed.reader.unreadable, 0
    return count


def _located(followed: _Followed, now: datetime) -> _Said:
    """It asserts no activity: it says where whatever is asserted is done."""
    meta, holder = _meta(followed), followed.holder
    payload = {"path": followed.path, "originator": meta.originator, "source": meta.source}
    fact = CodexFact(
        event_type="session.located", thread_id=meta.thread_id, at=now, payload=payload
    )
    by = f"{holder.pid}-{holder.start}" if holder is not None else "nobody"
    return _Said(fact, f"located:{by}", followed.origin)


def _ended(followed: _Followed, now: datetime, why: str) -> _Said:
    fact = CodexFact(event_type=SESSION_ENDED, thread_id=_meta(followed).thread_id, at=now)
    return _Said(fact, f"ended:{why}:{int(now.timestamp())}", followed.origin)


def _meta(followed: _Followed) -> SessionMeta:
    assert followed.reader is not None
    return followed.reader.meta


def _without_history(said: list[_Said], horizon: datetime | None) -> list[_Said]:
    """Return what is new, after the last state and the last name of what is not."""
    since = horizon - CLOCK_SLACK if horizon is not None else None
    new = [each for each in said if since is not None and each.fact.at and each.fact.at >= since]
    old = [each for each in said if each not in new]
    states = [each for each in old if activity_of(each.fact.event_type) is not None]
    names = [each for each in old if each.fact.event_type == SESSION_NAMED]
    return [*names[-1:], *states[-1:], *new]


def _first_line(path: str) -> bytes | None:
    """Return the first line of a file; None if it is not complete yet, or not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        data = bytearray()
        while (end := data.find(b"\n")) < 0 and len(data) <= LINE_LIMIT:
            if not (piece := os.read(descriptor, 2**16)):
                return None
            data += piece
        return bytes(data[:end]) if end >= 0 else b""
    finally:
        os.close(descriptor)


def _rollouts(root: str) -> Iterator[tuple[str, datetime]]:
    """Yield every session file and when it was last written to."""
    count = 0
    waiting = [(root, 0)]
    while waiting:
        directory, level = waiting.pop()
        for entry in _entries(directory):
            if level < LEVELS and entry.is_dir(follow_symlinks=False):
                waiting.append((entry.path, level + 1))
            elif is_rollout(entry.name):
                count += 1
                if count > MOST_FILES:
                    return
                with contextlib.suppress(FileNotFoundError):
                    written_at = datetime.fromtimestamp(entry.stat().st_mtime, UTC)
                    yield entry.path, written_at


def _newest_directories(root: str) -> dict[str, int]:
    """Return the newest directory of each level, as they are named, and when each changed."""
    found = {root: _changed_at(root)}
    directory = root
    for _ in range(LEVELS):
        names = [each.name for each in _entries(directory) if each.is_dir(follow_symlinks=False)]
        if not names:
            break
        directory = f"{directory}/{max(names)}"
        found[directory] = _changed_at(directory)
    return found


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  (every second)
    except OSError:
        return -1


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except (FileNotFoundError, NotADirectoryError):
        return []
