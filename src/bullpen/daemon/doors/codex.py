"""Codex's own door: the app server that its terminal interface runs on.

A message becomes a turn of the thread that the terminal shows. It appears there as if the user had
typed it, and what the user is typing stays where it is. Codex would take a second message into a
turn that runs, so one is begun only while none does; nothing is ever begun while Codex asks the
user something, and what it asks is never answered here.

That Codex says `ok` is `injected`, that the turn began is `submitted`, and that the message stands
in the thread, under the mark we gave it, is `seen`.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import msgspec

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.turns import BY, Sign, TurnNews
from bullpen.connection import ConnectionClosed, RemoteError, RequestTimeout, TransportError
from bullpen.daemon.doors.codex_link import CodexLink, NotConnected
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from bullpen.model.turns import Turn
from bullpen.terminal.injection import prepare

__all__ = ["CodexDoor"]

CONFIRM_SECONDS: Final = 15.0
MOST_NEWS: Final = 64

_STEPS: Final = (ReceiptState.INJECTED, ReceiptState.SUBMITTED, ReceiptState.SEEN)


class CodexDoor:
    """The door to every agent whose terminal runs on an app server of ours.

    `on_turn` is told of every turn in the threads of an agent, whoever began it; `on_activity` what
    the agent is doing, and whether it can be given a message, whenever one of them changes. Both
    are called in order and must not wait.
    """

    def __init__(
        self,
        on_turn: Callable[[str, Turn], None],
        on_activity: Callable[[str, Activity, bool], None],
        now: Callable[[], datetime],
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

    async def open(self, agent: str, address: str, *, awaited: Collection[str] = ()) -> None:
        """Connect to an agent's app server (`unix:///…` or `ws://…`), and stay connected.

        Of the turns that are `awaited`, by their ids, those that have ended meanwhile are told.
        Opening what is open does nothing; with another address it is opened there instead.
        """
        known = self._agents.get(agent)
        if known is not None and known.link.address == address and not known.link.is_gone:
            return
        await self.close(agent)
        link = CodexLink(
            address,
            lambda news: self._hear(agent, news),
            lambda: self._look(agent),
            now=self._now,
            awaited=awaited,
            **self._link_options,
        )
        self._agents[agent] = _Agent(link)
        link.start()

    async def close(self, agent: str) -> None:
        """Let go of an agent's app server."""
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
        if known is None:
            return False
        link = known.link
        return link.is_coming or (link.is_connected and not link.shown.is_ambiguous)

    def is_open(self, agent: str) -> str:
        known = self._agents.get(agent)
        if known is None or not known.link.is_connected:
            return "its app server cannot be reached"
        shown = known.link.shown
        if not shown.thread_id:
            several = "it is not known which of its threads the terminal shows"
            return several if shown.is_ambiguous else "it has no thread yet"
        if known.handing is not None:
            return "another message is being handed over"
        if shown.status.type == appserver.ACTIVE and shown.status.flags:
            return "a dialog is open"
        is_working = shown.status.type == appserver.ACTIVE or known.link.turn_id
        return "the agent is working" if is_working else ""

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        agent = delivery.recipient
        known = self._agents.get(agent)
        if known is None or known.link.is_gone:
            return Handover(Handed.GONE, "its app server is gone")
        if why := self.is_open(agent):
            return Handover(Handed.NOT_READY, why)
        message = delivery.message
        handing = _Handing(
            client_id=f"{message.id}:{delivery.attempt}",
            before=known.link.turn_id,
        )
        known.handing = handing
        try:
            typed = prepare(message.content, message.from_agent, is_bracketed=True).text
            handing.turn_id = await known.link.begin_turn(typed, handing.client_id)
            return await self._confirm(known, handing, note)
        except NotConnected:
            return Handover(Handed.NOT_READY, "its app server cannot be reached")
        except RemoteError as error:
            return Handover(Handed.NOT_READY, f"codex refused it: {error}")
        except RequestTimeout:
            return Handover(Handed.UNSURE, "codex did not answer")
        except (ConnectionClosed, TransportError) as error:
            return Handover(Handed.UNSURE, f"its app server was lost before it answered: {error}")
        finally:
            known.handing = None

    async def interrupt(self, agent: str) -> bool:
        known = self._agents.get(agent)
        return known is not None and await known.link.interrupt()

    async def _confirm(self, known: "_Agent", handing: "_Handing", note: Note) -> Handover:
        """Note how far a message comes that Codex has taken, for some time."""
        await note(ReceiptState.INJECTED, handing.evidence("codex answered with a turn"))
        noted = ReceiptState.INJECTED
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._confirm_seconds
        while True:
            handing.event.clear()
            reached, what = handing.reached
            for state in _STEPS[_STEPS.index(noted) + 1 : _STEPS.index(reached) + 1]:
                await note(state, handing.evidence(what))
                noted = state
            if noted is ReceiptState.SEEN:
                return Handover(Handed.TAKEN)
            if handing.is_over:
                if handing.is_added:
                    return Handover(Handed.UNSURE, "the turn ended before it was taken up")
                return Handover(Handed.TAKEN, "its turn ended at once")
            if known.is_closed or not known.link.is_connected:
                return Handover(Handed.UNSURE, "its app server was lost before it was seen")
            with suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await handing.event.wait()
            if loop.time() >= deadline:
                return Handover(Handed.TAKEN, "nothing shows so far whether it was seen")

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
        if known is None:
            return
        known.stir()
        self._on_activity(agent, _activity(known.link), not self.is_open(agent))


