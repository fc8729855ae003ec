"""Codex's own door: the app server that its terminal interface runs on.

A message becomes a turn of the thread that the terminal shows. It appears there as if the user had
typed it, and what the user is typing stays where it is. Codex would take a second message into a
turn that runs, so one is begun only while none does; nothing is ever begun while Codex asks the
user something, and what it asks is never answered here.

That Codex says `ok` is `injected`, that the turn began is `submitted`, and that the message stands
in the thread, under the mark we gave it, is `seen`.
"""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.turns import BY
from bullpen.agents.providers.turn_news import Sign, TurnNews
from bullpen.connection import ConnectionClosed, RemoteError, RequestTimeout, TransportError
from bullpen.daemon.doors.codex_link import CodexLink, NotConnected
from bullpen.daemon.doors.handing import CONFIRM_SECONDS, Handing
from bullpen.mail.doors import Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from bullpen.model.turns import Turn
from bullpen.terminal.injection import prepare

__all__ = ["CodexDoor"]


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
        handing = known.handing = _CodexHanding(BY, f"{message.id}:{delivery.attempt}")
        handing.before = known.link.turn_id
        try:
            typed = prepare(message.content, message.from_agent, is_bracketed=True).text
            handing.turn_id = await known.link.begin_turn(typed, handing.client_id)
            return await handing.confirm(note, lambda: known.is_lost, self._confirm_seconds)
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


class _CodexHanding(Handing):
    """What shows that Codex has a message."""

    before = ""
    """The turn that ran already, if one did."""

    @property
    def is_added(self) -> bool:
        return super().is_added or self.turn_id == self.before

    @property
    def reached(self) -> tuple[ReceiptState, str]:
        if self.is_marked:
            what = "it stands in the thread"
            return ReceiptState.SEEN, f"{what}, in a turn that ran" if self.is_added else what
        if Sign.WORKING in self.signs and not self.is_added:
            return ReceiptState.SEEN, "the agent works in its turn"
        if Sign.BEGUN in self.signs:
            return ReceiptState.SUBMITTED, "its turn began"
        return ReceiptState.INJECTED, ""


class _Agent:
    """What is known of one agent."""

    def __init__(self, link: CodexLink) -> None:
        self.link = link
        self.handing: _CodexHanding | None = None
        self.is_closed = False

    @property
    def is_lost(self) -> bool:
        return self.is_closed or not self.link.is_connected

    def stir(self) -> None:
        """Have whoever waits look again."""
        if self.handing is not None:
            self.handing.stir()
