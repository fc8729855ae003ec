"""Reading the directories that Copilot CLI keeps for its sessions, as far as they are in use.

A session is open while a file `inuse.<pid>.lock` is in its directory and that process lives: one
that was killed leaves it behind. There may be thousands of sessions of old, so a directory is
listed only if something was added to it or taken out of it. All of it blocks, though not for long.
"""

import contextlib
import os
import time
from pathlib import Path
from typing import Final

import msgspec

from bullpen.agents.providers.copilot.workspace import LOCK, Workspace, parse_workspace
from bullpen.agents.tail import FileTail

__all__ = ["CopilotSessions", "OpenSession", "SessionsLook"]

MOST_SESSIONS: Final = 10_000
WORKSPACE_LIMIT: Final = 2**16
LINES_FROM_BEFORE: Final = 400  # in which the last turn has begun, or nothing is known of it
PROC: Final = Path("/proc")
# Two changes within one tick of the clock that directories are dated by look like one.
STILL_CHANGING_NS: Final = 2 * 10**9
_DEAD: Final = (b"Z", b"X", b"x")
_PROGRAM: Final = b"copilot"


class OpenSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session that a process has open."""

    session_id: str
    pid: int
    process_start: str
    """As the system counts it; empty where it does not tell."""
    opened_at: float
    """In seconds since the epoch."""
    workspace: Workspace
    lines: tuple[bytes, ...] = ()
    """What was added to its record since the last look."""
    is_anew: bool = False
    """The lines are from before, as far as they tell what the session is doing now."""


class SessionsLook(msgspec.Struct, frozen=True):
    """What one look has found."""

    open: tuple[OpenSession, ...]
    gone: tuple[OpenSession, ...]
    """Which were open at the last look, with what was added to their records before the end."""
    trouble: str = ""


class _Known(msgspec.Struct):
    """What is kept of an open session between two looks."""

    session: OpenSession
    tail: FileTail
    workspace_seen: tuple[int, int] = (0, 0)


class CopilotSessions:
    """The directory of the sessions, read again and again."""

    def __init__(self, directory: Path, *, proc: Path = PROC) -> None:
        self._directory = directory
        self._proc = proc
        self._listed: dict[str, int] = {}  # when a directory had changed last, as it was listed
        self._locks: dict[str, tuple[tuple[int, float], ...]] = {}  # those with any
        self._known: dict[str, _Known] = {}

    def read(self) -> SessionsLook:
        """Return which sessions are open, and what was added to their records.

        Raises:
            OSError: the directory is there and cannot be read.
        """
        self._find_locks()
        troubles: list[str] = []
        found: list[OpenSession] = []
        known, self._known = self._known, {}
        for session_id, locks in self._locks.items():
            holder = self._holder(locks)
            if holder is None:
                continue
            each = known.pop(session_id, None)
            is_anew = each is None or each.session.pid != holder.pid
            if each is None:
                each = _Known(_unread(session_id, holder), self._tail(session_id))
            found.append(self._look_into(each, holder, is_anew, troubles))
            self._known[session_id] = each
        gone = tuple(
            self._look_into(each, _Holder.of(each.session), False, troubles)
            for each in known.values()
        )
        return SessionsLook(tuple(found), gone, "; ".join(troubles))

    # ------------------------------------------------------------------------------ which are open

    def _find_locks(self) -> None:
        """List the directories in which something has changed."""
        try:
            with os.scandir(self._directory) as entries:
                found = [entry for entry in entries if not entry.name.startswith(".")]
        except (FileNotFoundError, NotADirectoryError):
            found = []
        listed, self._listed = self._listed, {}
        locks, self._locks = self._locks, {}
        recently = time.time_ns() - STILL_CHANGING_NS
        for entry in found[:MOST_SESSIONS]:
            with contextlib.suppress(OSError):  # it was removed, or is none
                changed = entry.stat().st_mtime_ns
                if listed.get(entry.name) == changed < recently:
                    now = locks.get(entry.name, ())
                else:
                    now = _locks_in(entry.path)
                self._listed[entry.name] = changed
                if now:
                    self._locks[entry.name] = now

    def _holder(self, locks: tuple[tuple[int, float], ...]) -> "_Holder | None":
        """Return the process that has a session open, the latest if there are several."""
        for pid, opened_at in sorted(locks, key=lambda lock: lock[1], reverse=True):
            start = self._start_of(pid)
            if start is not None:
                return _Holder(pid, start, opened_at)
        return None

    def _start_of(self, pid: int) -> str | None:
        """Return when a process of Copilot has started; None if it lives no more."""
        if not self._proc.is_dir():
            return "" if _exists(pid) else None  # as on macOS
        try:
            stat = (self._proc / str(pid) / "stat").read_bytes()
            # The name in parentheses may contain both spaces and parentheses.
            values = stat[stat.rindex(b")") + 2 :].split()
            words = (self._proc / str(pid) / "cmdline").read_bytes()
        except (OSError, ValueError):
            return None
        if values[0] in _DEAD or _PROGRAM not in words:
            return None  # or another has its number now
        return values[19].decode()

    # ---------------------------------------------------------------------------------- one of them

    def _tail(self, session_id: str) -> FileTail:
        record = self._directory / session_id / "events.jsonl"
        return FileTail(record, last_lines=LINES_FROM_BEFORE)

    def _look_into(
        self, known: _Known, holder: "_Holder", is_anew: bool, troubles: list[str]
    ) -> OpenSession:
        self._read_workspace(known)
        lines: tuple[bytes, ...] = ()
        try:
            lines = tuple(line.data for line in known.tail.read_blocking().lines)
        except OSError as error:
            troubles.append(f"cannot read a session's record: {error}")
        known.session = msgspec.structs.replace(
            known.session,
            pid=holder.pid,
            process_start=holder.start,
            opened_at=holder.opened_at,
            lines=lines,
            is_anew=is_anew,
        )
        return known.session

    def _read_workspace(self, known: _Known) -> None:
        path = self._directory / known.session.session_id / "workspace.yaml"
        with contextlib.suppress(OSError):  # it is not there yet, or not any more
            status = path.stat()
            seen = (status.st_mtime_ns, status.st_size)
            if seen != known.workspace_seen:
                known.workspace_seen = seen
                with path.open("rb") as file:
                    content = file.read(WORKSPACE_LIMIT).decode(errors="replace")
                known.session = msgspec.structs.replace(
                    known.session, workspace=parse_workspace(content)
                )


class _Holder(msgspec.Struct, frozen=True):
    """The process that has a session open."""

    pid: int
    start: str
    opened_at: float

    @classmethod
    def of(cls, session: OpenSession) -> "_Holder":
        return cls(session.pid, session.process_start, session.opened_at)


def _unread(session_id: str, holder: _Holder) -> OpenSession:
    return OpenSession(
        session_id=session_id,
        pid=holder.pid,
        process_start=holder.start,
        opened_at=holder.opened_at,
        workspace=Workspace(),
    )


def _locks_in(directory: str) -> tuple[tuple[int, float], ...]:
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if match := LOCK.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    found.append((int(match[1]), entry.stat().st_mtime))
    return tuple(found)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:  # there is none, or it is another user's
        return False
    return True
