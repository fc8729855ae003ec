"""The wrappers that are connected, and those that may come back.

A wrapper owns its agent's terminal and outlives us. It registers when it begins and whenever it
finds us again; between two connections its agent is still there as long as its process is.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Container
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from bullpen.agents import processes
from bullpen.agents.instances import Instances
from bullpen.agents.registry import AgentRegistry
from bullpen.api.errors import ApiError
from bullpen.api.runtime import make_private
from bullpen.api.wrapping import (
    Answered,
    Attempt,
    RegisterReply,
    RegisterWrapper,
    Said,
    StepTaken,
    WrapperEnded,
    WrapperStarted,
    WrapperState,
)
from bullpen.connection import (
    Connection,
    ConnectionClosed,
    Context,
    RemoteError,
    RequestTimeout,
    TypedRequest,
)
from bullpen.daemon.identity import IdentityBook
from bullpen.errors import BullpenError
from bullpen.mail.policy import GUEST, USER
from bullpen.model.dialogs import Dialog
from bullpen.model.events import SESSION_ENDED, activity_event
from bullpen.model.observations import Observation, Origin
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, SourceKind
from bullpen.observe.wrapped import wrapped_key

__all__ = ["Wrapper", "Wrappers", "sighting"]

logger = logging.getLogger("bullpen.daemon")

R = TypeVar("R")

ANSWER_SECONDS = 5.0
RETURN_SECONDS = 60.0  # a wrapper that lost us comes back within a few
LONGEST_NAME = 64
LONGEST_TITLE = 1000  # characters of what a wrapper says of a screen; it is kept, and shown
LONGEST_DIALOG = 4000
MOST_ANSWERS = 50
OUR_NAMES = frozenset({USER, GUEST, "bullpen", "mailbox", "all"})


class Wrapper:
    """One wrapped agent."""

    def __init__(self, name: str, said: RegisterWrapper, connection: Connection) -> None:
        self.name = name
        self.said = said
        self.connection = connection
        self.doors: dict[str, Any] = dict(said.doors)
        self.pid = 0
        self.tty = ""
        self.state = WrapperState(activity=Activity.STARTING, status="STARTING")
        self.has_ended = False
        self.sessions: set[str] = set()
        """The keys of its program's sessions, as far as they were told."""
        self.exact: Activity | None = None
        """What its program's own server says it is doing, if it has one."""
        self.was_ready = bool(said.secret)
        """Whether a message could ever be typed, as far as is known."""
        self.is_told_late = False
        self._lost_at = 0.0
        self._started_at: float | None = None
        connection.on_close(self._lose)

    def _lose(self, _: BaseException | None) -> None:
        self._lost_at = time.monotonic()

    @property
    def activity(self) -> Activity:
        """What its program is doing."""
        return self.exact or self.state.activity

    def note_start(self) -> None:
        """Learn that its program runs."""
        if self._started_at is None:
            self._started_at = time.monotonic()

    def is_late(self, seconds: float) -> bool:
        """Whether its program runs for so long and was never ready."""
        if self.was_ready or self._started_at is None:
            return False
        return time.monotonic() - self._started_at >= seconds

    @property
    def is_connected(self) -> bool:
        """Whether it can be asked now."""
        return not self.connection.is_closed

    @property
    def is_there(self) -> bool:
        """Whether its agent is, as far as can be known: it may be just about to come back."""
        if self.has_ended or self.is_connected:
            return not self.has_ended
        is_late = time.monotonic() - self._lost_at > RETURN_SECONDS  # its number may be another's
        return not is_late and _is_alive(self.said.wrapper_pid)

    async def ask(self, request: TypedRequest[R], *, seconds: float = ANSWER_SECONDS) -> R:
        """Ask it something.

        Raises:
            ApiError: it does not answer, or not now.
        """
        try:
            return await self.connection.request(request, timeout=seconds)
        except (ConnectionClosed, RequestTimeout, RemoteError) as error:
            raise ApiError(
                Reason.AGENT_UNREACHABLE,
                f"the wrapper of {self.name} does not answer: {error}",
                agent_id=self.name,
            ) from error


