"""Mail for a daemon that only pretends: the real post office and courier, over mailboxes in memory.

An agent of the fake daemon has no door, so that its messages wait until it fetches them: a test is
that agent by `secret_of`, or lets `door` lead to it. Receipts have the states they have in the real
one, because it is the same machine that makes them.
"""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from bullpen.api import talk
from bullpen.api.errors import ApiError
from bullpen.api.lookup import find_agent
from bullpen.connection import Context, TypedRequest
from bullpen.mail.courier import Courier
from bullpen.mail.directory import Addressee, Directory
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.mail.errors import MailError, MessageNotFound, TaskOver
from bullpen.mail.mailboxes import Appended
from bullpen.mail.memory import MemoryMailboxes
from bullpen.mail.office import Draft, PostOffice
from bullpen.mail.policy import USER, Policy
from bullpen.mail.receipts import DEAD_LETTERS
from bullpen.mail.signals import Signals
from bullpen.mail.tasks import states_of, task_of
from bullpen.mail.timeouts import Timeouts, answer_timeout
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState, TaskQuery
from bullpen.model.messages import Message, MessageType
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity
from bullpen.model.tasks import Task
from bullpen.model.turns import Turn, TurnEnd
from bullpen.model.views import AgentState

__all__ = ["FakeDoor", "FakeTalk"]

ENDED = frozenset({ReceiptState.FAILED, *DEAD_LETTERS})
REACHED = {
    "seen": frozenset({ReceiptState.SEEN, ReceiptState.ANSWERED}),
    "answered": frozenset({ReceiptState.ANSWERED}),
    "ended": frozenset({ReceiptState.ANSWERED, *ENDED}),
}
LATER_IDS = 1001  # of a daemon that found mailboxes of another, whose ids were lower
STATUS = {Activity.STARTING: "STARTING", Activity.EXITED: "NOT_STARTED", Activity.IDLE: "IDLE"}

Handler = Callable[[Any, Context], Any]


class FakeDoor:
    """A way into the agents it is told of. It takes everything, and answers if it was told what.

    While `closed` says why, nothing is put in.
    """

    rung = Rung.OWN

    def __init__(self, hear: Callable[[str, Turn], None]) -> None:
        self._hear = hear
        self._answers: dict[str, Callable[[Message], str | None]] = {}
        self.closed = ""
        self.handed: list[Delivery] = []

    def lead_to(self, agent: str, answer: Callable[[Message], str | None] = lambda _: None) -> None:
        """Lead to an agent from now on; `answer` says what it replies, None is nothing yet."""
        self._answers[agent] = answer

    def reaches(self, agent: str) -> bool:
        return agent in self._answers

    def is_open(self, agent: str) -> str:
        del agent
        return self.closed

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        self.handed.append(delivery)
        await note(ReceiptState.INJECTED, Evidence("own", "it was put into its box"))
        await note(ReceiptState.SUBMITTED, Evidence("own", "the box was sent off"))
        await note(ReceiptState.SEEN, Evidence("own", "a turn began with it", {"turn": "t-1"}))
        text = self._answers[delivery.recipient](delivery.message)
        if text is not None:
            self._hear(delivery.recipient, Turn(by="own", end=TurnEnd.DONE, text=text))
        return Handover(Handed.TAKEN)

    async def interrupt(self, agent: str) -> bool:
        del agent
        self.closed = ""
        return True


