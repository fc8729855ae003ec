"""What the tools do: each call is a request or two to the daemon, in the name of who calls.

Nothing here knows how a peer speaks. What a tool has to say is an `Answer`; what went wrong is
raised as an error that `refusals` made.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from bullpen.api import methods, talk
from bullpen.api.client import Client
from bullpen.connection import TypedRequest
from bullpen.errors import BullpenError
from bullpen.jsonrpc.errors import INVALID_PARAMS
from bullpen.model.appearance import one_line
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.mailing import delivery_words
from bullpen.model.messages import Message, MessageType
from bullpen.model.tasks import Task
from bullpen.servers.mcp import arguments as taken
from bullpen.servers.mcp.refusals import (
    AGENT_NOT_FOUND,
    CallFailed,
    UnknownTool,
    invalid_arguments,
    refusal_of,
    timed_out,
)

__all__ = ["USER", "Answer", "Caller", "Tools"]

logger = logging.getLogger("bullpen.mcp")

USER = "user"
MARGIN_SECONDS = 5.0  # beyond what the daemon was asked to wait at most
TASKS_LISTED = 20
NOT_ANSWERED = {MessageType.TASK_FAILED, MessageType.ERROR}

R = TypeVar("R")


class Caller(msgspec.Struct, frozen=True):
    """Who calls, as far as the pump can tell. Only the secret says whose word it is."""

    secret: str = ""
    pid: int = 0
    """The process of the agent."""
    cwd: str = ""
    tmux: str = ""
    tmux_pane: str = ""


class Answer(msgspec.Struct, frozen=True):
    """What a tool has to say."""

    content: str
    facts: dict[str, Any] = {}
    """The same for programs."""
    thinking: str | None = None
    is_error: bool = False


class Tools:
    """All tools, for one caller. The daemon has `send_seconds` to take what it is told."""

    def __init__(self, client: Client, caller: Caller, *, send_seconds: float) -> None:
        self._client = client
        self._caller = caller
        self._send_seconds = send_seconds

    def called_by(self, caller: Caller) -> "Tools":
        """Return the same tools for another caller."""
        return Tools(self._client, caller, send_seconds=self._send_seconds)

    async def call(self, name: object, arguments: object) -> Answer:
        """Call a tool.

        Raises:
            UnknownTool: there is none of that name.
            CallFailed: the arguments do not fit, or what was asked for could not be done.
        """
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            raise UnknownTool(name)
        kind, work = tool
        try:
            given = {} if arguments is None else arguments
            decoded = msgspec.convert(given, kind, strict=False) if kind is not None else None
        except (msgspec.ValidationError, RecursionError) as error:
            raise invalid_arguments(error) from error
        try:
            return await work(self, decoded)
        except BullpenError as error:
            raise refusal_of(error) from error
        except Exception as error:
            logger.exception("the tool %s failed", name)
            raise refusal_of(error) from error

    async def _ask(
        self, request: TypedRequest[R], agent_id: str = "", *, seconds: float, **facts: Any
    ) -> R:
        try:
            return await self._client.request(request, timeout=seconds)
        except BullpenError as error:
            raise refusal_of(error, agent_id, **facts) from error

    # --------------------------------------------------------------------------------- messages

    async def _send(self, given: taken.SendMessage) -> Answer:
        request = talk.SendMessage(
            to=given.to,
            content=given.content,
            type=given.type,
            thinking=given.thinking,
            metadata=given.all_metadata,
            reply_to=given.reply_to,
            idempotency_key=given.idempotency_key,
            awaits=given.wait and not given.is_for_many,
            secret=self._caller.secret,
        )
        sent = await self._ask(request, given.to, seconds=self._send_seconds)
        if request.awaits:
            return await self._wait(sent, given.to, given.timeout_seconds)
        return _sent(sent)

    async def _ask_user(self, given: taken.AskUser) -> Answer:
        secret = self._caller.secret
        request = talk.SendMessage(to=USER, content=given.question, awaits=True, secret=secret)
        sent = await self._ask(request, USER, seconds=self._send_seconds)
        return await self._wait(sent, USER, given.timeout_seconds)

    async def _wait(self, sent: talk.SendReply, to: str, timeout: float | None) -> Answer:
        """Wait for the answer to a message that is kept."""
        message_id = sent.message.id
        longest = taken.LONGEST_SECONDS if timeout is None else timeout
        came = await self._ask(
            talk.WaitMessage(
                message_id=message_id,
                until="answered",
                timeout_seconds=timeout,
                take=True,
                secret=self._caller.secret,
            ),
            to,
            seconds=longest + MARGIN_SECONDS,
            message_id=message_id,
        )
        state = _state(came.deliveries or sent.deliveries)
        known = {"message_id": message_id, "state": state}
        agent_id = came.agent_id or to
        if came.reply is not None:
            return _answer(came.reply, known)
        if came.outcome == "timeout":
            raise timed_out(came.timeout_seconds, agent_id, **known)
        why = came.reason or f"{agent_id} has not answered"
        if state == ReceiptState.EXPIRED:
            ttl = sent.message.metadata.ttl or 0
            raise timed_out(ttl, agent_id, f"the message has expired: {why};", **known)
        if state == ReceiptState.DEAD:
            data = {"agent_id": agent_id, "reason": why}
            raise CallFailed(AGENT_NOT_FOUND, f"{agent_id} was not reached: {why}", data, **known)
        said = {"content": "", "thinking": None, **known, "reason": why}
        return Answer(f"There is no answer from {agent_id}: {why}", said, is_error=True)

    async def _reply(self, given: taken.Reply) -> Answer:
        request = talk.ReplyMessage(
            content=given.content,
            to_message=given.message_id,
            type=given.type,
            thinking=given.thinking,
            metadata=dict(given.metadata or {}),
            secret=self._caller.secret,
        )
        sent = await self._ask(request, seconds=self._send_seconds)
        return _sent(sent)

    async def _inbox(self, given: taken.Inbox) -> Answer:
        read = await self._ask(
            talk.ReadInbox(
                take=not given.peek,
                limit=given.limit,
                timeout_seconds=given.timeout_seconds,
                secret=self._caller.secret,
            ),
            seconds=given.timeout_seconds + MARGIN_SECONDS,
        )
        lines = [_message_lines(each.message) for each in read.deliveries]
        if read.waiting:
            lines.append(f"{read.waiting} more wait.")
        records = [_record(each.message) for each in read.deliveries]
        facts = {"messages": records, "waiting": read.waiting}
        return Answer("\n\n".join(lines) or "There are no messages for you.", facts)

    # ------------------------------------------------------------------------------ tasks, agents

    async def _task(self, given: taken.Task) -> Answer:
        if not given.id:
            return await self._list_tasks()
        if given.cancel:
            request = talk.CancelTask(task_id=given.id, secret=self._caller.secret)
            return _task_answer(await self._ask(request, seconds=self._send_seconds))
        if given.timeout_seconds:
            await self._ask(
                talk.WaitMessage(
                    message_id=given.id, until="ended", timeout_seconds=given.timeout_seconds
                ),
                seconds=given.timeout_seconds + MARGIN_SECONDS,
            )
        return _task_answer(
            await self._ask(talk.GetTask(task_id=given.id), seconds=self._send_seconds)
        )

    async def _list_tasks(self) -> Answer:
        me = await self._who()
        tasks = await self._ask(
            talk.ListTasks(sender=me, limit=TASKS_LISTED), seconds=self._send_seconds
        )
        lines = [_task_line(each) for each in tasks]
        facts = {"tasks": [_task_record(each) for each in tasks]}
        return Answer("\n".join(lines) or "You have asked nobody for anything.", facts)

    async def _list_agents(self, _: None) -> Answer:
        me = await self._who()
        contacts = await self._ask(talk.ListContacts(), seconds=self._send_seconds)
        records = [_contact_record(each, me) for each in contacts]
        lines = [_contact_line(each, me) for each in contacts]
        return Answer("\n".join(lines) or "Nobody is here.", {"agents": records, "you": me})

    async def _report(self, given: taken.Report) -> Answer:
        name = await self._who()
        if name == USER:
            raise CallFailed(
                INVALID_PARAMS, "only an agent reports what it is doing, and you are the user"
            )
        caller = self._caller
        reply = await self._ask(
            methods.Report(
                name=name,
                activity=given.activity,
                title=given.title,
                message=given.message,
                pid=caller.pid,
                cwd=caller.cwd,
                tmux=caller.tmux,
                tmux_pane=caller.tmux_pane,
            ),
            seconds=self._send_seconds,
        )
        if reply.refused:
            refused = reply.refused[0]
            data = {"reason": refused.reason}
            raise CallFailed(INVALID_PARAMS, f"the report was refused: {refused.message}", data)
        return Answer(f"{name} is {given.activity}", {"agent": name, "activity": given.activity})

    async def _who(self) -> str:
        who = await self._ask(talk.WhoAmI(secret=self._caller.secret), seconds=self._send_seconds)
        return who.name

    _tools: Mapping[str, tuple[Any, Callable[["Tools", Any], Awaitable[Answer]]]] = {
        "send_message": (taken.SendMessage, _send),
        "reply": (taken.Reply, _reply),
        "inbox": (taken.Inbox, _inbox),
        "list_agents": (None, _list_agents),
        "task": (taken.Task, _task),
        "report": (taken.Report, _report),
        "ask_user": (taken.AskUser, _ask_user),
    }


# --------------------------------------------------------------------------------- in words


def _state(deliveries: tuple[Delivery, ...]) -> str:
    return deliveries[0].state.value if deliveries else ReceiptState.ACCEPTED.value


def _answer(reply: Message, known: Mapping[str, Any]) -> Answer:
    """Return the answer of the one who was asked, as it is."""
    facts = {"content": reply.content, "thinking": reply.thinking, **known}
    failed = reply.type in NOT_ANSWERED
    return Answer(reply.content, facts, thinking=reply.thinking, is_error=failed)


def _sent(sent: talk.SendReply) -> Answer:
    words = "; ".join(delivery_words(each) for each in sent.deliveries)
    facts = {
        "content": "",
        "thinking": None,
        "message_id": sent.message.id,
        "state": _state(sent.deliveries),
    }
    return Answer(words or f"accepted {sent.message.id}", facts)


def _record(message: Message) -> dict[str, Any]:
    return {
        "id": message.id,
        "from": message.from_agent,
        "type": message.type.value,
        "content": message.content,
        "thinking": message.thinking,
        "reply_to": message.reply_to,
        "timestamp": message.timestamp.isoformat(),
    }


def _message_lines(message: Message) -> str:
    answers = f", answers {message.reply_to}" if message.reply_to else ""
    head = f"[from {one_line(message.from_agent)}] message {message.id} ({message.type}{answers})"
    return f"{head}\n{message.content}"


def _task_record(task: Task) -> dict[str, Any]:
    return {
        "id": task.id,
        "state": task.state.value,
        "receipt": task.receipt.value,
        "recipient": task.recipient,
        "content": task.text,
        "reason": task.reason,
        "position": task.position,
    }


def _task_line(task: Task) -> str:
    why = f": {one_line(task.reason)}" if task.reason else ""
    return f"{task.id} for {one_line(task.recipient)} is {task.state} ({task.receipt}){why}"


def _task_answer(task: Task) -> Answer:
    text = task.text
    return Answer(f"{_task_line(task)}\n{text}" if text else _task_line(task), _task_record(task))


def _contact_record(contact: talk.Contact, me: str) -> dict[str, Any]:
    return {
        "name": contact.name,
        "provider": contact.provider.value,
        "activity": contact.activity.value,
        "status": contact.status,
        "is_present": contact.is_present,
        "waiting": contact.waiting,
        "cwd": contact.cwd,
        "is_you": contact.name == me,
    }


def _contact_line(contact: talk.Contact, me: str) -> str:
    words = [one_line(contact.name), f"({contact.provider})", contact.activity.value]
    if contact.name == me:
        words.append("- this is you")
    if not contact.is_present:
        words.append("- has ended; what is sent waits for its return")
    if contact.waiting:
        words.append(f"- messages waiting: {contact.waiting}")
    if contact.cwd:
        words.append(f"- in {one_line(contact.cwd)}")
    return " ".join(words)