class Wrappers:
    """All wrapped agents, by their names."""

    def __init__(
        self,
        identities: IdentityBook,
        directory: Path,
        *,
        is_taken: Callable[[str], Awaitable[bool]],
        on_change: Callable[[Wrapper], None],
        on_new: Callable[[Wrapper], Awaitable[None]],
        on_attempts: Callable[[Wrapper, tuple[Attempt, ...]], Awaitable[None]],
        on_step: Callable[[Wrapper, StepTaken], Awaitable[None]],
        on_said: Callable[[Wrapper, Said], None],
        on_answered: Callable[[Wrapper, Answered], Awaitable[None]],
        on_dialog: Callable[[Wrapper], None] = lambda _: None,
    ) -> None:
        self._identities = identities
        self._directory = directory
        self._is_taken = is_taken
        self._on_change = on_change
        self._on_new = on_new
        self._on_attempts = on_attempts
        self._on_step = on_step
        self._on_said = on_said
        self._on_answered = on_answered
        self._on_dialog = on_dialog
        self._known: dict[str, Wrapper] = {}
        self._registering = asyncio.Lock()
        self._has_cleaned = False

    def find(self, name: str) -> Wrapper | None:
        """Return the wrapper of an agent that is there."""
        found = self._known.get(name)
        return found if found is not None and found.is_there else None

    def all(self) -> tuple[Wrapper, ...]:
        """Return those whose agents are there."""
        return tuple(each for each in self._known.values() if each.is_there)

    async def forget_dead(self) -> tuple[Wrapper, ...]:
        """Let go of wrappers that ended without a word; return them."""
        dead = [each for each in tuple(self._known.values()) if await self._is_dead(each)]
        for each in dead:
            each.has_ended = True
        if dead or not self._has_cleaned:
            await self._clean()
        return tuple(dead)

    async def _clean(self) -> None:
        """Take away what those have left who were killed, now or while there was no daemon."""
        async with self._registering:  # nobody is given one of their directories meanwhile
            try:
                await asyncio.to_thread(_bury, self._directory, {each.name for each in self.all()})
            except (BullpenError, OSError) as error:
                logger.warning("what killed wrappers have left stays: %s", error)
                return
        self._has_cleaned = True

    async def _is_dead(self, wrapper: Wrapper) -> bool:
        """Whether a wrapper is gone and has not said so: also if nobody has buried it yet."""
        if wrapper.has_ended or wrapper.is_connected:
            return False
        if not wrapper.is_there:
            return True
        return not await asyncio.to_thread(processes.is_running, wrapper.said.wrapper_pid)

    async def lose(self, name: str) -> None:
        """Let an agent that has gone without a word speak for itself no more, unless it returns."""
        await self._identities.end(name, is_lost=True)
        self._known.pop(name, None)

    # ------------------------------------------------------------------------------- what they say

    async def register(self, request: RegisterWrapper, context: Context) -> RegisterReply:
        """Take an agent in, or back. Only who was not told to have ended comes back."""
        async with self._registering:  # two may want the same name
            if request.secret:
                identity = await self._identities.revive(request.secret)
                name, secret = identity.name, request.secret
            else:
                name = await self._free_name(request.name or request.profile)
                secret = await self._identities.mint(name, request.provider, request.profile)
            directory = self._directory / name
            await asyncio.to_thread(make_private, directory)
            before = self._known.get(name) if request.secret else None
            wrapper = Wrapper(name, request, context.connection)
            if before is not None:
                wrapper.pid, wrapper.tty, wrapper.state = before.pid, before.tty, before.state
                wrapper.sessions = before.sessions
            self._known[name] = wrapper
        context.connection.on_close(lambda _: self._lost(wrapper))
        what = (name, request.profile, request.wrapper_pid)
        if request.secret:
            logger.warning("%s has connected again: %s (wrapper %d)", *what)
            await self._on_attempts(wrapper, request.attempts)
        else:
            logger.info("%s is %s (wrapper %d)", *what)
            await self._on_new(wrapper)
        self._on_change(wrapper)
        return RegisterReply(name=name, secret=secret, directory=str(directory))

    def _lost(self, wrapper: Wrapper) -> None:
        if not wrapper.has_ended:
            logger.warning("the connection with the wrapper of %s is lost", wrapper.name)
        self._on_change(wrapper)

    async def _free_name(self, wanted: str) -> str:
        if not _is_name(wanted):
            raise ApiError(
                Reason.INVALID_MESSAGE,
                f"{wanted!r} is no name for an agent: letters, digits, `-`, `_` and `.`, at most "
                f"{LONGEST_NAME}, and none of {', '.join(sorted(OUR_NAMES))}",
            )
        if not await self._is_held(wanted):
            return wanted
        number = 2
        while await self._is_held(f"{wanted}-{number}"):
            number += 1
        return f"{wanted}-{number}"

    async def _is_held(self, name: str) -> bool:
        # A name is one of directories, too, in which some systems know no upper case.
        for wrapper in [each for each in self.all() if each.name.lower() == name.lower()]:
            if not await self._is_dead(wrapper):
                return True
        return await self._is_taken(name)

    def started(self, request: WrapperStarted, context: Context) -> bool:
        """Take that the program runs."""
        wrapper = self._of(context)
        wrapper.pid, wrapper.tty = request.pid, request.tty
        wrapper.note_start()
        wrapper.doors.update(request.doors)
        self._on_change(wrapper)
        return True

    def state(self, told: WrapperState, context: Context) -> None:
        """Take what the program is doing."""
        wrapper = self._of(context)
        asked, wrapper.was_ready = wrapper.state.dialog, wrapper.was_ready or told.is_ready
        wrapper.state = WrapperState(
            activity=told.activity,
            status=told.status[:LONGEST_TITLE],
            is_ready=told.is_ready,
            prompt=told.prompt[:LONGEST_TITLE],
            why=told.why[:LONGEST_TITLE],
            title=told.title[:LONGEST_TITLE],
            output_end=told.output_end,
            dialog=_modest(told.dialog),
        )
        self._on_change(wrapper)
        if asked != wrapper.state.dialog:
            self._on_dialog(wrapper)

    async def step(self, told: StepTaken, context: Context) -> None:
        """Take a step of typing a message."""
        await self._on_step(self._of(context), told)

    async def said(self, told: Said, context: Context) -> None:
        """Take a piece of what a program says."""
        self._on_said(self._of(context), told)

    async def answered(self, request: Answered, context: Context) -> bool:
        """Take the end of a turn."""
        await self._on_answered(self._of(context), request)
        return True

    async def ended(self, request: WrapperEnded, context: Context) -> bool:
        """Take that the program has ended."""
        wrapper = self._of(context)
        wrapper.has_ended = True
        logger.info("%s has ended with %d", wrapper.name, request.status)
        await self._identities.end(wrapper.name)
        self._on_change(wrapper)
        return True

    def _of(self, context: Context) -> Wrapper:
        for wrapper in self._known.values():
            if wrapper.connection is context.connection:
                return wrapper
        raise ApiError(Reason.IDENTITY_UNKNOWN, "nobody has registered on this connection")


