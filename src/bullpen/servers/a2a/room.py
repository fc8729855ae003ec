"""What A2A peers see of the daemon, and do through it, each in their own name.

    async with Room.open(open_client) as room:
        task = await room.send(caller, "codex", "review this")
        async for told in room.watch(task.id): ...

Whoever asks is a `Caller`: somebody unknown on this machine, the holder of a token, or an agent
that showed its secret. The daemon takes none of them for the user. What a caller may do at all is
told by its scopes, and asked here; whose task it is, and the rules of the room, by the daemon.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol, TypeVar

import msgspec

from bullpen.api import external, talk
from bullpen.api.client import Client
from bullpen.api.errors import ApiError, DaemonUnavailable, reason_of
from bullpen.api.outputs import Output
from bullpen.api.settings import A2aSettings
from bullpen.connection import RpcError, TypedRequest
from bullpen.model.external import ExternalAgent
from bullpen.model.messages import Priority
from bullpen.model.reasons import Reason
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.a2a.watchers import Watcher

__all__ = ["ANONYMOUS", "PEER", "Caller", "OpenClient", "Output", "Room", "Scope"]

PEER = "a2a"
"""The name of a peer that has none; that of one with a token is `a2a:` and the token's."""

T = TypeVar("T")

MARGIN_SECONDS = 5.0  # beyond what the daemon was asked to wait at most
SEND_SECONDS = 30.0
ANSWER_SECONDS = 180.0  # for a dialog that is answered key by key; it takes a moment


class OpenClient(Protocol):
    """Opens a way to the daemon in the name of a peer; `is_boss` if it may control agents."""

    def __call__(
        self, pid: int, *, peer: str = "", is_boss: bool = False
    ) -> AbstractAsyncContextManager[Client]: ...


class Scope(StrEnum):
    """What somebody may do."""

    READ = "read"
    SEND = "send"
    CONTROL = "control"
    """Interrupt agents, and cancel what others asked for."""


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks."""

    name: str = PEER
    scopes: frozenset[Scope] = frozenset({Scope.READ, Scope.SEND})
    secret: str = ""
    """An agent's, which then speaks for itself."""

    def require(self, scope: Scope) -> None:
        """See that the caller may do something.

        Raises:
            ApiError: he may not (`NOT_PERMITTED`).
        """
        if scope not in self.scopes:
            raise ApiError(
                Reason.NOT_PERMITTED,
                f"{self.name} may not {scope}: a token with that scope is needed",
                agent_id=self.name,
                needed=scope.value,
            )


ANONYMOUS = Caller()
"""Somebody on this machine, under our own user."""


