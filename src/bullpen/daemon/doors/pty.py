"""Into a wrapped agent: its wrapper types, and says how far that came."""

from bullpen.api.errors import ApiError
from bullpen.api.wrapping import InjectMessage, InjectReply, WrapperInterrupt
from bullpen.daemon.wrappers import Wrappers
from bullpen.mail.doors import Door, Handed, Handover, Note, Rung
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.states import Activity

__all__ = ["PtyDoor", "attempt_id"]

TYPING_SECONDS = 60.0  # the wrapper bounds each of its steps; this bounds the wrapper

_OUTCOMES = {
    "submitted": Handed.TAKEN,
    "not_ready": Handed.NOT_READY,
    "unsure": Handed.UNSURE,
    "refused": Handed.REFUSED,
    "ended": Handed.GONE,
}
_BUSY = {
    Activity.RUNNING: "the agent is working",
    Activity.STARTING: "the agent is starting",
    Activity.WAITING_APPROVAL: "the agent waits for an approval",
    Activity.WAITING_INPUT: "the agent waits for an answer",
}


class PtyDoor(Door):
    """The terminals of ours."""

    rung = Rung.PTY

    def __init__(self, wrappers: Wrappers, *, start_seconds: float = 30.0) -> None:
        self._wrappers = wrappers
        self._start_seconds = start_seconds

    def reaches(self, agent: str) -> bool:
        return self._wrappers.find(agent) is not None

    def is_open(self, agent: str) -> str:
        wrapper = self._wrappers.find(agent)
        if wrapper is None or not wrapper.is_connected:
            return "its wrapper is not connected"
        if wrapper.state.is_ready:
            return ""
        if wrapper.state.prompt == "draft":
            return "a draft is in the prompt box"
        if wrapper.is_late(self._start_seconds):
            return f"it has not become ready within {self._start_seconds:g} s of its start"
        return _BUSY.get(wrapper.state.activity, "the agent is not ready")

    async def hand_over(self, delivery: Delivery, note: Note) -> Handover:
        wrapper = self._wrappers.find(delivery.recipient)
        if wrapper is None:
            return Handover(Handed.GONE, "its wrapper is gone")
        message = delivery.message
        request = InjectMessage(
            attempt_id=attempt_id(delivery),
            sender=message.from_agent,
            text=message.content,
            interrupts=message.priority.interrupts,
            wants_answer=True,
        )
        try:
            reply = await wrapper.ask(request, seconds=TYPING_SECONDS)
        except ApiError as error:
            return Handover(Handed.UNSURE, error.message)
        if reply.outcome == "submitted":
            await note(ReceiptState.SUBMITTED, _evidence(reply))
        return Handover(_OUTCOMES.get(reply.outcome, Handed.UNSURE), reply.reason)

    async def interrupt(self, agent: str) -> bool:
        wrapper = self._wrappers.find(agent)
        if wrapper is None or not wrapper.is_connected:
            return False
        return await wrapper.ask(WrapperInterrupt())


def attempt_id(delivery: Delivery) -> str:
    """Return what one attempt to type a message is called, between us and the wrapper."""
    return f"{delivery.message.id}:{delivery.attempt}"


def _evidence(reply: InjectReply) -> Evidence:
    return reply.evidence or Evidence("pty", "the prompt box let go of it")
