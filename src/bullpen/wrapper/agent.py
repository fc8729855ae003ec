"""One wrapped agent, put together: its terminal, who watches and types to it, and the daemon."""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import msgspec

from bullpen.agents.launching import Given, LaunchPlan
from bullpen.api.runtime import make_private
from bullpen.api.wrapping import (
    RegisterReply,
    RegisterWrapper,
    WrapperEnded,
    WrapperStarted,
    WrapperState,
)
from bullpen.errors import BullpenError
from bullpen.model.states import Provider
from bullpen.terminal.pty import DEFAULT_TERM, PtyClosed, PtyProcess
from bullpen.terminal.rules.load import load_rules
from bullpen.wrapper.addressing import Addressing
from bullpen.wrapper.attach import Attachments
from bullpen.wrapper.attempts import AttemptBook
from bullpen.wrapper.beside import BesideProgram
from bullpen.wrapper.environment import program_environment
from bullpen.wrapper.following import Follower
from bullpen.wrapper.injecting import Injector
from bullpen.wrapper.link import Link
from bullpen.wrapper.options import WrapperOptions
from bullpen.wrapper.output_log import OutputLog
from bullpen.wrapper.presence import Presence
from bullpen.wrapper.reading import LineReader, ScreenReader
from bullpen.wrapper.serving import Serving
from bullpen.wrapper.showing import Notices
from bullpen.wrapper.status import LineStatus, compile_idle
from bullpen.wrapper.terminal import AgentTerminal
from bullpen.wrapper.user_terminal import UserTerminal
from bullpen.wrapper.watching import Watch

__all__ = ["WrappedAgent"]

logger = logging.getLogger("bullpen.wrapper")

LAST_WORDS_SECONDS = 0.5  # for output that is on its way when the program ends
FAREWELL_SECONDS = 0.4  # for the daemon to hear of the end
STARTED_SECONDS = 10.0
STATUS_SECONDS = 0.2  # between two changes of the registry


