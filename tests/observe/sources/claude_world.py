"""A directory of Claude Code and a process table, both of our own making."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bullpen.agents.providers.claude.paths import transcript_path
from bullpen.model.observations import Observation
from bullpen.observe.sources.port import Source

__all__ = ["CWD", "OTHER", "SESSION", "START", "World", "emitted", "told"]

SESSION = "2b0a905b-38cc-439d-8bf6-420404536397"
OTHER = "3e83ba75-7a38-4924-8186-f4b67be8f537"
CWD = "/home/dev/my.proj_1"
START = datetime(2026, 11, 15, 14, 0, tzinfo=UTC)


class World:
    """What there is to see, at a time that is set by hand."""

    def __init__(self, root: Path) -> None:
        self.config = root / ".claude"
        self.proc = root / "proc"
        self.time = START + timedelta(minutes=10)

    def now(self) -> datetime:
        return self.time

    def pass_seconds(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    def run(self, pid: int, *, start: str = "100", state: str = "S") -> None:
        """Let a process be there, with a name that is hard to read."""
        directory = self.proc / str(pid)
        directory.mkdir(parents=True, exist_ok=True)
        fields = [state, *["0"] * 18, start, *["0"] * 30]
        (directory / "stat").write_text(f"{pid} (a) b (c) {' '.join(fields)}\n")

    def kill(self, pid: int) -> None:
        """Let it be gone, without time to clean up."""
        (self.proc / str(pid) / "stat").unlink()

    def session_path(self, pid: int) -> Path:
        return self.config / "sessions" / f"{pid}.json"

    def register(self, pid: int, session_id: str = SESSION, **fields: Any) -> None:
        """Write the state file of a process."""
        content = {
            "pid": pid,
            "sessionId": session_id,
            "cwd": CWD,
            "startedAt": milliseconds(START),
            "procStart": "100",
            "version": "2.1.197",
            **fields,
        }
        self.session_path(pid).parent.mkdir(parents=True, exist_ok=True)
        self.session_path(pid).write_text(json.dumps(content))

    def start(self, pid: int, session_id: str = SESSION, **fields: Any) -> None:
        """Let a process be there that has registered."""
        self.run(pid)
        self.register(pid, session_id, **fields)

    def end(self, pid: int) -> None:
        """Let a process end as it should."""
        self.session_path(pid).unlink()
        self.kill(pid)

    def transcript(self, session_id: str = SESSION, cwd: str = CWD) -> Path:
        return transcript_path(self.config, cwd, session_id)

    def write(self, data: bytes, session_id: str = SESSION, cwd: str = CWD) -> Path:
        """Add to a transcript."""
        path = self.transcript(session_id, cwd)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        return path


def milliseconds(at: datetime) -> int:
    return int(at.timestamp() * 1000)


def emitted(source: Source) -> Callable[[], Awaitable[list[Observation]]]:
    """Open a source; return how to look once and see what it emits."""
    seen: list[Observation] = []
    is_open = False

    async def look() -> list[Observation]:
        nonlocal is_open
        if not is_open:
            is_open = True
            await source.open(seen.append)
        seen.clear()
        await source.look()
        return list(seen)

    return look


def told(observations: list[Observation]) -> list[tuple[str, str]]:
    """Return what is told of which session."""
    return [(each.session_key.removeprefix("claude:"), each.event_type) for each in observations]
