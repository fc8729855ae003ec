"""One wrapped agent, from making it known to leaving nothing of it behind.

What is loaded here stands between a user and the program, so it is little: the rest comes while the
program starts (`duties`).
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bullpen.agents.launching import Given, LaunchPlan
from bullpen.api.runtime import make_private
from bullpen.api.wrapping import RegisterReply, RegisterWrapper, WrapperEnded, WrapperStarted
from bullpen.errors import BullpenError
from bullpen.terminal.pty import DEFAULT_TERM, PtyProcess
from bullpen.wrapper.link import Link
from bullpen.wrapper.options import WrapperOptions
from bullpen.wrapper.presence import Presence
from bullpen.wrapper.serving import Serving
from bullpen.wrapper.terminal import AgentTerminal
from bullpen.wrapper.user_terminal import UserTerminal

if TYPE_CHECKING:
    from bullpen.wrapper.beside import BesideProgram
    from bullpen.wrapper.duties import Duties

__all__ = ["WrappedAgent"]

logger = logging.getLogger("bullpen.wrapper")

LAST_WORDS_SECONDS = 0.5  # for output that is on its way when the program ends
FAREWELL_SECONDS = 0.4  # for the daemon to hear of the end
STARTED_SECONDS = 10.0

_OF_THE_USERS_TERMINAL = ("COLUMNS", "LINES")


class WrappedAgent:
    """An agent in its wrapper: `open`, `start`, `run`, and always `aclose`."""

    def __init__(self, options: WrapperOptions, user: UserTerminal | None) -> None:
        columns, rows = (options.columns, options.rows) if user is None else user.size
        self.name = options.name or options.profile.name
        """What the agent is called."""
        self.terminal = AgentTerminal(
            columns,
            rows,
            shows=user,
            paints=options.is_painted or user is None,
        )
        self._options = options
        self._user = user
        self._presence = Presence(options)
        self._stopping = asyncio.Event()
        self._serving = Serving(self.terminal, self.stop)
        self._link = Link(
            options.paths,
            self._serving.builder,
            self._registration,
            opened=self._opened,
            starts_daemon=options.starts_daemon,
        )
        self._duties: Duties | None = None
        self._directory: Path | None = None
        self._plan: LaunchPlan | None = None
        self._process: PtyProcess | None = None
        self._beside: list[BesideProgram] = []
        self._work: set[asyncio.Task[None]] = set()

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
        self.name = await self._presence.name(self.name)
        return trouble

    async def start(self) -> str:
        """Start the program, and what it needs beside it; return what the user is to know of it.

        Raises:
            CommandNotFound: there is no such program.
            BesideError: what it needs does not come up.
            DirectoryError, SettingsError: what it is to be given cannot be written.
        """
        plan = self._plan = await asyncio.to_thread(_plan, self._given())
        await self._start_beside(plan)
        self._process = self.terminal.process = await PtyProcess.spawn(
            plan.command,
            columns=self.terminal.columns,
            rows=self.terminal.rows,
            env=plan.environment,
            cwd=self._options.cwd,
            term=plan.environment.get("TERM") or DEFAULT_TERM,
        )
        return plan.note

    def _given(self) -> Given:
        who, options = self._link.who, self._options
        self._directory = Path(
            who.directory if who and who.directory else options.paths.agents / f"{self.name}.run"
        )
        environment = {
            name: value for name, value in os.environ.items() if name not in _OF_THE_USERS_TERMINAL
        }
        return Given(
            profile=options.profile,
            name=self.name,
            secret=who.secret if who else "",
            directory=self._directory,
            daemon_socket=options.paths.socket,
            environment=environment,
            arguments=options.arguments,
            cwd=options.cwd,
        )

    async def _start_beside(self, plan: LaunchPlan) -> None:
        for each in plan.beside:
            from bullpen.wrapper.beside import BesideProgram  # which few programs need

            assert self._directory is not None
            program = await BesideProgram.start(
                each,
                env=plan.environment,
                cwd=self._options.cwd,
                log_path=self._directory / "beside.log",
            )
            self._beside.append(program)

    # -------------------------------------------------------------------------------------- running

    async def run(self) -> int:
        """Go on until the program ends or is to be ended; return its status."""
        process = self.process
        async with self._logged_output(), contextlib.AsyncExitStack() as stack:
            pump = asyncio.create_task(self.terminal.run(process), name="output")
            stopping = asyncio.create_task(self._stopping.wait(), name="stopping")
            ending = asyncio.create_task(process.wait(), name="ending")
            try:
                if self._link.is_open:
                    self._begin(self._tell_started(), "started")
                self._begin(self._link.run(), "link")
                self._begin(self._presence.hand_over(self._secret), "port")
                await self._take_up_duties(stack)
                await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
                if ending.done():
                    await asyncio.wait({pump}, timeout=LAST_WORDS_SECONDS)
                await process.terminate()
                await asyncio.wait({pump}, timeout=LAST_WORDS_SECONDS)
                status = await ending
                await self._say_farewell(status)
            finally:
                for each in (pump, stopping, ending):
                    each.cancel()
                await asyncio.wait({pump, stopping, ending})
        return status

    async def aclose(self) -> None:
        """Leave nothing behind."""
        if self._process is not None:
            await self._process.terminate(seconds=0)
        if self._duties is not None:
            await self._duties.aclose()
        work = list(self._work)
        for each in work:
            each.cancel()
        if work:
            await asyncio.wait(work)
        for beside in self._beside:
            await beside.end()
        await self._link.aclose()
        await self._presence.leave()
        self.terminal.close()
        if self._directory is not None:
            await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    async def _take_up_duties(self, stack: contextlib.AsyncExitStack) -> None:
        """Load and begin all else, while what the program writes goes on to the user."""
        duties = await asyncio.to_thread(_load_duties)
        self._duties = duties(self._options, self.terminal, self._link, self._presence, self.name)
        self._serving.duties.set_result(self._duties)
        self._duties.run(self._user, self.stop)
        await stack.enter_async_context(
            self._duties.attachable(name=self.name, is_detached=self._user is None, stop=self.stop)
        )

    @contextlib.asynccontextmanager
    async def _logged_output(self) -> AsyncIterator[None]:
        """Keep what the program writes in a file, for a block, if that is wanted."""
        if (path := self._presence.log) is None:
            yield
            return
        from bullpen.wrapper.output_log import OutputLog

        async with OutputLog(path).keeping(self.terminal):
            yield

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(_logged(work, name), name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

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
            submit_sequence=options.profile.submit_sequence,
            socket_path=str(self._presence.socket) if self._presence.is_named else "",
            doors=self._plan.doors if self._plan is not None else {},
            attempts=self._duties.book.attempts if self._duties is not None else (),
        )

    def _secret(self) -> str:
        return self._link.who.secret if self._link.who is not None else ""

    def _opened(self, who: RegisterReply) -> None:
        """There is a daemon: perhaps another one, that knows nothing of what was told before."""
        has_new_name, self.name = self.name != who.name, who.name
        if self._process is not None:
            self._begin(self._tell_started(), "started")
            if has_new_name:
                self._begin(self._take_name(), "name")
        if self._duties is not None:
            self._duties.note_daemon(who.name)

    async def _take_name(self) -> None:
        await self._presence.name(self.name)

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

    async def _say_farewell(self, status: int) -> None:
        if self._duties is not None:
            await self._duties.end(FAREWELL_SECONDS)
        with contextlib.suppress(BullpenError):
            await self._link.request(WrapperEnded(status=status), seconds=FAREWELL_SECONDS)


async def _logged(work: Coroutine[Any, Any, None], name: str) -> None:
    try:
        await work
    except Exception:  # whatever it is, the agent goes on
        logger.exception("%s failed", name)


def _plan(given: Given) -> LaunchPlan:
    """What is started, and with what."""
    from bullpen.agents.launch import plan_launch

    make_private(given.directory)
    return plan_launch(given)


def _load_duties() -> "type[Duties]":
    from bullpen.wrapper.duties import Duties

    return Duties
