"""Codex's own door: the app server that its terminal interface runs on.

A message becomes a turn of the thread that the terminal shows. It appears there as if the user had
typed it, and what the user is typing stays where it is. Codex would take a second message into a
turn that runs, so one is begun only while none does; nothing is ever begun while Codex asks the
user something. What it asks is answered by its own request, with what somebody says who may.

That Codex says `ok` is `injected`, that the turn began is `submitted`, and that the message stands
in the thread, under the mark we gave it, is `seen`.
"""

from collections.abc import Collection

from bullpen.agents.providers.codex import appserver
from bullpen.agents.providers.codex.questions import dialog_of, result_of
from bullpen.agents.providers.codex.turns import BY
from bullpen.agents.providers.turn_news import Sign
from bullpen.connection import ConnectionClosed, RemoteError, RequestTimeout, TransportError
from bullpen.daemon.doors.codex_link import CodexLink, NotConnected
from bullpen.daemon.doors.handing import Handing
from bullpen.daemon.doors.served import Known, ServedDoor
from bullpen.mail.doors import Handed, Handover, Note
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.dialogs import Answered, Dialog
from bullpen.model.events import activity_of
from bullpen.model.states import Activity
from bullpen.terminal.injection import addressed

__all__ = ["CodexDoor"]


class CodexDoor(ServedDoor[CodexLink]):
    """The door to every agent whose terminal runs on an app server of ours."""

    server = "its app server"

    async def open(self, agent: str, address: str, *, awaited: Collection[str] = ()) -> None:
        """Connect to an agent's app server (`unix:///…` or `ws://…`), and stay connected.

        Of the turns that are `awaited`, by their ids, those that have ended meanwhile are told.
        Opening what is open does nothing; with another address it is opened there instead.
        """
        await self._open(
            agent,
            address,
            lambda tell, changed: CodexLink(
                address, tell, changed, now=self._now, awaited=awaited, **self._link_options
            ),
        )

    def reaches(self, agent: str) -> bool:
        known = self._agents.get(agent)
        is_ambiguous = known is not None and known.link.shown.is_ambiguous
        return super().reaches(agent) and not is_ambiguous

    def _why_closed(self, link: CodexLink) -> str:
        shown = link.shown
        if not shown.thread_id:
            several = "it is not known which of its threads the terminal shows"
            return several if shown.is_ambiguous else "it has no thread yet"
        if shown.status.type == appserver.ACTIVE and shown.status.flags:
            return "a dialog is open"
        is_working = shown.status.type == appserver.ACTIVE or link.turn_id
        return "the agent is working" if is_working else ""

    def _activity(self, link: CodexLink) -> Activity:
        if not link.is_connected:
            return Activity.UNKNOWN
        status = link.shown.status
        if link.turn_id and status.type != appserver.ACTIVE:
            return Activity.RUNNING  # its end is just being told
        return activity_of(status.event_type or "") or Activity.UNKNOWN

    def dialog(self, agent: str) -> Dialog | None:
        """Return what an agent asks its user, as far as its server has told."""
        known = self._agents.get(agent)
        question = known.link.question if known is not None else None
        return dialog_of(question) if question is not None else None

    def knows(self, agent: str) -> bool:
        """Whether nothing can be asked that was not heard; who comes late may have missed some."""
        known = self._agents.get(agent)
        return known is not None and known.link.is_connected and not known.link.shown.status.flags

    async def answer_dialog(self, agent: str, dialog_id: str, said: str) -> Answered:
        """Answer what an agent asks, if that is still the same."""
        known = self._agents.get(agent)
        question = known.link.question if known is not None else None
        asked = dialog_of(question) if question is not None else None
        if known is None or question is None or asked is None or asked.id != dialog_id:
            return Answered.NOT_ASKED
        result = result_of(question, said)
        if result is None:
            return Answered.NOT_UNDERSTOOD
        try:
            is_done = await known.link.answer(question, result)
        except (NotConnected, ConnectionClosed, TransportError):
            return Answered.NOT_ASKED
        return Answered.DONE if is_done else Answered.UNSURE

    async def _say(self, known: Known[CodexLink], delivery: Delivery, note: Note) -> Handover:
        message = delivery.message
        handing = _CodexHanding(BY, f"{message.id}:{delivery.attempt}")
        known.handing = handing
        handing.before = known.link.turn_id
        try:
            typed = addressed(message.content, message.from_agent)
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
