"""What agents have said so far of the answers they are at. It remembers, and does nothing.

An agent may say something on the way before it says its answer, and nobody knows which it is until
the turn has ended. So what is said has a number, which counts up whenever the agent begins anew;
what has the last number is the answer, or the beginning of it, as far as anybody can tell.
"""

import msgspec

from bullpen.model.messages import MAX_MESSAGE_BYTES
from bullpen.model.turns import Utterance

__all__ = ["Piece", "Sayings", "joined"]

MOST_CHARACTERS = MAX_MESSAGE_BYTES  # an answer is cut there; until then nothing more is told


class Piece(msgspec.Struct, frozen=True):
    """A piece of what an agent says."""

    number: int
    at: int
    """How many characters stand before it."""
    text: str

    @property
    def end(self) -> int:
        """How many characters are known with it."""
        return self.at + len(self.text)


class _Saying(msgspec.Struct):
    task_id: str
    number: int = 0
    length: int = 0
    texts: list[str] = []


class Sayings:
    """What each agent says of the message it has."""

    def __init__(self) -> None:
        self._by_agent: dict[str, _Saying] = {}
        self._sending: dict[str, str] = {}

    def note_sent(self, agent: str, task_id: str) -> None:
        """Learn that an agent sends what it has to say of a task by itself."""
        self._sending[agent] = task_id

    def sends(self, agent: str, task_id: str) -> bool:
        """Whether it does: then what its terminal shows is no news."""
        return self._sending.get(agent) == task_id

    def hear(self, agent: str, task_id: str, said: Utterance) -> Piece | None:
        """Take what an agent says; return where that stands, None if nobody can tell."""
        saying = self._by_agent.get(agent)
        if saying is None or saying.task_id != task_id:
            saying = self._by_agent[agent] = _Saying(task_id)
        is_first = not saying.number and not said.turn_id  # who has no turns says but one thing
        if said.is_new or is_first:
            saying.number += 1
            saying.length, saying.texts = 0, []
        if not saying.number or saying.length + len(said.text) > MOST_CHARACTERS:
            saying.length = MOST_CHARACTERS  # what comes after a gap is none of it
            return None
        piece = Piece(saying.number, saying.length, said.text)
        saying.texts.append(said.text)
        saying.length = piece.end
        return piece

    def so_far(self, task_id: str) -> Piece | None:
        """Return what was said of a task; None if that is nothing."""
        for saying in self._by_agent.values():
            if saying.task_id == task_id and saying.texts:
                saying.texts = ["".join(saying.texts)]
                return Piece(saying.number, 0, saying.texts[0])
        return None

    def length(self, task_id: str) -> int:
        """Return how many characters were said of a task."""
        sayings = self._by_agent.values()
        return next((each.length for each in sayings if each.task_id == task_id), 0)

    def forget(self, agent: str) -> None:
        """Take it that an agent has no message any more."""
        self._by_agent.pop(agent, None)
        self._sending.pop(agent, None)


def joined(before: Piece | None, piece: Piece) -> Piece:
    """Return two pieces of what one says as one; the later one alone if they are not."""
    if before is None or before.number != piece.number or not before.at <= piece.at <= before.end:
        return piece
    return Piece(piece.number, before.at, before.text[: piece.at - before.at] + piece.text)
