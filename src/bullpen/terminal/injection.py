"""Typing a message into an agent's prompt box so that it arrives once, whole, and nowhere else.

A machine over what the screen shows. It waits until the box is empty and takes text, pastes the
message once, waits until it is to be seen there, presses Enter as a write of its own, and waits
until the box has let go of it. If it has not, Enter is pressed again, a few times; the message is
never pasted again. Nothing is typed into a dialog, or to what a human has begun to write.

The caller reads the screen after each write settled and hands in what it sees; `TABLE` says what
follows. Time is a number of seconds that the caller counts.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import msgspec

from bullpen.model.states import Activity, Provider
from bullpen.terminal.rules.engine import Verdict

__all__ = [
    "TABLE",
    "Injection",
    "Manners",
    "Move",
    "Outcome",
    "Prepared",
    "Sight",
    "Stage",
    "Typed",
    "addressed",
    "is_leftover",
    "manners_of",
    "prepare",
    "sight_of",
]

ENTER = b"\r"
CLEAR = b"\x15"  # Ctrl-U, which takes the line that the cursor is in
BACKSPACE = b"\x7f"
MOST_CLEARS = 3
PASTE_BEGIN, PASTE_END = b"\x1b[200~", b"\x1b[201~"

_HEADER = "[from"
_MAX_SENDER = 64
_SEEN_CHARACTERS = 24  # of each end of a message; a box shows one of them, or both
_PLACEHOLDER = re.compile(r"\[Paste[d ][^\[\]]*(?:\d|#)[^\[\]]*\]")
_SCROLLED = re.compile(r"\s{3,}[↑↓]$", re.MULTILINE)  # there is more of it above, or below
_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_DIALOGS = (Activity.WAITING_APPROVAL, Activity.WAITING_INPUT)


class Manners(msgspec.Struct, frozen=True):
    """How a program wants to be typed to, in seconds where not said otherwise."""

    gap: float = 0.1  # from the paste to Enter; Codex takes 0.02 for a part of the paste
    retry: float = 0.6  # from one Enter to the next
    submits: int = 5  # Codex swallows three and more behind a long text that was typed
    ready_timeout: float = 30.0
    echo_timeout: float = 10.0  # opencode takes seconds to show a long text
    submit_timeout: float = 15.0


def manners_of(provider: Provider) -> Manners:
    """The manners of a provider's program."""
    if provider is Provider.GEMINI:  # it takes an Enter for a newline as long as it redraws
        return Manners(gap=0.3)
    return Manners()


class Prepared(msgspec.Struct, frozen=True):
    """A message as it is typed: the text to stand in the box, and the bytes that put it there.

    `is_flattened` tells that its lines were joined, since without bracketed paste each newline
    would have been an Enter.
    """

    text: str
    data: bytes
    is_flattened: bool = False


def prepare(message: str, sender: str, *, is_bracketed: bool) -> Prepared:
    """Make a message fit to be typed.

    It begins with who sent it, and so never with what programs take for a command (`/`, `!`, `?`,
    `#`), ends without a backslash, which would turn Enter into a newline, and has no control
    characters, with which it could press keys or end its own paste.
    """
    body = _body(message.replace("\t", "    "))  # a tab would complete something
    is_flattened = "\n" in body and not is_bracketed
    if is_flattened:
        body = " ".join(body.split("\n"))
    text = _headed(body, sender)
    if text.endswith("\\"):
        text += " "
    data = text.encode()
    if is_bracketed:
        data = PASTE_BEGIN + data + PASTE_END
    return Prepared(text, data, is_flattened)


def addressed(message: str, sender: str) -> str:
    """Return a message as a program gets it that is not typed to.

    It begins with who sent it, and has no control characters, which a screen that shows it would
    take for its own; its tabs are kept.
    """
    return _headed(_body(message), sender)


def _headed(body: str, sender: str) -> str:
    name = " ".join(_clean(sender).replace("[", "(").replace("]", ")").split())[:_MAX_SENDER]
    separator = "\n" if "\n" in body else " "
    return f"{_HEADER} {name or 'unknown'}]{separator}{body}".rstrip()


def _body(message: str) -> str:
    return _clean(message).rstrip().lstrip("\n")


def _clean(text: str) -> str:
    text = _SEQUENCES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)


class Sight(StrEnum):
    """What the screen shows, as far as it matters to who wants to type."""

    READY = "ready"
    BUSY = "busy"
    DIALOG = "dialog"
    DRAFT = "draft"
    """Somebody has begun to write, or the box takes something else than messages."""
    LEFTOVER = "leftover"
    """A message of ours that the program put back into the box, as after an interruption."""
    OURS = "ours"
    """The message stands in the box, and nothing else."""
    MIXED = "mixed"
    """The message stands in the box together with what somebody else typed."""
    ABSENT = "absent"


