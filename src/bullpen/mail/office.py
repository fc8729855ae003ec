"""Sending: from what somebody wants to say to a message that is kept, or to the reason why not.

Everything that can be refused is refused before anything is kept. The sender is told by whoever
calls; what a message says of its own sender, its chain of causes and its retries is not believed.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from bullpen.mail.chains import Chains
from bullpen.mail.directory import Directory
from bullpen.mail.errors import (
    ImpossibleReceipt,
    MailError,
    MessageNotFound,
    MessageRefused,
    NobodyListens,
    RecipientUnknown,
)
from bullpen.mail.mailboxes import Appended, Mailboxes, Settling
from bullpen.mail.policy import (
    USER,
    Bucket,
    Policy,
    Refusal,
    continue_chain,
    is_guest,
    rate_refusal,
    take,
)
from bullpen.mail.receipts import outcome_of_reply
from bullpen.mail.signals import Signals
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState, TaskQuery
from bullpen.model.messages import Message, MessageType, read_message
from bullpen.model.reasons import Reason

__all__ = ["EVERYBODY", "Draft", "PostOffice", "last_answers"]

EVERYBODY = "*"
SENDERS_REMEMBERED = 10_000
NAMES_SHOWN = 8
WAITING = (ReceiptState.ACCEPTED, ReceiptState.QUEUED)
NO_ANSWERS = (MessageType.PROGRESS, MessageType.PING, MessageType.TASK_REQUEST)

Now = Callable[[], datetime]
Cause = Callable[[str], Message | None]
"""Returns the message somebody is working on."""


class Draft(msgspec.Struct, kw_only=True):
    """What somebody wants to say, before it is known whether he may."""

    to: str
    content: str
    type: MessageType = MessageType.TASK_REQUEST
    thinking: str | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    reply_to: str | None = None
    idempotency_key: str | None = None
    id: str | None = None


class PostOffice:
    """Takes messages for all mailboxes."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        directory: Directory,
        signals: Signals,
        *,
        policy: Callable[[], Policy],
        cause_of: Cause,
        now: Now,
        new_id: Callable[[], str],
        on_sent: Callable[[Appended], None],
    ) -> None:
        self._mailboxes = mailboxes
        self._directory = directory
        self._signals = signals
        self._policy = policy
        self._cause_of = cause_of
        self._now = now
        self._new_id = new_id
        self._on_sent = on_sent
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._chains = Chains()
        self._awaited: dict[str, list[Callable[[], bool]]] = {}

    # ------------------------------------------------------------------------------------- sending

    async def send(self, draft: Draft, sender: str, *, answered: Message | None = None) -> Appended:
        """Keep a message for whoever it is for; `answered` is what it replies to, if it is known.

        Raises:
            MailError: it is not let through, or there is nobody, or no room. It is noted in the
                communication log, and nothing else is kept.
            StoreError: it could not be kept.
        """
        message = await self._read(draft, sender)
        try:
            _check_content(message)
            answered = answered or await self._find(message.reply_to)
            cause = answered or self._cause_of(sender)
            message = continue_chain(message, cause)
            names = await self._admit(message, answered)
            self._check_breadth(message, names, cause, answered)
        except MailError as refused:
            await self._note_refusal(message, refused)
            raise
        if cause is not None and sender != USER:
            self._chains.follow(message.id, cause.id)
        return await self.append(message, names)

    async def append(
        self,
        message: Message,
        names: Sequence[str] | None = None,
        settling: Settling | None = None,
    ) -> Appended:
        """Keep a message that nothing is to be asked about any more: one of our own.

        Raises as `Mailboxes.append` does.
        """
        appended = await self._mailboxes.append(
            message,
            now=self._now(),
            recipients=names,
            settling=settling,
            # A guest has no mailbox to look into: it asks for the task.
            seen=_seen_by(message.to_agent) if is_guest(message.to_agent) else None,
        )
        if message.from_agent != USER:
            self._chains.follow(message.id, message.reply_to)
        if self._is_awaited(message):
            await self.see(message)
        keys = {message.id, *(each.recipient for each in appended.deliveries)}
        self._signals.tell(*keys, *([message.reply_to] if message.reply_to else []))
        if appended.is_new:
            self._on_sent(appended)
        return appended

    async def reply(
        self, draft: Draft, sender: str, *, current: Callable[[str], str | None]
    ) -> Appended:
        """Answer a message that somebody was sent; the one he works on if none is named.

        Raises as `send` does.
        """
        answered_id = draft.reply_to or current(sender) or await self._last_unanswered(sender)
        if not answered_id:
            raise MailError(
                Reason.MESSAGE_NOT_FOUND, f"there is nothing that {sender} has not answered yet"
            )
        deliveries = await self._deliveries(answered_id)
        answered = deliveries[0].message
        if sender not in (each.recipient for each in deliveries):
            raise MailError(
                Reason.NOT_PERMITTED,
                f"the message {answered.id} was not sent to {sender}",
                message_id=answered.id,
            )
        draft.to, draft.reply_to = answered.from_agent, answered.id
        return await self.send(draft, sender, answered=answered)

    async def _deliveries(self, beginning: str) -> tuple[Delivery, ...]:
        """Return where a message went, by its id or the beginning of it."""
        try:
            return await self._mailboxes.deliveries(beginning)
        except MessageNotFound:
            return await self._mailboxes.deliveries((await self._mailboxes.find(beginning)).id)

    async def _last_unanswered(self, agent: str) -> str | None:
        """Return the newest that somebody has; a person has also read what still lies there."""
        states = (ReceiptState.SEEN, *(WAITING if agent == USER else ()))
        found = await self._mailboxes.tasks(TaskQuery(recipient=agent, states=states), limit=2)
        if len(found) > 1 and all(each.state in WAITING for each in found):
            names = " or ".join(f"{each.message.id} of {each.message.from_agent}" for each in found)
            raise MailError(
                Reason.MESSAGE_NOT_FOUND,
                f"several messages wait for an answer; say which one it is for: {names}",
            )
        return found[0].message.id if found else None

    async def _read(self, draft: Draft, sender: str) -> Message:
        try:
            return read_message(
                {
                    **{key: value for key, value in msgspec.structs.asdict(draft).items() if value},
                    "content": draft.content,
                    "timestamp": None,
                },
                sender=sender,
                message_id=self._new_id(),
                now=self._now(),
            )
        except (msgspec.ValidationError, ValueError) as error:
            raise MessageRefused(Reason.INVALID_MESSAGE, f"this is no message: {error}") from error

    async def _find(self, message_id: str | None) -> Message | None:
        if not message_id:
            return None
        with contextlib.suppress(MessageNotFound):
            return await self._mailboxes.find(message_id)
        return None

    async def _admit(self, message: Message, answered: Message | None) -> Sequence[str]:
        """Return who gets it."""
        policy = self._policy()
        names = await self._recipients(message)
        refusals = {name: policy.check(message, name, answered=answered) for name in names}
        allowed = [name for name, refusal in refusals.items() if refusal is None]
        if not allowed:
            refusal = next(iter(refusals.values()))
            assert refusal is not None
            raise refusal.error()
        if refusal := self._check_rate(message.from_agent, policy):
            raise refusal.error()
        return allowed

    async def _recipients(self, message: Message) -> Sequence[str]:
        """Return to whom a message is addressed; whom of them it reaches is not asked here."""
        if message.to_agent == EVERYBODY:
            everybody = [each.name for each in self._directory.everybody()]
            names = [each for each in everybody if each not in (message.from_agent, USER)]
            if not names:
                raise RecipientUnknown(EVERYBODY)
            return names
        if message.topic is not None:
            listeners = await self._mailboxes.subscribers(message.topic)
            names = [each for each in listeners if each != message.from_agent]
            if not names:
                raise NobodyListens(message.topic)
            return names
        if message.to_agent == USER or (is_guest(message.to_agent) and message.reply_to):
            return [message.to_agent]
        found = self._directory.find(message.to_agent)
        if found is None:
            others = [each.name for each in self._directory.everybody()][:NAMES_SHOWN]
            raise RecipientUnknown(message.to_agent, others)
        return [found.name]

    def _check_breadth(
        self,
        message: Message,
        names: Sequence[str],
        cause: Message | None,
        answered: Message | None,
    ) -> None:
        """Refuse one message too many of those that came of one; an answer never is."""
        for name in names:
            if answered is not None and answered.from_agent == name:
                continue
            if refusal := self._chains.check(message, name, cause):
                raise refusal.error()

    def _check_rate(self, sender: str, policy: Policy) -> Refusal | None:
        limit = policy.user_rate if sender == USER else policy.rate
        taken = take(self._buckets.get(sender), limit, self._now())
        self._buckets[sender] = taken.bucket
        self._buckets.move_to_end(sender)
        while len(self._buckets) > SENDERS_REMEMBERED:
            self._buckets.popitem(last=False)
        return rate_refusal(sender, taken.wait_seconds) if taken.wait_seconds else None

    async def _note_refusal(self, message: Message, error: MailError) -> None:
        await self._mailboxes.log_refusal(message, str(error), now=self._now())

    # ------------------------------------------------------------------------------------- reading

    async def read(self, agent: str, *, limit: int, seconds: float) -> tuple[Delivery, ...]:
        """Return what waits for somebody; wait for it if nothing does."""

        async def look() -> tuple[Delivery, ...] | None:
            return await self._mailboxes.waiting(agent, limit=limit) or None

        return await self._signals.wait(agent, look, seconds) or ()

    async def take(
        self,
        agent: str,
        *,
        limit: int,
        seconds: float,
        is_there: Callable[[], bool] = lambda: True,
    ) -> tuple[Delivery, ...]:
        """The same, and what is returned counts as seen.

        Who has gone away while he waited, by `is_there`, is given nothing: nobody would see it.
        """
        has_waited = False

        async def look() -> tuple[Delivery, ...] | None:
            nonlocal has_waited
            if has_waited and not is_there():
                return ()
            has_waited = True
            return await self._take(agent, limit) or None

        return await self._signals.wait(agent, look, seconds) or ()

    async def _take(self, agent: str, limit: int) -> tuple[Delivery, ...]:
        evidence = Evidence(agent, "fetched it from its mailbox")
        taken = await self._mailboxes.take(agent, now=self._now(), evidence=evidence, limit=limit)
        self._signals.tell(*(each.message.id for each in taken))
        return taken

    async def wait(
        self, message_id: str, is_over: Callable[[Sequence[Delivery]], bool], seconds: float
    ) -> tuple[tuple[Delivery, ...], bool]:
        """Wait until what became of a message is what somebody waits for; say whether it is.

        Raises:
            MessageNotFound: there is no such message.
        """

        async def look() -> tuple[Delivery, ...] | None:
            deliveries = await self._mailboxes.deliveries(message_id)
            return deliveries if is_over(deliveries) else None

        found = await self._signals.wait(message_id, look, seconds)
        if found is not None:
            return found, True
        return await self._mailboxes.deliveries(message_id), False

    @contextlib.contextmanager
    def awaiting(self, message_id: str, is_there: Callable[[], bool]) -> Iterator[None]:
        """Let who asked take the answer where he waits for it, as long as a block lasts.

        That is only if he is still there: else it is for his mailbox.
        """
        waiting = self._awaited.setdefault(message_id, [])
        waiting.append(is_there)
        try:
            yield
        finally:
            waiting.remove(is_there)
            if not waiting:
                del self._awaited[message_id]

    def _is_awaited(self, answer: Message) -> bool:
        waiting = self._awaited.get(answer.reply_to or "", ())
        return outcome_of_reply(answer.type) is not None and any(each() for each in waiting)

    async def see(self, answer: Message) -> None:
        """Mark an answer as seen by who waited for it; it is not delivered in another way."""
        evidence = _seen_by(answer.to_agent)
        with contextlib.suppress(ImpossibleReceipt, MessageNotFound):  # he has it already
            await self._mailboxes.settle(
                answer.id, answer.to_agent, ReceiptState.SEEN, now=self._now(), evidence=evidence
            )

    async def answers_to(self, message_id: str) -> tuple[Message, ...]:
        """Return the last answer of everybody who has answered a message, the newest last."""
        return last_answers(await self._mailboxes.thread(message_id), message_id)


def _check_content(message: Message) -> None:
    """Refuse to ask somebody nothing; an answer may well be empty."""
    if message.type is MessageType.TASK_REQUEST and not message.content.strip():
        raise MessageRefused(Reason.INVALID_MESSAGE, "there is nothing in it to say")


def _seen_by(name: str) -> Evidence:
    return Evidence(name, "waited for it")


def last_answers(thread: Sequence[Message], message_id: str) -> tuple[Message, ...]:
    """Return what answers a message rather than telling of progress: the last word of each."""
    found: dict[str, Message] = {}
    for each in thread:
        if each.reply_to == message_id and each.type not in NO_ANSWERS:
            found.pop(each.from_agent, None)
            found[each.from_agent] = each
    return tuple(found.values())
