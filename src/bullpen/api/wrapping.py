"""Between a wrapper and the daemon: one connection, on which both ask.

The wrapper connects, registers, and is given its agent's name and secret before it starts the
program. From then on it tells what the program is doing and what became of what it typed, and the
daemon asks it to type. A wrapper that lost its daemon goes on, connects again, and says by
`attempts` what happened meanwhile; nothing is typed twice.
"""

from typing import Any

import msgspec

from bullpen.connection import TypedNotification, TypedRequest
from bullpen.model.deliveries import Evidence, ReceiptState
from bullpen.model.dialogs import Dialog
from bullpen.model.states import Activity, Provider

__all__ = [
    "AnswerDialog",
    "AnswerDialogReply",
    "Answered",
    "Attempt",
    "InjectMessage",
    "InjectReply",
    "PressKeys",
    "ReadTerminal",
    "RegisterReply",
    "RegisterWrapper",
    "Said",
    "StepTaken",
    "StopProgram",
    "TerminalText",
    "WrapperEnded",
    "WrapperInterrupt",
    "WrapperStarted",
    "WrapperState",
]


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """A message the wrapper was asked to type, and how far that came."""

    attempt_id: str
    """`<message id>:<number of the attempt>`, made by the daemon."""
    state: ReceiptState
    """`queued` (not typed), `injected`, `submitted`, `seen`, `answered` or `failed`."""
    text: str = ""
    """The answer, or why it failed."""
    evidence: Evidence | None = None


class RegisterReply(msgspec.Struct, frozen=True, kw_only=True):
    """Who the agent is."""

    name: str
    """As wished, or with a number behind it if somebody else is called so."""
    secret: str
    """For the agent's environment, and for coming back."""
    directory: str
    """A private directory of the agent's own, for what its program is given for this run."""


class RegisterWrapper(TypedRequest[RegisterReply]):
    """From the wrapper, first of all: here is an agent. Said again after a lost connection."""

    METHOD = "wrapper.register"
    profile: str
    provider: Provider
    wrapper_pid: int
    cwd: str
    name: str = ""
    """As wished; empty for the profile's."""
    secret: str = ""
    """That of before, if it comes back."""
    is_detached: bool = False
    tmux: str = ""
    tmux_pane: str = ""
    port: int | None = None
    submit_sequence: str = "\n"
    """What is typed behind a message."""
    socket_path: str = ""
    """Where the wrapper itself can be attached to."""
    doors: dict[str, Any] = msgspec.field(default_factory=dict)
    """What the program was given for this run: `{"hooks": true, "app_server": "unix:///…"}`."""
    attempts: tuple[Attempt, ...] = ()
    """What became of messages since the connection was lost, or is still going on."""


class WrapperStarted(TypedRequest[bool]):
    """From the wrapper: the program runs."""

    METHOD = "wrapper.started"
    pid: int
    tty: str
    command: tuple[str, ...]
    doors: dict[str, Any] = msgspec.field(default_factory=dict)
    """As for `wrapper.register`, if more is known now."""


class WrapperState(TypedNotification):
    """From the wrapper: what the program is doing, whenever that changed."""

    METHOD = "wrapper.state"
    activity: Activity
    status: str
    """The seed's word."""
    is_ready: bool = False
    """A message could be typed and submitted now."""
    prompt: str = ""
    """`empty`, `draft`, `absent` …, as the screen rules say."""
    why: str = ""
    """By what it is known: the rule, the idle pattern, silence."""
    title: str = ""
    output_end: int = 0
    dialog: Dialog | None = None
    """What it asks its user, if its screen shows that."""


class StepTaken(TypedNotification):
    """From the wrapper: a step of typing a message."""

    METHOD = "wrapper.step"
    attempt_id: str
    state: ReceiptState
    evidence: Evidence


class Said(TypedNotification):
    """From the wrapper: a piece of what the program says while it works on a message."""

    METHOD = "wrapper.said"
    attempt_id: str
    at: int
    """How many characters stand before it; at 0 something new begins."""
    text: str


class Answered(TypedRequest[bool]):
    """From the wrapper: the turn that a message began is over. Repeated until it is answered."""

    METHOD = "wrapper.answered"
    attempt_id: str
    is_ok: bool
    text: str
    """What the program said, or why there is no answer."""
    how: str
    """`prompt_back`, `silence`, `error`, `rate_limit`, `interrupted` or `exited`."""
    evidence: Evidence


class WrapperEnded(TypedRequest[bool]):
    """From the wrapper, last of all: the program has ended."""

    METHOD = "wrapper.ended"
    status: int
    """Its exit status; negative for a signal."""


# --------------------------------------------------------------------------- served by the wrapper


class InjectReply(msgspec.Struct, frozen=True, kw_only=True):
    """How typing a message ended."""

    outcome: str
    """`submitted`; `not_ready` (nothing was typed: try later); `unsure` (it was typed, and what
    became of it is not known: never again by itself); `refused` (nothing was typed, nor can it ever
    be: it is too long for a line); `ended` (the program is gone)."""
    reason: str = ""
    evidence: Evidence | None = None


class InjectMessage(TypedRequest[InjectReply]):
    """To the wrapper: type a message. Steps come as `wrapper.step`, its end as the answer.

    Asked again for an attempt it knows, it types nothing and answers what became of that one.
    """

    METHOD = "wrapper.inject"
    attempt_id: str
    sender: str
    text: str
    interrupts: bool = False
    """Interrupt what the program is doing first."""
    wants_answer: bool = True
    """Whether to follow the turn and tell its end by `wrapper.answered`."""
    ready_seconds: float = 5.0
    """How long to wait until the box can be typed into."""


class WrapperInterrupt(TypedRequest[bool]):
    """To the wrapper: interrupt what the program is doing, in the program's own way."""

    METHOD = "wrapper.interrupt"


class PressKeys(TypedRequest[bool]):
    """To the wrapper: type these bytes, whatever the screen shows."""

    METHOD = "wrapper.keys"
    data: bytes


class AnswerDialogReply(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an answer."""

    outcome: str
    """`answered`; `not_asked` (it asks this no more, and nothing was decided); `not_understood`
    (nothing was typed); `unsure` (it was typed, and the dialog is still there); `ended`."""
    answered: str = ""
    """Which choice was taken."""


class AnswerDialog(TypedRequest[AnswerDialogReply]):
    """To the wrapper: answer a dialog, if it is still the same."""

    METHOD = "wrapper.answer"
    dialog_id: str
    text: str


class TerminalText(msgspec.Struct, frozen=True, kw_only=True):
    """What the program wrote last, and what its terminal shows."""

    text: str
    end: int
    screen: str = ""


class ReadTerminal(TypedRequest[TerminalText]):
    """To the wrapper: the newest output."""

    METHOD = "wrapper.read"
    limit: int = 10_000


class StopProgram(TypedRequest[bool]):
    """To the wrapper: end the program, and then yourself. Answered before it goes."""

    METHOD = "wrapper.stop"
