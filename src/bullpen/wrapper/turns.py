"""Following a turn from the moment its message was submitted until it is over. Pure.

A turn is over when the prompt is back and stays: a prompt inside a reply and a screen that flickers
do not stay. Of a program that never shows one, silence is the end. What was said comes from where
the message was typed on, so no other turn's words are in it.
"""

import re

import msgspec

from bullpen.model.states import Activity
from bullpen.terminal.context import Cut, OutputContext
from bullpen.wrapper.echoes import echo_end, reply_of, said_so_far
from bullpen.wrapper.pace import Pace
from bullpen.wrapper.reading import Reading
from bullpen.wrapper.status import TAIL_BYTES, Status, last_line

__all__ = ["LineTurn", "ScreenTurn", "TurnEnd"]

_FAILURES = {Activity.ERROR: "error", Activity.RATE_LIMITED: "rate_limit"}
_FLICKER = 5  # times the settling time after which a screen that never stands still counts


class TurnEnd(msgspec.Struct, frozen=True):
    """How a turn ended. What was said is read by the caller."""

    how: str
    is_ok: bool
    what: str


class LineTurn:
    """A turn of a program that prints lines."""

    def __init__(
        self, cut: Cut, context: OutputContext, line: str, prompt: str, idle: re.Pattern[bytes]
    ) -> None:
        self.cut = cut
        self._context = context
        self._line = line
        self._prompt = prompt
        self._idle = idle
        self._echo: int | None = None
        self._prompt_at: tuple[int, float] | None = None  # the output's end, and since when
        self.is_interrupted = False

    @property
    def has_echo(self) -> bool:
        """Whether the line was echoed as a whole, or something else was written behind it."""
        if self._echo is None and self.cut.end > self.cut.begin:
            self._echo = echo_end(self.cut.data, self._line, self._prompt)
        return self._echo is not None

    @property
    def seen(self) -> str:
        """By what it is known that the program has the line; empty if it is not."""
        if not self.has_echo:
            return ""
        beyond = self.cut.end - self.cut.begin - (self._echo or 0)
        return f"it wrote behind the echo, {beyond} bytes" if beyond > 0 else ""

    def look(
        self, reading: Reading, last_output: float, now: float, pace: Pace
    ) -> TurnEnd | float | None:
        """Return the end, or after how many seconds to look again, or None: when it has written."""
        end = self.cut.end
        written = end - self.cut.begin
        if (
            reading.status is Status.IDLE
            and written
            and (self.has_echo or written > len(self._line))
        ):
            if self._prompt_at is None or self._prompt_at[0] != end:
                self._prompt_at = (end, last_output)
            wanted = pace.prompt if self._is_known_prompt() else pace.other_prompt
            if (left := self._prompt_at[1] + wanted - now) > 0:
                return left
            if self.is_interrupted:
                return TurnEnd("interrupted", False, "the prompt is back after an interruption")
            return TurnEnd("prompt_back", True, "its prompt is back")
        self._prompt_at = None
        if not self.seen:
            return None  # it may take its time
        if (left := last_output + pace.silence - now) > 0:
            return left
        return TurnEnd("silence", True, f"it wrote nothing for {pace.silence:g} s")

    def _is_known_prompt(self) -> bool:
        return bool(self._prompt) and last_line(self._context.tail(TAIL_BYTES)) == self._prompt

    def so_far(self) -> str:
        """What was said so far, as far as that is sure."""
        return said_so_far(self.cut.data, self._line, self._prompt, self._idle)

    def text(self) -> str:
        """What was said, at the end."""
        said = reply_of(self.cut.data, self._line, self._prompt, self._idle)
        return f"{said}\n[{self.cut.lost} bytes more]" if self.cut.lost else said


class ScreenTurn:
    """A turn of a program that paints a screen."""

    def __init__(self, text: str, begun_at: float) -> None:
        self.message = text
        self.begun_at = begun_at
        self.is_interrupted = False
        self._was_at_work = ""
        self._end_since: tuple[Activity, float] | None = None

    @property
    def seen(self) -> str:
        """By what it is known that the program has the message; empty if it is not."""
        return self._was_at_work

    def look(
        self, reading: Reading, changed_at: float, last_output: float, now: float, pace: Pace
    ) -> TurnEnd | float | None:
        """As for lines. `changed_at` is when the screen showed something else."""
        activity = reading.activity
        if activity is Activity.RUNNING or activity.is_waiting:
            self._was_at_work = self._was_at_work or f"its screen shows it at work ({reading.why})"
        is_over = activity in (Activity.IDLE, *_FAILURES) and reading.prompt != "absent"
        if not is_over:
            self._end_since = None
            if activity is not Activity.UNKNOWN or not self._was_at_work:
                return None
            if (left := last_output + pace.silence - now) > 0:
                return left
            return TurnEnd("silence", True, f"nothing was painted for {pace.silence:g} s")
        if self._end_since is None or self._end_since[0] is not activity:
            self._end_since = (activity, now)
        since = self._end_since[1]
        settle = pace.settle if self._was_at_work else pace.unseen
        still = max(since, min(changed_at, since + settle * _FLICKER))
        if (left := still + settle - now) > 0:
            return left
        return self._over(reading)

    def _over(self, reading: Reading) -> TurnEnd:
        if self.is_interrupted:
            return TurnEnd("interrupted", False, "its prompt is back after an interruption")
        if (how := _FAILURES.get(reading.activity)) is not None:
            return TurnEnd(how, False, reading.line or reading.why)
        return TurnEnd("prompt_back", True, f"its prompt box is back ({reading.why})")
