"""The status of a program that prints lines and a prompt, in the seed's words. Pure.

`NOT_STARTED → STARTING → BUSY ⇄ IDLE → NOT_STARTED`: it is idle when its prompt is the last that it
wrote, and busy from the moment it is given a line until its prompt is back.
"""

import re
from enum import StrEnum

from bullpen.model.states import Activity
from bullpen.terminal.context import OutputContext

__all__ = ["TAIL_BYTES", "LineStatus", "Status", "compile_idle", "last_line", "status_of"]

TAIL_BYTES = 1000  # of the output, in which a prompt is looked for

_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"
    r"|\x1b[PX^_][^\x1b]*(?:\x1b\\)?"
    r"|\x1b[ -/]*[0-~]"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1f\x7f]"
)


class Status(StrEnum):
    """What a program on a terminal is doing, as the seed calls it."""

    NOT_STARTED = "NOT_STARTED"
    STARTING = "STARTING"
    BUSY = "BUSY"
    IDLE = "IDLE"


def status_of(activity: Activity) -> Status:
    """The seed's word for an activity."""
    match activity:
        case Activity.STARTING:
            return Status.STARTING
        case Activity.IDLE | Activity.ERROR | Activity.RATE_LIMITED:
            return Status.IDLE  # a turn has ended, well or not, and a new one can begin
        case Activity.EXITED:
            return Status.NOT_STARTED
        case _:
            return Status.BUSY


def compile_idle(idle_regex: str) -> re.Pattern[bytes]:
    """The pattern of a prompt, for bytes.

    Raises:
        re.error: it is none.
    """
    return re.compile(idle_regex.encode())


def last_line(tail: bytes) -> str:
    """The line on which output ends, as it is shown: what was rubbed out is not."""
    text = _SEQUENCES.sub("", tail.decode(errors="replace")).rpartition("\n")[2]
    cells: list[str] = []
    cursor = 0
    for char in text:
        if char == "\r":
            cursor = 0
        elif char == "\b":
            cursor = max(cursor - 1, 0)
        else:
            cells[cursor : cursor + 1] = [char]
            cursor += 1
    rest = "".join(cells[cursor:])
    return "".join(cells[:cursor]) + (rest if rest.strip() else "")


class LineStatus:
    """The machine. What is typed and what is written are told to it in order."""

    def __init__(self, idle: re.Pattern[bytes]) -> None:
        self.idle = idle
        self._since = 0  # a prompt before this offset is one of before
        self.status = Status.NOT_STARTED
        self.prompt = ""
        """The line of the prompt, as it was when it came."""
        self._is_at_prompt = False  # it has been given no line since

    def start(self) -> None:
        """The program is being started."""
        self.status = Status.STARTING

    def begin(self) -> None:
        """It runs."""
        self.status = Status.BUSY

    def type_line(self, end: int) -> None:
        """It is given a line, or an end of one, when so much was written."""
        self._since = end
        self._is_at_prompt = False
        if self.status is Status.IDLE:
            self.status = Status.BUSY

    def end(self) -> None:
        """It has ended."""
        self.status = Status.NOT_STARTED

    def see(self, context: OutputContext) -> Status:
        """Look at what it wrote last."""
        if self.status in (Status.NOT_STARTED, Status.STARTING):
            return self.status
        _, tail = context.since(max(self._since, context.end - TAIL_BYTES))
        is_prompt = self.is_prompt(tail)
        if is_prompt and self.status is not Status.IDLE:
            self.prompt = last_line(tail)
        self._is_at_prompt |= is_prompt
        self.status = Status.IDLE if is_prompt else Status.BUSY
        return self.status

    def is_draft(self, tail: bytes) -> bool:
        """Whether output that ends so ends with a line that was begun and not given to it."""
        line = last_line(tail)
        return self._is_at_prompt and line != self.prompt and line.startswith(self.prompt)

    def is_prompt(self, tail: bytes) -> bool:
        """Whether output that ends so ends with a prompt, painted or plain.

        The key that stops a program is shown behind it, and leaves nothing on the line.
        """
        shown = last_line(tail).removesuffix("^Z")
        return bool(tail and (self.idle.search(tail) or self.idle.search(shown.encode())))
