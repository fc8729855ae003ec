"""One agent that serves A2A: giving it a message, and following what becomes of it.

How it is spoken to was decided by its card. Every request has a limit in time and in bytes, and an
error says whether the agent may have taken what it was asked. A redirect of a request is followed
within the same server, and not more than a few times.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final
from urllib.parse import quote, urljoin, urlsplit

from bullpen.agents.a2a.card import Binding, Card, Dialect, cut, is_address
from bullpen.agents.a2a.errors import PeerRefused, PeerUnreachable
from bullpen.agents.a2a.messages import (
    A2ATask,
    fold,
    message_body,
    read_answer,
    read_error,
)
from bullpen.agents.http import HttpAnswer, HttpError, HttpServer
from bullpen.agents.providers.values import mapping

__all__ = ["Peer"]

ANSWER_SECONDS: Final = 30.0
NOT_READY_SECONDS: Final = 10.0
"""What a message may take beyond that: some agents say only after half a minute that they are not
ready, and who hung up before does not know whether they will have it.
"""
FIRST_LOOK_SECONDS: Final = 0.1
LOOK_SECONDS: Final = 1.0
SILENCE_SECONDS: Final = 60.0
"""After so long without an event a stream is left, and the task looked at."""
LOST_SECONDS: Final = 300.0
"""So long an agent may be out of reach in the middle of a task."""
MOST_BYTES: Final = 4 * 2**20
MOST_REDIRECTS: Final = 3
MOVED: Final = frozenset({307, 308})

_METHODS: Final = {
    Dialect.V03: {
        "send": "message/send",
        "get": "tasks/get",
        "cancel": "tasks/cancel",
        "subscribe": "tasks/resubscribe",
    },
    Dialect.V10: {
        "send": "SendMessage",
        "get": "GetTask",
        "cancel": "CancelTask",
        "subscribe": "SubscribeToTask",
    },
}

Tell = Callable[[A2ATask], Awaitable[None]]


class Peer:
    """An agent, by its card."""

    def __init__(
        self,
        card: Card,
        *,
        seconds: float = ANSWER_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        lost_seconds: float = LOST_SECONDS,
        not_ready_seconds: float = NOT_READY_SECONDS,
    ) -> None:
        self.card = card
        self._not_ready_seconds = not_ready_seconds
        self._seconds = seconds
        self._look_seconds = look_seconds
        self._lost_seconds = lost_seconds
        self._headers = {"Accept": "application/json"}
        if card.dialect is Dialect.V10:
            self._headers["A2A-Version"] = "1.0"
            if card.priority_uri:
                self._headers["A2A-Extensions"] = card.priority_uri

    # ------------------------------------------------------------------------------------- asking

    async def send(
        self,
        content: str,
        *,
        message_id: str,
        sender: str = "",
        priority: int = 1,
        context_id: str = "",
        task_id: str = "",
    ) -> A2ATask:
        """Give the agent a message; return the task it made of it, which has hardly begun.

        Raises:
            PeerRefused: it said no.
            PeerUnreachable: there was no answer; the error knows whether it may have it.
        """
        is_rest = self.card.binding is Binding.REST
        body = message_body(
            self.card,
            content,
            message_id=message_id,
            sender=sender,
            priority=priority,
            context_id=context_id,
            task_id=task_id,
            is_rest=is_rest,
        )
        if self.card.binding is Binding.JSONRPC:
            return self._read(read_answer, await self._call("send", body, self._not_ready_seconds))
        path = f"{self._rest}/message:send"
        if self.card.binding is Binding.PATHS:
            path = "/tasks/send"
            if self.card.has_priorities:
                path = f"/tasks/send-priority?priority={priority}"
        return self._read(read_answer, await self._ask("POST", path, body, self._not_ready_seconds))

    async def get_task(self, task_id: str) -> A2ATask:
        """Return how a task stands. Raises as `send` does."""
        if self.card.binding is Binding.JSONRPC:
            return self._read(read_answer, await self._call("get", {"id": task_id}))
        return self._read(read_answer, await self._ask("GET", self._task_path(task_id)))

    async def cancel(self, task_id: str) -> A2ATask | None:
        """End a task; return how it stands then, if that was said. Raises as `send` does."""
        if self.card.binding is Binding.JSONRPC:
            value = await self._call("cancel", {"id": task_id})
        else:
            ending = "/cancel" if self.card.binding is Binding.PATHS else ":cancel"
            value = await self._ask("POST", f"{self._task_path(task_id)}{ending}", {})
        try:
            return read_answer(value)
        except ValueError:
            return None  # some only say that they did

    # ---------------------------------------------------------------------------------- following

    async def follow(self, task: A2ATask, tell: Tell | None = None) -> A2ATask:
        """Follow a task until it is over, or wants something; return how it stands then.

        It is told of every change on the way: as they happen if the agent streams, else as they are
        seen by a look each second.

        Raises:
            PeerRefused: the agent does not know the task, or does not let us look.
            PeerUnreachable: it was out of reach for too long.
        """
        tell = tell or _nobody
        streams = self.card.can_stream
        pause = min(FIRST_LOOK_SECONDS, self._look_seconds)
        loop = asyncio.get_running_loop()
        reached_at = loop.time()
        while not _is_settled(task):
            if streams:
                told = 0
                with contextlib.suppress(HttpError, PeerRefused, PeerUnreachable):
                    async with contextlib.aclosing(self._subscribe(task)) as changes:
                        async for each in changes:
                            task, reached_at, told = each, loop.time(), told + 1
                            await tell(task)
                streams = told > 0
                if self.card.dialect is Dialect.V03 and _is_settled(task):
                    # The SDK's server adds what it streams a second time to the task it keeps.
                    return task
                if told == 1 and not _is_settled(task):  # it does no more than that
                    await asyncio.sleep(pause)
                    pause = min(pause * 1.5, self._look_seconds)
            else:
                await asyncio.sleep(pause)
                pause = min(pause * 1.5, self._look_seconds)
            try:
                looked = await self.get_task(task.id)
            except PeerUnreachable:
                if loop.time() - reached_at > self._lost_seconds:
                    raise
                await asyncio.sleep(self._look_seconds)
                continue
            except PeerRefused as refused:
                if not refused.is_busy or loop.time() - reached_at > self._lost_seconds:
                    raise
                continue
            reached_at = loop.time()
            if looked != task:
                task = looked
                await tell(task)
        return task

    async def _subscribe(self, task: A2ATask) -> AsyncGenerator[A2ATask, None]:
        """Yield a task after each event of its stream, as long as there is one.

        Raises:
            HttpError: there is none, or it is broken.
            PeerRefused: the agent does not stream this one.
            PeerUnreachable: it cannot be asked how the task is.
        """
        if self.card.binding is Binding.JSONRPC:
            method, path, body = "POST", "", self._envelope("subscribe", {"id": task.id})
        else:
            method, path, body = "GET", f"{self._task_path(task.id)}:subscribe", None
        stream = self._server().events(
            path,
            method=method,
            body=body,
            headers={"Accept": "text/event-stream"},
            silence_seconds=SILENCE_SECONDS,
            most_bytes=4 * MOST_BYTES,
        )
        async with stream as events:
            if "event-stream" not in events.content_type.lower():
                raise HttpError(self.card.url, "this is no stream", was_sent=True)
            if self.card.dialect is Dialect.V03:
                # A stream of 1.0 begins with the task; of this one only what comes now is told.
                task = await self.get_task(task.id)
                yield task
                if _is_settled(task):
                    return
            async for event in events:
                if error := read_error(event):
                    raise PeerRefused(self.card.url, *error)
                told = mapping(event).get("result") if "result" in mapping(event) else event
                after = fold(task, told)
                if after is not None and after.id == task.id:
                    task = after
                    yield task
                if _is_settled(task):
                    return

    # --------------------------------------------------------------------------------------- wire

    @property
    def _rest(self) -> str:
        tenant = f"/{quote(self.card.tenant, safe='')}" if self.card.tenant else ""
        return "/v1" if self.card.dialect is Dialect.V03 else tenant

    def _task_path(self, task_id: str) -> str:
        path = f"/tasks/{quote(task_id, safe='')}"
        return path if self.card.binding is Binding.PATHS else f"{self._rest}{path}"

    def _envelope(self, what: str, params: dict[str, Any]) -> dict[str, Any]:
        if self.card.tenant:
            params = {"tenant": self.card.tenant, **params}
        method = _METHODS[self.card.dialect][what]
        return {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}

    async def _call(self, what: str, params: dict[str, Any], more_seconds: float = 0.0) -> Any:
        answer = mapping(await self._ask("POST", "", self._envelope(what, params), more_seconds))
        if error := read_error(answer):
            raise PeerRefused(self.card.url, *error)
        return answer.get("result")

    async def _ask(
        self, method: str, path: str, body: Any = None, more_seconds: float = 0.0
    ) -> Any:
        answer = await self._request(method, path, body, more_seconds)
        if answer.is_ok:
            return answer.value
        code, reason = read_error(answer.value) or (0, "")
        if answer.status in (408, 502, 504):  # of somebody in between
            raise PeerUnreachable(self.card.url, f"status {answer.status}", was_sent=True)
        raise PeerRefused(self.card.url, code if code < 0 else answer.status, reason)

    async def _request(self, method: str, path: str, body: Any, more_seconds: float) -> HttpAnswer:
        """Ask for something, and follow the agent within its own server."""
        url = self.card.url
        for _ in range(MOST_REDIRECTS):
            try:
                answer = await self._server(url, more_seconds).request(
                    method, path, body, most_bytes=MOST_BYTES
                )
            except HttpError as error:
                was_sent = error.was_sent
                raise PeerUnreachable(self.card.url, error.reason, was_sent=was_sent) from error
            if answer.status not in MOVED:
                return answer
            there = urljoin(url + path, answer.headers.get("location", ""))
            if not is_address(there) or urlsplit(there)[:2] != urlsplit(url)[:2]:
                raise PeerRefused(self.card.url, answer.status, "it sends us elsewhere")
            url, path = cut(there)
        raise PeerRefused(self.card.url, 310, "it sends us around in circles")

    def _server(self, url: str = "", more_seconds: float = 0.0) -> HttpServer:
        return HttpServer(
            url or self.card.url,
            headers=self._headers,
            seconds=self._seconds + more_seconds,
            keeps_out=not self.card.is_here,
        )

    def _read(self, read: Callable[[object], A2ATask], value: object) -> A2ATask:
        try:
            return read(value)
        except ValueError as error:
            raise PeerUnreachable(self.card.url, error, was_sent=True) from error


async def _nobody(_: A2ATask) -> None:
    """Be told, and do nothing about it."""


def _is_settled(task: A2ATask) -> bool:
    return task.status.is_over or task.status.wants_something
