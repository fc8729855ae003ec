"""opencode's own door: the HTTP server that its terminal is one face of.

A message becomes a message of the session that the terminal shows, and appears there; what the user
is typing stays where it is. Where no session is shown yet, one is made and shown. opencode would
queue what comes while it works; our messages wait in their mailbox instead, and nothing is said
while it asks its user something. What it asks is never answered here.

That opencode says `ok` is `injected`, that the message stands in the session is `submitted`, and
that the model answers it is `seen`.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from typing import Any

from bullpen.agents.http import HttpError
from bullpen.agents.providers.opencode.turns import BY
from bullpen.agents.providers.turn_news import Sign, TurnNews
from bullpen.daemon.doors.handing import CONFIRM_SECONDS, Handing
from bullpen.daemon.doors.opencode_link import OpencodeLink
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.states import Activity
from bullpen.model.turns import Turn
from bullpen.terminal.injection import prepare

__all__ = ["OpencodeDoor"]


class OpencodeDoor:
    """The door to every agent whose terminal serves HTTP for us.

    `on_turn` is told of every turn in the sessions of an agent, whoever began it; `on_activity`
    what the agent is doing, and whether it can be given a message, whenever one of them changes.
    Both are called in order and must not wait.
    """

    def __init__(
        self,
        on_turn: Callable[[str, Turn], None],
        on_activity: Callable[[str, Activity, bool], None],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        confirm_seconds: float = CONFIRM_SECONDS,
        **link_options: Any,
    ) -> None:
        """`confirm_seconds` is how long a message that was taken is watched for being seen."""
        self._on_turn = on_turn
        self._on_activity = on_activity
        self._now = now
        self._confirm_seconds = confirm_seconds
        self._link_options = link_options
        self._agents: dict[str, _Agent] = {}

    @property
    def rung(self) -> Rung:
        return Rung.OWN

    async def open(
        self, agent: str, address: str, *, password: str = "", awaited: Collection[str] = ()
    ) -> None:
        """Connect to an agent's server (`http://127.0.0.1:…`), and stay connected.

        Of the turns that are `awaited`, by their ids, those that have ended meanwhile are told.
        Opening what is open does nothing; with another address it is opened there instead.
        """
        known = self._agents.get(agent)
        if known is not None and known.link.address == address and not known.link.is_gone:
            return
        await self.close(agent)
        link = OpencodeLink(
            address,
            password,
            lambda news: self._hear(agent, news),
            lambda: self._look(agent),
            awaited=awaited,
            **self._link_options,
        )
        self._agents[agent] = _Agent(link)
        link.start()

    async def close(self, agent: str) -> None:
        """Let go of an agent's server."""
        known = self._agents.pop(agent, None)
        if known is not None:
            await known.link.aclose()
            known.stir()

    async def aclose(self) -> None:
        """Let go of them all."""
        for agent in list(self._agents):
            await self.close(agent)

    def titled(self, agent: str, title: str) -> None:
        """Take the title of an agent's terminal: which session it shows is said nowhere else."""
        if (known := self._agents.get(agent)) is not None:
            known.link.titled(title)

    def reaches(self, agent: str) -> bool:
        known = self._agents.get(agent)
        return known is not None and (known.link.is_coming or known.link.is_connected)

    def is_open(self, agent: str) -> str:
        known = self._agents.get(agent)
        if known is None or not known.link.is_connected:
            return "its server cannot be reached"
        link = known.link
        if not link.is_drawn:
            return "its terminal is not there yet"
        if known.handing is not None:
            return "another message is being handed over"
        if link.reader.dialogs:
            return "a dialog is open"
        return "the agent is working" if link.reader.busy else ""

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        agent = delivery.recipient
        known = self._agents.get(agent)
        if known is None or known.link.is_gone:
            return Handover(Handed.GONE, "its server is gone")
        if why := self.is_open(agent):
            return Handover(Handed.NOT_READY, why)
        mark = known.link.next_mark(int(self._now().timestamp() * 1000))
        handing = known.handing = _OpencodeHanding(BY, mark, mark)
        try:
            return await self._say(known, handing, delivery, note)
        finally:
            known.handing = None

    async def interrupt(self, agent: str) -> bool:
        known = self._agents.get(agent)
        return known is not None and await known.link.interrupt()

    async def _say(
        self, known: "_Agent", handing: "_OpencodeHanding", delivery: Delivery, note: Note
    ) -> Handover:
        link, message = known.link, delivery.message
        typed = prepare(message.content, message.from_agent, is_bracketed=True).text
        try:
            shown = await link.choose()
        except HttpError as error:
            return Handover(Handed.NOT_READY, str(error))
        if link.reader.busy or link.reader.dialogs:  # somebody was faster
            return Handover(Handed.NOT_READY, "the agent is working")
        try:
            answer = await link.prompt(typed, handing.client_id, shown)
        except HttpError as error:
            if error.was_sent:
                return Handover(Handed.UNSURE, f"opencode did not answer: {error}")
            return Handover(Handed.NOT_READY, str(error))
        if not answer.is_ok:
            return Handover(Handed.NOT_READY, f"opencode refused it: status {answer.status}")
        return await handing.confirm(note, lambda: not link.is_connected, self._confirm_seconds)

    def _hear(self, agent: str, news: TurnNews) -> None:
        known = self._agents.get(agent)
        if known is None:
            return
        if known.handing is not None:
            known.handing.hear(news)
        if news.turn is not None:
            self._on_turn(agent, news.turn)

    def _look(self, agent: str) -> None:
        known = self._agents.get(agent)
        if known is not None:
            known.stir()
            self._on_activity(agent, _activity(known.link), not self.is_open(agent))


def _activity(link: OpencodeLink) -> Activity:
    if not link.is_connected:
        return Activity.UNKNOWN
    if link.reader.dialogs:
        return Activity.WAITING_APPROVAL
    if link.reader.busy:
        return Activity.RUNNING
    return Activity.IDLE if link.is_drawn else Activity.STARTING


class _OpencodeHanding(Handing):
    """What shows that opencode has a message."""

    @property
    def reached(self) -> tuple[ReceiptState, str]:
        if Sign.WORKING in self.signs:
            return ReceiptState.SEEN, "the model answers it"
        if self.is_marked:
            return ReceiptState.SUBMITTED, "it stands in the session"
        return ReceiptState.INJECTED, ""


class _Agent:
    """What is known of one agent."""

    def __init__(self, link: OpencodeLink) -> None:
        self.link = link
        self.handing: _OpencodeHanding | None = None

    def stir(self) -> None:
        """Have whoever waits look again."""
        if self.handing is not None:
            self.handing.stir()
