"""A wrapper that types nothing: it says what a test tells it to say."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from bullpen.api import wrapping
from bullpen.api.errors import ApiError
from bullpen.api.runtime import Paths
from bullpen.connection import Connection, Context, SocketTransport
from bullpen.model.deliveries import Evidence, ReceiptState
from bullpen.model.dialogs import Dialog
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, Provider

__all__ = ["ScriptedWrapper", "wrapped"]

SECONDS = 20.0


class ScriptedWrapper:
    """One end of the wrapper's protocol. What it is asked to type is in `typed`."""

    def __init__(self) -> None:
        self.typed: asyncio.Queue[wrapping.InjectMessage] = asyncio.Queue()
        self.interrupts = 0
        self.keys = b""
        self.screen = "> "
        self.reads = asyncio.Event()
        self.stopped = asyncio.Event()
        self.replies: list[wrapping.InjectReply] = []
        self.answers: list[wrapping.AnswerDialog] = []
        """How its dialogs were answered; `outcome` becomes of each."""
        self.outcome = "answered"
        self.is_broken = False
        """Whether it fails to say what its terminal shows."""
        self.connection: Connection
        self.name = ""
        self.secret = ""

    @property
    def builder(self) -> Any:
        return (
            Connection.builder()
            .name("wrapper")
            .on_request(wrapping.InjectMessage, self._inject)
            .on_request(wrapping.WrapperInterrupt, self._interrupt)
            .on_request(wrapping.PressKeys, self._press)
            .on_request(wrapping.AnswerDialog, self._answer)
            .on_request(wrapping.ReadTerminal, self._read)
            .on_request(wrapping.StopProgram, self._stop)
        )

    async def register(self, **more: Any) -> None:
        said: dict[str, Any] = {
            "profile": "dummy",
            "provider": Provider.OTHER,
            "wrapper_pid": os.getpid(),
            "cwd": "/src/project",
            **more,
        }
        reply = await self.connection.request(wrapping.RegisterWrapper(**said), timeout=SECONDS)
        self.name, self.secret = reply.name, reply.secret

    async def start(self, pid: int = 0, **doors: Any) -> None:
        started = wrapping.WrapperStarted(pid=pid, tty="", command=("dummy",), doors=doors)
        await self.connection.request(started, timeout=SECONDS)
        await self.tell(Activity.IDLE)

    async def tell(
        self,
        activity: Activity,
        *,
        is_ready: bool | None = None,
        prompt: str = "",
        dialog: Dialog | None = None,
    ) -> None:
        is_idle = activity is Activity.IDLE
        await self.connection.notify(
            wrapping.WrapperState(
                activity=activity,
                status="IDLE" if is_idle else "BUSY",
                is_ready=is_idle if is_ready is None else is_ready,
                prompt=prompt,
                dialog=dialog,
            )
        )

    async def step(self, asked: wrapping.InjectMessage, state: ReceiptState) -> None:
        evidence = Evidence("pty", "the screen shows it")
        await self.connection.notify(wrapping.StepTaken(asked.attempt_id, state, evidence))

    async def answer(self, asked: wrapping.InjectMessage, text: str, **more: Any) -> None:
        said: dict[str, Any] = {"is_ok": True, "how": "prompt_back", **more}
        evidence = Evidence("pty", "the prompt is back")
        answered = wrapping.Answered(
            attempt_id=asked.attempt_id, text=text, evidence=evidence, **said
        )
        await self.connection.request(answered, timeout=SECONDS)

    async def next(self) -> wrapping.InjectMessage:
        async with asyncio.timeout(SECONDS):
            return await self.typed.get()

    async def end(self, status: int = 0) -> None:
        await self.connection.request(wrapping.WrapperEnded(status), timeout=SECONDS)

    def _inject(self, request: wrapping.InjectMessage, _: Context) -> wrapping.InjectReply:
        self.typed.put_nowait(request)
        if self.replies:
            return self.replies.pop(0)
        return wrapping.InjectReply(outcome="submitted")

    async def _interrupt(self, *_: object) -> bool:
        self.interrupts += 1
        await self.tell(Activity.IDLE)
        return True

    def _press(self, request: wrapping.PressKeys, _: Context) -> bool:
        self.keys += request.data
        return True

    async def _answer(
        self, request: wrapping.AnswerDialog, _: Context
    ) -> wrapping.AnswerDialogReply:
        if self.outcome == "answered":
            self.answers.append(request)
            await self.tell(Activity.RUNNING)
        return wrapping.AnswerDialogReply(outcome=self.outcome)

    def _read(self, *_: object) -> wrapping.TerminalText:
        if self.is_broken:
            raise ApiError(Reason.AGENT_UNREACHABLE, "its terminal is broken")
        self.reads.set()
        end = len(self.screen.encode())
        return wrapping.TerminalText(text=self.screen[-10_000:], end=end, screen=self.screen)

    def _stop(self, *_: object) -> bool:
        self.stopped.set()
        return True


@asynccontextmanager
async def wrapped(name: str = "", **more: Any) -> AsyncIterator[ScriptedWrapper]:
    """Be the wrapper of an agent that is idle, for a block."""
    wrapper = ScriptedWrapper()
    transport = SocketTransport.unix(str(Paths.resolve().socket))
    async with wrapper.builder.connect(transport) as wrapper.connection:
        await wrapper.register(name=name, **more)
        await wrapper.start()
        yield wrapper
