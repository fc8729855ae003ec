"""What an agent has been given and has not answered yet, and how long things are waited for."""

from datetime import datetime

import msgspec

from bullpen.mail.doors import Handover, Rung
from bullpen.model.deliveries import Delivery, Evidence, ReceiptState
from bullpen.model.messages import Message, MessageType
from bullpen.model.turns import Turn

__all__ = ["InHand", "Patience"]


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long things are waited for, in seconds."""

    better_word: float = 3.0
    """From a screen that shows an end to a program that tells it."""
    sign_of_life: float = 60.0
    """From a message that may have arrived to giving up that anything will show it."""
    interrupt: float = 15.0
    """From an interruption to a door that is open, or to the next interruption."""
    stopped: float = 0.5
    """From an agent that was interrupted and stopped to taking its turn for over."""
    answer: float = 15.0
    """From an agent that has nothing to do any more to giving up that it will answer."""
    look_again: float = 5.0
    """Between two looks at doors of which nobody tells that they have opened."""


class InHand(msgspec.Struct):
    """A message that an agent has, or may have."""

    delivery: Delivery
    rung: Rung | None
    since: datetime
    is_unsure: bool = False
    seen_end: Turn | None = None
    """An end that was only seen, while a better word may come."""
    is_handing: bool = False
    """The door has not answered yet."""
    early: Turn | None = None
    """An end that was told before the door had answered."""
    turn_id: str = ""
    """The turn that began with it, if its program tells."""
    idle_since: datetime | None = None
    """Since when its agent has nothing to do, though it has seen it and not answered."""
    interrupted_at: datetime | None = None
    """When its turn was interrupted, by us."""
    is_declined: bool = False
    """What its agent asked for was declined: it may have stopped without a word."""
    is_recovered: bool = False
    """It was given before we were started."""
    is_to_be_asked: bool = False
    """Who was to put it in has come back, and is to say what became of it."""
    unkept: tuple[ReceiptState, Evidence] | None = None
    """A step that could not be written down."""
    not_in: Handover | None = None
    """Why nothing was put in, as long as that is not written down."""
    end: Turn | None = None
    """An end that is being written down, or could not be."""
    is_ending: bool = False

    @property
    def message(self) -> Message:
        """The message."""
        return self.delivery.message

    @property
    def is_unkept(self) -> bool:
        """Whether something about it could not be written down so far."""
        return any(each is not None for each in (self.unkept, self.end, self.not_in))

    @property
    def wants_answer(self) -> bool:
        """Whether its sender waits for one."""
        return self.message.type is MessageType.TASK_REQUEST

    def seconds_since(self, moment: str, now: datetime) -> float:
        """Return how long ago one of its times was; if the clock was set back, it is now."""
        before: datetime = getattr(self, moment)
        if before > now:
            setattr(self, moment, now)
        return max((now - before).total_seconds(), 0.0)