def sight_of(verdict: Verdict, box: str, text: str, *, leftover: str = "") -> Sight:
    """Say what a screen shows to who wants to type `text`.

    `box` is the text in the prompt box (`Layout.prompt.text`), or "" if it is empty or absent.
    """
    if verdict.activity in _DIALOGS and not verdict.ready and verdict.prompt != "draft":
        return Sight.DIALOG
    if verdict.prompt == "absent":
        return Sight.ABSENT
    if verdict.prompt == "draft":
        if (ours := _standing(box, text)) is not None:
            return ours
        if is_leftover(box, leftover):
            return Sight.LEFTOVER
        return Sight.DRAFT
    if verdict.prompt == "empty":
        return Sight.READY if verdict.ready else Sight.BUSY
    return Sight.DRAFT  # a shell's line, or a box without the cursor


def is_leftover(box: str, leftover: str) -> bool:
    """Whether a box holds nothing but a message of ours, all of it or what is left of it.

    It may show only the end of a long one, and its beginning when some lines were cleared.
    """
    shown, wanted = _squeezed(box), _squeezed(leftover)
    if not shown or not wanted:
        return False
    is_begun = shown.startswith(_HEADER) and wanted.startswith(shown)
    return is_begun or (shown in wanted and shown.endswith(wanted[-_SEEN_CHARACTERS:]))


def _standing(box: str, text: str) -> Sight | None:
    """How the text stands in the box: alone, with something else, or not at all (yet)."""
    shown, wanted = _squeezed(_SCROLLED.sub("", box)), _squeezed(text)
    if shown == wanted:
        return Sight.OURS
    head, tail = wanted[:_SEEN_CHARACTERS], wanted[-_SEEN_CHARACTERS:]
    if shown.endswith(tail) and shown in wanted:
        return Sight.OURS  # the end of a text too long for the box
    if head in shown and tail in shown:
        return Sight.MIXED
    if placeholder := _PLACEHOLDER.search(box):  # what stands for a text that is not shown
        return Sight.OURS if placeholder[0] == box.strip() else Sight.MIXED
    return None


def _squeezed(text: str) -> str:
    return "".join(text.split())


class Stage(StrEnum):
    """How far an injection is."""

    WAITING = "waiting"
    PASTED = "pasted"
    SUBMITTED = "submitted"
    DELIVERED = "delivered"
    FAILED = "failed"


class Move(StrEnum):
    """What a row of the table says to do."""

    WAIT = "wait"
    CLEAR = "clear"
    PASTE = "paste"
    SUBMIT = "submit"
    DELIVERED = "delivered"


_WAITING, _PASTED, _SUBMITTED = Stage.WAITING, Stage.PASTED, Stage.SUBMITTED

TABLE: Final[Mapping[tuple[Stage, Sight], Move]] = MappingProxyType(
    {
        (_WAITING, Sight.READY): Move.PASTE,
        (_WAITING, Sight.LEFTOVER): Move.CLEAR,
        (_WAITING, Sight.BUSY): Move.WAIT,
        (_WAITING, Sight.DIALOG): Move.WAIT,
        (_WAITING, Sight.DRAFT): Move.WAIT,
        (_WAITING, Sight.OURS): Move.WAIT,  # somebody types the very same
        (_WAITING, Sight.MIXED): Move.WAIT,
        (_WAITING, Sight.ABSENT): Move.WAIT,
        (_PASTED, Sight.OURS): Move.SUBMIT,
        (_PASTED, Sight.READY): Move.WAIT,  # not shown yet
        (_PASTED, Sight.BUSY): Move.WAIT,
        (_PASTED, Sight.DIALOG): Move.WAIT,  # Enter would answer it
        (_PASTED, Sight.DRAFT): Move.WAIT,
        (_PASTED, Sight.LEFTOVER): Move.WAIT,
        (_PASTED, Sight.MIXED): Move.WAIT,  # Enter would send what a human has not finished
        (_PASTED, Sight.ABSENT): Move.WAIT,
        (_SUBMITTED, Sight.OURS): Move.SUBMIT,
        (_SUBMITTED, Sight.READY): Move.DELIVERED,
        (_SUBMITTED, Sight.BUSY): Move.DELIVERED,
        (_SUBMITTED, Sight.DRAFT): Move.DELIVERED,  # a human writes the next one
        (_SUBMITTED, Sight.LEFTOVER): Move.DELIVERED,
        (_SUBMITTED, Sight.DIALOG): Move.WAIT,
        (_SUBMITTED, Sight.MIXED): Move.WAIT,
        (_SUBMITTED, Sight.ABSENT): Move.WAIT,
    }
)

