"""What an agent wrote, kept as plain text in a file that does not grow for ever.

It is written by a thread, in the order it was said. An agent that writes faster than the disk is
not held up: the log says how much it lacks.
"""

import asyncio
import codecs
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

from bullpen.api.errors import DirectoryError
from bullpen.api.runtime import make_private
from bullpen.terminal.context import plain_text
from bullpen.wrapper.terminal import AgentTerminal, Subscription

__all__ = ["MAX_BYTES", "OutputLog", "PlainText", "former"]

logger = logging.getLogger("bullpen.wrapper")

MAX_BYTES = 5_000_000
"""After so many a file is put aside, in the place of the one that was put aside before."""

LAST_SECONDS = 1.0  # for what was said last to be written
LONGEST_SEQUENCE = 4096  # characters; what is longer is no sequence that anybody waits for

_WHOLE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"
    r"|[PX^_][^\x1b]*\x1b\\"
    r"|[ -/]*[0-OQ-WYZ\\`-~])"
)


def former(path: Path) -> Path:
    """The file that was put aside."""
    return path.with_name(f"{path.name}.1")


class PlainText:
    """Makes plain text of a stream, however it is cut."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""

    def feed(self, data: bytes) -> str:
        """Return the text that is complete by now."""
        text = self._held + self._decoder.decode(data)
        cut = self._cut(text)
        self._held = text[cut:]
        return _plain(text[:cut])

    def close(self) -> str:
        """Return what is left."""
        text, self._held = self._held + self._decoder.decode(b"", final=True), ""
        return _plain(text)

    @staticmethod
    def _cut(text: str) -> int:
        """Where an unfinished sequence, or half the end of a line, begins."""
        begin = text.rfind("\x1b", max(len(text) - LONGEST_SEQUENCE, 0))
        if begin >= 0 and _WHOLE.match(text, begin) is None:
            return begin
        return len(text) - 1 if text.endswith("\r") else len(text)


def _plain(text: str) -> str:
    # A return without a newline begins the line again: a new line says the same without painting.
    return plain_text(text.encode(errors="replace")).replace("\r", "\n")


class OutputLog:
    """The log of one agent. Trouble with it is logged once, and is nobody else's."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self._max_bytes = max_bytes
        self._text = PlainText()
        self._is_in_trouble = False
        self._is_closed = False
        self._subscription: Subscription | None = None

    @contextlib.asynccontextmanager
    async def keeping(self, terminal: AgentTerminal) -> AsyncIterator[None]:
        """Keep what is written for the length of a block."""
        self._subscription = terminal.subscribe(is_viewer=False)  # at once: nothing is missed
        keeping = asyncio.create_task(self._keep(terminal, terminal.context.end), name="log")
        try:
            yield
        finally:
            self._is_closed = True
            self._subscription.close()
            _, late = await asyncio.wait([keeping], timeout=LAST_SECONDS)
            if late:
                keeping.cancel()
                await asyncio.wait(late)

    async def _keep(self, terminal: AgentTerminal, end: int) -> None:
        while self._subscription is not None:
            async for data in self._subscription:
                end += len(data)
                await self._write(self._text.feed(data))
            if self._is_closed or not self._subscription.is_dropped:
                await self._write(self._text.close())
                return
            self._subscription = terminal.subscribe(is_viewer=False)
            lost, end = terminal.context.end - end, terminal.context.end
            await self._write(f"\n[… {lost} bytes are left out here …]\n")

    async def _write(self, text: str) -> None:
        if text:
            await asyncio.to_thread(self._append, text.encode(errors="replace"))

    def _append(self, data: bytes) -> None:
        try:
            make_private(self.path.parent)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            with os.fdopen(os.open(self.path, flags, 0o600), "ab") as file:
                file.write(data[-self._max_bytes :])
                size = file.tell()
            if size > self._max_bytes:
                self.path.replace(former(self.path))
            self._is_in_trouble = False
        except (OSError, DirectoryError) as error:
            if not self._is_in_trouble:
                logger.warning("what the agent writes is not kept: %s", error)
            self._is_in_trouble = True
