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
from collections.abc import Awaitable, Callable
from datetime import datetime

from bullpen.errors import BullpenError
from bullpen.mail.directory import Addressee, Directory
from bullpen.mail.doors import Door, Handed, Handover, Rung
from bullpen.mail.errors import ImpossibleReceipt, LeaseLost, MailError
from bullpen.mail.in_hand import InHand, Patience
from bullpen.mail.ladder import Ladder
from bullpen.mail.mailboxes import MAILBOX, Mailboxes
from bullpen.mail.outcomes import UNKEPT_SECONDS, Answer, NotKept, Outcomes, why_gone
from bullpen.mail.policy import USER, is_guest
from bullpen.mail.receipts import IN_FLIGHT
from bullpen.mail.signals import Signals
from bullpen.mail.tasks import asks
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState, TaskQuery
from bullpen.model.messages import Message, MessageType
from bullpen.model.states import Activity
from bullpen.model.turns import Turn

__all__ = ["Courier"]

logger = logging.getLogger("bullpen.mail")

_S = ReceiptState
_STOPPED = (Activity.IDLE, Activity.ERROR, Activity.RATE_LIMITED)
LEASE_SECONDS = 120.0  # longer than any door may take
EXPIRE_SECONDS = 1.0
SOON_SECONDS = 0.05  # the least between two looks at what is tried again at a time
CONTROL = "control"
"""Who ends agents, as a holder of leases."""

