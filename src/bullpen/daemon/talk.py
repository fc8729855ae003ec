"""What the daemon answers about messages, tasks and agents."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

import msgspec

from bullpen.api import talk, wrapping
from bullpen.api.errors import ApiError
from bullpen.connection import Context, TypedNotification, TypedRequest
from bullpen.daemon.elsewhere import external_requests
from bullpen.daemon.post import Post
from bullpen.daemon.pushes import push_requests
from bullpen.daemon.watching import TaskWatch
from bullpen.daemon.wrappers import Wrapper
from bullpen.mail.errors import MailError, MessageNotFound, RecipientUnknown, TaskOver
from bullpen.mail.mailboxes import Story
from bullpen.mail.office import Draft
from bullpen.mail.policy import USER, Authority, is_guest
from bullpen.mail.tasks import states_of, task_of, turns_of
from bullpen.mail.timeouts import answer_timeout
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState, TaskQuery
from bullpen.model.dialogs import Dialog
from bullpen.model.messages import Message, MessageType
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity
from bullpen.model.tasks import Task
from bullpen.store.errors import StoreError
from bullpen.store.push import PushAddresses

__all__ = ["TalkService"]

logger = logging.getLogger("bullpen.mail")

_S = ReceiptState
LONGEST_WAIT_SECONDS = 24 * 3600.0
ASKED_SECONDS = 5.0  # for who said that he will wait to begin with it
MOST_LISTED = 500
REACHED = {
    "seen": frozenset({_S.SEEN, _S.ANSWERED}),
    "answered": frozenset({_S.ANSWERED}),
    "ended": frozenset({_S.ANSWERED, _S.FAILED, _S.EXPIRED, _S.DEAD}),
}
OVER = REACHED["ended"]

Handler = Callable[[Any, Context], Any]


class TalkService:
    """Answers what is asked about one daemon's mail, and about who is told of it by post."""

    def __init__(self, post: Post, pushes: PushAddresses | None = None) -> None:
        self._post = post
        self._pushes = pushes
        self._mailboxes = post.mailboxes
        self._office = post.office
        self._contacts = post.contacts
        self._wrappers = post.wrappers
        self.watch = TaskWatch(self._find_task, post.sayings.so_far)
        post.signals.on_told = self.watch.changed
        post.on_said = self.watch.said

    def requests(self) -> dict[type[TypedRequest[Any]], Handler]:
        """Return how each request is answered."""
        handlers: dict[type[TypedRequest[Any]], Handler] = {
            talk.ListContacts: self._list_contacts,
            talk.WhoAmI: self._who_am_i,
            talk.SendMessage: self._send,
            talk.ReplyMessage: self._reply,
            talk.WaitMessage: self._wait,
            talk.ReadInbox: self._inbox,
            talk.TraceMessage: self._trace,
            talk.ListDeadLetters: self._dead_letters,
            talk.RequeueMessage: self._requeue,
            talk.SubscribeTopic: self._subscribe,
            talk.ListTopics: lambda *_: self._mailboxes.topics(),
            talk.ReadCommunication: self._communication,
            talk.GetTask: self._task,
            talk.ListTasks: self._tasks,
            talk.CancelTask: self._cancel,
            talk.WatchTasks: self._watch_tasks,
            talk.InterruptAgent: self._interrupt,
            talk.ReadDialog: self._dialog,
            talk.AnswerAgent: self._answer,
            talk.SendKeys: self._keys,
            talk.StopAgent: self._stop,
            talk.ReadOutput: self._output,
        }
        told = {request: _translated(handler) for request, handler in handlers.items()}
        return {
            **told,
            **external_requests(self._post.elsewhere, self._contacts.is_ours, self._require),
            **(push_requests(self._pushes, self._post.callers) if self._pushes else {}),
            wrapping.RegisterWrapper: self._wrappers.register,
            wrapping.WrapperStarted: self._wrappers.started,
            wrapping.Answered: self._wrappers.answered,
            wrapping.WrapperEnded: self._wrappers.ended,
        }

    def notifications(self) -> dict[type[TypedNotification], Handler]:
        """Return what is done about each notification."""
        return {
            wrapping.WrapperState: self._wrappers.state,
            wrapping.StepTaken: self._wrappers.step,
            wrapping.Said: self._wrappers.said,
        }

    async def _require(self, authority: Authority, secret: str, context: Context, what: str) -> str:
        name = await self._post.who(secret, context)
        own = self._post.policy.authority(name)
        if not secret and self._post.callers.is_boss(context.connection):
            own = max(own, Authority.BOSS)
        if own < authority:
            raise ApiError(
                Reason.NOT_PERMITTED,
                f"{name} is a {own.name.lower()} and may not {what}",
                agent_id=name,
                needed=authority.name.lower(),
            )
        return name

    async def _list_contacts(
        self, request: talk.ListContacts, _: Context
    ) -> tuple[talk.Contact, ...]:
        if request.name and not request.counts and self._contacts.is_there(request.name):
            return (self._contact(request.name, 0),)
        backlog = await self._mailboxes.backlog()
        names = self._contacts.names
        names |= {name for name in backlog if name != USER and not is_guest(name)}
        if request.name:
            names &= {request.name}
        return tuple(self._contact(name, backlog.get(name, 0)) for name in sorted(names))

    def _contact(self, name: str, waiting: int) -> talk.Contact:
        working_on = self._post.working_on(name)
        return self._contacts.contact(
            name,
            doors=[each.value for each in self._post.courier.doors_to(name)],
            waiting=waiting,
            working_on=working_on.id if working_on else None,
            holding=self._post.courier.holding(name),
        )

    async def _who_am_i(self, request: talk.WhoAmI, context: Context) -> talk.Identify:
        name = await self._post.who(request.secret, context)
        return talk.Identify(name, self._post.policy.authority(name).name.lower())

    async def _send(self, request: talk.SendMessage, context: Context) -> talk.SendReply:
        sender = await self._post.who(request.secret, context)
        if request.type is MessageType.SHUTDOWN:
            await self._require(Authority.BOSS, request.secret, context, "end an agent")
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
        appended = await self._office.send(draft, sender)
        if request.awaits:  # an answer may be faster than the question for it
            stack = ExitStack()
            connection = context.connection
            stack.enter_context(
                self._office.awaiting(appended.message.id, lambda: not connection.is_closed)
            )
            asyncio.get_running_loop().call_later(ASKED_SECONDS, stack.close)
        return talk.SendReply(appended.message, appended.deliveries, appended.is_new)

    async def _reply(self, request: talk.ReplyMessage, context: Context) -> talk.SendReply:
        sender = await self._post.who(request.secret, context)
        draft = Draft(
            to=USER,
            content=request.content,
            type=request.type,
            thinking=request.thinking,
            metadata=request.metadata,
            reply_to=request.to_message or None,
        )
        appended = await self._office.reply(draft, sender, current=self._current_id)
        return talk.SendReply(appended.message, appended.deliveries, appended.is_new)

    def _current_id(self, agent: str) -> str | None:
        current = self._post.working_on(agent)
        return current.id if current is not None else None

    async def _wait(self, request: talk.WaitMessage, context: Context) -> talk.WaitMessageReply:
        if request.until not in REACHED:
            words = ", ".join(REACHED)
            raise ApiError(Reason.INVALID_MESSAGE, f"until is to be one of {words}")
        message = await self._mailboxes.find(request.message_id)
        seconds = request.timeout_seconds
        if seconds is None:
            seconds = self._post.timeouts.seconds(answer_timeout(message.type))
        wanted = REACHED[request.until]

        def is_over(deliveries: Sequence[Delivery]) -> bool:
            return all(each.state in wanted or each.state in OVER for each in deliveries)

        takes = request.take and message.from_agent == await self._post.who(request.secret, context)

        def is_there() -> bool:
            return not context.connection.is_closed

        with self._office.awaiting(message.id, is_there) if takes else nullcontext():
            deliveries, has_ended = await self._office.wait(
                message.id, is_over, min(seconds, LONGEST_WAIT_SECONDS)
            )
        pending = [each for each in deliveries if each.state not in wanted]
        replies = await self._office.answers_to(message.id)
        reply = replies[-1] if replies else None
        if takes and is_there():
            for each in replies:
                await self._office.see(each)
        outcome = "reached" if not pending else "ended" if has_ended else "timeout"
        reason = ""
        if outcome == "ended":
            reason = await self._why(message.id, replies)
        elif outcome == "timeout":
            logger.warning("%s is not %s after %g s", message.id, request.until, seconds)
            reason = self._holding(pending[0]) if pending else ""
        return talk.WaitMessageReply(
            outcome=outcome,
            deliveries=deliveries,
            reply=reply,
            replies=replies,
            reason=reason,
            timeout_seconds=seconds,
            agent_id=(*pending, *deliveries)[0].recipient if deliveries else message.to_agent,
        )

    async def _why(self, message_id: str, replies: Sequence[Message]) -> str:
        for each in replies:
            if each.type in (MessageType.TASK_FAILED, MessageType.ERROR):
                return each.content
        receipts = await self._mailboxes.receipts(message_id)
        return receipts[-1].evidence.what if receipts else ""

    async def _inbox(self, request: talk.ReadInbox, context: Context) -> talk.InboxReply:
        name = await self._post.who(request.secret, context)
        if request.agent and request.agent != name:
            await self._require(Authority.HUMAN, request.secret, context, "read others' mail")
            if request.take:
                raise ApiError(Reason.NOT_PERMITTED, "others' mail can be looked at, not taken")
            found = self._contacts.find(request.agent)
            name = found.name if found is not None else request.agent
        limit = min(max(request.limit, 1), MOST_LISTED)
        seconds = min(request.timeout_seconds, LONGEST_WAIT_SECONDS)
        if request.take:
            deliveries = await self._office.take(
                name,
                limit=limit,
                seconds=seconds,
                is_there=lambda: not context.connection.is_closed,
            )
        else:
            deliveries = await self._office.read(name, limit=limit, seconds=seconds)
        backlog = (await self._mailboxes.backlog(name)).get(name, 0)
        waiting = backlog if request.take else max(backlog - len(deliveries), 0)
        return talk.InboxReply(deliveries, waiting)

    async def _trace(self, request: talk.TraceMessage, _: Context) -> talk.MailTrace:
        message = await self._mailboxes.find(request.message_id)
        deliveries = await self._mailboxes.deliveries(message.id)
        holding: dict[str, str] = {}
        positions: dict[str, int] = {}
        for delivery in deliveries:
            position = await self._mailboxes.position(message.id, delivery.recipient)
            if position is not None:
                positions[delivery.recipient] = position
                holding[delivery.recipient] = self._holding(delivery)
        return talk.MailTrace(
            message=message,
            deliveries=deliveries,
            receipts=await self._mailboxes.receipts(message.id),
            thread=await self._mailboxes.thread(message.id),
            holding=holding,
            positions=positions,
        )

    def _holding(self, delivery: Delivery) -> str:
        """Return what a message waits for, in words."""
        current = self._post.working_on(delivery.recipient)
        is_current = current is not None and current.id == delivery.message.id
        if is_current and delivery.state is not ReceiptState.SEEN:
            in_hand = self._post.courier.outcomes.in_hand.get(delivery.recipient)
            if in_hand is not None and in_hand.is_unsure:
                return "it may have arrived, and nothing shows that yet"
            return "it is being handed over"
        return self._post.courier.holding(delivery.recipient)

    async def _dead_letters(
        self, request: talk.ListDeadLetters, _: Context
    ) -> tuple[Delivery, ...]:
        limit = min(max(request.limit, 1), MOST_LISTED)
        return await self._mailboxes.dead_letters(request.recipient, limit=limit)

    async def _requeue(self, request: talk.RequeueMessage, context: Context) -> Delivery:
        name = await self._require(
            Authority.BOSS, request.secret, context, "send others' mail again"
        )
        message = await self._mailboxes.find(request.message_id)
        deliveries = await self._mailboxes.deliveries(message.id)
        recipients = [each.recipient for each in deliveries]
        recipient = request.recipient or (recipients[0] if len(recipients) == 1 else "")
        if recipient not in recipients:
            raise MessageNotFound(message.id, recipient or None)
        evidence = Evidence(name, "sent it again")
        delivery = await self._mailboxes.requeue(
            message.id, recipient, now=self._post.now(), evidence=evidence
        )
        self._post.signals.tell(message.id, recipient)
        self._post.wake(recipient)
        return delivery

    async def _subscribe(self, request: talk.SubscribeTopic, context: Context) -> tuple[str, ...]:
        name = await self._post.who(request.secret, context)
        if request.agent and request.agent != name:
            await self._require(Authority.BOSS, request.secret, context, "subscribe others")
            found = self._contacts.find(request.agent)
            if found is None:
                raise RecipientUnknown(request.agent)
            name = found.name
        topic = request.topic.removeprefix("#")
        change = self._mailboxes.subscribe if request.subscribe else self._mailboxes.unsubscribe
        await change(topic, name)
        return await self._mailboxes.subscribers(topic)

    async def _communication(
        self, request: talk.ReadCommunication, _: Context
    ) -> tuple[talk.CommunicationEntry, ...]:
        limit = min(max(request.limit, 1), MOST_LISTED)
        found = await self._mailboxes.communication(after=request.after, limit=limit)
        return tuple(talk.CommunicationEntry(number, entry) for number, entry in found)

    # --------------------------------------------------------------------------------------- tasks

    async def _task(self, request: talk.GetTask, _: Context) -> Task:
        try:
            return self._task_of(await self._mailboxes.story(request.task_id))
        except MessageNotFound:  # it may be the beginning of an id
            message = await self._mailboxes.find(request.task_id)
            return self._task_of(await self._mailboxes.story(message.id))

    async def _tasks(self, request: talk.ListTasks, _: Context) -> tuple[Task, ...]:
        wanted = TaskQuery(
            recipient=request.recipient,
            sender=request.sender,
            thread_id=request.context_id,
            states=states_of(request.state) if request.state is not None else None,
            before=request.before,
        )
        limit = min(max(request.limit, 1), MOST_LISTED)
        found = [
            self._task_of(await self._mailboxes.story(each.message.id, each.recipient))
            for each in await self._mailboxes.tasks(wanted, limit=limit)
        ]
        return tuple(each for each in found if request.state in (None, each.state))

    def _task_of(self, story: Story) -> Task:
        delivery = story.delivery
        name, message = delivery.recipient, delivery.message
        current = self._post.working_on(name)
        turns = turns_of(message, story.thread)
        is_current = current is not None and any(each.id == current.id for each in turns)
        activity = self._contacts.activity(name) if is_current else Activity.UNKNOWN
        if activity.is_waiting and not self._post.dialogs.is_open(name):
            activity = Activity.RUNNING
        elif is_current and not activity.is_waiting:
            self._post.dialogs.note_working(name)
        return task_of(
            delivery,
            story.receipts,
            story.thread,
            activity=activity,
            dialog=self._post.dialogs.of(name) if activity.is_waiting else None,
            position=story.position,
            holding=self._holding(delivery),
        )

    async def _watch_tasks(self, request: talk.WatchTasks, context: Context) -> bool:
        ids = [
            each if self.watch.is_watched(each) else (await self._mailboxes.find(each)).id
            for each in request.task_ids
        ]
        return self.watch.watch(msgspec.structs.replace(request, task_ids=tuple(ids)), context)

    async def _find_task(self, task_id: str) -> Task | None:
        try:
            story = await self._mailboxes.story(task_id)
        except MessageNotFound:
            return None  # the name of a mailbox
        is_task = story.delivery.message.type is MessageType.TASK_REQUEST
        return self._task_of(story) if is_task or self.watch.is_watched(task_id) else None

    async def _cancel(self, request: talk.CancelTask, context: Context) -> Task:
        name = await self._post.who(request.secret, context)
        message = await self._mailboxes.find(request.task_id)
        if name != message.from_agent:
            await self._require(Authority.BOSS, request.secret, context, "cancel others' tasks")
        [delivery, *_] = await self._mailboxes.deliveries(message.id)
        if delivery.state in OVER:
            over = self._task_of(await self._mailboxes.story(message.id))
            raise TaskOver(message.id, over.state)
        current = self._post.working_on(delivery.recipient)
        await self._post.courier.give_up(delivery, f"{name} cancelled it", is_canceled=True)
        if current is not None and current.id == message.id:
            with suppress(ApiError):  # it is cancelled, whatever its agent goes on to do
                await self._interrupt_agent(delivery.recipient)
        return self._task_of(await self._mailboxes.story(message.id))

    # --------------------------------------------------------------------------------------- agents

    async def _interrupt(self, request: talk.InterruptAgent, context: Context) -> bool:
        await self._require(Authority.BOSS, request.secret, context, "interrupt others")
        return await self._interrupt_agent(self._known(request.agent))

    async def _interrupt_agent(self, name: str) -> bool:
        if await self._post.courier.interrupt(name):
            return True
        why = f"there is no way to interrupt {name}"
        if self._contacts.activity(name).is_waiting:
            why = f"{name} waits for a decision, which an interruption would be; it is a person's"
        raise ApiError(Reason.AGENT_UNREACHABLE, why, agent_id=name)

    async def _dialog(self, request: talk.ReadDialog, _: Context) -> Dialog | None:
        return self._post.dialogs.of(self._known(request.agent))

    async def _answer(self, request: talk.AnswerAgent, context: Context) -> Dialog:
        who = await self._post.who(request.secret, context)
        is_trusted = not request.secret and self._post.callers.is_boss(context.connection)
        refusal = self._post.policy.may_approve(who)
        if refusal is not None and not is_trusted:
            raise ApiError(refusal.reason, refusal.message, **refusal.data)
        name = self._known(request.agent)
        dialog = await self._post.dialogs.answer(name, request.text, request.dialog_id)
        if dialog.is_declined_by(request.text):
            self._post.courier.declined(name)
        logger.info("%s answered what %s asked: %s", who, name, dialog.id)
        return dialog

    async def _keys(self, request: talk.SendKeys, context: Context) -> bool:
        await self._require(Authority.HUMAN, request.secret, context, "press keys for others")
        return await self._wrapper(request.agent).ask(wrapping.PressKeys(data=request.data))

    async def _stop(self, request: talk.StopAgent, context: Context) -> bool:
        await self._require(Authority.BOSS, request.secret, context, "end an agent")
        return await self._wrapper(request.agent).ask(wrapping.StopProgram())

    async def _output(self, request: talk.ReadOutput, _: Context) -> talk.ReadOutputReply:
        found = await self._wrapper(request.agent).ask(wrapping.ReadTerminal(limit=request.limit))
        return talk.ReadOutputReply(text=found.text, end=found.end, screen=found.screen)

    def _wrapper(self, address: str) -> Wrapper:
        name = self._known(address)
        wrapper = self._wrappers.find(name)
        if wrapper is None or not wrapper.is_connected:
            raise ApiError(
                Reason.AGENT_UNREACHABLE,
                f"{name} was not started through bullpen, or its wrapper is gone",
                agent_id=name,
            )
        return wrapper

    def _known(self, address: str) -> str:
        found = self._contacts.find(address)
        if found is None or found.name == USER:
            raise RecipientUnknown(address)
        return found.name


def _translated(handler: Handler) -> Handler:
    """Return a handler whose mail errors go over the wire."""

    async def handle(request: Any, context: Context) -> Any:
        try:
            return await handler(request, context)
        except MailError as error:
            raise ApiError(error.reason, str(error), **error.data) from error
        except StoreError as error:
            raise ApiError(Reason.STORE_UNAVAILABLE, str(error)) from error

    return handle
