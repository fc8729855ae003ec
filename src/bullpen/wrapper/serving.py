"""What the daemon may ask of a wrapper."""

from collections.abc import Callable

from bullpen.api.wrapping import (
    InjectMessage,
    InjectReply,
    PressKeys,
    ReadTerminal,
    StopProgram,
    TerminalText,
    WrapperInterrupt,
)
from bullpen.connection import Builder, Connection, Context
from bullpen.terminal.context import plain_text
from bullpen.terminal.pty import PtyClosed
from bullpen.wrapper.injecting import Injector
from bullpen.wrapper.watching import Watch

__all__ = ["Serving"]

REQUEST_SECONDS = 60.0


class Serving:
    """Answers the daemon's requests."""

    def __init__(self, watch: Watch, injector: Injector, stop: Callable[[], None]) -> None:
        self._watch = watch
        self._terminal = watch.terminal
        self._injector = injector
        self._stop = stop

    @property
    def builder(self) -> Builder:
        """A connection on which they are answered."""
        return (
            Connection.builder()
            .name("wrapper")
            .timeout(REQUEST_SECONDS)
            .on_request(InjectMessage, self._inject)
            .on_request(WrapperInterrupt, self._interrupt)
            .on_request(PressKeys, self._press)
            .on_request(ReadTerminal, self._read)
            .on_request(StopProgram, self._end)
        )

    async def _inject(self, request: InjectMessage, _: Context) -> InjectReply:
        return await self._injector.inject(request)

    async def _interrupt(self, _request: WrapperInterrupt, _: Context) -> bool:
        if self._watch.has_ended:
            return False
        try:
            await self._injector.interrupt()
        except (PtyClosed, TimeoutError):
            return False
        return True

    async def _press(self, request: PressKeys, _: Context) -> bool:
        self._injector.note_keys(request.data)
        try:
            await self._terminal.write(request.data)
        except PtyClosed:
            return False
        return True

    def _read(self, request: ReadTerminal, _: Context) -> TerminalText:
        context = self._terminal.context
        screen = self._terminal.screen()
        if screen is not None:
            shown = "\n".join(screen.lines)
        else:
            lines = plain_text(context.tail()).split("\n")
            shown = "\n".join(lines[-self._terminal.rows :])
        return TerminalText(text=context.text(max(request.limit, 0)), end=context.end, screen=shown)

    def _end(self, _request: StopProgram, context: Context) -> bool:
        context.respond(True)
        self._stop()
        return True
