"""Claude Code's own state files, one per process: what each says it is doing.

They tell what no hook does: that a turn was interrupted, that an approval was given or refused.
Nothing is said as long as nothing changes: that we still look is known by the pulls.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from bullpen.agents.providers.claude.sessions import SessionFile
from bullpen.model.events import SESSION_ENDED, SESSION_NAMED, activity_event
from bullpen.model.observations import Observation, Origin
from bullpen.model.states import Activity, Provider, SourceKind
from bullpen.observe.sources.blocking import BlockingLook
from bullpen.observe.sources.claude_files import PROC, SessionFiles
from bullpen.observe.sources.port import Now, Source, SourceTrouble

__all__ = ["ClaudeSessions"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ClaudeSessions(Source):
    """Tells what changes in the state files of living processes.

    A process that goes on with another session (`/clear`, `/resume`) is told of in that session
    first; then the one before is over.
    """

    kind = SourceKind.CLAUDE_SESSIONS
    interval_seconds = 0.5

    def __init__(self, now: Now, config: Path, *, proc: Path = PROC) -> None:
        super().__init__(now)
        self._files = SessionFiles(config / "sessions", proc=proc)
        self._read = BlockingLook(self._files.read)
        self._known: dict[int, SessionFile] = {}

    @property
    def is_calm(self) -> bool:
        return not self._known

    async def look(self) -> None:
        try:
            found = await self._read.result()
        except OSError as error:
            raise SourceTrouble(f"cannot read the session files: {error}", is_down=True) from error
        known, self._known = self._known, {file.pid: file for file in found}
        for file in found:
            self._compare(file, known.get(file.pid))
        running = {file.session_id for file in found}
        for before in known.values():
            if before.session_id not in running:
                self._end(before)
        troubles = [
            *self._files.troubles,
            *(f"status {file.status!r}" for file in found if file.status and not file.activity),
        ]
        if troubles:
            raise SourceTrouble(f"not all session files are understood: {'; '.join(troubles)}")

    def _compare(self, file: SessionFile, before: SessionFile | None) -> None:
        """Say what is new since the last look at the same process in the same session."""
        self.version = file.version or self.version
        if before is None or _identity(before) != _identity(file):
            before = None
        if file.name and (before is None or before.name != file.name):
            now = self._now()
            what = f"{_milliseconds(now)}-named"
            self._say(file, SESSION_NAMED, what, {"title": file.name}, now)
        if before is None or _state(before) != _state(file):
            self._say_activity(file)

    def _say_activity(self, file: SessionFile) -> None:
        now = self._now()
        if not file.status:
            # It has just begun, or it runs in print mode and will never say.
            at = min(file.started_at or now, now)
            self._say(file, activity_event(Activity.STARTING), "starting", {}, at)
        elif file.activity is not None:
            at = file.observed_at(now)
            details = {
                "status": file.status,
                "waiting_for": file.waiting_for,
                "background": file.status == "shell",
            }
            what = f"{_milliseconds(at)}-{file.status}"
            self._say(file, activity_event(file.activity), what, details, at)

    def _end(self, file: SessionFile) -> None:
        now = self._now()
        successor = self._known.get(file.pid)
        goes_on = successor is not None and successor.process_start == file.process_start
        next_key = _session_key(successor) if successor is not None and goes_on else ""
        details = {"replaced_by": next_key}
        self._say(file, SESSION_ENDED, f"{_milliseconds(now)}-ended", details, now)

    def _say(
        self, file: SessionFile, event_type: str, what: str, details: dict[str, Any], at: datetime
    ) -> None:
        fact = f"{file.pid}-{file.process_start}-{what}"
        self._emit(
            Observation(
                event_id=fact,
                provider=Provider.CLAUDE,
                source_kind=self.kind,
                tier=self.kind.tier,
                observed_at=at,
                session_key=_session_key(file),
                event_type=event_type,
                source_event_id=fact,
                payload={key: value for key, value in details.items() if value},
                origin=Origin(pid=file.pid, process_start=file.process_start, cwd=file.cwd),
            )
        )


def _session_key(file: SessionFile) -> str:
    return f"{Provider.CLAUDE}:{file.session_id}"


def _identity(file: SessionFile) -> tuple[str, str]:
    return file.session_id, file.process_start


def _state(file: SessionFile) -> tuple[object, ...]:
    # With its time: between two looks it may have been something else.
    return file.status, file.waiting_for, file.status_at


def _milliseconds(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)
