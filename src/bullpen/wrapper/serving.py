"""What the daemon may ask of a wrapper."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from bullpen.api.wrapping import (
    AnswerDialog,
    AnswerDialogReply,
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
from bullpen.wrapper.terminal import AgentTerminal

if TYPE_CHECKING:
    from bullpen.wrapper.duties import Duties

__all__ = ["Serving"]

REQUEST_SECONDS = 60.0


class Serving:
    """Answers the daemon's requests. Some wait until we have taken up our duties."""

    def __init__(self, terminal: AgentTerminal, stop: Callable[[], None]) -> None:
        self._terminal = terminal
        self._stop = stop
        self.duties: asyncio.Future[Duties] = asyncio.get_running_loop().create_future()

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
            .on_request(AnswerDialog, self._answer)
            .on_request(ReadTerminal, self._read)
            .on_request(StopProgram, self._end)
        )

    async def _inject(self, request: InjectMessage, _: Context) -> InjectReply:
        duties = await asyncio.shield(self.duties)
        return await duties.injector.inject(request)

    async def _interrupt(self, _request: WrapperInterrupt, _: Context) -> bool:
        duties = await asyncio.shield(self.duties)
        duties.watch.look_again()
        if duties.watch.has_ended or duties.watch.is_dialog:
            return False  # to interrupt a dialog would be to decide it
        try:
            await duties.injector.interrupt()
        except (PtyClosed, TimeoutError):
            return False
        return True

    async def _press(self, request: PressKeys, _: Context) -> bool:
        duties = await asyncio.shield(self.duties)
        duties.injector.note_keys(request.data)
        try:
            await self._terminal.write(request.data)
        except PtyClosed:
            return False
        return True

    async def _answer(self, request: AnswerDialog, _: Context) -> AnswerDialogReply:
        duties = await asyncio.shield(self.duties)
        return await duties.answering.answer(request)

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
