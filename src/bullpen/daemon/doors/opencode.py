"""opencode's own door: the HTTP server that its terminal is one face of.

A message becomes a message of the session that the terminal shows, and appears there; what the user
is typing stays where it is. Where no session is shown yet, one is made and shown. opencode would
queue what comes while it works; our messages wait in their mailbox instead, and nothing is said
while it asks its user something. What it asks is answered with what somebody says who may.

That opencode says `ok` is `injected`, that the message stands in the session is `submitted`, and
that the model answers it is `seen`.
"""

from collections.abc import Collection

from bullpen.agents.http import HttpError
from bullpen.agents.providers.opencode.questions import dialog_of, reply_of
from bullpen.agents.providers.opencode.turns import BY
from bullpen.agents.providers.turn_news import Sign
from bullpen.daemon.doors.handing import Handing
from bullpen.daemon.doors.opencode_link import OpencodeLink
from bullpen.daemon.doors.served import Known, ServedDoor
from bullpen.mail.doors import Handed, Handover, Note
from bullpen.model.deliveries import Delivery, ReceiptState
from bullpen.model.dialogs import Answered, Dialog
from bullpen.model.states import Activity
from bullpen.terminal.injection import addressed

__all__ = ["OpencodeDoor"]


class OpencodeDoor(ServedDoor[OpencodeLink]):
    """The door to every agent whose terminal serves HTTP for us."""

    async def open(
        self, agent: str, address: str, *, password: str = "", awaited: Collection[str] = ()
    ) -> None:
        """Connect to an agent's server (`http://127.0.0.1:…`), and stay connected.

        Of the turns that are `awaited`, by their ids, those that have ended meanwhile are told.
        Opening what is open does nothing; with another address it is opened there instead.
        """
        await self._open(
            agent,
            address,
            lambda tell, changed: OpencodeLink(
                address, password, tell, changed, awaited=awaited, **self._link_options
            ),
        )

    def titled(self, agent: str, title: str) -> None:
        """Take the title of an agent's terminal: which session it shows is said nowhere else."""
        if (known := self._agents.get(agent)) is not None:
            known.link.titled(title)

    def _why_closed(self, link: OpencodeLink) -> str:
        if not link.is_drawn:
            return "its terminal is not there yet"
        if link.reader.dialogs:
            return "a dialog is open"
        return "the agent is working" if link.reader.busy else ""

    def _activity(self, link: OpencodeLink) -> Activity:
        if not link.is_connected:
            return Activity.UNKNOWN
        if link.reader.dialogs:
            return Activity.WAITING_APPROVAL
        if link.reader.busy:
            return Activity.RUNNING
        return Activity.IDLE if link.is_drawn else Activity.STARTING

    def dialog(self, agent: str) -> Dialog | None:
        """Return what an agent asks its user first."""
        known = self._agents.get(agent)
        asked = known.link.reader.dialogs if known is not None and known.link.is_connected else {}
        return dialog_of(next(iter(asked.values()))) if asked else None

    def knows(self, agent: str) -> bool:
        """Whether all is known that is asked."""
        known = self._agents.get(agent)
        return known is not None and known.link.is_connected

    async def answer_dialog(self, agent: str, dialog_id: str, said: str) -> Answered:
        """Answer what an agent asks, if that is still the same."""
        known, asked = self._agents.get(agent), self.dialog(agent)
        if known is None or asked is None or asked.id != dialog_id:
            return Answered.NOT_ASKED
        reply = reply_of(said) if asked.answers else None
        if reply is None:
            return Answered.NOT_UNDERSTOOD
        try:
            is_taken = await known.link.answer(dialog_id, reply)
        except HttpError as error:
            return Answered.UNSURE if error.was_sent else Answered.NOT_ASKED
        return Answered.DONE if is_taken else Answered.NOT_ASKED

    async def _say(self, known: Known[OpencodeLink], delivery: Delivery, note: Note) -> Handover:
        link, message = known.link, delivery.message
        mark = link.next_mark(int(self._now().timestamp() * 1000))
        handing = known.handing = _OpencodeHanding(BY, mark, mark)
        typed = addressed(message.content, message.from_agent)
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
        return await handing.confirm(note, lambda: known.is_lost, self._confirm_seconds)


class _OpencodeHanding(Handing):
    """What shows that opencode has a message."""

    @property
    def reached(self) -> tuple[ReceiptState, str]:
        if Sign.WORKING in self.signs:
            return ReceiptState.SEEN, "the model answers it"
        if self.is_marked:
            return ReceiptState.SUBMITTED, "it stands in the session"
        return ReceiptState.INJECTED, ""