Now = Callable[[], datetime]


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
        self._ladder = Ladder(directory)
        self._signals = signals
        self._control = control
        self._now = now
        self._patience = patience or Patience()
        self._outcomes = Outcomes(
            mailboxes,
            directory,
            signals,
            answer=answer,
            wake=self.wake,
            now=now,
            new_id=new_id,
            patience=self._patience,
        )
        self._holding: dict[str, str] = {}
        self._woken: dict[str, asyncio.Event] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._began_at = now()
        self.on_handing: Callable[[str, Delivery], None] = lambda *_: None
        """Told of an agent that is about to be given something."""

    @property
    def on_over(self) -> Callable[[str], None]:
        """Told of an agent whose message has come to its end."""
        return self._outcomes.on_over

    @on_over.setter
    def on_over(self, told: Callable[[str], None]) -> None:
        self._outcomes.on_over = told

    def add_door(self, door: Door) -> None:
        """Have one more way into agents."""
        self._ladder.add(door)

    # ------------------------------------------------------------------------------- what it is at

    @property
    def outcomes(self) -> Outcomes:
        """What agents have, and what comes of it."""
        return self._outcomes

    def working_on(self, agent: str) -> Message | None:
        """Return the message an agent has."""
        found = self._outcomes.in_hand.get(agent)
        return found.message if found is not None else None

    def under_way(self) -> dict[str, Delivery]:
        """Return what agents have, or may have."""
        return {agent: each.delivery for agent, each in self._outcomes.in_hand.items()}

    def holding(self, agent: str) -> str:
        """Return why an agent's next message is not handed over, in words; empty if none waits."""
        if (found := self._outcomes.in_hand.get(agent)) is not None:
            words = f"it has the message {found.message.id}"
            addressee = self._directory.find(agent)
            is_asking = addressee is not None and addressee.activity.is_waiting
            return f"{words}, and waits for a person's decision" if is_asking else words
        return self._holding.get(agent, "")

    def doors_to(self, agent: str) -> tuple[Rung, ...]:
        """Return the ways into an agent, best first."""
        return self._ladder.to(agent)

    async def interrupt(self, agent: str) -> bool:
        """Interrupt what an agent is doing; return whether there was a way to."""
        in_hand = self._outcomes.in_hand.get(agent)
        if not await self._ladder.interrupt(agent):
            return False
        if in_hand is not None:
            in_hand.interrupted_at = self._now()
        return True

    def declined(self, agent: str) -> None:
        """Learn that an agent was not allowed what it asked for while it worked on a message."""
        if (in_hand := self._outcomes.in_hand.get(agent)) is not None:
            in_hand.is_declined = True

    # ------------------------------------------------------------------------------------- running

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._tasks = group
            self._outcomes.begin(group)
            try:
                backlog = await self._mailboxes.backlog()
                for agent in {*backlog, *self._outcomes.in_hand, *self._woken}:
                    self.wake(agent)
                while True:
                    await self._expire()
                    await asyncio.sleep(EXPIRE_SECONDS)
            finally:
                self._tasks = None
                self._outcomes.begin(None)

    async def take_up(self) -> None:
        """Learn what was under way when we last ended. First of all, before anybody tells of it."""
        self._began_at = self._now()
        recovered = await self._mailboxes.recover()
        seen = await self._mailboxes.tasks(TaskQuery(states=(_S.SEEN,)))
        for delivery in (*reversed(seen), *recovered.in_flight, *recovered.in_doubt):
            if await self._has_asked(delivery):
                continue  # the agent is free until somebody answers it
            by = delivery.leased_by
            self._outcomes.in_hand[delivery.recipient] = InHand(
                delivery,
                Rung(by) if by in set(Rung) else None,
                self._began_at,
                is_unsure=delivery.state is not _S.SEEN,
                is_recovered=True,
            )

    async def _has_asked(self, delivery: Delivery) -> bool:
        thread = await self._mailboxes.thread(delivery.message.id)
        said = [each for each in thread if each.reply_to == delivery.message.id]
        return bool(said) and asks(said[-1])

    async def _expire(self) -> None:
        def tell(delivery: Delivery) -> Message | None:
            return self._outcomes.word(delivery, "it expired before the agent had it")

        try:
            expired = await self._mailboxes.expire(now=self._now(), tell=tell)
        except BullpenError as error:
            logger.error("what is too old could not be ended: %s", error)
            return
        for delivery in expired:
            logger.warning("%s expired before %s had it", delivery.message.id, delivery.recipient)
            self._outcomes.tell_over(delivery)

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
            while (seconds := await self._step(agent)) is not None:
                event = self._woken[agent]
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await event.wait()
        except Exception as error:  # the boundary: what befalls one agent's mail is not another's
            is_a_bug = not isinstance(error, BullpenError)
            logger.error(
                "the mail of %s cannot be delivered now: %s", agent, error, exc_info=is_a_bug
            )
            asyncio.get_running_loop().call_later(self._patience.look_again, self.wake, agent)
        finally:
            del self._workers[agent]
            if not self._woken[agent].is_set():
                del self._woken[agent]
            elif self._tasks is not None:
                asyncio.get_running_loop().call_soon(self.wake, agent)

    async def _step(self, agent: str) -> float | None:
        """Do what can be done for an agent; return when to look again, None if nothing is left."""
        while True:
            self._woken[agent].clear()
            if (in_hand := self._outcomes.in_hand.get(agent)) is not None:
                await self._look_after(agent, in_hand)
                if agent in self._outcomes.in_hand:
                    await self._make_room(agent, in_hand)
                    return UNKEPT_SECONDS if in_hand.is_unkept else self._patience.look_again
            await self._end_left(agent)
            waiting = await self._mailboxes.waiting(agent, limit=1)
            if not waiting:
                self._holding.pop(agent, None)
                return None
            if not await self._try(agent, waiting[0]):
                return self._next_look(agent, waiting[0])

    def _next_look(self, agent: str, first: Delivery) -> float:
        """Return after how many seconds to look again: in time for what is tried again."""
        in_hand = self._outcomes.in_hand.get(agent)
        if in_hand is not None and in_hand.is_unkept:
            return UNKEPT_SECONDS
        pause = (first.available_at - self._now()).total_seconds()
        longest = self._patience.look_again
        return max(min(pause, longest), SOON_SECONDS) if pause > 0 else longest

    # ------------------------------------------------------------------------------- handing over

    async def _try(self, agent: str, first: Delivery) -> bool:
        """Hand the next message over if that can be; return whether to go on at once."""
        if first.message.type in (MessageType.PING, MessageType.SHUTDOWN):
            return await self._hand_to_control(agent, first.message.type)
        door, why = self._ladder.choose(agent)
        if door is None and first.message.priority.interrupts:
            door, why = await self._interrupt(agent, why)
        if door is None:
            self._holding[agent] = why
            return False
        by = "" if door.rung is Rung.HOOK else str(door.rung)  # which notes it before it is in
        leased = await self._mailboxes.lease(agent, now=self._now(), seconds=LEASE_SECONDS, by=by)
        if not leased:
            self._holding[agent] = self._holding.get(agent) or "it is tried again in a moment"
            return False
        self._holding.pop(agent, None)
        if await self._outcomes.was_given_up(leased[0]):
            return True
        in_hand = InHand(leased[0], door.rung, self._now())
        return await self._hand_over(agent, in_hand, door)

    async def _make_room(self, agent: str, in_hand: InHand) -> None:
        """Interrupt the turn of a message if an urgent one waits behind it."""
        if in_hand.interrupted_at is not None:
            waited = in_hand.seconds_since("interrupted_at", self._now())
            if waited < self._patience.interrupt:
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
                    chosen = self._ladder.choose(agent)
                    if chosen[0] is not None:
                        return chosen
                    event.clear()
                    await event.wait()
        return self._ladder.choose(agent)

    async def _hand_over(self, agent: str, in_hand: InHand, door: Door) -> bool:
        in_hand.is_handing, in_hand.is_to_be_asked = True, False
        self._outcomes.in_hand[agent] = in_hand  # a turn may be told before the door has answered
        delivery = in_hand.delivery

        async def note(state: ReceiptState, evidence: Evidence) -> None:
            if not await self._outcomes.record(in_hand, state, evidence):
                raise NotKept(delivery.message.id, state)

        self.on_handing(agent, delivery)
        try:
            result = await door.hand_over(delivery, note)
        except asyncio.CancelledError:
            raise
        except NotKept as error:
            result = Handover(Handed.UNSURE, str(error))
        except Exception as error:
            logger.exception("the door %s to %s failed", door.rung, agent)
            result = Handover(Handed.UNSURE, f"the door failed: {error}")
        return await self._conclude(agent, in_hand, result)

    async def _conclude(self, agent: str, in_hand: InHand, result: Handover) -> bool:
        in_hand.is_handing = False
        if self._outcomes.in_hand.get(agent) is not in_hand:
            return True  # it was answered meanwhile
        delivery = in_hand.delivery
        if result.outcome is Handed.TAKEN:
            in_hand.is_unsure = False
            if in_hand.early is not None:
                await self._outcomes.hear_end(agent, in_hand, in_hand.early)
            await self._look_after(agent, in_hand)
            return agent not in self._outcomes.in_hand
        is_in_doubt = in_hand.is_unsure  # a door that is asked again says what was not known
        if result.outcome is not Handed.UNSURE and (delivery.state is _S.QUEUED or is_in_doubt):
            return await self._not_put_in(agent, in_hand, result)
        in_hand.is_unsure = True
        evidence = Evidence(str(in_hand.rung), result.reason or "nothing shows what became of it")
        if delivery.state is _S.QUEUED:
            await self._outcomes.record(in_hand, _S.INJECTED, evidence)
        logger.warning("%s may have reached %s: %s", delivery.message.id, agent, result.reason)
        return False

    async def _not_put_in(self, agent: str, in_hand: InHand, result: Handover) -> bool:
        """Have a message wait again of which nothing was put in, or give it up."""
        delivery = in_hand.delivery
        reason = result.reason or "the agent was not ready"
        in_hand.not_in = result  # until that is written down
        if result.outcome is Handed.REFUSED:
            await self._outcomes.give_up(delivery, reason, state=_S.DEAD)
            return True
        with contextlib.suppress(MailError):  # it ended in between
            if result.outcome is Handed.GONE or delivery.state is not _S.QUEUED:
                await self._release(delivery, reason)
            else:
                await self._mailboxes.put_back(delivery, now=self._now())
        self._outcomes.let_go(agent)
        self._holding[agent] = reason
        return False

    async def _release(self, delivery: Delivery, reason: str) -> None:
        """Try a message again after a pause, or give it up after the last one."""
        evidence = Evidence(delivery.leased_by or MAILBOX, reason)
        released = await self._mailboxes.release(
            delivery,
            now=self._now(),
            evidence=evidence,
            tell=lambda dead: self._outcomes.word(dead, reason),
        )
        what = (delivery.message.id, delivery.recipient, delivery.attempt, reason)
        if released.state is _S.DEAD:
            logger.error("%s could not be given to %s in %d attempts: %s", *what)
        else:
            logger.warning("%s is tried again for %s, after attempt %d: %s", *what)
        self._outcomes.tell_over(released)

    async def _hand_to_control(self, agent: str, kind: MessageType) -> bool:
        """Ping and shutdown are for who runs the agent, not for the agent."""
        by = CONTROL if kind is MessageType.SHUTDOWN else ""  # nobody is to be ended twice
        leased = await self._mailboxes.lease(agent, now=self._now(), by=by)
        for delivery in leased:
            reason = "the agent cannot be reached"
            try:
                is_done = await self._control(delivery)
            except BullpenError as error:
                is_done, reason = False, str(error)
            if not is_done:
                with contextlib.suppress(LeaseLost, ImpossibleReceipt):
                    await self._release(delivery, reason)
            self._signals.tell(delivery.message.id)
        return bool(leased)

    # ---------------------------------------------------------------------------- what came of it

    def hear(self, agent: str, turn: Turn) -> None:
        """Take what was told of an agent's turn."""
        self._outcomes.hear(agent, turn)

    async def note_step(
        self, agent: str, message_id: str, state: ReceiptState, evidence: Evidence
    ) -> None:
        """Take a step that a door told of after it had answered."""
        await self._outcomes.note_step(agent, message_id, state, evidence)

    def answered(self, message_id: str, agent: str) -> None:
        """Learn that an agent has answered a message by itself."""
        self._outcomes.answered(message_id, agent)

    async def give_up(self, delivery: Delivery, reason: str, *, is_canceled: bool = False) -> None:
        """End a message that waits or is worked on, and tell its sender."""
        await self._outcomes.give_up(delivery, reason, is_canceled=is_canceled)

    def returned(self, agent: str) -> None:
        """Learn that who types for an agent has come back: it is asked what became of the message.

        It is asked by handing over the same attempt once more, which it does only if it has not.
        """
        in_hand = self._outcomes.in_hand.get(agent)
        if in_hand is not None and in_hand.rung is Rung.PTY:
            in_hand.is_recovered = False
            in_hand.is_to_be_asked = in_hand.delivery.state in (_S.QUEUED, *IN_FLIGHT)
        self.wake(agent)

    async def _end_left(self, agent: str) -> None:
        """End what an agent has fetched by itself and can answer no more, since it is gone."""
        addressee = self._directory.find(agent)
        self._began_at = min(self._began_at, self._now())  # the clock may have been set back
        waited = (self._now() - self._began_at).total_seconds()
        is_there = addressee is not None and addressee.is_present
        if not is_there and waited >= self._patience.sign_of_life:  # else it may be coming back
            await self._outcomes.agent_ended(agent)

    async def _look_after(self, agent: str, in_hand: InHand) -> None:
        """See whether a message an agent has still may come to something."""
        if in_hand.unkept is not None and not await self._outcomes.record(in_hand, *in_hand.unkept):
            return
        if in_hand.end is not None:
            await self._outcomes.end(agent, in_hand, in_hand.end)
            return
        if in_hand.not_in is not None:
            await self._not_put_in(agent, in_hand, in_hand.not_in)
            return
        addressee = self._directory.find(agent)
        door = self._ladder.find(agent, in_hand.rung) if in_hand.is_to_be_asked else None
        if door is not None and not in_hand.is_handing:
            await self._hand_over(agent, in_hand, door)
        elif addressee is None or not addressee.is_present:
            await self._agent_gone(in_hand)
        elif in_hand.delivery.state in (_S.ANSWERED, _S.FAILED):
            self._outcomes.let_go(agent)
        elif in_hand.is_unsure and self._is_out_of_patience(in_hand):
            await self.give_up(in_hand.delivery, "nothing shows whether the agent has had it")
        elif not in_hand.wants_answer and self._is_quiet(in_hand, addressee):
            self._outcomes.let_go(agent)  # nobody waits for what comes of it
        elif in_hand.delivery.state is _S.SEEN and self._is_silent(agent, in_hand, addressee):
            # Some programs tell nothing of a turn that somebody broke off.
            reason = "the agent has stopped and did not answer"
            if in_hand.interrupted_at is not None:
                reason = "the turn was interrupted"
            elif in_hand.is_declined:
                reason = "what the agent asked for was declined, and it has stopped"
            await self.give_up(in_hand.delivery, reason)

    async def _agent_gone(self, in_hand: InHand) -> None:
        if in_hand.is_recovered and not self._is_out_of_patience(in_hand):
            return  # we have just begun; its wrapper may still come back
        await self.give_up(in_hand.delivery, why_gone(in_hand.delivery))

    def _is_out_of_patience(self, in_hand: InHand) -> bool:
        return in_hand.seconds_since("since", self._now()) >= self._patience.sign_of_life

    def _is_silent(self, agent: str, in_hand: InHand, addressee: Addressee) -> bool:
        if addressee.activity not in _STOPPED:
            in_hand.idle_since = None
            return False
        patience = self._patience
        seconds = patience.better_word if in_hand.is_declined else patience.answer
        if in_hand.interrupted_at is not None:
            seconds = patience.stopped
        if in_hand.idle_since is None:
            in_hand.idle_since = self._now()
            asyncio.get_running_loop().call_later(seconds, self.wake, agent)
        return in_hand.seconds_since("idle_since", self._now()) >= seconds

    def _is_quiet(self, in_hand: InHand, addressee: Addressee) -> bool:
        is_past = in_hand.seconds_since("since", self._now()) >= self._patience.better_word
        return is_past and addressee.activity is not Activity.RUNNING
