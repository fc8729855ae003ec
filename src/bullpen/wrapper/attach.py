"""The wrapper's own socket: others look at its agent's terminal and type into it.

Every viewer gets the same bytes the program wrote, after a picture of what was there before. One
who does not read what it gets is sent away, never waited for. What viewers type goes the way of the
user's own keys. The size of a detached agent's terminal is that of the viewer who came or changed
last; an agent with a user in front of it keeps the size of that user's terminal.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bullpen.connection import Connection, ConnectionClosed, Context, listen_unix
from bullpen.terminal.emulator import Emulator, Modes, bounded
from bullpen.terminal.pty import PtyClosed
from bullpen.wrapper.attaching import (
    AskInfo,
    AskInterrupt,
    AskStop,
    AskWait,
    Ended,
    Input,
    OpenReply,
    OpenView,
    Resize,
    Shown,
    WrapperInfo,
)
from bullpen.wrapper.terminal import AgentTerminal, Subscription
from bullpen.wrapper.watching import Watch

__all__ = ["Attachments", "picture"]

logger = logging.getLogger("bullpen.wrapper")

MAX_VIEWERS = 32
MAX_UNSENT_BYTES = 4 * 2**20
PIECE_BYTES = 2**16
SLOW_SECONDS = 10.0  # a viewer that takes nothing for so long has gone for a coffee, or worse
LAST_SECONDS = 1.0  # for viewers to hear the end
MAX_WAIT_SECONDS = 3600.0

_MODES = {
    "alternate_screen": b"\x1b[?1049h",
    "bracketed_paste": b"\x1b[?2004h",
    "focus_events": b"\x1b[?1004h",
    "application_cursor": b"\x1b[?1h",
    "mouse": b"\x1b[?1002h\x1b[?1006h",
}
_CLEAR = b"\x1b[m\x1b[H\x1b[2J"


class Attachments:
    """Whoever is attached to one wrapper, and the socket they come by."""

    def __init__(
        self,
        terminal: AgentTerminal,
        watch: Watch,
        *,
        name: str,
        profile: str,
        pid: int,
        follows_size: bool,
        typed: Callable[[bytes], Awaitable[None]] | None = None,
        interrupt: Callable[[], Awaitable[None]] | None = None,
        stop: Callable[[], None] | None = None,
    ) -> None:
        self._terminal = terminal
        self._watch = watch
        self._name = name
        self._profile = profile
        self._pid = pid
        self._follows_size = follows_size
        self._typed = typed or terminal.write
        self._interrupt = interrupt
        self._stop = stop
        self._viewers: dict[Connection, _Viewer] = {}
        self._is_over = asyncio.Event()

    @property
    def viewers(self) -> int:
        """How many look on."""
        return len(self._viewers)

    @asynccontextmanager
    async def serve(self, path: Path) -> AsyncIterator[None]:
        """Serve the socket for the length of a block. Its end is told to those who look on.

        Raises:
            AddressError: there can be no socket.
        """
        builder = (
            Connection.builder()
            .name("attach")
            .on_request(OpenView, self._open)
            .on_request(AskInfo, lambda _, __: self._info())
            .on_request(AskWait, self._wait)
            .on_request(AskInterrupt, self._interrupted)
            .on_request(AskStop, self._stopped)
            .on_notification(Input, self._input)
            .on_notification(Resize, self._resize)
        )
        async with listen_unix(
            str(path), builder, max_peers=MAX_VIEWERS, max_unsent_bytes=MAX_UNSENT_BYTES
        ):
            try:
                yield
            finally:
                await self._end()

    async def _end(self) -> None:
        """Let everybody read what was written last."""
        self._is_over.set()
        viewers = tuple(self._viewers.values())
        for viewer in viewers:
            viewer.subscription.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_SECONDS):
                for viewer in viewers:
                    await viewer.has_ended.wait()

    # ---------------------------------------------------------------------------------- viewers

    def _open(self, asked: OpenView, context: Context) -> OpenReply:
        connection = context.connection
        if connection in self._viewers:
            self._viewers.pop(connection).subscription.close()
        if not asked.is_read_only:
            self._fit(asked.columns, asked.rows)
        # From one moment: what is in the picture is not told again, and nothing is left out.
        # One who only looks gives no terminal's answers.
        subscription = self._terminal.subscribe(is_viewer=not asked.is_read_only)
        viewer = _Viewer(subscription, is_read_only=asked.is_read_only)
        paint = picture(self._terminal)
        self._viewers[connection] = viewer
        connection.spawn(self._show(connection, viewer), name="viewer")
        return OpenReply(
            name=self._name,
            paint=paint,
            columns=self._terminal.columns,
            rows=self._terminal.rows,
        )

    async def _show(self, connection: Connection, viewer: "_Viewer") -> None:
        try:
            async for data in viewer.subscription:
                for begin in range(0, len(data), PIECE_BYTES):
                    async with asyncio.timeout(SLOW_SECONDS):
                        await connection.notify(Shown(data[begin : begin + PIECE_BYTES]))
            if self._viewers.get(connection) is viewer:
                connection.send_notification(self._farewell(viewer))
                connection.close_soon()
        except TimeoutError:
            logger.info("a viewer does not read what it is shown, and is sent away")
            connection.close_soon()
        except ConnectionClosed:
            pass
        finally:
            viewer.subscription.close()
            viewer.has_ended.set()
            if self._viewers.get(connection) is viewer:
                del self._viewers[connection]

    def _farewell(self, viewer: "_Viewer") -> Ended:
        if viewer.subscription.is_dropped:
            return Ended("too much was written to be shown here; attach again")
        process = self._terminal.process
        return Ended("the agent has ended", process.status if process is not None else None)

    async def _input(self, typed: Input, context: Context) -> None:
        viewer = self._viewers.get(context.connection)
        if viewer is not None and not viewer.is_read_only:
            with contextlib.suppress(PtyClosed):
                await self._typed(typed.data)

    def _resize(self, size: Resize, context: Context) -> None:
        viewer = self._viewers.get(context.connection)
        if viewer is not None and not viewer.is_read_only:
            self._fit(size.columns, size.rows)

    def _fit(self, columns: int, rows: int) -> None:
        size = bounded(columns, rows)
        if self._follows_size and size != (self._terminal.columns, self._terminal.rows):
            self._terminal.resize(*size)

    # ---------------------------------------------------------------------------------- askers

    def _info(self) -> WrapperInfo:
        reading = self._watch.reading
        return WrapperInfo(
            name=self._name,
            profile=self._profile,
            pid=self._pid,
            status=str(reading.status),
            is_ready=reading.is_ready,
            columns=self._terminal.columns,
            rows=self._terminal.rows,
            viewers=self.viewers,
        )

    async def _wait(self, asked: AskWait, _: Context) -> WrapperInfo:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(asked.timeout_seconds, MAX_WAIT_SECONDS)
        while not (self._watch.reading.is_ready or self._is_over.is_set()):
            remaining = deadline - loop.time()
            if remaining <= 0 or not await self._watch.pulse.wait(remaining):
                break
        return self._info()

    async def _interrupted(self, _: AskInterrupt, __: Context) -> bool:
        if self._interrupt is None:
            return False
        await self._interrupt()
        return True

    def _stopped(self, _: AskStop, context: Context) -> None:
        context.respond(self._stop is not None)  # as long as we can
        if self._stop is not None:
            self._stop()


class _Viewer:
    def __init__(self, subscription: Subscription, *, is_read_only: bool) -> None:
        self.subscription = subscription
        self.is_read_only = is_read_only
        self.has_ended = asyncio.Event()


def picture(terminal: AgentTerminal) -> bytes:
    """What makes an empty terminal show what this one shows.

    Where no screen is painted it is the newest of what was written.
    """
    if terminal.emulator is None:
        return _CLEAR + terminal.context.text().encode()
    _, unpainted = terminal.context.since(terminal.painted_end)
    return _modes(terminal.emulator.modes) + _CLEAR + _rows(terminal.emulator) + unpainted


def _modes(modes: Modes) -> bytes:
    return b"".join(sequence for name, sequence in _MODES.items() if getattr(modes, name))


def _rows(emulator: Emulator) -> bytes:
    screen = emulator.screen()
    painted = (emulator.painted(row) for row in range(len(screen.lines)))
    text = "\r\n".join(painted) + "\x1b[m"
    if screen.cursor is not None:
        text += f"\x1b[{screen.cursor.y + 1};{screen.cursor.x + 1}H"
        text += "\x1b[?25h" if screen.cursor.is_visible else "\x1b[?25l"
    return text.encode(errors="replace")