_WHY_NOT_READY = {
    Sight.BUSY: "the agent is busy",
    Sight.DIALOG: "a dialog is open",
    Sight.DRAFT: "a draft is in the prompt box",
    Sight.LEFTOVER: "an interrupted message stays in the prompt box",
    Sight.OURS: "a draft is in the prompt box",
    Sight.MIXED: "a draft is in the prompt box",
    Sight.ABSENT: "there is no prompt box",
}


class Typed(msgspec.Struct, frozen=True):
    """Bytes to write to the program now, in a write of their own."""

    move: Move
    data: bytes


class Outcome(msgspec.Struct, frozen=True):
    """The end of an injection.

    If it was not delivered, `is_in_box` tells whether the message may still stand in the box, or
    even have been taken without a sign of it: then it must not be typed again unasked.
    """

    is_delivered: bool
    reason: str = ""
    is_in_box: bool = False


class Injection:
    """One message on its way into one box. Made at the time `now`.

    `leftover` is an earlier message that the box may still hold.
    """

    def __init__(
        self, message: Prepared, manners: Manners, now: float, *, leftover: str = ""
    ) -> None:
        self.message = message
        self.leftover = leftover
        self.stage = Stage.WAITING
        self.submits = 0
        self._manners = manners
        self._acted = now
        self._until = now + manners.ready_timeout
        self._clears = 0
        self._clear_at: float | None = None  # again, if that was not enough
        self._was_seen = False

    @property
    def wake_at(self) -> float | None:
        """When to look again even if the screen stays as it is; None when all is done."""
        if self.stage in (Stage.DELIVERED, Stage.FAILED):
            return None
        if self.stage is Stage.PASTED:
            return min(self._acted + self._manners.gap, self._until)
        if self.stage is Stage.SUBMITTED:
            return min(self._acted + self._manners.retry, self._until)
        return self._until if self._clear_at is None else min(self._clear_at, self._until)

    def step(self, sight: Sight, now: float) -> Typed | Outcome | None:
        """Say what to do, seeing this. None is to look again, at `wake_at` at the latest.

        Once it has returned an outcome, it is not to be called any more.
        """
        if self._clear_at is not None and now >= self._clear_at:
            self._clear_at = None
        move = TABLE[self.stage, sight]
        if self.stage is Stage.PASTED and sight is Sight.BUSY and self._was_seen:
            move = Move.DELIVERED  # it stood there, and somebody else has pressed Enter
        self._was_seen |= self.stage is Stage.PASTED and sight in (Sight.OURS, Sight.MIXED)
        if move is Move.DELIVERED:
            self.stage = Stage.DELIVERED
            return Outcome(True)
        if now >= self._until:
            return self._fail(sight)
        if move is Move.PASTE:
            return self._paste(now)
        if move is Move.CLEAR:
            return self._clear(now)
        if move is Move.SUBMIT:
            return self._submit(now)
        return None

    def _paste(self, now: float) -> Typed:
        self.stage = Stage.PASTED
        self._acted, self._until = now, now + self._manners.echo_timeout
        return Typed(Move.PASTE, self.message.data)

    def _clear(self, now: float) -> Typed | None:
        if self._clear_at is not None or self._clears >= MOST_CLEARS:
            return None
        self._clears += 1
        self._clear_at = now + self._manners.retry
        return Typed(Move.CLEAR, BACKSPACE.join([CLEAR] * (self.leftover.count("\n") + 1)))

    def _submit(self, now: float) -> Typed | Outcome | None:
        is_first = self.stage is Stage.PASTED
        if now < self._acted + (self._manners.gap if is_first else self._manners.retry):
            return None
        if self.submits >= self._manners.submits:
            return self._fail(Sight.OURS)
        if is_first:
            self.stage = Stage.SUBMITTED
            self._until = now + self._manners.submit_timeout
        self.submits += 1
        self._acted = now
        return Typed(Move.SUBMIT, ENTER)

    def _fail(self, sight: Sight) -> Outcome:
        stage, self.stage = self.stage, Stage.FAILED
        if stage is Stage.WAITING:
            return Outcome(False, _WHY_NOT_READY.get(sight, "the agent was not ready in time"))
        if stage is Stage.PASTED:
            why = {
                Sight.DIALOG: "a dialog opened before the message could be submitted",
                Sight.MIXED: "somebody typed into the prompt box",
            }.get(sight, "the message did not appear in the prompt box")
            if self._was_seen and sight is Sight.READY:
                why = "somebody took the message out of the prompt box"
            return Outcome(False, why, is_in_box=True)
        if sight is Sight.OURS:
            why = f"the message was not submitted by {self.submits} times Enter"
        else:
            why = "nothing shows whether the message was taken"
        return Outcome(False, why, is_in_box=True)
