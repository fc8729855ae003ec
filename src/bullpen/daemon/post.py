"""The mail of one daemon, composed: who takes messages, delivers them, tells what came of them.

Mailboxes are in the store; the office takes messages; the courier delivers them through the doors;
wrappers and programs tell what became of them. What is asked of it over the wire is in `talk`.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import msgspec

from bullpen.agents.processes import is_running
from bullpen.api import wrapping
from bullpen.api.errors import ApiError
from bullpen.api.runtime import Paths
from bullpen.api.settings import MailSettings
from bullpen.connection import Context
from bullpen.daemon.callers import Callers
from bullpen.daemon.contacts import Contacts
from bullpen.daemon.dialogs import Dialogs
from bullpen.daemon.doors.pty import PtyDoor, attempt_id
from bullpen.daemon.elsewhere import Elsewhere
from bullpen.daemon.identity import IdentityBook
from bullpen.daemon.wrappers import (
    LONGEST_NAME,
    LONGEST_TITLE,
    RETURN_SECONDS,
    Wrapper,
    Wrappers,
)
from bullpen.errors import BullpenError
from bullpen.mail.asked import Asked
from bullpen.mail.courier import Courier
from bullpen.mail.ledger import Rules
from bullpen.mail.mailboxes import Appended, Mailboxes, Settling
from bullpen.mail.memory import MemoryMailboxes
from bullpen.mail.office import PostOffice
from bullpen.mail.policy import USER, Policy, RateLimit
from bullpen.mail.policy_file import read_policy
from bullpen.mail.receipts import outcome_of_reply
from bullpen.mail.sayings import Piece, Sayings
from bullpen.mail.signals import Signals
from bullpen.mail.sqlite import SqliteMailboxes
from bullpen.mail.tasks import asks
from bullpen.mail.timeouts import Timeouts
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import Message, MessageType, message_size
from bullpen.model.reasons import Reason
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd, Utterance
from bullpen.model.views import AgentState
from bullpen.store.identities import Identities
from bullpen.store.store import Store

__all__ = ["Post", "new_id"]

logger = logging.getLogger("bullpen.mail")

_S = ReceiptState
TELLERS_KEPT = 1000
LOOK_SECONDS = 2.0  # at wrappers that may have died, and at the rules
KEEP_SECONDS = 8.0  # for what a turn ended with; its wrapper waits a little longer
FORGOTTEN_AT_ONCE = 500
MOST_EVIDENCE_BYTES = 4000
ENDS = {"interrupted": TurnEnd.INTERRUPTED, "rate_limit": TurnEnd.RATE_LIMITED}
"""How turns end that are not well; others have failed."""
STEPS = (_S.INJECTED, _S.SUBMITTED, _S.SEEN)
"""What a wrapper may say of a message."""


class Post:
    """The mail of one daemon. Made by `open`, over the mailboxes of a store.

    `name` mints the ids of messages.
    """

    def __init__(
        self,
        mailboxes: Mailboxes,
        identities: IdentityBook,
        settings: MailSettings,
        paths: Paths,
        now: Callable[[], datetime],
        *,
        agents: Callable[[], Iterable[AgentState]],
        on_wrapper: Callable[[Wrapper], None],
        on_rules: Callable[[str], None] = lambda _: None,
        name: Callable[[], str] | None = None,
    ) -> None:
        self._settings = settings
        self._paths = paths
        self.now = now
        self._agents = agents
        self._on_wrapper = on_wrapper
        self._on_rules = on_rules
        self.policy = Policy(rate=self._rate)
        self.timeouts = Timeouts(
            start=settings.start_seconds,
            send=settings.send_seconds,
            receive=settings.receive_seconds,
            task=settings.task_seconds,
            idle=settings.idle_seconds,
        )
        self._tellers: dict[str, None] = {}
        self.callers = Callers()
        self.signals = Signals()
        self.identities = identities
        self._new_id = name or new_id
        self._policy_trouble = ""
        self.mailboxes = mailboxes
        self.wrappers = Wrappers(
            identities,
            paths.agents,
            is_taken=self._is_taken,
            on_change=self.wrapper_changed,
            on_new=self._take_in,
            on_attempts=self._take_attempts,
            on_step=self._take_step,
            on_said=self._take_said,
            on_answered=self._take_answer,
            on_dialog=lambda wrapper: self.changed([wrapper.name]),
        )
        self.elsewhere = Elsewhere(paths, now)
        self.contacts = Contacts(
            agents,
            self.wrappers,
            identities,
            self.elsewhere,
            has_told=self._tellers.__contains__,
        )
        self.office = PostOffice(
            self.mailboxes,
            self.contacts,
            self.signals,
            policy=lambda: self.policy,
            cause_of=self.working_on,
            now=now,
            new_id=self._new_id,
            on_sent=self._sent,
        )
        self.courier = Courier(
            self.mailboxes,
            self.contacts,
            self.signals,
            answer=self.office.append,
            control=self._control,
            now=now,
            new_id=self._new_id,
        )
        self._asked = Asked(self.mailboxes, self.signals, now=now)
        door = PtyDoor(self.wrappers, start_seconds=self.timeouts.start)
        self.courier.add_door(door)
        self.dialogs = Dialogs(self.wrappers, lambda name: self.changed([name]))
        self.sayings = Sayings()
        self.on_said: Callable[[str, Piece], None] = lambda *_: None
        """Told what is said while a task is worked on, by the task's id."""

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        store: Store,
        settings: MailSettings,
        paths: Paths,
        now: Callable[[], datetime],
        **more: Any,
    ) -> AsyncIterator["Post"]:
        """Take over the mail of a store for a block. Nothing is delivered before `run`.

        Raises:
            SettingsError: the rules cannot be read, so that nobody knows who may write to whom.
        """
        identities = await IdentityBook.open(Identities(store.database), now)
        async with _mailboxes(store, settings) as mailboxes:
            found = cls(mailboxes, identities, settings, paths, now, **more)
            await found._take_policy()
            await found.elsewhere.look()
            await found.courier.take_up()
            yield found

    @property
    def _rate(self) -> RateLimit:
        return RateLimit(self._settings.rate_per_second, self._settings.rate_burst)

    async def _is_taken(self, name: str) -> bool:
        """Whether a name is that of an agent nobody wrapped, and which is still there."""
        for each in self._agents():
            if each.name == name and each.activity is not Activity.EXITED:
                return not each.pid or await asyncio.to_thread(is_running, each.pid)
        return False

    # ------------------------------------------------------------------------------------- running

    async def run(self) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.courier.run(), name="courier")
            group.create_task(self._keep_looking(), name="talk:look")

    async def _keep_looking(self) -> None:
        loop = asyncio.get_running_loop()
        awaited_until: float | None = loop.time() + RETURN_SECONDS
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._let_dead_go()
                self._tell_late()
                if awaited_until is not None and loop.time() >= awaited_until:
                    await self._let_missing_go()
                    awaited_until = None
            except BullpenError as error:
                logger.error("that agents have gone could not be kept: %s", error)
            await self._read_policy()
            self.changed(await self.elsewhere.look())

    async def _let_dead_go(self) -> None:
        for wrapper in await self.wrappers.forget_dead():
            logger.warning("the wrapper of %s is gone without a word", wrapper.name)
            try:
                await self.wrappers.lose(wrapper.name)
            finally:
                self.wrapper_changed(wrapper)

    def _tell_late(self) -> None:
        """Say which agents were started and have not become ready in time."""
        for wrapper in self.wrappers.all():
            if not wrapper.is_told_late and wrapper.is_late(self.timeouts.start):
                wrapper.is_told_late = True
                what = (wrapper.name, self.timeouts.start)
                logger.warning("%s has not become ready within %g s of its start", *what)
                self.wake(wrapper.name)

    async def _let_missing_go(self) -> None:
        """Let those speak no more who were there before we were started and did not come back."""
        for name in self.identities.speaking:
            if self.wrappers.find(name) is None:
                await self.wrappers.lose(name)

    async def forget(self) -> None:
        """Remove messages that have ended so long ago that they are not kept."""
        before = self.now() - timedelta(days=self._settings.retention_days)
        forgotten = 1
        while forgotten:  # by and by, so that others have their turn
            forgotten = await self.mailboxes.forget(before=before, limit=FORGOTTEN_AT_ONCE)

    async def _take_policy(self) -> None:
        self.policy = await asyncio.to_thread(read_policy, self._paths.policy, self._rate)

    async def _read_policy(self) -> None:
        trouble = ""
        try:
            await self._take_policy()
        except Exception as error:  # noqa: BLE001 - the rules that hold go on holding
            trouble = str(error)
        if trouble == self._policy_trouble:
            return
        if trouble:
            logger.error("the rules are not changed: %s", trouble)
        self._policy_trouble = trouble
        self._on_rules(trouble)

    def changed(self, names: Iterable[str]) -> None:
        """Learn that something about these agents became different."""
        for name in names:
            self.wake(name)
            if (current := self.working_on(name)) is not None:
                self.signals.tell(current.id)

    def wake(self, name: str) -> None:
        """Have the mail of an agent looked at."""
        self.courier.wake(name)

    def working_on(self, agent: str) -> Message | None:
        """Return the message an agent has."""
        return self.courier.working_on(agent)

    # ----------------------------------------------------------------------------- what was told us

    def hear(self, agent: str, turn: Turn) -> None:
        """Take what a program told of a turn of its own."""
        self._tellers.pop(agent, None)
        self._tellers[agent] = None
        while len(self._tellers) > TELLERS_KEPT:
            del self._tellers[next(iter(self._tellers))]
        self._note_session(agent, turn.session_id)
        self.courier.hear(agent, turn)

    def _note_session(self, agent: str, session_id: str) -> None:
        """Learn which session a wrapped agent is in, so that nobody takes it for another agent."""
        wrapper = self.wrappers.find(agent)
        if wrapper is None or not session_id:
            return
        key = f"{wrapper.said.provider}:{session_id}"
        if key not in wrapper.sessions:
            wrapper.sessions.add(key)
            self.wrapper_changed(wrapper)

    def hear_said(self, agent: str, said: Utterance) -> None:
        """Take what an agent says while it works, if it says that of the message it has."""
        has = self.courier.outcomes.in_hand.get(agent)
        if has is None or (said.turn_id and said.turn_id != has.turn_id):
            return  # somebody else has asked for it
        if (piece := self.sayings.hear(agent, has.message.id, said)) is not None:
            self.on_said(has.message.id, piece)

    def hear_on_sight(self, agent: str, turn: Turn) -> None:
        """Take what a screen shows of a turn, which says nothing of who else would tell."""
        self.courier.hear(agent, turn)

    async def turns_awaited(self, agent: str) -> tuple[str, ...]:
        """Return the turns that an agent's message was seen in: they may have ended meanwhile."""
        current = self.working_on(agent)
        if current is None:
            return ()
        receipts = await self.mailboxes.receipts(current.id)
        data = [each.evidence.data for each in receipts]
        found = (each.get("turn_id") or each.get("turn") for each in data)
        return tuple(dict.fromkeys(each for each in found if isinstance(each, str)))

    def _sent(self, appended: Appended) -> None:
        message = appended.message
        names = [each.recipient for each in appended.deliveries]
        size = appended.deliveries[0].size if appended.deliveries else message_size(message)
        logger.info(
            "%s → %s: %s %s, %d bytes",
            *(message.from_agent, ", ".join(names), message.type, message.id, size),
        )
        logger.debug("%s says: %s", message.id, message.content)
        is_answer = outcome_of_reply(message.type) is not None or asks(message)
        current = self.working_on(message.from_agent)
        if current is not None and current.id == message.reply_to:
            self.sayings.note_sent(message.from_agent, current.id)
        is_begun = current is not None and current.id == message.reply_to and not current.reply_to
        if message.reply_to and is_answer:
            self.courier.answered(message.reply_to, message.from_agent)
        if message.reply_to and not is_begun:  # else there is nothing that went on with it
            self.courier.outcomes.begin_work(message.from_agent, self._asked.note(message))
        for name in names:
            self.wake(name)

    def wrapper_changed(self, wrapper: Wrapper) -> None:
        """Learn that a wrapper came, went, or says something else of its program."""
        self._on_wrapper(wrapper)
        self.wake(wrapper.name)

    async def _take_in(self, wrapper: Wrapper) -> None:
        """Take a new agent; whoever had its name before has ended."""
        await self.courier.outcomes.agent_ended(wrapper.name)

    async def _take_attempts(self, wrapper: Wrapper, attempts: Sequence[wrapping.Attempt]) -> None:
        """Take from a wrapper that has come back what became of what it typed."""
        for attempt in attempts:
            evidence = attempt.evidence or Evidence("pty", "told when its wrapper came back")
            await self._note(wrapper, attempt.attempt_id, attempt.state, evidence)
        self.courier.returned(wrapper.name)

    async def _take_step(self, wrapper: Wrapper, told: wrapping.StepTaken) -> None:
        await self._note(wrapper, told.attempt_id, told.state, told.evidence)

    def _take_said(self, wrapper: Wrapper, told: wrapping.Said) -> None:
        """Take what a program says; not what comes after something that was not heard."""
        current = self._current(wrapper, told.attempt_id)
        if current is None or self.sayings.sends(wrapper.name, current.id):
            return
        if told.at in (0, self.sayings.length(current.id)):
            self.hear_said(wrapper.name, Utterance(text=told.text, is_new=told.at == 0))

    async def _note(
        self, wrapper: Wrapper, attempt: str, state: ReceiptState, evidence: Evidence
    ) -> None:
        """Write a step down that a wrapper tells, if it is one of what it was given."""
        current = self._current(wrapper, attempt)
        if current is not None and state in STEPS:
            await self.courier.outcomes.note_step(wrapper.name, current.id, state, modest(evidence))

    def _current(self, wrapper: Wrapper, attempt: str) -> Message | None:
        """Return the message of an attempt, if its agent has it."""
        found = self.courier.under_way().get(wrapper.name)
        return found.message if found is not None and attempt_id(found) == attempt else None

    async def _take_answer(self, wrapper: Wrapper, told: wrapping.Answered) -> None:
        """Take the end of a turn; what came of it is kept when this returns.

        Raises:
            ApiError: it could not be kept so far.
        """
        current = self._current(wrapper, told.attempt_id)
        if current is None:
            return  # it was answered in a better way
        end = TurnEnd.DONE if told.is_ok else ENDS.get(told.how, TurnEnd.FAILED)
        if told.is_ok:
            await self._note(wrapper, told.attempt_id, _S.SEEN, told.evidence)
        turn = Turn(by="pty", end=end, text=told.text)
        if not await self.courier.outcomes.hear_out(wrapper.name, current.id, turn, KEEP_SECONDS):
            raise ApiError(Reason.STORE_UNAVAILABLE, f"the answer to {current.id} is not kept yet")

    async def _control(self, delivery: Delivery) -> bool:
        """Do what a ping or a shutdown asks; return whether it was done."""
        name, message = delivery.recipient, delivery.message
        addressee = self.contacts.find(name)
        wrapper = self.wrappers.find(name)
        if addressee is None or not addressee.is_present:
            return False
        if message.type is MessageType.SHUTDOWN:
            if wrapper is None:
                return False
            await wrapper.ask(wrapping.StopProgram())
        elif wrapper is not None:
            await wrapper.ask(wrapping.ReadTerminal(limit=1))
        evidence = Evidence("daemon", f"the agent is there, and {addressee.activity}")
        kind = MessageType.PONG if message.type is MessageType.PING else MessageType.INFO
        await self.office.append(
            Message(
                id=self._new_id(),
                from_agent=name,
                to_agent=message.from_agent,
                type=kind,
                content=str(addressee.activity) if kind is MessageType.PONG else "it ends",
                timestamp=self.now(),
                reply_to=message.id,
            ),
            settling=Settling(_S.ANSWERED, evidence),
        )
        return True

    # ------------------------------------------------------------------------------------ who asks

    async def who(self, secret: str, context: Context) -> str:
        """Return who asks.

        Raises:
            ApiError: the secret is nobody's.
        """
        if secret:
            return self.identities.who(secret)
        if peer := self.callers.peer(context.connection):
            return peer
        return self.contacts.of_process(await self.callers.ancestry(context.connection)) or USER


@asynccontextmanager
async def _mailboxes(store: Store, settings: MailSettings) -> AsyncIterator[Mailboxes]:
    """Have the mailboxes that are set for a block."""
    rules = Rules(mailbox_limit=settings.mailbox_limit)
    if settings.store == "memory":
        yield MemoryMailboxes(rules)
        return
    mailboxes = SqliteMailboxes(store.database, rules)
    try:
        yield mailboxes
    finally:
        await mailboxes.aclose()


def modest(evidence: Evidence) -> Evidence:
    """Return evidence that somebody else gives, no longer than anybody needs it."""
    said = msgspec.json.encode(evidence.data)
    data = evidence.data if len(said) <= MOST_EVIDENCE_BYTES else {"cut_bytes": len(said)}
    return Evidence(evidence.by[:LONGEST_NAME], evidence.what[:LONGEST_TITLE], data)


def new_id() -> str:
    """Return an id for a message that nobody else has."""
    return f"m-{secrets.token_hex(8)}"
