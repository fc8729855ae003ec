"""Being attached: the user's terminal shows a wrapped agent's, and its keys go there.

The terminal is given back as it was, whatever the agent's program has made of it: on detaching, at
the agent's end, and when the connection breaks.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

from bullpen.connection import (
    AddressError,
    Connection,
    ConnectionClosed,
    Context,
    RequestTimeout,
    SocketTransport,
)
from bullpen.errors import BullpenError
from bullpen.wrapper.attaching import Ended, Input, OpenView, Resize, Shown
from bullpen.wrapper.user_terminal import UserTerminal

__all__ = ["DETACH_KEYS", "DetachKeys", "NotAttachable", "attach"]

DETACH_KEYS = "Ctrl-\\ Ctrl-\\"
ANSWER_SECONDS = 5.0
MAX_UNSHOWN = 2**23  # bytes; a terminal that is slower than that is slower than its agent

_RESET = (
    b"\x1b[?1049l\x1b[?2004l\x1b[?1004l\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l"
    b"\x1b[?1l\x1b>\x1b[<u\x1b[>4m\x1b[r\x1b[?25h\x1b[m"
)
"""Whatever a program may have asked of the terminal is taken back."""


class NotAttachable(BullpenError):
    """Nobody serves there. The agent may have ended a moment ago."""

    def __init__(self, name: str, reason: object) -> None:
        super().__init__(f"{name} cannot be attached to: {reason}")
        self.name = name
        self.reason = reason


class DetachKeys:
    """Finds the keys that detach in what is typed, as terminals of either kind write them.

    The first one is held back until the next key says what was meant.
    """

    KEYS = (b"\x1c", b"\x1b[92;5u")

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """Return what is the agent's of what was typed, and whether to detach."""
        passed = bytearray()
        while data:
            key = next((each for each in self.KEYS if data.startswith(each)), b"")
            if key and self._held:
                return bytes(passed), True
            if key:
                self._held, data = key, data[len(key) :]
                continue
            passed += self._held + data[:1]
            self._held, data = b"", data[1:]
        return bytes(passed), False


async def attach(name: str, path: Path, terminal: UserTerminal, *, is_read_only: bool) -> str:
    """Show a wrapped agent in a terminal until the user or the agent has enough; return why.

    Raises:
        NotAttachable: nobody serves there.
    """
    view = _View(terminal, is_read_only=is_read_only)
    builder = (
        Connection.builder()
        .name("viewer")
        .on_notification(Shown, view.shown)
        .on_notification(Ended, view.ended)
    )
    try:
        connection = await builder.open(SocketTransport.unix(str(path)))
    except AddressError as error:
        raise NotAttachable(name, error) from error
    try:
        columns, rows = terminal.size
        opened = await connection.request(
            OpenView(columns, rows, is_read_only), timeout=ANSWER_SECONDS
        )
        return await view.run(connection, opened.paint)
    except (ConnectionClosed, RequestTimeout) as error:
        raise NotAttachable(name, error) from error
    finally:
        await connection.aclose()


class _View:
    def __init__(self, terminal: UserTerminal, *, is_read_only: bool) -> None:
        self._terminal = terminal
        self._is_read_only = is_read_only
        self._outcome = ""
        self._is_over = asyncio.Event()
        self._unshown: asyncio.Queue[bytes] = asyncio.Queue()
        self._unshown_bytes = 0

    def shown(self, shown: Shown, _: Context) -> None:
        self._put(shown.data)

    def ended(self, ended: Ended, _: Context) -> None:
        status = f" with status {ended.status}" if ended.status is not None else ""
        self.finish(f"{ended.reason}{status}")

    def finish(self, outcome: str) -> None:
        """End the view; the first to say so is believed."""
        self._outcome = self._outcome or outcome
        self._is_over.set()
        self._unshown.put_nowait(b"")

    def _put(self, data: bytes) -> None:
        self._unshown_bytes += len(data)
        if self._unshown_bytes > MAX_UNSHOWN:
            self.finish("this terminal is too slow for what is written")
        elif not self._is_over.is_set():
            self._unshown.put_nowait(data)

    async def run(self, connection: Connection, paint: bytes) -> str:
        connection.on_close(lambda _: self.finish("the connection is lost"))
        self._terminal.make_raw()
        resize = _on_signal(signal.SIGWINCH, lambda: self._resized(connection))
        gone = _on_signal(signal.SIGHUP, lambda: self.finish("the terminal is gone"))
        term = _on_signal(signal.SIGTERM, lambda: self.finish("ended"))
        showing = asyncio.create_task(self._show(), name="show")
        typing = asyncio.create_task(self._type(connection), name="type")
        try:
            self._put(paint)
            await self._is_over.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await showing  # what was written last
        finally:
            for task in (showing, typing):
                task.cancel()
            await asyncio.gather(showing, typing, return_exceptions=True)
            for undo in (resize, gone, term):
                undo()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    await self._terminal.write(_RESET)
            self._terminal.restore()
        return self._outcome

    async def _show(self) -> None:
        while data := await self._unshown.get():
            await self._terminal.write(data)
            self._unshown_bytes -= len(data)

    async def _type(self, connection: Connection) -> None:
        keys = DetachKeys()
        while data := await self._terminal.read():
            passed, is_detached = keys.feed(data)
            if self._is_read_only and (b"q" in passed or b"\x03" in passed):
                is_detached = True
            if passed and not self._is_read_only:
                with contextlib.suppress(ConnectionClosed):
                    await connection.notify(Input(passed))
            if is_detached:
                self.finish("detached")
                return
        self.finish("the terminal is gone")

    def _resized(self, connection: Connection) -> None:
        with contextlib.suppress(BullpenError):
            connection.send_notification(Resize(*self._terminal.size))


def _on_signal(number: int, act: Callable[[], None]) -> Callable[[], None]:
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(number, act)
    return lambda: (loop.remove_signal_handler(number), None)[1]
