"""The mail of one daemon, composed: who takes messages, delivers them, tells what came of them.

Mailboxes are in the store; the office takes messages; the courier delivers them through the doors;
wrappers and programs tell what became of them. What is asked of it over the wire is in `talk`.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

from bullpen.api import wrapping
from bullpen.api.errors import ApiError
from bullpen.api.runtime import Paths
from bullpen.api.settings import MailSettings
from bullpen.connection import Context
from bullpen.daemon.callers import Callers
from bullpen.daemon.contacts import Contacts
from bullpen.daemon.doors.pty import PtyDoor
from bullpen.daemon.elsewhere import Elsewhere
from bullpen.daemon.identity import IdentityBook
from bullpen.daemon.wrappers import Wrapper, Wrappers
from bullpen.mail.courier import Courier
from bullpen.mail.ledger import Rules
from bullpen.mail.mailboxes import Appended, Mailboxes
from bullpen.mail.office import PostOffice
from bullpen.mail.policy import USER, Policy, RateLimit
from bullpen.mail.policy_file import read_policy
from bullpen.mail.signals import Signals
from bullpen.mail.sqlite import SqliteMailboxes
from bullpen.mail.tasks import asks
from bullpen.mail.timeouts import Timeouts
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import Message, MessageType, message_size
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, TurnEnd
from bullpen.model.views import AgentState
from bullpen.store.identities import Identities
from bullpen.store.store import Store

__all__ = ["Post", "new_id"]

logger = logging.getLogger("bullpen.mail")

_S = ReceiptState
TELLERS_KEPT = 1000
LOOK_SECONDS = 2.0  # at wrappers that may have died, and at the rules
ENDS = {
    "prompt_back": TurnEnd.DONE,
    "silence": TurnEnd.DONE,
    "interrupted": TurnEnd.INTERRUPTED,
    "rate_limit": TurnEnd.RATE_LIMITED,
}


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
        name: Callable[[], str] | None = None,
    ) -> None:
        self._settings = settings
        self._paths = paths
        self.now = now
        self._agents = agents
        self._on_wrapper = on_wrapper
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
        self.mailboxes = mailboxes
        self.wrappers = Wrappers(
            identities,
            paths.agents,
            is_taken=self._is_taken,
            on_change=self.wrapper_changed,
            on_attempts=self._take_attempts,
            on_step=self._take_step,
            on_answered=self._take_answer,
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
        self.courier.add_door(PtyDoor(self.wrappers))
        self.on_output: Callable[[str, str], None] = lambda *_: None
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
        """Take over the mail of a store for a block. Nothing is delivered before `run`."""
        identities = await IdentityBook.open(Identities(store.database), now)
        rules = Rules(mailbox_limit=settings.mailbox_limit)
        mailboxes = SqliteMailboxes(store.database, rules)
        try:
            found = cls(mailboxes, identities, settings, paths, now, **more)
            await found.elsewhere.look()
            await found.courier.take_up()
            yield found
        finally:
            await mailboxes.aclose()

    @property
    def _rate(self) -> RateLimit:
        return RateLimit(self._settings.rate_per_second, self._settings.rate_burst)

    def _is_taken(self, name: str) -> bool:
        """Whether a name is that of an agent nobody wrapped."""
        return any(
            each.name == name and each.activity is not Activity.EXITED for each in self._agents()
        )

    # ------------------------------------------------------------------------------------- running

    async def run(self) -> None:
        """Deliver until cancelled."""
        await self._read_policy()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.courier.run(), name="courier")
            group.create_task(self._keep_looking(), name="talk:look")

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for wrapper in self.wrappers.forget_dead():
                logger.warning("the wrapper of %s is gone without a word", wrapper.name)
                await self.wrappers.end(wrapper.name)
                self.wrapper_changed(wrapper)
            await self._read_policy()
            self.changed(await self.elsewhere.look())

    async def _read_policy(self) -> None:
        path = self._paths.config_directory / "policy.toml"
        try:
            self.policy = await asyncio.to_thread(read_policy, path, self._rate)
        except ApiError:
            raise
        except Exception as error:  # noqa: BLE001 - the rules that hold go on holding
            logger.error("the rules are not changed: %s", error)

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

    def hear_output(self, agent: str, text: str) -> None:
        """Take what an agent says while it works."""
        if (current := self.working_on(agent)) is not None:
            self.on_output(current.id, text)

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
        if message.reply_to and (message.type is not MessageType.PROGRESS or asks(message)):
            self.courier.answered(message.reply_to, message.from_agent)
        for name in names:
            self.wake(name)

    def wrapper_changed(self, wrapper: Wrapper) -> None:
        """Learn that a wrapper came, went, or says something else of its program."""
        self._on_wrapper(wrapper)
        self.wake(wrapper.name)

    async def _take_attempts(self, wrapper: Wrapper, attempts: Sequence[wrapping.Attempt]) -> None:
        """Take from a wrapper that has come back what became of what it typed."""
        for attempt in attempts:
            message_id = attempt.attempt_id.rpartition(":")[0]
            evidence = attempt.evidence or Evidence("pty", "told when its wrapper came back")
            if attempt.state is _S.QUEUED:
                await self.courier.never_arrived(wrapper.name, message_id)
            elif attempt.state in (_S.INJECTED, _S.SUBMITTED, _S.SEEN):
                await self.courier.note_step(wrapper.name, message_id, attempt.state, evidence)

    async def _take_step(self, wrapper: Wrapper, told: wrapping.StepTaken) -> None:
        message_id = told.attempt_id.rpartition(":")[0]
        await self.courier.note_step(wrapper.name, message_id, told.state, told.evidence)

    async def _take_answer(self, wrapper: Wrapper, told: wrapping.Answered) -> None:
        message_id = told.attempt_id.rpartition(":")[0]
        current = self.working_on(wrapper.name)
        if current is None or current.id != message_id:
            return  # it was answered in a better way
        end = (
            ENDS.get(told.how, TurnEnd.FAILED) if told.is_ok or told.how in ENDS else TurnEnd.FAILED
        )
        if end is not TurnEnd.INTERRUPTED and told.how != "exited":
            await self.courier.note_step(wrapper.name, message_id, _S.SEEN, told.evidence)
        self.courier.hear(wrapper.name, Turn(by="pty", end=end, text=told.text))

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
        await self.mailboxes.acknowledge(delivery, now=self.now(), evidence=evidence)
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
            )
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


def new_id() -> str:
    """Return an id for a message that nobody else has."""
    return f"m-{secrets.token_hex(8)}"
