"""Delivering: from a mailbox through the best door into an agent, and to what came of it.

Each agent has one message at a time. The courier waits until a door is open, hands the next one
over, writes down every step it is told, and keeps the next back until the turn of this one is over
or an answer has come. A message that may have arrived is never handed over again by itself.

What a program tells of its turns comes in by `hear`; that somebody is there, or is no longer, or
has another state, by `wake`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from bullpen.errors import BullpenError
from bullpen.mail.directory import Addressee, Directory
from bullpen.mail.doors import Door, Handed, Handover, Rung
from bullpen.mail.errors import ImpossibleReceipt, LeaseLost, MailError, MessageNotFound
from bullpen.mail.in_hand import InHand, Patience
from bullpen.mail.mailboxes import MAILBOX, Mailboxes
from bullpen.mail.policy import USER, is_guest
from bullpen.mail.receipts import IN_FLIGHT
from bullpen.mail.signals import Signals
from bullpen.mail.tasks import asks
from bullpen.mail.turning import ON_SIGHT, failure_reply, is_about, reply_of_turn
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState, TaskQuery
from bullpen.model.messages import Message, MessageType
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["Courier"]

logger = logging.getLogger("bullpen.mail")

_S = ReceiptState
_STOPPED = (Activity.IDLE, Activity.ERROR, Activity.RATE_LIMITED)
LEASE_SECONDS = 120.0  # longer than any door may take
EXPIRE_SECONDS = 1.0
MOST_UNHEARD = 1000  # turns that are told before we have begun

Now = Callable[[], datetime]
Answer = Callable[[Message], Awaitable[object]]
"""Keeps a reply that was made for an agent."""


class Courier:
    """Delivers the mail of all agents, for as long as `run` runs."""

    def __init__(
        self,
        mailboxes: Mailboxes,
        directory: Directory,
        signals: Signals,
        *,
        answer: Answer,
        control: Callable[[Delivery], Awaitable[bool]],
        now: Now,
        new_id: Callable[[], str],
        patience: Patience | None = None,
    ) -> None:
        self._mailboxes = mailboxes
        self._directory = directory
        self._doors: list[Door] = []
        self._signals = signals
        self._answer = answer
        self._control = control
        self._now = now
        self._new_id = new_id
        self._patience = patience or Patience()
        self._in_hand: dict[str, InHand] = {}
        self._holding: dict[str, str] = {}
        self._woken: dict[str, asyncio.Event] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._last_turn: dict[str, str] = {}  # by agent: the turn that was last known to have ended
        self._unheard: deque[tuple[str, Turn]] = deque(maxlen=MOST_UNHEARD)
        self.on_handing: Callable[[str, Delivery], None] = lambda *_: None
        """Told of an agent that is about to be given something."""
        self.on_over: Callable[[str], None] = lambda _: None
        """Told of an agent whose message has come to its end."""

    def add_door(self, door: Door) -> None:
        """Have one more way into agents."""
        self._doors.append(door)
        self._doors.sort(key=lambda each: list(Rung).index(each.rung))

    # ------------------------------------------------------------------------------- what it is at

    def working_on(self, agent: str) -> Message | None:
        """Return the message an agent has."""
        found = self._in_hand.get(agent)
        return found.message if found is not None else None

    def holding(self, agent: str) -> str:
        """Return why an agent's next message is not handed over, in words; empty if none waits."""
        if (found := self._in_hand.get(agent)) is not None:
            return f"it has the message {found.message.id}"
        return self._holding.get(agent, "")

    def under_way(self) -> dict[str, Delivery]:
        """Return what agents have, or may have."""
        return {agent: each.delivery for agent, each in self._in_hand.items()}

    def doors_to(self, agent: str) -> tuple[Rung, ...]:
        """Return the ways into an agent, best first."""
        return tuple(each.rung for each in self._doors if each.reaches(agent))

    async def interrupt(self, agent: str) -> bool:
        """Interrupt what an agent is doing; return whether there was a way to."""
        in_hand = self._in_hand.get(agent)
        for door in self._doors:
            if door.reaches(agent) and await door.interrupt(agent):
                if in_hand is not None:
                    in_hand.interrupted_at = self._now()
                return True
        return False

    # ------------------------------------------------------------------------------------- running

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            try:
                while self._unheard:
                    self.hear(*self._unheard.popleft())
                for agent in {*await self._mailboxes.backlog(), *self._in_hand}:
                    self.wake(agent)
                while True:
                    await self._expire()
                    await asyncio.sleep(EXPIRE_SECONDS)
            finally:
                self._tasks = None

    async def take_up(self) -> None:
        """Learn what was under way when we last ended. First of all, before anybody tells of it."""
        recovered = await self._mailboxes.recover()
        seen = await self._mailboxes.tasks(TaskQuery(states=(_S.SEEN,)))
        for delivery in (*reversed(seen), *recovered.in_flight):
            if await self._has_asked(delivery):
                continue  # the agent is free until somebody answers it
            self._in_hand[delivery.recipient] = InHand(
                delivery, None, self._now(), is_unsure=delivery.state in IN_FLIGHT
            )

    async def _has_asked(self, delivery: Delivery) -> bool:
        thread = await self._mailboxes.thread(delivery.message.id)
        said = [each for each in thread if each.reply_to == delivery.message.id]
        return bool(said) and asks(said[-1])

    async def _expire(self) -> None:
        try:
            expired = await self._mailboxes.expire(now=self._now())
        except BullpenError as error:
            logger.error("what is too old could not be ended: %s", error)
            return
        for delivery in expired:
            logger.warning("%s expired before %s had it", delivery.message.id, delivery.recipient)
            await self._tell_sender(delivery, "it expired before the agent had it")
            self._signals.tell(delivery.message.id, delivery.recipient)

    def wake(self, agent: str) -> None:
        """Look at an agent again: it has mail, or something about it became different."""
        if agent == USER or is_guest(agent):
            return  # they fetch theirs
        event = self._woken.setdefault(agent, asyncio.Event())
        event.set()
        if self._tasks is not None and agent not in self._workers:
            worker = self._tasks.create_task(self._work(agent), name=f"courier:{agent}")
            self._workers[agent] = worker

    async def _work(self, agent: str) -> None:
        try:
            while await self._step(agent):
                event = self._woken[agent]
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._patience.look_again):
                        await event.wait()
        except Exception:  # the boundary: what befalls one agent's mail is not another's
            logger.exception("the mail of %s could not be delivered; it is tried again", agent)
            asyncio.get_running_loop().call_later(self._patience.look_again, self.wake, agent)
        finally:
            del self._workers[agent]
            if not self._woken[agent].is_set():
                del self._woken[agent]
            elif self._tasks is not None:
                asyncio.get_running_loop().call_soon(self.wake, agent)

    async def _step(self, agent: str) -> bool:
        """Do what can be done for an agent; return whether something is left to wait for."""
        while True:
            self._woken[agent].clear()
            if (in_hand := self._in_hand.get(agent)) is not None:
                await self._look_after(agent, in_hand)
                if agent in self._in_hand:
                    await self._make_room(agent, in_hand)
                    return True
            waiting = await self._mailboxes.waiting(agent, limit=1)
            if not waiting:
                self._holding.pop(agent, None)
                return False
            if not await self._try(agent, waiting[0]):
                return True

    # ------------------------------------------------------------------------------- handing over

    async def _try(self, agent: str, first: Delivery) -> bool:
        """Hand the next message over if that can be; return whether to go on at once."""
        if first.message.type in (MessageType.PING, MessageType.SHUTDOWN):
            return await self._hand_to_control(agent)
        door, why = self._choose(agent)
        if door is None and first.message.priority.interrupts:
            door, why = await self._interrupt(agent, why)
        if door is None:
            self._holding[agent] = why
            return False
        leased = await self._mailboxes.lease(agent, now=self._now(), seconds=LEASE_SECONDS)
        if not leased:
            self._holding[agent] = "it is tried again in a moment"
            return False
        self._holding.pop(agent, None)
        return await self._hand_over(agent, leased[0], door)

    def _choose(self, agent: str) -> tuple[Door | None, str]:
        addressee = self._directory.find(agent)
        if addressee is None or not addressee.is_present:
            return None, "the agent is not there; it waits for its return"
        reasons: dict[Rung, str] = {}
        for door in self._doors:
            if not door.reaches(agent):
                continue
            if Rung.OWN in reasons and door.rung is not Rung.HOOK:
                break  # what the program itself says is truer than its screen
            reason = door.is_open(agent)
            if not reason:
                return door, ""
            reasons[door.rung] = reason
        if not reasons:
            return None, "there is no way into it; it can fetch its messages by itself"
        told = [reason for rung, reason in reasons.items() if rung is not Rung.HOOK]
        return None, told[0] if told else reasons[Rung.HOOK]

    async def _make_room(self, agent: str, in_hand: InHand) -> None:
        """Interrupt the turn of a message if an urgent one waits behind it."""
        before = in_hand.interrupted_at
        if before is not None and self._seconds_since(before) < self._patience.interrupt:
            return
        addressee = self._directory.find(agent)
        if addressee is None or addressee.activity is not Activity.RUNNING or in_hand.is_handing:
            return
        waiting = await self._mailboxes.waiting(agent, limit=1)
        if waiting and waiting[0].message.priority.interrupts:
            await self.interrupt(agent)

    async def _interrupt(self, agent: str, why: str) -> tuple[Door | None, str]:
        """Make room for an urgent message, and wait until there is."""
        addressee = self._directory.find(agent)
        if addressee is None or addressee.activity is not Activity.RUNNING:
            return None, why  # a dialog is not for us to close, nor a draft to take away
        if not await self.interrupt(agent):
            return None, why
        event = self._woken[agent]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._patience.interrupt):
                while True:
                    chosen = self._choose(agent)
                    if chosen[0] is not None:
                        return chosen
                    event.clear()
                    await event.wait()
        return self._choose(agent)

    async def _hand_over(self, agent: str, delivery: Delivery, door: Door) -> bool:
        in_hand = InHand(delivery, door.rung, self._now(), is_handing=True)
        self._in_hand[agent] = in_hand  # a turn may be told before the door has answered

        async def note(state: ReceiptState, evidence: Evidence) -> None:
            await self._record(in_hand, state, evidence)

        self.on_handing(agent, delivery)
        try:
            result = await door.hand_over(delivery, note)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            logger.exception("the door %s to %s failed", door.rung, agent)
            result = Handover(Handed.UNSURE, f"the door failed: {error}")
        return await self._conclude(agent, in_hand, result)

    async def _conclude(self, agent: str, in_hand: InHand, result: Handover) -> bool:
        in_hand.is_handing = False
        if self._in_hand.get(agent) is not in_hand:
            return True  # it was answered meanwhile
        delivery = in_hand.delivery
        if result.outcome is Handed.TAKEN:
            if in_hand.early is not None:
                await self._hear_end(agent, in_hand, in_hand.early)
            await self._look_after(agent, in_hand)
            return agent not in self._in_hand
        if result.outcome is Handed.REFUSED:
            await self.give_up(delivery, result.reason or "it cannot be put into the agent")
            return True
        if delivery.state is _S.QUEUED and result.outcome is not Handed.UNSURE:
            self._let_go(agent)
            self._holding[agent] = result.reason or "the agent was not ready"
            with contextlib.suppress(MailError):  # it ended in between
                await self._mailboxes.put_back(delivery, now=self._now())
            return False
        in_hand.is_unsure = True
        evidence = Evidence(str(in_hand.rung), result.reason or "nothing shows what became of it")
        if delivery.state is _S.QUEUED:
            await self._record(in_hand, _S.INJECTED, evidence)
        logger.warning("%s may have reached %s: %s", delivery.message.id, agent, result.reason)
        return False

    async def _record(self, in_hand: InHand, state: ReceiptState, evidence: Evidence) -> None:
        """Write a step down, unless it is known already or something later is."""
        delivery = in_hand.delivery
        try:
            in_hand.delivery = await self._mailboxes.settle(
                delivery.message.id, delivery.recipient, state, now=self._now(), evidence=evidence
            )
        except ImpossibleReceipt:
            return
        self._signals.tell(delivery.message.id)

    async def _hand_to_control(self, agent: str) -> bool:
        """Ping and shutdown are for who runs the agent, not for the agent."""
        leased = await self._mailboxes.lease(agent, now=self._now())
        for delivery in leased:
            if not await self._control(delivery):
                with contextlib.suppress(LeaseLost, ImpossibleReceipt):
                    evidence = Evidence(MAILBOX, "the agent cannot be reached")
                    await self._mailboxes.release(delivery, now=self._now(), evidence=evidence)
            self._signals.tell(delivery.message.id)
        return bool(leased)

    # ---------------------------------------------------------------------------- what came of it

    def hear(self, agent: str, turn: Turn) -> None:
        """Take what was told of an agent's turn."""
        if self._tasks is None:
            self._unheard.append((agent, turn))
        elif (in_hand := self._in_hand.get(agent)) is not None:
            self._spawn(agent, self._hear(agent, in_hand, turn))

    def _spawn(self, agent: str, work: Coroutine[Any, Any, None]) -> None:
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

    async def _hear(self, agent: str, in_hand: InHand, turn: Turn) -> None:
        if turn.prompt is not None and is_about(turn.prompt, in_hand.message):
            in_hand.is_unsure = False
            in_hand.turn_id = turn.turn_id
            evidence = Evidence(turn.by, "a turn began with it", _where(turn))
            await self._record(in_hand, _S.SEEN, evidence)
        if turn.end is not None:
            await self._hear_end(agent, in_hand, turn)
        self.wake(agent)

    async def _hear_end(self, agent: str, in_hand: InHand, turn: Turn) -> None:
        if self._in_hand.get(agent) is not in_hand or self._is_of_another(agent, in_hand, turn):
            return
        if in_hand.is_handing:
            in_hand.early = turn
            return
        if in_hand.delivery.state is not _S.SEEN:
            if turn.end is TurnEnd.INTERRUPTED or in_hand.delivery.state is _S.QUEUED:
                return  # the end of what went before
            await self._record(in_hand, _S.SEEN, Evidence(turn.by, "a turn ended after it"))
        addressee = self._directory.find(agent)
        if turn.by in ON_SIGHT and addressee is not None and addressee.tells_turns:
            if in_hand.seen_end is None:
                in_hand.seen_end = turn
                loop = asyncio.get_running_loop()
                loop.call_later(self._patience.better_word, self._believe, agent, in_hand)
            return
        await self._end(agent, in_hand, turn)

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
        if self._in_hand.get(agent) is in_hand and in_hand.seen_end is not None:
            self._spawn(agent, self._end(agent, in_hand, in_hand.seen_end))

    async def _end(self, agent: str, in_hand: InHand, turn: Turn) -> None:
        if self._in_hand.get(agent) is not in_hand:
            return
        self._let_go(agent)
        if turn.turn_id:
            self._last_turn[agent] = turn.turn_id
        if in_hand.wants_answer:
            reply = reply_of_turn(
                in_hand.message, agent, turn, reply_id=self._new_id(), now=self._now()
            )
            await self._answer(reply)
        self._signals.tell(in_hand.message.id)
        self.wake(agent)

    async def note_step(
        self, agent: str, message_id: str, state: ReceiptState, evidence: Evidence
    ) -> None:
        """Take a step that a door told of after it had answered."""
        in_hand = self._in_hand.get(agent)
        if in_hand is not None and in_hand.message.id == message_id:
            in_hand.is_unsure = False
            await self._record(in_hand, state, evidence)

    async def never_arrived(self, agent: str, message_id: str) -> None:
        """Take the word of who was to put a message in that it has not: it may be tried again."""
        in_hand = self._in_hand.get(agent)
        if in_hand is None or in_hand.message.id != message_id:
            return
        if in_hand.delivery.state in (_S.QUEUED, *IN_FLIGHT):
            self._let_go(agent)
            evidence = Evidence(str(in_hand.rung or MAILBOX), "it was not put in")
            with contextlib.suppress(MailError):
                await self._mailboxes.release(in_hand.delivery, now=self._now(), evidence=evidence)
        self.wake(agent)

    def answered(self, message_id: str, agent: str) -> None:
        """Learn that an agent has answered a message by itself."""
        in_hand = self._in_hand.get(agent)
        if in_hand is not None and in_hand.message.id == message_id:
            self._let_go(agent)
            self.wake(agent)

    def _let_go(self, agent: str) -> None:
        """Have an agent without a message again."""
        if self._in_hand.pop(agent, None) is not None:
            self.on_over(agent)

    async def give_up(self, delivery: Delivery, reason: str, *, is_canceled: bool = False) -> None:
        """End a message that waits or is worked on, and tell its sender."""
        in_hand = self._in_hand.get(delivery.recipient)
        if in_hand is not None and in_hand.message.id == delivery.message.id:
            self._let_go(delivery.recipient)
        data = {"canceled": True} if is_canceled else {}
        state = _S.DEAD if delivery.state is _S.QUEUED else _S.FAILED
        with contextlib.suppress(ImpossibleReceipt, MessageNotFound):
            await self._mailboxes.settle(
                delivery.message.id,
                delivery.recipient,
                state,
                now=self._now(),
                evidence=Evidence(MAILBOX, reason, data),
            )
        await self._tell_sender(delivery, reason)
        self._signals.tell(delivery.message.id, delivery.recipient)
        self.wake(delivery.recipient)

    async def _look_after(self, agent: str, in_hand: InHand) -> None:
        """See whether a message an agent has still may come to something."""
        addressee = self._directory.find(agent)
        if addressee is None or not addressee.is_present:
            await self._agent_gone(in_hand)
        elif in_hand.delivery.state in (_S.ANSWERED, _S.FAILED):
            self._let_go(agent)
        elif in_hand.is_unsure and self._is_out_of_patience(in_hand):
            await self.give_up(in_hand.delivery, "nothing shows whether the agent has had it")
        elif not in_hand.wants_answer and self._is_quiet(in_hand, addressee):
            self._let_go(agent)  # nobody waits for what comes of it
        elif in_hand.delivery.state is _S.SEEN and self._is_silent(agent, in_hand, addressee):
            # Some programs tell nothing of a turn that somebody broke off.
            was_interrupted = in_hand.interrupted_at is not None
            reason = "the agent has stopped and did not answer"
            await self.give_up(
                in_hand.delivery, "the turn was interrupted" if was_interrupted else reason
            )

    async def _agent_gone(self, in_hand: InHand) -> None:
        if in_hand.is_unsure and in_hand.rung is None:
            if not self._is_out_of_patience(in_hand):
                return  # we have just begun; its wrapper may still come back
        elif in_hand.rung is None and not self._is_out_of_patience(in_hand):
            return
        seen = in_hand.delivery.state is _S.SEEN
        reason = (
            "the agent ended without answering" if seen else "the agent ended; it may have had it"
        )
        await self.give_up(in_hand.delivery, reason)

    def _is_out_of_patience(self, in_hand: InHand) -> bool:
        waited = (self._now() - in_hand.since).total_seconds()
        return waited >= self._patience.sign_of_life

    def _is_silent(self, agent: str, in_hand: InHand, addressee: Addressee) -> bool:
        if addressee.activity not in _STOPPED:
            in_hand.idle_since = None
            return False
        patience = self._patience
        seconds = patience.answer if in_hand.interrupted_at is None else patience.stopped
        if in_hand.idle_since is None:
            in_hand.idle_since = self._now()
            asyncio.get_running_loop().call_later(seconds, self.wake, agent)
        return self._seconds_since(in_hand.idle_since) >= seconds

    def _seconds_since(self, time: datetime) -> float:
        return (self._now() - time).total_seconds()

    def _is_quiet(self, in_hand: InHand, addressee: Addressee) -> bool:
        is_past = (self._now() - in_hand.since).total_seconds() >= self._patience.better_word
        return is_past and addressee.activity is not Activity.RUNNING

    async def _tell_sender(self, delivery: Delivery, reason: str) -> None:
        if delivery.message.type is not MessageType.TASK_REQUEST:
            return
        reply = failure_reply(
            delivery.message, delivery.recipient, reason, reply_id=self._new_id(), now=self._now()
        )
        with contextlib.suppress(MailError):  # its mailbox is full; the receipt tells
            await self._answer(reply)


def _where(turn: Turn) -> dict[str, str]:
    found = {"turn": turn.turn_id, "session": turn.session_id}
    return {key: value for key, value in found.items() if value}