def _activity(link: CodexLink) -> Activity:
    if not link.is_connected:
        return Activity.UNKNOWN
    status = link.shown.status
    if link.turn_id and status.type != appserver.ACTIVE:
        return Activity.RUNNING  # its end is just being told
    return activity_of(status.event_type or "") or Activity.UNKNOWN


class _Handing(msgspec.Struct, kw_only=True):
    """A message that is being handed over, and what was heard since."""

    client_id: str
    before: str
    """The turn that ran already, if one did."""
    turn_id: str = ""
    news: list[TurnNews] = msgspec.field(default_factory=list)
    event: asyncio.Event = msgspec.field(default_factory=asyncio.Event)

    def hear(self, news: TurnNews) -> None:
        if len(self.news) < MOST_NEWS or news.sign in (Sign.ASKED, Sign.ENDED):
            self.news.append(news)
            del self.news[: -2 * MOST_NEWS]
        self.event.set()

    @property
    def is_added(self) -> bool:
        """Whether it went into a turn that somebody else had begun."""
        own = (each for each in self.news if each.turn_id == self.turn_id)
        first = next((each for each in own if each.sign is Sign.ASKED), None)
        begun_by_other = first is not None and first.client_id != self.client_id
        return self.turn_id == self.before or begun_by_other

    @property
    def is_over(self) -> bool:
        own = (each.sign for each in self.news if each.turn_id == self.turn_id)
        return Sign.ENDED in own

    @property
    def reached(self) -> tuple[ReceiptState, str]:
        """How far it has come, and by what that is known."""
        if any(each.client_id == self.client_id for each in self.news):
            what = "it stands in the thread"
            return ReceiptState.SEEN, f"{what}, in a turn that ran" if self.is_added else what
        own = {each.sign for each in self.news if each.turn_id == self.turn_id}
        if Sign.WORKING in own and not self.is_added:
            return ReceiptState.SEEN, "the agent works in its turn"
        if Sign.BEGUN in own:
            return ReceiptState.SUBMITTED, "its turn began"
        return ReceiptState.INJECTED, ""

    def evidence(self, what: str) -> Evidence:
        return Evidence(BY, what, {"turn_id": self.turn_id})


class _Agent:
    """What is known of one agent."""

    def __init__(self, link: CodexLink) -> None:
        self.link = link
        self.handing: _Handing | None = None
        self.is_closed = False

    def stir(self) -> None:
        """Have whoever waits look again."""
        if self.handing is not None:
            self.handing.event.set()
