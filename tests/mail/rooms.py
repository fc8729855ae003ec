"""A courier and an office over mailboxes in memory, with doors that do as a test says."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from bullpen.mail.courier import Courier
from bullpen.mail.directory import Addressee, Directory
from bullpen.mail.doors import Door, Handed, Handover, Note, Rung
from bullpen.mail.in_hand import Patience
from bullpen.mail.mailboxes import Appended
from bullpen.mail.memory import MemoryMailboxes
from bullpen.mail.office import Draft, PostOffice
from bullpen.mail.policy import Policy
from bullpen.mail.signals import Signals
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import Message
from bullpen.model.states import Activity
from tests.mail.samples import T0

__all__ = ["People", "Room", "ScriptedDoor", "eventually"]

S = ReceiptState
SECONDS = 20.0


class People(Directory):
    """Whoever a test says is there."""

    def __init__(self, *names: str) -> None:
        self.known = {name: Addressee(name=name, activity=Activity.IDLE) for name in names}

    def find(self, address: str) -> Addressee | None:
        return self.known.get(address)

    def everybody(self) -> tuple[Addressee, ...]:
        return tuple(each for each in self.known.values() if each.is_present)


class ScriptedDoor(Door):
    """A door that is open, takes everything, and can be told otherwise."""

    def __init__(self, rung: Rung = Rung.PTY, *names: str) -> None:
        self._rung = rung
        self.names = set(names)
        self.closed: dict[str, str] = {}
        self.outcomes: list[Handover | Exception] = []
        self.steps: list[S] = [S.INJECTED, S.SUBMITTED]
        self.taken: list[Delivery] = []
        self.interrupted: list[str] = []
        self.meanwhile: Callable[[Delivery], Awaitable[None]] | None = None

    @property
    def rung(self) -> Rung:
        return self._rung

    def reaches(self, agent: str) -> bool:
        return agent in self.names

    def is_open(self, agent: str) -> str:
        return self.closed.get(agent, "")

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        outcome = self.outcomes.pop(0) if self.outcomes else Handover(Handed.TAKEN)
        if isinstance(outcome, Exception):
            raise outcome
        if outcome.outcome is Handed.TAKEN:
            self.taken.append(delivery)
            if self.meanwhile is not None:
                await self.meanwhile(delivery)
            for state in self.steps:
                await note(state, Evidence("door", state))
        return outcome

    async def interrupt(self, agent: str) -> bool:
        self.interrupted.append(agent)
        self.closed.pop(agent, None)
        return True


class Room:
    """Everything, composed."""

    def __init__(self, *doors: ScriptedDoor, people: People, patience: Patience) -> None:
        self.now = T0
        self.people = people
        self.mailboxes = MemoryMailboxes()
        self.signals = Signals()
        self.policy = Policy()
        self._ids = (f"m{number}" for number in itertools.count(1))
        self.office = PostOffice(
            self.mailboxes,
            people,
            self.signals,
            policy=lambda: self.policy,
            cause_of=self._working_on,
            now=self.time,
            new_id=lambda: next(self._ids),
            on_sent=self._sent,
        )
        self.controlled: list[Delivery] = []
        self.causes: dict[str, Message] = {}
        """What an agent is working on, if not what the courier says."""
        self.courier = Courier(
            self.mailboxes,
            people,
            self.signals,
            answer=self.office.append,
            control=self._control,
            now=self.time,
            new_id=lambda: next(self._ids),
            patience=patience,
        )
        for door in doors:
            self.courier.add_door(door)

    def time(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def _sent(self, appended: Appended) -> None:
        reply = appended.message
        if reply.reply_to:
            self.courier.answered(reply.reply_to, reply.from_agent)
        for each in appended.deliveries:
            self.courier.wake(each.recipient)

    def _working_on(self, agent: str) -> Message | None:
        return self.causes.get(agent) or self.courier.working_on(agent)

    async def _control(self, delivery: Delivery) -> bool:
        self.controlled.append(delivery)
        return False

    async def send(self, to: str, content: str = "do it", **more: Any) -> str:
        sender = more.pop("sender", "user")
        appended = await self.office.send(Draft(to=to, content=content, **more), sender)
        return appended.message.id

    async def state(self, message_id: str) -> S:
        return (await self.mailboxes.deliveries(message_id))[0].state

    async def history(self, message_id: str) -> list[S]:
        return [each.state for each in await self.mailboxes.receipts(message_id)]

    async def becomes(self, message_id: str, state: S) -> None:
        async def look() -> bool:
            return await self.state(message_id) is state

        await eventually(look)

    async def answer(self, message_id: str) -> Message | None:
        return next(iter(await self.office.answers_to(message_id)), None)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, *doors: ScriptedDoor, people: People | None = None, **patience: float
    ) -> AsyncIterator["Room"]:
        """Deliver for a block."""
        known = people or People(*{name for door in doors for name in door.names})
        given = {"look_again": 0.05, "better_word": 0.2, **patience}
        room = cls(*doors, people=known, patience=Patience(**given))
        async with room.running():
            yield room

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver for a block; what was under way before is taken up."""
        await self.courier.take_up()
        task = asyncio.create_task(self.courier.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])


async def eventually(look: Callable[[], Awaitable[Any]]) -> Any:
    """Look until there is something."""
    async with asyncio.timeout(SECONDS):
        while not (found := await look()):  # noqa: ASYNC110 - it looks from outside
            await asyncio.sleep(0.005)
        return found
