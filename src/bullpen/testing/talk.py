"""Mail for a daemon that only pretends: the real post and its service, over mailboxes in memory.

An agent of the fake daemon has no door, so that its messages wait until it fetches them: a test is
that agent by `secret_of`, or lets `door` lead to it. Receipts have the states they have in the real
one, because it is the same machine that makes them.
"""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, cast

from bullpen.api.runtime import Paths
from bullpen.api.settings import MailSettings
from bullpen.connection import Context, TypedRequest
from bullpen.daemon.identity import IdentityBook
from bullpen.daemon.post import Post
from bullpen.daemon.talk import TalkService
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.mail.mailboxes import Mailboxes
from bullpen.mail.memory import MemoryMailboxes
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.identities import Identity
from bullpen.model.messages import Message
from bullpen.model.states import Provider
from bullpen.model.turns import Turn, TurnEnd
from bullpen.model.views import AgentState
from bullpen.store.identities import Identities

__all__ = ["FakeDoor", "FakePost"]

LATER_IDS = 1001  # of a daemon that found the mailboxes of another, whose ids were lower


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


class FakePost(Post):
    """The mail of a fake daemon. Messages are called m-1, m-2 and so on."""

    def __init__(
        self,
        paths: Paths,
        now: Callable[[], datetime],
        *,
        agents: Callable[[], Iterable[AgentState]],
        mailboxes: Mailboxes | None = None,
    ) -> None:
        ids = itertools.count(1 if mailboxes is None else LATER_IDS)
        self._book = IdentityBook(cast(Identities, _Nowhere()), "fake", (), now)
        self._minted: dict[str, str] = {}
        super().__init__(
            mailboxes or MemoryMailboxes(),
            self._book,
            MailSettings(),
            paths,
            now,
            agents=agents,
            on_wrapper=lambda _: None,
            name=lambda: f"m-{next(ids)}",
        )
        self.door = FakeDoor(self.hear)
        self.courier.add_door(self.door)
        self._service = TalkService(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Deliver for a block. The rules are those of `policy`, whatever a file says."""
        working = [
            asyncio.create_task(self.courier.run()),
            asyncio.create_task(self._service.watch.run()),
        ]
        try:
            yield
        finally:
            for each in working:
                each.cancel()
            await asyncio.wait(working)

    async def secret_of(self, agent: str) -> str:
        """Return a secret by which one is that agent."""
        if agent not in self._minted:
            self._minted[agent] = await self._book.mint(agent, Provider.OTHER, "")
        return self._minted[agent]

    def answers(self) -> dict[type[TypedRequest[Any]], Callable[[Any, Context], Any]]:
        """Return what answers each request."""
        return self._service.requests()


class _Nowhere:
    """Keeps no identity beyond the life of its book."""

    async def save(self, identity: Identity) -> None:
        del identity