class FakeTalk(Directory):
    """Serves what `bullpen.api.talk` asks, for the agents of a fake daemon."""

    def __init__(
        self,
        agents: Callable[[], Iterable[AgentState]],
        now: Callable[[], datetime],
        mailboxes: MemoryMailboxes | None = None,
    ) -> None:
        self.policy = Policy()
        self.timeouts = Timeouts()
        self.mailboxes = mailboxes or MemoryMailboxes()
        self.door = FakeDoor(self.hear)
        self._agents = agents
        self._now = now
        self._former: set[str] = set()
        self._secrets: dict[str, str] = {}
        self._ids = itertools.count(1 if mailboxes is None else LATER_IDS)
        self._signals = Signals()
        self._office = PostOffice(
            self.mailboxes,
            self,
            self._signals,
            policy=lambda: self.policy,
            cause_of=lambda agent: self._courier.working_on(agent),  # noqa: PLW0108 - not there yet
            now=now,
            new_id=self._new_id,
            on_sent=self._on_sent,
        )
        self._courier = Courier(
            self.mailboxes,
            self,
            self._signals,
            answer=self._office.append,
            control=self._control,
            now=now,
            new_id=self._new_id,
        )
        self._courier.add_door(self.door)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver for a block."""
        working = asyncio.get_running_loop().create_task(self._courier.run())
        try:
            yield
        finally:
            working.cancel()
            await asyncio.wait([working])

    # What a test says

    def secret_of(self, agent: str) -> str:
        """Return a secret by which one is that agent."""
        secret = f"secret-of-{agent}"
        self._secrets[secret] = agent
        return secret

    def hear(self, agent: str, turn: Turn) -> None:
        """Let something be told of an agent's turn."""
        self._courier.hear(agent, turn)

    def wake(self, agent: str) -> None:
        """Let the courier look at an agent again: its door is open, or it has come back."""
        self._courier.wake(agent)

    # Who is there

    def find(self, address: str) -> Addressee | None:
        if address == USER:
            return Addressee(name=USER, activity=Activity.IDLE)
        agent = find_agent(self._agents(), address)
        if agent is not None:
            self._former.add(agent.name)
            return Addressee(name=agent.name, activity=agent.activity)
        if address in self._former:
            return Addressee(name=address, activity=Activity.EXITED, is_present=False)
        return None

    def everybody(self) -> tuple[Addressee, ...]:
        return tuple(Addressee(name=each.name, activity=each.activity) for each in self._agents())

    def _who(self, secret: str) -> str:
        if not secret:
            return USER
        if secret not in self._secrets:
            raise ApiError(Reason.IDENTITY_UNKNOWN, "nobody was given this secret")
        return self._secrets[secret]

    def _or_other(self, secret: str, other: str) -> str:
        """Return who speaks, or whom else he names, which only a person may."""
        who = self._who(secret)
        if not other or other == who:
            return who
        if who != USER:
            raise ApiError(Reason.NOT_PERMITTED, f"{who} may not do that for {other}")
        found = self.find(other)
        if found is None:
            raise ApiError(Reason.AGENT_NOT_FOUND, f"there is no agent {other!r}")
        return found.name

    # What it serves

    def answers(self) -> dict[type[TypedRequest[Any]], Handler]:
        """Return what answers each request."""
        told: dict[type[TypedRequest[Any]], Callable[[Any], Any]] = {
            talk.ListContacts: self._contacts,
            talk.WhoAmI: self._whoami,
            talk.SendMessage: self._send,
            talk.ReplyMessage: self._reply,
            talk.WaitMessage: self._wait,
            talk.ReadInbox: self._inbox,
            talk.TraceMessage: self._trace,
            talk.ListDeadLetters: lambda each: self.mailboxes.dead_letters(
                each.recipient, limit=each.limit
            ),
            talk.RequeueMessage: self._requeue,
            talk.SubscribeTopic: self._subscribe,
            talk.ListTopics: lambda _: self.mailboxes.topics(),
            talk.ReadCommunication: self._log,
            talk.GetTask: self._get_task,
            talk.ListTasks: self._list_tasks,
            talk.CancelTask: self._cancel,
        }
        return {request: _translated(answer) for request, answer in told.items()}

    async def _contacts(self, _: talk.ListContacts) -> tuple[talk.Contact, ...]:
        backlog = await self.mailboxes.backlog()
        return tuple(self._contact(each, backlog.get(each.name, 0)) for each in self._agents())

    def _contact(self, agent: AgentState, waiting: int) -> talk.Contact:
        return talk.Contact(
            name=agent.name,
            provider=agent.provider,
            activity=agent.activity,
            status=STATUS.get(agent.activity, "BUSY"),
            doors=self._courier.doors_to(agent.name),
            waiting=waiting,
            working_on=self._current(agent.name),
            holding=self._courier.holding(agent.name),
            cwd=agent.cwd,
            pid=agent.pid,
            session_key=agent.session_key,
        )

    async def _whoami(self, request: talk.WhoAmI) -> talk.Identify:
        who = self._who(request.secret)
        return talk.Identify(who, self.policy.authority(who).name.lower())

    async def _send(self, request: talk.SendMessage) -> talk.SendReply:
        draft = Draft(
            to=request.to,
            content=request.content,
            type=request.type,
            thinking=request.thinking,
            metadata=request.metadata,
            reply_to=request.reply_to,
            idempotency_key=request.idempotency_key,
            id=request.id,
        )
        return talk.SendReply(*await self._office.send(draft, self._who(request.secret)))

    async def _reply(self, request: talk.ReplyMessage) -> talk.SendReply:
        draft = Draft(
            to="",
            content=request.content,
            type=request.type,
            thinking=request.thinking,
            metadata=request.metadata,
            reply_to=request.to_message or None,
        )
        sender = self._who(request.secret)
        return talk.SendReply(*await self._office.reply(draft, sender, current=self._current))

    def _current(self, agent: str) -> str | None:
        message = self._courier.working_on(agent)
        return message.id if message else None

    async def _wait(self, request: talk.WaitMessage) -> talk.WaitMessageReply:
        message = await self.mailboxes.find(request.message_id)
        seconds = request.timeout_seconds
        if seconds is None:
            seconds = self.timeouts.seconds(answer_timeout(message.type))
        wanted = REACHED[request.until]
        is_over = wanted | ENDED

        def is_enough(deliveries: Sequence[Delivery]) -> bool:
            return all(each.state in is_over for each in deliveries)

        deliveries, is_done = await self._office.wait(message.id, is_enough, seconds)
        is_so = all(each.state in wanted for each in deliveries)
        reply = await self._office.answer_to(message.id)
        return talk.WaitMessageReply(
            outcome="reached" if is_so else "ended" if is_done else "timeout",
            deliveries=deliveries,
            reply=reply,
            reason="" if is_so else await self._reason(message, reply, deliveries),
            timeout_seconds=seconds,
            agent_id=deliveries[0].recipient,
        )

    async def _reason(
        self, message: Message, reply: Message | None, deliveries: Sequence[Delivery]
    ) -> str:
        if reply is not None:
            return reply.content
        held = [self._holding(each) for each in deliveries]
        return (
            next(filter(None, held), "")
            or (await self.mailboxes.receipts(message.id))[-1].evidence.what
        )

    def _holding(self, delivery: Delivery) -> str:
        if delivery.state is not ReceiptState.QUEUED:
            return ""
        return self._courier.holding(delivery.recipient)

    async def _inbox(self, request: talk.ReadInbox) -> talk.InboxReply:
        agent = self._or_other(request.secret, request.agent)
        read = self._office.take if request.take else self._office.read
        found = await read(agent, limit=request.limit, seconds=request.timeout_seconds)
        waiting = (await self.mailboxes.backlog()).get(agent, 0)
        return talk.InboxReply(found, waiting - (0 if request.take else len(found)))

    async def _trace(self, request: talk.TraceMessage) -> talk.MailTrace:
        message = await self.mailboxes.find(request.message_id)
        deliveries = await self.mailboxes.deliveries(message.id)
        positions = {
            each.recipient: await self.mailboxes.position(message.id, each.recipient)
            for each in deliveries
        }
        return talk.MailTrace(
            message=message,
            deliveries=deliveries,
            receipts=await self.mailboxes.receipts(message.id),
            thread=await self.mailboxes.thread(message.id),
            holding={each.recipient: why for each in deliveries if (why := self._holding(each))},
            positions={who: each for who, each in positions.items() if each is not None},
        )

    async def _requeue(self, request: talk.RequeueMessage) -> Delivery:
        who = self._who(request.secret)
        message = await self.mailboxes.find(request.message_id)
        dead = [
            each.recipient
            for each in await self.mailboxes.deliveries(message.id)
            if each.state in DEAD_LETTERS and request.recipient in (None, each.recipient)
        ]
        recipient = dead[0] if dead else request.recipient or message.to_agent
        evidence = Evidence(who, "it was sent again")
        delivery = await self.mailboxes.requeue(
            message.id, recipient, now=self._now(), evidence=evidence
        )
        self._signals.tell(message.id, recipient)
        self.wake(recipient)
        return delivery

    async def _subscribe(self, request: talk.SubscribeTopic) -> tuple[str, ...]:
        agent = self._or_other(request.secret, request.agent)
        change = self.mailboxes.subscribe if request.subscribe else self.mailboxes.unsubscribe
        await change(request.topic, agent)
        return await self.mailboxes.subscribers(request.topic)

    async def _log(self, request: talk.ReadCommunication) -> tuple[talk.CommunicationEntry, ...]:
        found = await self.mailboxes.communication(after=request.after, limit=request.limit)
        return tuple(talk.CommunicationEntry(*each) for each in found)

    # Tasks

    async def _get_task(self, request: talk.GetTask) -> Task:
        message = await self.mailboxes.find(request.task_id)
        if message.type is not MessageType.TASK_REQUEST:
            raise MessageNotFound(request.task_id)
        return await self._task((await self.mailboxes.deliveries(message.id))[0])

    async def _list_tasks(self, request: talk.ListTasks) -> tuple[Task, ...]:
        wanted = TaskQuery(
            recipient=request.recipient,
            sender=request.sender,
            thread_id=request.context_id,
            states=states_of(request.state) if request.state else None,
            before=request.before,
        )
        found = await self.mailboxes.tasks(wanted, limit=request.limit)
        tasks = [await self._task(each) for each in found]
        return tuple(each for each in tasks if request.state in (None, each.state))

    async def _cancel(self, request: talk.CancelTask) -> Task:
        self._who(request.secret)
        task = await self._get_task(talk.GetTask(request.task_id))
        if task.state.is_over:
            raise TaskOver(task.id, task.state)
        delivery = (await self.mailboxes.deliveries(task.id))[0]
        await self._courier.give_up(delivery, "it was cancelled", is_canceled=True)
        return await self._get_task(talk.GetTask(task.id))

    async def _task(self, delivery: Delivery) -> Task:
        name, who = delivery.message.id, delivery.recipient
        agent = find_agent(self._agents(), who)
        is_at_it = self._current(who) == name
        return task_of(
            delivery,
            await self.mailboxes.receipts(name),
            await self.mailboxes.thread(name),
            activity=agent.activity if agent and is_at_it else Activity.UNKNOWN,
            position=await self.mailboxes.position(name, who),
            holding=self._holding(delivery),
        )

    # The machine

    def _new_id(self) -> str:
        return f"m-{next(self._ids)}"

    def _on_sent(self, appended: Appended) -> None:
        message = appended.message
        for each in appended.deliveries:
            self.wake(each.recipient)
        if message.reply_to:
            self._courier.answered(message.reply_to, message.from_agent)

    async def _control(self, delivery: Delivery) -> bool:
        """Answer a ping for an agent; nobody here can be shut down."""
        if delivery.message.type is not MessageType.PING:
            return False
        draft = Draft(
            to=delivery.message.from_agent,
            content="",
            type=MessageType.PONG,
            reply_to=delivery.message.id,
        )
        with contextlib.suppress(MailError):
            await self._office.send(draft, delivery.recipient)
        return True


def _translated(answer: Callable[[Any], Any]) -> Handler:
    """Let what cannot be done be refused with its number."""

    async def handle(request: Any, _: Context) -> Any:
        try:
            return await answer(request)
        except MailError as error:
            raise ApiError(error.reason, str(error), **error.data) from error

    return handle
