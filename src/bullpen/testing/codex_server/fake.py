"""An executable `codex` that is the fake, and what a test tells it and learns from it."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

__all__ = ["FakeCodex"]

_SHIM = """\
#!{python}
import sys
from bullpen.testing.codex_server.__main__ import main
sys.exit(main(["--script", {script!r}, "--journal", {journal!r}, *sys.argv[1:]]))
"""


class FakeCodex:
    """A fake Codex in a directory of its own. Every process started from it does the script."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._script = directory / "codex.script"
        self._journal = directory / "codex.journal"

    @classmethod
    async def install(cls, directory: Path) -> "FakeCodex":
        """Put the executable there."""
        fake = cls(directory)
        await asyncio.to_thread(fake._write)
        return fake

    @property
    def executable(self) -> Path:
        """The program, which is called `codex`."""
        return self.directory / "codex"

    @property
    def command(self) -> tuple[str, ...]:
        """How its app server is started."""
        return (str(self.executable), "app-server")

    async def tell(self, *lines: str) -> None:
        """Add to the script; see `server` for what can be said."""
        await asyncio.to_thread(self._append, lines)

    async def tell_anew(self, *lines: str) -> None:
        """Replace the script, for processes that are not started yet."""
        text = "".join(f"{line}\n" for line in lines)
        await asyncio.to_thread(self._script.write_text, text, "utf-8")

    async def wake(self) -> None:
        """Have the running process do what was added to the script."""
        os.kill(await self.pid(), signal.SIGUSR1)

    async def kill(self) -> None:
        """End the running process as nobody can prevent."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(await self.pid(), signal.SIGKILL)

    async def pid(self) -> int:
        """Return the process that was started last."""
        return int((await self.notes("started"))[-1]["pid"])

    async def starts(self) -> int:
        """Return how often it was started."""
        return len(await self.notes("started"))

    async def received(self, method: str = "") -> list[dict[str, Any]]:
        """Return the messages all its processes got, or those of one method."""
        messages = [note["message"] for note in await self.notes("received")]
        return [each for each in messages if method in ("", each.get("method"))]

    async def methods(self) -> list[str]:
        """Return what it was asked and told; an answer has no method and is an empty word."""
        return [each.get("method", "") for each in await self.received()]

    async def notes(self, what: str) -> list[dict[str, Any]]:
        """Return what was noted in the journal under a word."""
        text = await asyncio.to_thread(self._read_journal)
        notes = (json.loads(line) for line in text.splitlines())
        return [note for note in notes if note["what"] == what]

    def _write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        shim = _SHIM.format(
            python=sys.executable, script=str(self._script), journal=str(self._journal)
        )
        self.executable.write_text(shim, encoding="utf-8")
        self.executable.chmod(0o755)

    def _append(self, lines: tuple[str, ...]) -> None:
        with self._script.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def _read_journal(self) -> str:
        return self._journal.read_text("utf-8") if self._journal.exists() else ""