class Room:
    """The daemon, for A2A peers. Made by `open`.

    Whatever the daemon refuses comes as an `RpcError`, whose reason `reason_of` tells; that it does
    not answer, as `DaemonUnavailable` or `RequestTimeout`.
    """

    def __init__(
        self, open_client: OpenClient, group: asyncio.TaskGroup, settings: A2aSettings
    ) -> None:
        self.settings = settings
        self._open_client = open_client
        self._group = group
        self._clients: dict[tuple[str, bool], asyncio.Future[Client]] = {}
        self._work: set[asyncio.Task[None]] = set()
        self._watchers: dict[str, set[Watcher]] = {}
        self._parts: dict[Callable[[Room], Any], Any] = {}
        self._is_over = False

    @classmethod
    @asynccontextmanager
    async def open(
        cls, open_client: OpenClient, settings: A2aSettings | None = None
    ) -> AsyncIterator["Room"]:
        """Be in the room for a block."""
        async with asyncio.TaskGroup() as group:
            room = cls(open_client, group, settings or A2aSettings())
            try:
                yield room
            finally:
                room._close()

    async def ask(self, request: TypedRequest[T]) -> T:
        """Ask the daemon for something in the name of the server itself."""
        client = await self._client()
        return await client.request(request)

    def part(self, make: "Callable[[Room], T]") -> T:
        """Return what a room has one of, made when it is first asked for."""
        if make not in self._parts:
            self._parts[make] = make(self)
        found: T = self._parts[make]
        return found

    # -------------------------------------------------------------------------------------- agents

    async def contacts(self) -> tuple[talk.Contact, ...]:
        """Return everybody who can be written to."""
        client = await self._client()
        return await client.request(talk.ListContacts())

    async def contact(self, agent: str, *, counts: bool = False) -> talk.Contact | None:
        """Return one of them, by name; what waits for it is counted only if that is wanted."""
        client = await self._client()
        found = await client.request(talk.ListContacts(name=agent, counts=counts))
        return next((each for each in found if each.name == agent), None)

    async def output(self, agent: str, *, limit: int = 10_000) -> talk.ReadOutputReply:
        """Return the newest output of a wrapped agent."""
        client = await self._client()
        return await client.request(talk.ReadOutput(agent=agent, limit=limit))

    async def interrupt(self, caller: Caller, agent: str) -> None:
        """Interrupt what an agent is doing."""
        caller.require(Scope.CONTROL)
        client = await self._client(caller)
        await client.request(talk.InterruptAgent(agent=agent, secret=caller.secret))

    async def answer(self, caller: Caller, agent: str, text: str, dialog_id: str = "") -> None:
        """Answer what an agent asks its user, in the caller's name, if it still asks just that.

        Whether the caller may is asked of the daemon too: a peer never may.
        """
        caller.require(Scope.CONTROL)
        client = await self._client(caller)
        request = talk.AnswerAgent(
            agent=agent, text=text, dialog_id=dialog_id, secret=caller.secret
        )
        await client.request(request, timeout=ANSWER_SECONDS)

    async def external(self) -> tuple[ExternalAgent, ...]:
        """Return the agents elsewhere that were added."""
        client = await self._client()
        return await client.request(external.ListExternal())

    async def discover(self, caller: Caller, url: str, alias: str | None = None) -> ExternalAgent:
        """Add an agent elsewhere by its card; who may not control adds those of this machine."""
        caller.require(Scope.SEND)
        client = await self._client(caller)
        request = external.DiscoverAgent(url, alias, caller.secret)
        return await client.request(request, timeout=external.DISCOVER_SECONDS)

    async def remove_external(self, caller: Caller, alias: str) -> bool:
        """Forget an agent elsewhere, if the caller may add it; return whether it was known."""
        caller.require(Scope.SEND)
        client = await self._client(caller)
        return await client.request(external.RemoveExternal(alias, caller.secret))

    async def whose(self, secret: str) -> str | None:
        """Return which agent was given a secret; None if none that is here was."""
        client = await self._client()
        try:
            return (await client.request(talk.WhoAmI(secret=secret))).name if secret else None
        except RpcError:
            return None

    # --------------------------------------------------------------------------------------- tasks

    async def send(
        self,
        caller: Caller,
        agent: str,
        text: str,
        *,
        priority: Priority = Priority.NORMAL,
        metadata: Mapping[str, Any] | None = None,
        reply_to: str | None = None,
        idempotency_key: str | None = None,
        message_id: str | None = None,
    ) -> Task:
        """Ask an agent for something; return the task, which is kept when this returns.

        `reply_to` is a task, or message, that it goes on from: it has the same context then. With
        an idempotency key that the caller used before, it is the task that was made then. What
        stands in `metadata` is in `task.message.metadata.extra` later.
        """
        caller.require(Scope.SEND)
        client = await self._client(caller)
        request = talk.SendMessage(
            to=agent,
            content=text,
            metadata={**(metadata or {}), "priority": priority.value},
            reply_to=reply_to,
            idempotency_key=idempotency_key,
            id=message_id,
            secret=caller.secret,
        )
        sent = await client.request(request, timeout=SEND_SECONDS)
        if reply_to is not None or not sent.is_new:
            return await self.task(sent.message.id)
        [delivery, *_] = sent.deliveries
        return Task(
            id=sent.message.id,
            context_id=sent.message.id,
            state=TaskState.SUBMITTED,
            receipt=delivery.state,
            sender=sent.message.from_agent,
            recipient=delivery.recipient,
            message=sent.message,
            created_at=delivery.accepted_at,
            updated_at=delivery.accepted_at,
        )

    async def task(self, task_id: str) -> Task:
        """Return a task, by its whole id.

        Raises:
            ApiError: there is none (`MESSAGE_NOT_FOUND`).
        """
        client = await self._client()
        found = await client.request(talk.GetTask(task_id=task_id))
        if found.id != task_id:
            raise ApiError(Reason.MESSAGE_NOT_FOUND, f"there is no task {task_id}")
        return found

    async def find_task(self, task_id: str) -> Task | None:
        """Return a task, by its whole id; None if there is none."""
        try:
            return await self.task(task_id)
        except RpcError as error:
            if reason_of(error) == Reason.MESSAGE_NOT_FOUND.word:
                return None
            raise

    async def tasks(
        self,
        *,
        agent: str | None = None,
        sender: str | None = None,
        state: TaskState | None = None,
        context_id: str | None = None,
        before: datetime | None = None,
        limit: int = 50,
    ) -> tuple[Task, ...]:
        """Return tasks, the newest first."""
        client = await self._client()
        request = talk.ListTasks(
            recipient=agent,
            sender=sender,
            state=state,
            context_id=context_id,
            before=before,
            limit=limit,
        )
        return await client.request(request)

    async def cancel(self, caller: Caller, task_id: str) -> Task:
        """End a task; somebody else's only if the caller may control."""
        caller.require(Scope.SEND)
        client = await self._client(caller)
        task = await self.task(task_id)
        return await client.request(talk.CancelTask(task_id=task.id, secret=caller.secret))

    async def wait(self, task_id: str, *, seconds: float) -> Task:
        """Return a task when it is over, or as it is after so many seconds."""
        client = await self._client()
        request = talk.WaitMessage(message_id=task_id, until="ended", timeout_seconds=seconds)
        await client.request(request, timeout=seconds + MARGIN_SECONDS)
        return await self.task(task_id)

    # ------------------------------------------------------------------------------------ watching

    async def watch(self, task_id: str) -> AsyncGenerator[Task | Output, None]:
        """Yield a task, by its whole id, as it is, and then what its agent says and each change.

        It ends after a task that is over has been yielded. What the agent says is told from its
        beginning, each of it once; who reads slowly is told more at a time, and how things stand
        instead of each change. To be closed by who leaves it early.

        Raises:
            ApiError: there is no such task (`MESSAGE_NOT_FOUND`).
            DaemonUnavailable: it is gone.
        """
        watcher = Watcher()
        watchers = self._watchers.setdefault(task_id, set())
        watchers.add(watcher)
        try:
            client = await self._client()
            # Each who begins is told first how it is: so nothing falls between that and the watch.
            await client.request(talk.WatchTasks(task_ids=(task_id,)))
            last: Task | None = None
            while True:
                told = await watcher.take()
                if told == last:
                    continue
                yield told
                if isinstance(told, Task):
                    last = told
                    if told.state.is_over:
                        return
        finally:
            watchers.discard(watcher)
            if not watchers and self._watchers.get(task_id) is watchers:
                del self._watchers[task_id]
                self._unwatch(task_id)

    def end_watching(self) -> None:
        """Tell all who watch that nothing more will come."""
        for watcher in [each for some in self._watchers.values() for each in some]:
            watcher.end()

    def _unwatch(self, task_id: str) -> None:
        """Have the daemon told that nobody watches any more, by somebody who can wait for it."""

        async def tell() -> None:
            with contextlib.suppress(RpcError, DaemonUnavailable):
                if task_id not in self._watchers:
                    client = await self._client()
                    await client.request(talk.WatchTasks(task_ids=(task_id,), watch=False))

        found = self._clients.get((PEER, False))
        if found is not None and found.done() and not found.cancelled() and not self._is_over:
            self.begin(tell())

    def _hear(self, told: talk.TaskChanged | talk.TaskOutput) -> None:
        if isinstance(told, talk.TaskChanged):
            for watcher in self._watchers.get(told.task.id, ()):
                watcher.put(told.task)
        else:
            for watcher in self._watchers.get(told.task_id, ()):
                watcher.hear(told)

    # ------------------------------------------------------------------------------------- clients

    async def _client(self, caller: Caller = ANONYMOUS) -> Client:
        """Return the way to the daemon in a caller's name, which is kept open."""
        is_boss = Scope.CONTROL in caller.scopes and not caller.secret
        name = PEER if caller.secret else caller.name
        found = self._clients.get((name, is_boss))
        if found is None:
            found = self._clients[name, is_boss] = asyncio.get_running_loop().create_future()
            self.begin(self._hold(found, name, is_boss))
        return await asyncio.shield(found)

    async def _hold(self, opened: "asyncio.Future[Client]", name: str, is_boss: bool) -> None:
        try:
            async with self._open_client(0, peer=name, is_boss=is_boss) as client:
                if (name, is_boss) == (PEER, False):
                    client.on_task(self._hear)
                opened.set_result(client)
                await client.wait_closed()
        except (DaemonUnavailable, RpcError) as error:
            if not opened.done():
                opened.set_exception(error)
        finally:
            self._clients.pop((name, is_boss), None)
            if not opened.done():
                opened.cancel()
            self.end_watching()

    def begin(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Have something done that is not waited for. It ends with the room, and raises nothing."""
        task = self._group.create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        return task

    def _close(self) -> None:
        self._is_over = True
        for task in tuple(self._work):
            task.cancel()
        self.end_watching()
