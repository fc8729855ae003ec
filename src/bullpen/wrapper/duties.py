"""What a wrapper does once its program runs: watch it, type to it, follow it, serve who attaches.

Loaded while the program starts, which it need not wait for.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec

from bullpen.api.wrapping import WrapperState
from bullpen.errors import BullpenError
from bullpen.terminal.line_discipline import SUSPEND_KEY
from bullpen.terminal.pty import PtyClosed
from bullpen.wrapper.addressing import Addressing
from bullpen.wrapper.answering import Answering
from bullpen.wrapper.attach import Attachments
from bullpen.wrapper.attempts import AttemptBook
from bullpen.wrapper.following import Follower
from bullpen.wrapper.injecting import Injector
from bullpen.wrapper.link import Link
from bullpen.wrapper.options import WrapperOptions
from bullpen.wrapper.presence import Presence
from bullpen.wrapper.reading import LineReader, ScreenReader
from bullpen.wrapper.showing import Notices
from bullpen.wrapper.status import LineStatus, compile_idle
from bullpen.wrapper.terminal import AgentTerminal
from bullpen.wrapper.user_terminal import UserTerminal
from bullpen.wrapper.watching import Watch

__all__ = ["Duties"]

logger = logging.getLogger("bullpen.wrapper")

STATUS_SECONDS = 0.2  # between two changes of the registry


class Duties:
    """All that is done beside passing bytes on. `run` does it, `end` is told of the program's."""

    def __init__(
        self,
        options: WrapperOptions,
        terminal: AgentTerminal,
        link: Link,
        presence: Presence,
        name: str,
    ) -> None:
        profile = options.profile
        reader: LineReader | ScreenReader
        if options.is_painted:
            reader = ScreenReader()
        else:
            status = LineStatus(compile_idle(profile.idle_regex))
            reader = LineReader(status, terminal.context, self)
        self.watch = terminal.watcher = Watch(terminal, reader)
        self.book = AttemptBook()
        self._options = options
        self._terminal = terminal
        self._link = link
        self._presence = presence
        self._follower = Follower(self.watch, link, self.book, profile.provider, options.pace)
        self.injector = self._follower.injector = Injector(
            self.watch,
            profile,
            self.book,
            pace=options.pace,
            tell=self._follower.tell,
            follow=self._follower.follow,
        )
        self.answering = Answering(self.watch, self.injector.press)
        self._notices = Notices(self.watch)
        self.addressing = Addressing(
            self.watch,
            link,
            name,
            options.paths.agent_logs / "input_router.log",
            addresses=profile.addresses,
            notice=self._notices.show,
        )
        self.addressing.injector = self.injector
        self._is_told = False  # whether the daemon there is knows what the program does
        self._work: set[asyncio.Task[None]] = set()
        self.watch.begin()
        self.watch.started()

    @property
    def has_draft(self) -> bool:
        """Whether the user has begun to write."""
        return self.addressing.has_draft

    def run(self, user: UserTerminal | None, hang_up: Callable[[], None]) -> None:
        """Do all of it, beside whoever calls this; `hang_up` is called if the user's is gone."""
        self._begin(self._load_rules(), "rules")
        self._begin(self._terminal.load(), "emulator")
        self._begin(self._follower.run(), "answers")
        self._begin(self._tell_states(), "states")
        self._begin(self._keep_status(), "status")
        self._begin(self.addressing.run(), "contacts")
        if user is not None:
            self._begin(self._take_keys(user, hang_up), "keys")

    def note_daemon(self, name: str) -> None:
        """There is a daemon: perhaps another one, that knows nothing of what was told before."""
        self.addressing.name = name
        self._is_told = False
        self.watch.pulse.beat()

    @contextlib.asynccontextmanager
    async def attachable(
        self, *, name: str, is_detached: bool, stop: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Serve those who attach, for a block; without a socket nobody can."""
        attachments = Attachments(
            self._terminal,
            self.watch,
            name=name,
            profile=self._options.profile.name,
            pid=os.getpid(),
            follows_size=is_detached,
            typed=self.addressing.type,
            interrupt=self.injector.interrupt,
            stop=stop,
        )
        async with contextlib.AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(attachments.serve(self._presence.socket))
            except BullpenError as error:
                logger.warning("nobody can attach: %s", error)
            yield

    async def end(self, seconds: float) -> None:
        """The program has ended: tell what is to be told, for so long at most."""
        self.watch.end()
        await self._follower.drain(seconds)

    async def aclose(self) -> None:
        """Do nothing more."""
        await self.injector.aclose()
        await self._follower.aclose()
        await self.addressing.aclose()
        work = list(self._work)
        for each in work:
            each.cancel()
        if work:
            await asyncio.wait(work)
        await self._notices.aclose()
        self.watch.close()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(_logged(work, name), name=name)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    # ---------------------------------------------------------------------------------- one by one

    async def _load_rules(self) -> None:
        """Get what screens are read by."""
        reader = self.watch.reader
        if isinstance(reader, ScreenReader):
            from bullpen.terminal.rules.load import load_rules

            rules = await asyncio.to_thread(
                load_rules,
                self._options.paths.rules,
                on_trouble=lambda error: logger.warning("a rule file is left out: %s", error),
            )
            reader.rules = rules.get(self._options.profile.provider)
            self.watch.look()

    async def _take_keys(self, user: UserTerminal, hang_up: Callable[[], None]) -> None:
        while data := await user.read():
            try:
                await self.addressing.type(data)
            except PtyClosed:
                return
            if SUSPEND_KEY in data and (process := self._terminal.process) is not None:
                await process.suspend()  # and us with it: see `Signals`
        hang_up()

    async def _tell_states(self) -> None:
        """Tell what the program is doing when it changes, and to who is new."""
        told: WrapperState | None = None
        while True:
            reading = self.watch.reading
            state = WrapperState(
                activity=reading.activity,
                status=reading.status,
                is_ready=reading.is_ready or self.injector.has_leftover,
                prompt=reading.prompt,
                why=reading.why,
                title=reading.title,
                dialog=self.watch.asked,
            )
            is_new = state != told or not self._is_told
            if is_new and self._link.is_open:
                end = self._terminal.context.end
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


async def _logged(work: Coroutine[Any, Any, None], name: str) -> None:
    """Do something whose failure ends nothing else."""
    try:
        await work
    except Exception:  # whatever it is, the agent goes on
        logger.exception("%s failed", name)
