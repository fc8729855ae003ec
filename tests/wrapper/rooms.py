"""A wrapper under test: on a terminal of the test's own, with a daemon that does as it is told."""

import asyncio
import itertools
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from bullpen.agents.profile import Profile
from bullpen.api.errors import ApiError
from bullpen.api.runtime import Paths, prepare
from bullpen.api.talk import (
    Contact,
    ListContacts,
    SendMessage,
    SendReply,
    WaitMessage,
    WaitMessageReply,
)
from bullpen.api.wrapping import (
    Answered,
    InjectMessage,
    InjectReply,
    RegisterReply,
    RegisterWrapper,
    Said,
    StepTaken,
    WrapperEnded,
    WrapperStarted,
    WrapperState,
)
from bullpen.connection import Connection, Context, TypedRequest, listen_unix
from bullpen.model.messages import Message
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, Provider
from bullpen.terminal.pty import PtyProcess
from bullpen.wrapper.options import WrapperOptions
from bullpen.wrapper.pace import Pace

WAIT_SECONDS = 30.0
SECRET = "bp_test_secret"
PATIENT = Pace(silence=600.0)

DUMMY = Path(__file__).parents[2] / "src/bullpen/agents/profiles/dummy_agent.py"
TUI = Path(__file__).with_name("fake_tui.py")

R = TypeVar("R")

PROGRAM = """
import sys
from pathlib import Path
import msgspec
from bullpen.wrapper.main import run
from bullpen.wrapper.options import WrapperOptions
data = Path(sys.argv[1]).read_bytes()
sys.exit(run(msgspec.json.decode(data, type=WrapperOptions, dec_hook=lambda kind, it: kind(it))))
"""


def line_profile(*command: str, **more: Any) -> Profile:
    """A program that prints lines."""
    given = {"name": "dummy", "command": command, "idle_regex": "> $", "submit_sequence": "\n"}
    return Profile(**{**given, **more})


def dummy(seconds: float = 0.0, **more: Any) -> Profile:
    """The dummy agent, which works that long on each line."""
    return line_profile(sys.executable, "-I", "-S", "-u", str(DUMMY), str(seconds), **more)


def python(code: str, **more: Any) -> Profile:
    """A program of a test."""
    return line_profile(sys.executable, "-I", "-S", "-u", "-c", code, **more)


def tui(*arguments: str, **more: Any) -> Profile:
    """A program that paints a screen as Claude Code does."""
    command = (sys.executable, "-I", "-S", "-u", str(TUI), *arguments)
    given = {"name": "claude", "provider": Provider.CLAUDE, "has_screen": True}
    given |= {"submit_sequence": "\r", "interrupt": "escape"}
    profile = line_profile(*command, **{**given, **more})
    return msgspec.convert(msgspec.to_builtins(profile), Profile)


async def read(path: Path) -> str:
    """What is in a file."""
    return await asyncio.to_thread(path.read_text)