class WrappedAgent:
    """An agent in its wrapper: `open`, `start`, `run`, and always `aclose`."""

    def __init__(self, options: WrapperOptions, user: UserTerminal | None) -> None:
        profile = options.profile
        is_painted = profile.has_screen and profile.provider is not Provider.OTHER
        columns, rows = (options.columns, options.rows) if user is None else user.size
        self.terminal = AgentTerminal(
            columns,
            rows,
            shows=None if user is None else user.write,
            paints=is_painted or user is None,
        )
        reader: LineReader | ScreenReader
        if is_painted:
            reader = ScreenReader()
        else:
            status = LineStatus(compile_idle(profile.idle_regex))
            reader = LineReader(status, self.terminal.context, self)
        self.watch = self.terminal.watcher = Watch(self.terminal, reader)
        self._options = options
        self._user = user
        self._presence = Presence(options)
        self._book = AttemptBook()
        self._stopping = asyncio.Event()
        self._link = Link(
            options.paths,
            self._registration,
            opened=self._opened,
            starts_daemon=options.starts_daemon,
        )
        self._follower = Follower(
            self.watch, self._link, self._book, profile.provider, options.pace
        )
        self._injector = self._follower.injector = Injector(
            self.watch,
            profile,
            self._book,
            pace=options.pace,
            tell=self._follower.tell,
            follow=self._follower.follow,
        )
        self._link.builder = Serving(self.watch, self._injector, self.stop).builder
        self._notices = Notices(self.watch)
        self.addressing = Addressing(
            self.watch,
            self._link,
            options.name or profile.name,
            options.paths.agent_logs / "input_router.log",
            addresses=profile.addresses,
            notice=self._notices.show,
        )
        self.addressing.injector = self._injector
        self._directory: Path | None = None
        self._plan: LaunchPlan | None = None
        self._beside: list[BesideProgram] = []
        self._work: set[asyncio.Task[None]] = set()
        self._process: PtyProcess | None = None
        self._is_told = False  # whether the daemon there is knows what the program does

    @property
    def name(self) -> str:
        """What the agent is called."""
        return self.addressing.name

    @property
    def has_draft(self) -> bool:
        """Whether the user has begun to write."""
        return self.addressing.has_draft

    @property
    def process(self) -> PtyProcess:
        """The program."""
        assert self._process is not None
        return self._process

    def stop(self) -> None:
        """End the program, and then ourselves."""
        self._stopping.set()

    # ------------------------------------------------------------------------------------- starting

    async def open(self) -> str:
        """Make ourselves known; return why the daemon does not know us, or nothing if it does."""
        await self._presence.enter()
        trouble = ""
        try:
            await self._link.open()
        except BullpenError as error:
            trouble = str(error)
        self.addressing.name = await self._presence.name(self.name)
        return trouble

    async def start(self) -> None:
        """Start the program, and what it needs beside it.

        Raises:
            CommandNotFound: there is no such program.
            BesideError: what it needs does not come up.
        """
        self.watch.begin()
        plan = self._plan = await self._plan_launch()
        for each in plan.beside:
            self._beside.append(
                await BesideProgram.start(
                    each,
                    env=plan.environment,
                    cwd=self._options.cwd,
                    log_path=self._private_directory() / "beside.log",
                )
            )
        self._process = self.terminal.process = await PtyProcess.spawn(
            plan.command,
            columns=self.terminal.columns,
            rows=self.terminal.rows,
            env=plan.environment,
            cwd=self._options.cwd,
            term=plan.environment.get("TERM") or DEFAULT_TERM,
        )
        self.watch.started()
        self._begin(self.terminal.load(), "emulator")
        self._begin(self._load_rules(), "rules")
        if self._link.is_open:
            self._begin(self._tell_started(), "started")

    async def _plan_launch(self) -> LaunchPlan:
        who, options = self._link.who, self._options
        environment = program_environment(
            os.environ, options.profile, name=self.name, secret=who.secret if who else ""
        )
        given = Given(
            profile=options.profile,
            name=self.name,
            secret=who.secret if who else "",
            directory=self._private_directory(),
            daemon_socket=options.paths.socket,
            environment=environment,
            arguments=options.arguments,
            cwd=options.cwd,
        )
        return await asyncio.to_thread(_plan, given)

    def _private_directory(self) -> Path:
        """A directory for this run, whoever chose it."""
        if self._directory is None:
            who = self._link.who
            given = who.directory if who is not None else ""
            self._directory = Path(given or self._options.paths.agents / f"{self.name}.run")
        return self._directory

    async def _load_rules(self) -> None:
        """Get what screens are read by."""
        reader = self.watch.reader
        if isinstance(reader, ScreenReader):
            rules = await asyncio.to_thread(
                load_rules,
                self._options.paths.rules,
                on_trouble=lambda error: logger.warning("a rule file is left out: %s", error),
            )
            reader.rules = rules.get(self._options.profile.provider)
            self.watch.look()

    # -------------------------------------------------------------------------------------- running

    async def run(self) -> int:
        """Go on until the program ends or is to be ended; return its status."""
        process = self.process
        pump = asyncio.create_task(self.terminal.run(process), name="output")
        self._begin(self._link.run(), "link")
        self._begin(self._follower.run(), "answers")
        self._begin(self._tell_states(), "states")
        self._begin(self._keep_status(), "status")
        self._begin(self.addressing.run(), "contacts")
        if self._user is not None:
            self._begin(self._take_keys(self._user), "keys")
        stopping = asyncio.create_task(self._stopping.wait(), name="stopping")
        ending = asyncio.create_task(process.wait(), name="ending")
        try:
            async with self._attachable():
                await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
                if ending.done():
                    await asyncio.wait({pump}, timeout=LAST_WORDS_SECONDS)
                await process.terminate()
                await asyncio.wait({pump}, timeout=LAST_WORDS_SECONDS)
                status = await ending
                self.watch.end()
                await self._say_farewell(status)
        finally:
            for each in (pump, stopping, ending):
                each.cancel()
            await asyncio.wait({pump, stopping, ending})
        return status

    @contextlib.asynccontextmanager
    async def _attachable(self) -> AsyncIterator[None]:
        """Serve those who attach, for a block; without a socket nobody can."""
        attachments = Attachments(
            self.terminal,
            self.watch,
            name=self.name,
            profile=self._options.profile.name,
            pid=os.getpid(),
            follows_size=self._user is None,
            typed=self.addressing.type,
            interrupt=self._injector.interrupt,
            stop=self.stop,
        )
        async with contextlib.AsyncExitStack() as stack:
            if (log := self._presence.log) is not None:
                await stack.enter_async_context(OutputLog(log).keeping(self.terminal))
            try:
                await stack.enter_async_context(attachments.serve(self._presence.socket))
            except BullpenError as error:
                logger.warning("nobody can attach: %s", error)
            yield

    async def aclose(self) -> None:
        """Leave nothing behind."""
        if self._process is not None:
            await self._process.terminate(seconds=0)
        await self._injector.aclose()
        await self._follower.aclose()
        await self.addressing.aclose()
        work = list(self._work)
        for each in work:
            each.cancel()
        if work:
            await asyncio.wait(work)
        await self._notices.aclose()
        self.watch.close()
        for beside in self._beside:
            await beside.end()
        await self._link.aclose()
        await self._presence.leave()
        self.terminal.close()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    def _begin(self, work: Coroutine[Any, Any, object], name: str) -> None:
        """Do something beside, until we end. What fails there is logged, and the agent goes on."""
        task = asyncio.create_task(_logged(work, name), name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    async def _take_keys(self, user: UserTerminal) -> None:
        while data := await user.read():
            try:
                await self.addressing.type(data)
            except PtyClosed:
                return
        self.stop()  # the terminal is gone

    # -------------------------------------------------------------------------------------- telling

    def _registration(self) -> RegisterWrapper:
        options, environment = self._options, os.environ
        who = self._link.who
        return RegisterWrapper(
            profile=options.profile.name,
            provider=options.profile.provider,
            wrapper_pid=os.getpid(),
            cwd=str(options.cwd),
            name=self.name if who is not None else options.name,
            secret=who.secret if who is not None else "",
            is_detached=options.is_detached,
            tmux="" if options.is_detached else environment.get("TMUX", ""),
            tmux_pane="" if options.is_detached else environment.get("TMUX_PANE", ""),
            port=self._presence.port,
            socket_path=str(self._presence.socket) if self._presence.is_named else "",
            doors=self._plan.doors if self._plan is not None else {},
            attempts=self._book.attempts,
        )

    def _opened(self, who: RegisterReply) -> None:
        """There is a daemon: perhaps another one, that knows nothing of what was told before."""
        has_new_name = self.addressing.name != who.name
        self.addressing.name = who.name
        self._is_told = False
        if self._process is not None:
            self._begin(self._tell_started(), "started")
            if has_new_name:
                self._begin(self._presence.name(who.name), "name")
        self.watch.pulse.beat()

    async def _tell_started(self) -> None:
        assert self._plan is not None
        started = WrapperStarted(
            pid=self.process.pid,
            tty=self.process.tty,
            command=self._plan.command,
            doors=self._plan.doors,
        )
        with contextlib.suppress(BullpenError):  # it is told again to the next one
            await self._link.request(started, seconds=STARTED_SECONDS)

    async def _tell_states(self) -> None:
        """Tell what the program is doing when it changes, and to who is new."""
        told: WrapperState | None = None
        while True:
            reading = self.watch.reading
            state = WrapperState(
                activity=reading.activity,
                status=reading.status,
                is_ready=reading.is_ready,
                prompt=reading.prompt,
                why=reading.why,
                title=reading.title,
            )
            is_new = state != told or not self._is_told
            if is_new and self._link.is_open:
                end = self.terminal.context.end
                self._is_told = self._link.tell(msgspec.structs.replace(state, output_end=end))
                told = state
                await asyncio.sleep(self._options.pace.state)
            else:
                await self.watch.pulse.wait()

    async def _keep_status(self) -> None:
        while True:
            await self._presence.update(self.watch.reading.status)
            await self.watch.pulse.wait()
            await asyncio.sleep(STATUS_SECONDS)

    async def _say_farewell(self, status: int) -> None:
        await self._follower.drain(FAREWELL_SECONDS)
        with contextlib.suppress(BullpenError):
            await self._link.request(WrapperEnded(status=status), seconds=FAREWELL_SECONDS)


async def _logged(work: Coroutine[Any, Any, object], name: str) -> None:
    try:
        await work
    except Exception:  # whatever it is, the agent goes on
        logger.exception("%s failed", name)


def _plan(given: Given) -> LaunchPlan:
    """What is started. Where we know nothing of a program, it is just started."""
    make_private(given.directory)
    try:
        from bullpen.agents.launch import plan_launch
    except ImportError:
        profile = given.profile
        command = (*profile.command, *profile.args, *given.arguments)
        return LaunchPlan(command=command, environment=given.environment)
    return plan_launch(given)