def _bury(directory: Path, living: Container[str]) -> None:
    """Remove the files, sockets and entries in the registry of wrappers whose process is gone."""
    instances = Instances(directory)
    for each in instances.clean():
        logger.info("what the wrapper of %s (pid %d) has left is removed", each.name, each.pid)
        AgentRegistry(instances=instances).unregister(each.agent_id, pid=each.pid)
        if each.name not in living:
            shutil.rmtree(directory / each.name, ignore_errors=True)


def sighting(wrapper: Wrapper, event_id: str, now: datetime) -> Observation:
    """Return what a wrapper says of its agent, as an observation."""
    is_there = wrapper.is_there
    return Observation(
        event_id=event_id,
        provider=wrapper.said.provider,
        source_kind=SourceKind.PTY,
        tier=SourceKind.PTY.tier,
        observed_at=now,
        session_key=wrapped_key(wrapper.name),
        event_type=activity_event(wrapper.activity) if is_there else SESSION_ENDED,
        source_event_id=event_id,
        payload={"title": wrapper.state.title, "message": wrapper.state.why},
        origin=Origin(
            pid=wrapper.pid,
            tty=wrapper.tty,
            cwd=wrapper.said.cwd,
            tmux_pane=wrapper.said.tmux_pane,
            tmux_socket=wrapper.said.tmux.rsplit(",", 2)[0],
        ),
    )


def _modest(dialog: Dialog | None) -> Dialog | None:
    """Return what is asked, no longer than anybody needs it."""
    if dialog is None:
        return None
    return Dialog(
        id=dialog.id[:LONGEST_NAME],
        text=dialog.text[:LONGEST_DIALOG],
        answers=tuple(each[:LONGEST_TITLE] for each in dialog.answers[:MOST_ANSWERS]),
    )


def _is_name(name: str) -> bool:
    return (
        0 < len(name) <= LONGEST_NAME
        and name[0].isalnum()
        and all(each.isalnum() or each in "-_." for each in name)
        and name.lower() not in OUR_NAMES
    )


def _is_alive(pid: int) -> bool:
    with contextlib.suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
    return pid > 0
