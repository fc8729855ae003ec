"""A room with agents that only pretend, behind the api, and the MCP server in front of it."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from bullpen.api import methods, talk
from bullpen.api.client import Client
from bullpen.api.errors import ApiError
from bullpen.api.runtime import Paths, prepare
from bullpen.api.settings import MailSettings, McpSettings, Settings
from bullpen.connection import Builder, Connection, Context, RpcError, channel_pair
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.messages import Message, MessageMetadata, MessageType, Priority
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity, Provider
from bullpen.model.tasks import Task, TaskState
from bullpen.servers.mcp import serve

SECONDS = 30.0  # a hang, on however busy a machine
TASK_SECONDS = 30
LINE_LIMIT = 32 * 2**20
NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)

SECRETS = {"secret-of-boss": "grand_boss", "secret-of-manager": "middle_manager"}


class Room:
    """What the daemon would do, as far as the tools need it.

    `middle_manager` answers at once, `silent` never, `broken` fails, `nobody_home` is given up,
    `slow` answers when `gate` is set, and `flooded` is full.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.pids: list[int] = []
        self.waiting = asyncio.Event()
        self.gate = asyncio.Event()
        self._numbers = itertools.count(1)
        self.messages: dict[str, Message] = {}
        self.replies: dict[str, Message] = {}

    @asynccontextmanager
    async def open_client(self, pid: int) -> AsyncIterator[Client]:
        self.pids.append(pid)
        here, there = channel_pair()
        async with self.builder.connect(there), Client.over(here) as client:
            yield client

    @property
    def builder(self) -> Builder:
        builder = Connection.builder().name("room")
        handlers: dict[type[Any], Any] = {
            methods.GetInfo: self._info,
            methods.Report: self._report,
            talk.WhoAmI: self._who,
            talk.ListContacts: self._contacts,
            talk.SendMessage: self._send,
            talk.ReplyMessage: self._reply,
            talk.WaitMessage: self._wait,
            talk.ReadInbox: self._inbox,
            talk.GetTask: self._task,
            talk.ListTasks: self._tasks,
            talk.CancelTask: self._task,
        }
        for kind, handler in handlers.items():
            builder = builder.on_request(kind, self._noting(handler))
        return builder

    def asked(self, kind: type) -> list[Any]:
        return [each for each in self.requests if isinstance(each, kind)]

    def _noting(self, handler: Callable[[Any], Any]) -> Any:
        async def note(request: Any, _: Context) -> Any:
            self.requests.append(request)
            outcome = handler(request)
            return await outcome if asyncio.iscoroutine(outcome) else outcome

        return note

    def _info(self, _: Any) -> methods.DaemonInfo:
        return methods.DaemonInfo(
            pid=1,
            version="0",
            protocol_version=methods.PROTOCOL_VERSION,
            nonce="n",
            started_at=NOW,
            socket_path="",
            state_path="",
            log_path="",
        )

    def _name(self, secret: str) -> str:
        if not secret:
            return "user"
        if secret not in SECRETS:
            raise ApiError(Reason.IDENTITY_UNKNOWN, "nobody was given this secret")
        return SECRETS[secret]

    def _who(self, request: talk.WhoAmI) -> talk.Identify:
        name = self._name(request.secret)
        return talk.Identify(name=name, authority="human" if name == "user" else "peer")

    def _contacts(self, _: Any) -> tuple[talk.Contact, ...]:
        return tuple(
            talk.Contact(name=each, provider=Provider.CLAUDE, activity=Activity.IDLE, status="IDLE")
            for each in ("grand_boss", "middle_manager", "silent")
        )

    def _send(self, request: talk.SendMessage) -> talk.SendReply:
        sender = self._name(request.secret)
        match request.to:
            case "ghost":
                raise ApiError(Reason.AGENT_NOT_FOUND, "there is no agent 'ghost'")
            case "flooded":
                raise ApiError(
                    Reason.RATE_LIMITED, "too much", agent_id=sender, retry_after_seconds=2.5
                )
            case "specialist":
                raise ApiError(Reason.RECIPIENT_NOT_ALLOWED, "you may not write to specialist")
            case "crash":
                raise ValueError("no such luck")
            case "old_daemon":
                raise RpcError(-32601, "Method not found: mail.send")
        if len(request.content) > 2**20:
            raise ApiError(Reason.MESSAGE_TOO_LARGE, "it has too many bytes")
        metadata = {key: request.metadata[key] for key in ("ttl",) if key in request.metadata}
        message = Message(
            id=request.id or f"m-{next(self._numbers)}",
            from_agent=sender,
            to_agent=request.to,
            type=request.type,
            content=request.content,
            thinking=request.thinking,
            metadata=MessageMetadata(
                priority=Priority(request.metadata.get("priority", "normal")), **metadata
            ),
            timestamp=NOW,
        )
        self.messages[message.id] = message
        return talk.SendReply(message, (_delivery(message, ReceiptState.QUEUED),))

    async def _wait(self, request: talk.WaitMessage) -> talk.WaitMessageReply:
        message = self.messages[request.message_id]
        state, outcome, reply, reason = ReceiptState.ANSWERED, "reached", None, ""
        match message.to_agent:
            case "silent":
                self.waiting.set()
                if request.timeout_seconds is None or request.timeout_seconds > 5:
                    await asyncio.Event().wait()
                state, outcome = ReceiptState.SEEN, "timeout"
            case "broken":
                state, outcome, reason = ReceiptState.FAILED, "ended", "its screen shows an error"
            case "nobody_home":
                state, outcome, reason = ReceiptState.DEAD, "ended", "tried 5 times"
            case "late":
                state, outcome, reason = ReceiptState.EXPIRED, "ended", "nobody took it"
            case who:
                if who == "slow":
                    self.waiting.set()
                    await self.gate.wait()
                kind = MessageType.TASK_RESPONSE
                if message.type is MessageType.PING:
                    kind = MessageType.PONG
                elif who == "refusing":
                    kind = MessageType.TASK_FAILED
                reply = Message(
                    id=f"r-{message.id}",
                    from_agent=who,
                    to_agent=message.from_agent,
                    type=kind,
                    content=f"{who}: {message.content}",
                    thinking="簡単です" if who == "middle_manager" else None,
                    timestamp=NOW,
                    reply_to=message.id,
                )
        return talk.WaitMessageReply(
            outcome=outcome,
            deliveries=(_delivery(message, state),),
            reply=reply,
            reason=reason,
            timeout_seconds=request.timeout_seconds or TASK_SECONDS,
            agent_id=message.to_agent,
        )

    def _reply(self, request: talk.ReplyMessage) -> talk.SendReply:
        message = Message(
            id=f"m-{next(self._numbers)}",
            from_agent=self._name(request.secret),
            to_agent="grand_boss",
            type=request.type,
            content=request.content,
            timestamp=NOW,
            reply_to=request.to_message or "m-current",
        )
        return talk.SendReply(message, (_delivery(message, ReceiptState.QUEUED),))

    def _inbox(self, request: talk.ReadInbox) -> talk.InboxReply:
        name = self._name(request.secret)
        mine = [each for each in self.messages.values() if each.to_agent == name]
        shown = mine[: request.limit]
        return talk.InboxReply(
            tuple(_delivery(each, ReceiptState.SEEN) for each in shown), len(mine) - len(shown)
        )

    def _task(self, request: Any) -> Task:
        message = self.messages.get(request.task_id)
        if message is None:
            raise ApiError(Reason.MESSAGE_NOT_FOUND, f"there is no message {request.task_id}")
        is_cancelled = isinstance(request, talk.CancelTask)
        return Task(
            id=message.id,
            context_id="c",
            state=TaskState.CANCELED if is_cancelled else TaskState.WORKING,
            receipt=ReceiptState.SEEN,
            sender=message.from_agent,
            recipient=message.to_agent,
            message=message,
            created_at=NOW,
            updated_at=NOW,
        )

    def _tasks(self, request: talk.ListTasks) -> tuple[Task, ...]:
        return tuple(
            self._task(talk.GetTask(each.id))
            for each in self.messages.values()
            if each.from_agent == request.sender
        )

    def _report(self, request: methods.Report) -> methods.IngestReply:
        return methods.IngestReply(accepted=1)


