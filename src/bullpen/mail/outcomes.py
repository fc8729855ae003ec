"""What agents have been given, and what comes of it: steps, turns, answers, and ends without one.

What was told is written down before anybody acts on it. What cannot be written down now is
remembered and written when it can be; until then its agent gets nothing else.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any, Protocol

from bullpen.errors import BullpenError
from bullpen.mail.directory import Directory
from bullpen.mail.errors import ImpossibleReceipt, MailError, MessageNotFound
from bullpen.mail.in_hand import InHand, Patience
from bullpen.mail.mailboxes import MAILBOX, Mailboxes, Settling
from bullpen.mail.receipts import outcome_of_reply
from bullpen.mail.signals import Signals
from bullpen.mail.turning import ON_SIGHT, failure_reply, fitted, is_about, reply_of_turn
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState, TaskQuery
from bullpen.model.messages import Message, MessageType
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["UNKEPT_SECONDS", "Answer", "NotKept", "Outcomes", "why_gone"]

logger = logging.getLogger("bullpen.mail")

_S = ReceiptState
UNKEPT_SECONDS = 1.0  # until what could not be written down is tried again
MOST_UNHEARD = 1000  # turns that are told before we have begun
MOST_GIVEN_UP = 100  # messages that may just be on their way out of a mailbox

Now = Callable[[], datetime]


class Answer(Protocol):
    """Keeps a reply that was made for an agent, with what it makes of what it answers."""

    def __call__(self, reply: Message, /, *, settling: Settling) -> Awaitable[object]: ...


class Outcomes:
    """The messages that agents have, by agent: at most one each."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        directory: Directory,
        signals: Signals,
        *,
        answer: Answer,
        wake: Callable[[str], None],
        now: Now,
        new_id: Callable[[], str],
        patience: Patience,
    ) -> None:
        self._mailboxes = mailboxes
        self._directory = directory
        self._signals = signals
        self._answer = answer
        self._wake = wake
        self._now = now
        self._new_id = new_id
        self._patience = patience
        self._last_turn: dict[str, str] = {}  # by agent: the turn that was last known to have ended
        self._unheard: deque[tuple[str, Turn]] = deque(maxlen=MOST_UNHEARD)
        self._given_up: OrderedDict[str, asyncio.Event] = OrderedDict()
        self._tasks: asyncio.TaskGroup | None = None
        self.in_hand: dict[str, InHand] = {}
        """What each agent has, or may have."""
        self.on_over: Callable[[str], None] = lambda _: None
        """Told of an agent whose message has come to its end."""

    def begin(self, tasks: asyncio.TaskGroup | None) -> None:
        """Work in some tasks from now on, first on what was told before; in none any more."""
        self._tasks = tasks
        while tasks is not None and self._unheard:
            self.hear(*self._unheard.popleft())

    async def record(self, in_hand: InHand, state: ReceiptState, evidence: Evidence) -> bool:
        """Write a step down, unless it is known already or something later is.

        What cannot be written is remembered, and written when it can be; False says so.
        """
        delivery = in_hand.delivery
        message_id = delivery.message.id
        try:
            in_hand.delivery = await self._mailboxes.settle(
                message_id, delivery.recipient, state, now=self._now(), evidence=evidence
            )
        except ImpossibleReceipt:
            in_hand.unkept = None
            return True
        except MailError:
            raise
        except BullpenError as error:
            in_hand.unkept = (state, evidence)
            logger.error("that %s is %s could not be kept yet: %s", message_id, state, error)
            return False
        in_hand.unkept = None
        logger.debug("%s is %s for %s: %s", message_id, state, delivery.recipient, evidence.what)
        self._signals.tell(message_id)
        return True

    def hear(self, agent: str, turn: Turn) -> None:
        """Take what was told of an agent's turn."""
        if self._tasks is None:
            self._unheard.append((agent, turn))
        elif (in_hand := self.in_hand.get(agent)) is not None:
            is_its = turn.prompt is not None and is_about(turn.prompt, in_hand.message)
            if is_its:
                in_hand.turn_id = turn.turn_id  # at once: what is said next is said of it
            self.begin_work(agent, self._hear(agent, in_hand, turn, is_its=is_its))

    def begin_work(self, agent: str, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside an agent's worker; what befalls it is nobody else's business."""

        async def guarded() -> None:
            try:
                await work
            except Exception:  # the boundary
                logger.exception("what became of a message to %s could not be kept", agent)

        if self._tasks is None:
            work.close()
        else:
            self._tasks.create_task(guarded(), name=f"courier:{agent}:turn")

    async def _hear(self, agent: str, in_hand: InHand, turn: Turn, *, is_its: bool) -> None:
        if is_its:
            in_hand.is_unsure = False
            evidence = Evidence(turn.by, "a turn began with it", _where(turn))
            await self.record(in_hand, _S.SEEN, evidence)
        if turn.end is not None:
            await self.hear_end(agent, in_hand, turn)
        self._wake(agent)

    async def hear_end(self, agent: str, in_hand: InHand, turn: Turn) -> None:
        if self.in_hand.get(agent) is not in_hand or self._is_of_another(agent, in_hand, turn):
            return
        if in_hand.is_handing:
            in_hand.early = turn
            return
        if in_hand.delivery.state is not _S.SEEN:
            is_waiting = in_hand.delivery.state is _S.QUEUED and in_hand.unkept is None
            if turn.end is TurnEnd.INTERRUPTED or is_waiting:
                return  # the end of what went before
            if turn.end is TurnEnd.DONE:  # one that failed may never have begun
                await self.record(in_hand, _S.SEEN, Evidence(turn.by, "a turn ended after it"))
        addressee = self._directory.find(agent)
        if turn.by in ON_SIGHT and addressee is not None and addressee.tells_turns:
            if in_hand.seen_end is None:
                in_hand.seen_end = turn
                loop = asyncio.get_running_loop()
                loop.call_later(self._patience.better_word, self._believe, agent, in_hand)
            return
        await self.end(agent, in_hand, turn)

    def _is_of_another(self, agent: str, in_hand: InHand, turn: Turn) -> bool:
        """Whether an end is that of another turn: of the one before, told again by a slower one."""
        if turn.asked and not any(is_about(each, in_hand.message) for each in turn.asked):
            return True
        if not turn.turn_id:
            return False
        if in_hand.turn_id:
            return turn.turn_id != in_hand.turn_id
        return turn.turn_id == self._last_turn.get(agent)

    def _believe(self, agent: str, in_hand: InHand) -> None:
        """Take what was seen for true, now that nothing better has come."""
        if self.in_hand.get(agent) is in_hand and in_hand.seen_end is not None:
            self.begin_work(agent, self.end(agent, in_hand, in_hand.seen_end))

    async def end(self, agent: str, in_hand: InHand, turn: Turn) -> None:
        """Keep the answer that an end is, and let the agent have its next message.

        What cannot be kept now is kept when it can be: until then the agent gets nothing else.
        """
        if self.in_hand.get(agent) is not in_hand or in_hand.is_ending:
            return
        in_hand.is_ending, in_hand.end = True, turn
        try:
            if in_hand.wants_answer:
                await self._reply(agent, in_hand, turn)
        except BullpenError as error:
            logger.error("the answer to %s is not kept yet: %s", in_hand.message.id, error)
            asyncio.get_running_loop().call_later(UNKEPT_SECONDS, self._wake, agent)
            return
        finally:
            in_hand.is_ending = False
        if turn.turn_id:
            self._last_turn[agent] = turn.turn_id
        if self.in_hand.get(agent) is in_hand:
            self.let_go(agent)
        self._wake(agent)

    async def _reply(self, agent: str, in_hand: InHand, turn: Turn) -> None:
        reply = fitted(
            reply_of_turn(in_hand.message, agent, turn, reply_id=self._new_id(), now=self._now())
        )
        outcome = outcome_of_reply(reply.type)
        assert outcome is not None
        evidence = Evidence(turn.by, f"replied: {reply.type}", {"reply": reply.id})
        with contextlib.suppress(ImpossibleReceipt, MessageNotFound):  # it has its outcome already
            await self._answer(reply, settling=Settling(outcome, evidence))

    async def hear_out(self, agent: str, message_id: str, turn: Turn, seconds: float) -> bool:
        """Take the end of a message's turn; return whether what came of it is kept, in some time.

        Whoever tells it may forget it then, and not before.
        """
        in_hand = self.in_hand.get(agent)
        if in_hand is None or in_hand.message.id != message_id:
            return True  # it was answered in a better way
        self.hear(agent, turn)

        async def look() -> bool | None:
            return self.in_hand.get(agent) is not in_hand or None

        return bool(await self._signals.wait(message_id, look, seconds))

    async def note_step(
        self, agent: str, message_id: str, state: ReceiptState, evidence: Evidence
    ) -> None:
        """Take a step that a door told of after it had answered."""
        in_hand = self.in_hand.get(agent)
        if in_hand is not None and in_hand.message.id == message_id:
            in_hand.is_unsure = False
            await self.record(in_hand, state, evidence)

    def answered(self, message_id: str, agent: str) -> None:
        """Learn that an agent has answered a message by itself."""
        in_hand = self.in_hand.get(agent)
        if in_hand is not None and in_hand.message.id == message_id:
            self.let_go(agent)
            self._wake(agent)

    def let_go(self, agent: str) -> None:
        """Have an agent without a message again."""
        if (in_hand := self.in_hand.pop(agent, None)) is not None:
            self._signals.tell(in_hand.message.id)
            self.on_over(agent)

    async def give_up(
        self,
        delivery: Delivery,
        reason: str,
        *,
        state: ReceiptState | None = None,
        is_canceled: bool = False,
    ) -> None:
        """End a message that waits or is worked on, and tell its sender."""
        is_done = self._given_up[delivery.message.id] = asyncio.Event()
        while len(self._given_up) > MOST_GIVEN_UP:
            self._given_up.popitem(last=False)
        try:
            await self._give_up(delivery, reason, state, is_canceled=is_canceled)
        finally:
            is_done.set()

    async def was_given_up(self, delivery: Delivery) -> bool:
        """Whether a message that was just fetched was given up meanwhile, so that none has it."""
        message_id = delivery.message.id
        if (is_done := self._given_up.get(message_id)) is None:
            return False
        await is_done.wait()
        found = await self._mailboxes.deliveries(message_id)
        return any(
            each.recipient == delivery.recipient and each.state is not _S.QUEUED for each in found
        )

    async def _give_up(
        self, delivery: Delivery, reason: str, state: ReceiptState | None, *, is_canceled: bool
    ) -> None:
        in_hand = self.in_hand.get(delivery.recipient)
        is_in_hand = in_hand is not None and in_hand.message.id == delivery.message.id
        if state is None:  # what is in hand may have arrived, whatever could be written down
            is_waiting = delivery.state is _S.QUEUED and not is_in_hand
            state = _S.DEAD if is_waiting else _S.FAILED
        evidence = Evidence(MAILBOX, reason, {"canceled": True} if is_canceled else {})
        what = (delivery.message.id, delivery.recipient, state, reason)
        logger.log(logging.INFO if is_canceled else logging.ERROR, "%s to %s is %s: %s", *what)
        with contextlib.suppress(ImpossibleReceipt, MessageNotFound):  # it has its outcome already
            if (word := self.word(delivery, reason)) is not None:
                await self._answer(word, settling=Settling(state, evidence))
            else:
                await self._mailboxes.settle(
                    delivery.message.id,
                    delivery.recipient,
                    state,
                    now=self._now(),
                    evidence=evidence,
                )
        if in_hand is not None and self.in_hand.get(delivery.recipient) is in_hand and is_in_hand:
            self.let_go(delivery.recipient)
        self.tell_over(delivery)
        self._wake(delivery.recipient)

    async def agent_ended(self, agent: str) -> None:
        """Give up all that an agent has had and not answered, whoever has its name from now on."""
        if (in_hand := self.in_hand.get(agent)) is not None:
            await self.give_up(in_hand.delivery, why_gone(in_hand.delivery))
        for left in await self._mailboxes.tasks(TaskQuery(recipient=agent, states=(_S.SEEN,))):
            await self.give_up(left, why_gone(left))

    def tell_over(self, delivery: Delivery) -> None:
        """Wake who waits for a message that has ended, and who is to get the word of it."""
        message = delivery.message
        self._signals.tell(message.id, delivery.recipient, message.from_agent)
        self._wake(message.from_agent)

    def word(self, delivery: Delivery, reason: str) -> Message | None:
        """Return what tells a sender that there will be no answer; None if he waits for none."""
        if delivery.message.type is not MessageType.TASK_REQUEST:
            return None
        return failure_reply(
            delivery.message, delivery.recipient, reason, reply_id=self._new_id(), now=self._now()
        )


class NotKept(BullpenError):
    """A step could not be written down now. It is not forgotten, and will be when it can."""

    def __init__(self, message_id: str, state: ReceiptState) -> None:
        super().__init__(f"that {message_id} is {state} could not be kept")


def why_gone(delivery: Delivery) -> str:
    """Return what to say of a message whose agent has ended."""
    if delivery.state is _S.SEEN:
        return "the agent ended without answering"
    return "the agent ended; it may have had it"


def _where(turn: Turn) -> dict[str, str]:
    found = {"turn": turn.turn_id, "session": turn.session_id}
    return {key: value for key, value in found.items() if value}
