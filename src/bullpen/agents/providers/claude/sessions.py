"""The state file that every process of Claude Code keeps: `sessions/<pid>.json`.

It tells what the process is doing, also where no hook does: after Esc, after a refused approval. It
is written in place, so that a reader may find half of it, and it stays behind when the process is
killed. A print-mode run has one too, without a status.
"""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from bullpen.agents.providers.claude.errors import NotUnderstood
from bullpen.agents.providers.lenient import decode_leniently
from bullpen.model.states import Activity

__all__ = ["SessionFile", "parse_session_file"]

# The program's own list. Whatever else it may wait for one day is a question to somebody.
_APPROVALS = ("permission prompt", "worker request", "sandbox request")
_STATUSES = {
    "idle": Activity.IDLE,
    "busy": Activity.RUNNING,
    "shell": Activity.IDLE,  # with a command of its own still running beside
}
# The first status may have been told 50 ms before the start was written down.
CLOCK_SLACK = timedelta(seconds=5)


class SessionFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one process says of itself."""

    pid: int
    session_id: str
    cwd: str = ""
    process_start: str = ""
    """When it started, as the system counts it: on Linux field 22 of `/proc/<pid>/stat`."""
    version: str = ""
    entrypoint: str = ""
    """`cli` for the terminal interface, `sdk-cli` for print mode."""
    name: str = ""
    """What somebody called the session; empty if the program made it up from the directory."""
    status: str = ""
    waiting_for: str = ""
    started_at: datetime | None = None
    status_at: datetime | None = None
    """Since when it has this status."""

    @property
    def activity(self) -> Activity | None:
        """What it is doing; None if it does not say, or in a word that is new to us."""
        if self.status == "waiting":
            is_approval = self.waiting_for in _APPROVALS
            return Activity.WAITING_APPROVAL if is_approval else Activity.WAITING_INPUT
        return _STATUSES.get(self.status)

    def observed_at(self, now: datetime) -> datetime:
        """Return since when it is so, if that can be true; else the time of looking."""
        earliest = self.started_at or datetime.min.replace(tzinfo=UTC) + CLOCK_SLACK
        if self.status_at and earliest - CLOCK_SLACK <= self.status_at <= now + CLOCK_SLACK:
            return min(self.status_at, now)
        return now


def parse_session_file(data: bytes) -> SessionFile:
    """Return what a file says.

    Raises:
        NotUnderstood: it is torn, or no such file.
    """
    try:
        value = decode_leniently(data)
    except ValueError as error:
        raise NotUnderstood("a session file", str(error)) from error
    pid = value.get("pid") if isinstance(value, dict) else None
    session_id = _text(value, "sessionId") if pid is not None else ""
    if type(pid) is not int or not 0 < pid < 2**31 or not session_id:
        raise NotUnderstood("a session file", "it names no process or no session")
    return SessionFile(
        pid=pid,
        session_id=session_id,
        cwd=_text(value, "cwd"),
        process_start=_text(value, "procStart"),
        version=_text(value, "version"),
        entrypoint=_text(value, "entrypoint"),
        name="" if value.get("nameSource") == "derived" else _text(value, "name"),
        status=_text(value, "status"),
        waiting_for=_text(value, "waitingFor"),
        started_at=_time(value, "startedAt"),
        status_at=_time(value, "statusUpdatedAt"),
    )


def _text(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _time(value: dict[str, Any], key: str) -> datetime | None:
    milliseconds = value.get(key)
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float):
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None