class Daemon:
    """The daemon as a wrapper knows it. What it is told is kept; what it asks is asked by tests."""

    def __init__(self, paths: Paths, directory: Path) -> None:
        self.paths = paths
        self.registrations: list[RegisterWrapper] = []
        self.started: list[WrapperStarted] = []
        self.states: list[WrapperState] = []
        self.steps: list[StepTaken] = []
        self.said: list[Said] = []
        self.answers: list[Answered] = []
        self.ended: list[int] = []
        self.sent: list[SendMessage] = []
        self.waits: list[WaitMessage] = []
        self.contacts: list[str] = []
        self.endpoints: dict[str, str] = {}
        """Of those that are elsewhere."""
        self.also: dict[str, tuple[str, ...]] = {}
        """What they are called by as well."""
        self.refused: str = ""
        self.reply = "42"
        self.takes_answers = True
        self._directory = directory
        self._connection: Connection | None = None
        self._told = asyncio.Event()
        self._unanswered: list[object] = []

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        builder = (
            Connection.builder()
            .name("daemon")
            .on_request(RegisterWrapper, self._register)
            .on_request(WrapperStarted, self._started)
            .on_request(Answered, self._answered)
            .on_request(WrapperEnded, self._ended)
            .on_request(ListContacts, self._list)
            .on_request(SendMessage, self._send)
            .on_request(WaitMessage, self._wait)
            .on_notification(WrapperState, self._take(self.states))
            .on_notification(StepTaken, self._take(self.steps))
            .on_notification(Said, self._take(self.said))
        )
        await asyncio.to_thread(prepare, self.paths)
        async with listen_unix(str(self.paths.socket), builder):
            yield

    async def until(self, holds: Callable[[], object], what: str = "") -> None:
        """Wait until something holds of what was told."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while not holds():
                    self._told.clear()
                    await self._told.wait()
        except TimeoutError:
            raise AssertionError(f"{what or 'it'} did not happen: {self.told}") from None

    @property
    def told(self) -> str:
        return "\n".join(
            map(repr, (*self.registrations, *self.states, *self.steps, *self.answers, self.ended))
        )

    async def until_ready(self) -> None:
        await self.until(lambda: self.states and self.states[-1].is_ready, "being ready")

    async def ask(self, request: TypedRequest[R]) -> R:
        await self.until(lambda: self._connection, "registering")
        assert self._connection is not None
        return await self._connection.request(request, timeout=WAIT_SECONDS)

    async def inject(self, text: str, number: str = "m1:1", **more: Any) -> InjectReply:
        request = InjectMessage(attempt_id=number, sender="bob", text=text, **more)
        return await self.ask(request)

    async def answer_to(self, text: str, number: str = "m1:1", **more: Any) -> Answered:
        """Have a message typed, and return how its turn ended."""
        reply = await self.inject(text, number, **more)
        assert reply.outcome == "submitted", reply
        return await self.answer(number)

    async def answer(self, number: str) -> Answered:
        await self.until(lambda: self._answer(number), f"an answer to {number}")
        answer = self._answer(number)
        assert answer is not None
        return answer

    def _answer(self, number: str) -> Answered | None:
        return next((each for each in self.answers if each.attempt_id == number), None)

    def said_of(self, number: str) -> str:
        """What was told of an answer, put together; each piece is to stand where it says."""
        text = ""
        for each in self.said:
            if each.attempt_id == number:
                assert each.at in (0, len(text)), self.said
                text = text[: each.at] + each.text
        return text

    def steps_of(self, number: str) -> list[str]:
        return [str(each.state) for each in self.steps if each.attempt_id == number]

    async def hang_up(self) -> None:
        assert self._connection is not None
        connection, self._connection = self._connection, None
        await connection.aclose()

    def _note(self) -> None:
        self._told.set()

    def _take(self, told: list[Any]) -> Callable[[Any, Context], None]:
        def take(notification: Any, _: Context) -> None:
            told.append(notification)
            self._note()

        return take

    def _register(self, request: RegisterWrapper, context: Context) -> RegisterReply:
        self.registrations.append(request)
        self._connection = context.connection
        self._note()
        name = request.name or request.profile
        directory = self._directory / name
        return RegisterReply(name=name, secret=request.secret or SECRET, directory=str(directory))

    def _started(self, request: WrapperStarted, _: Context) -> bool:
        self.started.append(request)
        self._note()
        return True

    def _answered(self, request: Answered, context: Context) -> bool:
        if not self.takes_answers:
            self._unanswered.append(context.detach())
            context.connection.close_soon()
            return False
        self.answers.append(request)
        self._note()
        return True

    def _ended(self, request: WrapperEnded, _: Context) -> bool:
        self.ended.append(request.status)
        self._note()
        return True

    def _list(self, _request: ListContacts, _: Context) -> tuple[Contact, ...]:
        self._note()
        return tuple(
            Contact(
                name=each,
                provider=Provider.OTHER,
                activity=Activity.IDLE,
                status="IDLE",
                endpoint=self.endpoints.get(each, ""),
                also=self.also.get(each, ()),
            )
            for each in self.contacts
        )

    def _send(self, request: SendMessage, _: Context) -> SendReply:
        if request.to not in {*self.contacts, *itertools.chain(*self.also.values())}:
            raise ApiError(Reason.AGENT_NOT_FOUND, f"there is no {request.to}")
        if self.refused:
            raise ApiError(Reason.RECIPIENT_NOT_ALLOWED, self.refused)
        self.sent.append(request)
        self._note()
        return SendReply(_message(request.to, request.content), ())

    def _wait(self, request: WaitMessage, _: Context) -> WaitMessageReply:
        self.waits.append(request)
        self._note()
        if not self.reply:
            return WaitMessageReply(outcome="timeout", deliveries=())
        return WaitMessageReply(
            outcome="reached", deliveries=(), reply=_message("user", self.reply)
        )


def _message(to: str, content: str) -> Message:
    fields = {"id": "m-1", "from": "user", "to": to, "type": "task_request", "content": content}
    return msgspec.convert({**fields, "timestamp": "2026-01-01T00:00:00Z"}, Message)


class Glass:
    """The user's terminal, with a wrapper in it."""

    def __init__(self, process: PtyProcess) -> None:
        self.process = process
        self.shown = b""
        self._is_new = asyncio.Event()

    async def run(self) -> None:
        while data := await self.process.read():
            self.shown += data
            self._is_new.set()
        self._is_new.set()

    async def until(self, text: bytes) -> None:
        """Wait until something is shown."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while text not in self.shown:
                    self._is_new.clear()
                    await self._is_new.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} is not in {self.shown!r}") from None

    async def type(self, text: str | bytes) -> None:
        await self.process.write(text.encode() if isinstance(text, str) else text)

    async def wait(self) -> int:
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.process.wait()


class Room:
    """A place for one wrapper."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.paths = Paths.resolve()
        self.daemon = Daemon(self.paths, home / "private")

    def options(self, profile: Profile, **more: Any) -> Path:
        given = {"profile": profile, "paths": self.paths, "cwd": self.home, "pace": PATIENT}
        given |= {"starts_daemon": False}
        options = WrapperOptions(**{**given, **more})
        path = self.home / f"options-{profile.name}-{options.name}.json"
        path.write_bytes(msgspec.json.encode(options, enc_hook=str))
        return path

    def command(self, profile: Profile, **more: Any) -> list[str]:
        return [sys.executable, "-c", PROGRAM, str(self.options(profile, **more))]

    @asynccontextmanager
    async def wrapped(
        self, profile: Profile, *, columns: int = 100, rows: int = 30, **more: Any
    ) -> AsyncIterator[Glass]:
        """Run a wrapper in a terminal, for a block."""
        command = self.command(profile, **more)
        process = await PtyProcess.spawn(
            command, columns=columns, rows=rows, env=dict(os.environ), cwd=self.home
        )
        glass = Glass(process)
        running = asyncio.create_task(glass.run())
        try:
            yield glass
        finally:
            await process.terminate()
            await running

    @asynccontextmanager
    async def detached(
        self, profile: Profile, **more: Any
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a wrapper without a terminal, for a block."""
        process = await asyncio.create_subprocess_exec(
            *self.command(profile, is_detached=True, **more),
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


@asynccontextmanager
async def room(home: Path) -> AsyncIterator[Room]:
    """A place for a wrapper, with a daemon."""
    place = Room(home)
    async with place.daemon.serve():
        yield place