def _delivery(message: Message, state: ReceiptState) -> Delivery:
    return Delivery(
        number=1,
        message=message,
        recipient=message.to_agent,
        state=state,
        accepted_at=NOW,
        available_at=NOW,
    )


class Served(NamedTuple):
    """A room that is served."""

    room: Room
    paths: Paths


@asynccontextmanager
async def served(
    room: Room | None = None,
    *,
    mail: dict[str, Any] | None = None,
    **mcp: Any,
) -> AsyncIterator[Served]:
    """Serve a room at the usual place."""
    paths = Paths.resolve()
    await asyncio.to_thread(prepare, paths)
    room = room or Room()
    settings = Settings(mcp=McpSettings(**mcp), mail=MailSettings(**(mail or {})))
    serving = asyncio.create_task(serve(room.open_client, paths, settings, look_seconds=0.05))
    try:
        await there(paths.mcp_socket)
        yield Served(room, paths)
    finally:
        serving.cancel()
        await asyncio.wait([serving])
        assert serving.cancelled(), serving


async def there(path: Path) -> None:
    """Wait for a socket that somebody serves."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(str(path))
            except OSError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            await writer.wait_closed()
            return


class RawPeer:
    """One who writes lines to the socket, and reads what comes back."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def write(self, *lines: Any) -> None:
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode()
            self.writer.write(data + b"\n")

    async def read(self) -> Any:
        async with asyncio.timeout(SECONDS):
            line = await self.reader.readline()
        assert line, "the server has hung up"
        return json.loads(line)

    async def exchange(self, line: Any) -> Any:
        """Send one line; return the one that comes back."""
        self.write(line)
        return await self.read()

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> Any:
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params
        answer = await self.exchange(message)
        assert answer["id"] == id
        assert type(answer["id"]) is type(id)
        assert ("result" in answer) is not ("error" in answer)
        return answer

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.ask("tools/call", {"name": name, "arguments": arguments})


@asynccontextmanager
async def raw_peer(paths: Paths, secret: str | None = None) -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_unix_connection(str(paths.mcp_socket), limit=LINE_LIMIT)
    peer = RawPeer(reader, writer)
    if secret is not None:
        peer.write({"jsonrpc": "2.0", "method": "bullpen/hello", "params": {"secret": secret}})
    try:
        yield peer
    finally:
        writer.close()
        await writer.wait_closed()
