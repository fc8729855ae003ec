"""What a journal has told so far of the turn it is in, whichever program keeps it."""

from collections import deque
from typing import Final, Protocol

from bullpen.model.messages import MAX_THINKING_BYTES
from bullpen.model.turns import Turn, TurnEnd

__all__ = ["JournalReader", "ToldTurn"]

MOST_ASKED: Final = 16  # in one turn

_BETWEEN: Final = "\n\n"


class JournalReader(Protocol):
    """Reads the lines of one journal in their order. What is no line of it tells nothing."""

    @property
    def told(self) -> "ToldTurn":
        """What was said since the last prompt."""

    def read(self, line: bytes) -> tuple[Turn, ...]:
        """Return what a line tells of turns."""

    def pause(self) -> tuple[Turn, ...]:
        """Return what is known by there being nothing more to read just now."""


class ToldTurn:
    """The turn a journal is in: what was said and thought in it."""

    def __init__(self, by: str) -> None:
        self.session_id = ""
        self.turn_id = ""
        self.text = ""
        self.has_prompt = False
        self._by = by
        self._asked: deque[str] = deque(maxlen=MOST_ASKED)
        self._thoughts: deque[str] = deque()
        self._size = 0

    @property
    def thinking(self) -> str:
        """What was thought, as far as a message can carry it: the newest."""
        return _BETWEEN.join(self._thoughts)

    def prompt(self, text: str, turn_id: str = "") -> Turn:
        """Begin a turn with what the agent was asked."""
        self.forget()
        self.has_prompt = True
        self._asked.clear()  # not with the end: it may be told in two ways
        self.turn_id = turn_id or self.turn_id
        return self.joined(text)

    def joined(self, text: str) -> Turn:
        """Tell what the agent was asked beside, while it worked."""
        self._asked.append(text)
        return Turn(by=self._by, prompt=text, session_id=self.session_id, turn_id=self.turn_id)

    def think(self, text: str) -> None:
        """Add a thought. One that is too long for any message is not kept."""
        size = len(text.encode(errors="replace")) + len(_BETWEEN)
        if not text or size > MAX_THINKING_BYTES:
            return
        self._thoughts.append(text)
        self._size += size
        while self._size > MAX_THINKING_BYTES:
            self._size -= len(self._thoughts.popleft().encode(errors="replace")) + len(_BETWEEN)

    def end(self, end: TurnEnd, text: str | None = None) -> Turn:
        """End the turn with what was said last, or with another text."""
        turn = self.so_far(end, text)
        self.forget()
        return turn

    def so_far(self, end: TurnEnd = TurnEnd.DONE, text: str | None = None) -> Turn:
        """Return the turn as if it were over."""
        return Turn(
            by=self._by,
            end=end,
            text=self.text if text is None else text,
            thinking=self.thinking,
            asked=tuple(self._asked),
            session_id=self.session_id,
            turn_id=self.turn_id,
        )

    def forget(self) -> None:
        """Begin anew: nothing was said yet."""
        self.text, self.has_prompt, self._size = "", False, 0
        self._thoughts.clear()
