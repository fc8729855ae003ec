"""What is the same of every door that leads through a server of the agent's program.

There is a link to each agent's server, which stays connected through losses. What it tells of turns
is handed on, and a message that is being handed over hears it as well.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from bullpen.agents.providers.turn_news import TurnNews
from bullpen.daemon.doors.handing import CONFIRM_SECONDS, Handing
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery
from bullpen.model.states import Activity
from bullpen.model.turns import Turn, Utterance

__all__ = ["Known", "Link", "ServedDoor"]


class Link(Protocol):
    """The connection to one server, from `start` to `aclose`."""

    address: str
    is_gone: bool
    """Whether it was given up: the server did not come (back)."""

    @property
    def is_connected(self) -> bool:
        """Whether it can be asked now."""

    @property
    def is_coming(self) -> bool:
        """Whether it has not been connected yet, and may be soon."""

    def start(self) -> None:
        """Begin to connect."""

    async def interrupt(self) -> bool:
        """Interrupt the turn that runs; whether that was done."""

    async def aclose(self) -> None:
        """Let go of it."""


L = TypeVar("L", bound=Link)


class Known(Generic[L]):
    """What is known of one agent."""

    def __init__(self, link: L) -> None:
        self.link = link
        self.handing: Handing | None = None
        """The message that is just being handed over."""
        self.is_closed = False

    @property
    def is_lost(self) -> bool:
        """Whether nothing more will be heard of it."""
        return self.is_closed or not self.link.is_connected

    def stir(self) -> None:
        """Have whoever waits look again."""
        if self.handing is not None:
            self.handing.stir()


class ServedDoor(ABC, Generic[L]):
    """A door to every agent whose program serves us.

    `on_turn` is told of every turn of an agent, whoever began it; `on_said` what is said in it;
    `on_activity` what the agent is doing, and whether it can be given a message, whenever one of
    them changes. All are called in order and must not wait. `confirm_seconds` is how long a message
    that was taken is watched for being seen.
    """

    server = "its server"
    """What it is called in words for people."""

    def __init__(
        self,
        on_turn: Callable[[str, Turn], None],
        on_activity: Callable[[str, Activity, bool], None],
        now: Callable[[], datetime],
        *,
        on_said: Callable[[str, Utterance], None] = lambda *_: None,
        confirm_seconds: float = CONFIRM_SECONDS,
        **link_options: Any,
    ) -> None:
        self._on_turn = on_turn
        self._on_activity = on_activity
        self._on_said = on_said
        self._now = now
        self._confirm_seconds = confirm_seconds
        self._link_options = link_options
        self._agents: dict[str, Known[L]] = {}

    @property
    def rung(self) -> Rung:
        return Rung.OWN

    async def _open(
        self,
        agent: str,
        address: str,
        make: Callable[[Callable[[TurnNews], None], Callable[[], None]], L],
    ) -> None:
        """Connect to an agent's server, unless that is so already."""
        known = self._agents.get(agent)
        if known is not None and known.link.address == address and not known.link.is_gone:
            return
        await self.close(agent)
        link = make(lambda news: self._hear(agent, news), lambda: self._look(agent))
        self._agents[agent] = Known(link)
        link.start()

    async def close(self, agent: str) -> None:
        """Let go of an agent's server."""
        known = self._agents.pop(agent, None)
        if known is not None:
            known.is_closed = True
            known.stir()
            await known.link.aclose()

    async def aclose(self) -> None:
        """Let go of them all."""
        for agent in list(self._agents):
            await self.close(agent)

    def reaches(self, agent: str) -> bool:
        known = self._agents.get(agent)
        return known is not None and (known.link.is_coming or known.link.is_connected)

    def is_open(self, agent: str) -> str:
        known = self._agents.get(agent)
        if known is None or not known.link.is_connected:
            return f"{self.server} cannot be reached"
        if known.handing is not None:
            return "another message is being handed over"
        return self._why_closed(known.link)

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        agent = delivery.recipient
        known = self._agents.get(agent)
        if known is None or known.link.is_gone:
            return Handover(Handed.GONE, f"{self.server} is gone")
        if why := self.is_open(agent):
            return Handover(Handed.NOT_READY, why)
        try:
            return await self._say(known, delivery, note)
        finally:
            known.handing = None

    async def interrupt(self, agent: str) -> bool:
        known = self._agents.get(agent)
        return known is not None and await known.link.interrupt()

    @abstractmethod
    def _why_closed(self, link: L) -> str:
        """Return why nothing can be put in, in words; empty if it can."""

    @abstractmethod
    def _activity(self, link: L) -> Activity:
        """Return what the agent is doing."""

    @abstractmethod
    async def _say(self, known: Known[L], delivery: Delivery, note: Note) -> Handover:
        """Put a message in, with `known.handing` to hear what becomes of it."""

    def _hear(self, agent: str, news: TurnNews) -> None:
        known = self._agents.get(agent)
        if known is None:
            return
        if known.handing is not None:
            known.handing.hear(news)
        if news.turn is not None:
            self._on_turn(agent, news.turn)
        if news.said is not None:
            self._on_said(agent, news.said)

    def _look(self, agent: str) -> None:
        known = self._agents.get(agent)
        if known is not None:
            known.stir()
            self._on_activity(agent, self._activity(known.link), not self.is_open(agent))
