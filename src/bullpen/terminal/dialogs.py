"""What a dialog on a screen asks, which choices it offers, and which of them an answer means.

A dialog that can be answered lists its choices, each with a number, and marks the one that Enter
would take. Which of them means yes, and which no, the provider's rules say. Pure.
"""

import hashlib
import re
from typing import Final

import msgspec

from bullpen.model.dialogs import Decision, chosen, decision_of
from bullpen.terminal.rules.format import ProviderRules, compile_pattern
from bullpen.terminal.rules.layout import Layout
from bullpen.terminal.rules.screen import Screen

__all__ = ["Choice", "ScreenDialog", "meant", "read_dialog"]

MOST_CHARACTERS: Final = 2000
MOST_CHOICES: Final = 20

_FRAME: Final = re.compile(r"[\s─━═╌│┃║╭╮╰╯┌┐└┘├┤▀▄]+")
_WIDE: Final = re.compile(r"\s{2,}")
_BOX: Final = re.compile(r"\[.\]")  # of a choice that Enter ticks, and does not take
_LEFT_OUT: Final = "\n[…]\n"


class Choice(msgspec.Struct, frozen=True):
    """One of the choices."""

    number: int
    label: str
    is_marked: bool = False
    """Enter would take it."""


class ScreenDialog(msgspec.Struct, frozen=True, kw_only=True):
    """A dialog as it stands on a screen."""

    text: str
    key: str
    """The same for the same dialog, whichever choice is marked."""
    choices: tuple[Choice, ...] = ()
    decisions: dict[Decision, int] = {}
    """Which of the choices decides what, by their places."""
    no_by_escape: bool = False
    """Esc declines, and not the choice that says so."""

    @property
    def marked(self) -> int | None:
        """The place of the choice that Enter would take; None if that cannot be told."""
        places = [place for place, each in enumerate(self.choices) if each.is_marked]
        return places[0] if len(places) == 1 else None

    @property
    def answers(self) -> tuple[str, ...]:
        """What can be answered; nothing if it is not known how."""
        if self.marked is None:
            return ()
        words = tuple(each.value for each in Decision if each in self.decisions)
        return (*words, *(f"{each.number}: {each.label}" for each in self.choices))


def read_dialog(screen: Screen, rules: ProviderRules) -> ScreenDialog:
    """Read the dialog that a screen shows; that it shows one is known by other means."""
    pattern = re.compile(rules.answers.choice) if rules.answers is not None else None
    choices: list[Choice] = []
    plain: list[str] = []
    end: int | None = None  # what stands below the choices tells of keys, and changes with the mark
    for line in map(_bare, Layout(screen, rules).region("dialog").lines):
        choice = _choice(pattern.search(line)) if pattern is not None else None
        if choice is not None and choice.number == 1:
            choices = []  # what was numbered above is something else
        if choice is not None and choice.number == len(choices) + 1 <= MOST_CHOICES:
            choices.append(choice)
            plain.append(f"{choice.number}. {choice.label}")
            end = len(plain)
        elif line.strip():
            plain.append(line.strip())
    text = "\n".join(plain)
    words = " ".join(" ".join(plain[:end]).split())
    key = hashlib.sha256(words.encode(errors="replace")).hexdigest()[:12]
    is_one_of_them = len(choices) > 1 and not any(_BOX.match(each.label) for each in choices)
    offered = tuple(choices) if is_one_of_them else ()
    return ScreenDialog(
        text=_cut(text),
        key=key,
        choices=offered,
        decisions=_decisions(offered, rules),
        no_by_escape=rules.answers is not None and rules.answers.no_by_escape,
    )


def _choice(found: re.Match[str] | None) -> Choice | None:
    if found is None:
        return None
    label = _WIDE.split(found["label"])[0]  # what stands behind it explains it
    return Choice(int(found["number"]), label, bool(found["mark"]))


def meant(dialog: ScreenDialog, said: str) -> int | None:
    """Return the place of the choice that an answer means; None if it means none of them."""
    if dialog.marked is None:
        return None
    decision = decision_of(said)
    if decision is not None and decision in dialog.decisions:
        return dialog.decisions[decision]
    return chosen([each.label for each in dialog.choices], said)


def _decisions(choices: tuple[Choice, ...], rules: ProviderRules) -> dict[Decision, int]:
    """Return what decides what; a word that more than one choice would fit decides nothing."""
    if rules.answers is None:
        return {}
    patterns = {
        Decision.YES: rules.answers.yes,
        Decision.ALWAYS: rules.answers.always,
        Decision.NO: rules.answers.no,
    }
    found = {}
    for decision, texts in patterns.items():
        fitting = [
            place
            for place, each in enumerate(choices)
            if any(_fits(text, each.label) for text in texts)
        ]
        if len(fitting) == 1:
            found[decision] = fitting[0]
    return found


def _fits(text: str, label: str) -> bool:
    pattern = compile_pattern(text)
    return label == pattern if isinstance(pattern, str) else pattern.search(label) is not None


def _bare(line: str) -> str:
    """Return a line without the frame around it."""
    begin = _FRAME.match(line)
    inner = line[begin.end() :] if begin is not None else line
    indent = " " * (len(line) - len(inner))
    while (end := _FRAME.search(inner[::-1])) is not None and end.start() == 0:
        inner = inner[: len(inner) - end.end()]
    return indent + inner if inner else ""


def _cut(text: str) -> str:
    if len(text) <= MOST_CHARACTERS:
        return text
    half = (MOST_CHARACTERS - len(_LEFT_OUT)) // 2
    return text[:half] + _LEFT_OUT + text[-half:]  # the end has the question
