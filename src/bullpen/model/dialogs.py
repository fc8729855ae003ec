"""What an agent asks its user and waits for, and what an answer to it means."""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

__all__ = ["Answered", "Decision", "Dialog", "chosen", "decision_of"]


class Decision(StrEnum):
    """What somebody decides who is asked whether something may be done."""

    YES = "yes"
    ALWAYS = "always"
    """Yes, and it need not be asked again."""
    NO = "no"


class Answered(StrEnum):
    """What became of an answer."""

    DONE = "done"
    """It was taken."""
    NOT_ASKED = "not_asked"
    """It asks this no more; nothing was decided."""
    NOT_UNDERSTOOD = "not_understood"
    """It means none of what can be answered; nothing was said."""
    UNSURE = "unsure"
    """It was given, and nothing shows that it was taken."""


class Dialog(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent asks its user, and waits for."""

    id: str
    """Another one each time that it asks."""
    text: str
    """What it asks, in its own words, as lines."""
    answers: tuple[str, ...] = ()
    """What can be answered, as it is to be said; nothing if it takes an answer nowhere else than
    where it asks."""
    takes_text: bool = False
    """Whether it takes any other text too."""

    def is_declined_by(self, said: str) -> bool:
        """Whether an answer to it allows nothing."""
        labels = [each.partition(": ")[2] for each in self.answers if ": " in each]
        place = chosen(labels, said)
        label = labels[place].split(",")[0].split() if place is not None else []
        return decision_of(said) is Decision.NO or label[:1] in (["No"], ["Cancel"])


_WORDS = {
    Decision.YES: "yes y approve approved accept allow ok okay confirm",
    Decision.ALWAYS: "always",
    Decision.NO: "no n deny denied reject rejected decline refuse",
}
_BY_WORD = {word: decision for decision, words in _WORDS.items() for word in words.split()}


def decision_of(said: str) -> Decision | None:
    """Return what a word decides; None if it is none of those that do."""
    return _BY_WORD.get(_plain(said))


def chosen(labels: Sequence[str], said: str) -> int | None:
    """Return which of some choices is meant: by its number from 1 on, or by all of its words."""
    wanted = _plain(said)
    if wanted.isdecimal() and len(wanted) < 3:
        return int(wanted) - 1 if 1 <= int(wanted) <= len(labels) else None
    found = [index for index, label in enumerate(labels) if wanted and _plain(label) == wanted]
    return found[0] if len(found) == 1 else None


def _plain(said: str) -> str:
    return " ".join(said.casefold().split()).rstrip(".!")
