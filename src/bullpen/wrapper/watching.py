"""Looking at a program whenever it has written something, and knowing since when it is so."""

import asyncio

from bullpen.model.dialogs import Dialog
from bullpen.model.states import Activity
from bullpen.terminal.dialogs import ScreenDialog, read_dialog
from bullpen.terminal.injection import Sight, is_leftover
from bullpen.terminal.rules.engine import Verdict
from bullpen.terminal.rules.screen import Screen
from bullpen.wrapper.pulse import Pulse
from bullpen.wrapper.reading import LineReader, Reading, ScreenReader
from bullpen.wrapper.status import Status
from bullpen.wrapper.terminal import AgentTerminal

__all__ = ["Watch"]

LOOK_SECONDS = 0.03  # a screen is read in a millisecond; while it is painted, there is no hurry
LINE_LOOK_SECONDS = 0.01
SETTLE_SECONDS = 0.2  # for which a dialog has been the same before it is told: it is painted


class Watch:
    """What the program is doing now. Its pulse beats after every look."""

    def __init__(self, terminal: AgentTerminal, reader: LineReader | ScreenReader) -> None:
        self.terminal = terminal
        self.reader = reader
        self.pulse = Pulse()
        self.reading = Reading.of(Status.NOT_STARTED)
        self.activity_since = 0.0
        self.ready_since: float | None = None
        """Since when a message could be typed; None if it cannot."""
        self.changed_at = 0.0
        """When the screen, as lines of text, was not as it had been."""
        self.has_ended = False
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._verdict: Verdict | None = None
        self._box = ""
        self._lines: tuple[str, ...] = ()
        self.dialog: ScreenDialog | None = None
        """What is asked on the screen, if something is."""
        self._dialogs = 0
        self._dialog_since = 0.0
        self._is_stale = False
        self._seconds = LOOK_SECONDS if isinstance(reader, ScreenReader) else LINE_LOOK_SECONDS

    @property
    def is_painted(self) -> bool:
        """Whether a screen is read, and not lines."""
        return isinstance(self.reader, ScreenReader)

    def note_output(self) -> None:
        """Look soon."""
        self._is_stale = True
        if self._timer is None and not self.has_ended:
            self._timer = self._loop.call_later(self._seconds, self.look)

    def begin(self) -> None:
        """The program is being started."""
        if isinstance(self.reader, LineReader):
            self.reader.status.start()
        self._take(Reading.of(Status.STARTING))

    def started(self) -> None:
        """It runs."""
        if isinstance(self.reader, LineReader):
            self.reader.status.begin()
        self.look()

    def end(self) -> None:
        """It has ended."""
        if isinstance(self.reader, LineReader):
            self.reader.status.end()
        self._cancel_timer()
        self.has_ended = True
        self._take(Reading.of(Status.NOT_STARTED, "the program has ended"))

    def look(self) -> Reading:
        """Look now."""
        self._cancel_timer()
        if self.has_ended:
            return self.reading
        self._is_stale = False
        if isinstance(self.reader, LineReader):
            self._take(self.reader.read())
        elif (screen := self.terminal.screen()) is not None:
            reading, self._verdict, self._box = self.reader.read(screen)
            if screen.lines != self._lines:
                self._lines = screen.lines
                self.changed_at = self._loop.time()
            self._see_dialog(reading, screen)
            self._take(reading)
        return self.reading

    def _see_dialog(self, reading: Reading, screen: Screen) -> None:
        assert isinstance(self.reader, ScreenReader)
        before, rules = self.dialog, self.reader.rules
        is_asking = reading.activity.is_waiting and rules is not None
        self.dialog = read_dialog(screen, rules) if is_asking and rules is not None else None
        if self.dialog is not None and (before is None or before.key != self.dialog.key):
            self._dialogs += 1  # the same question, asked again, is another
            self._dialog_since = self._loop.time()
            self._loop.call_later(SETTLE_SECONDS + 0.01, self.pulse.beat)

    @property
    def asked(self) -> Dialog | None:
        """What is asked on the screen, for those who do not see it."""
        if self.dialog is None or self._loop.time() < self._dialog_since + SETTLE_SECONDS:
            return None
        dialog_id = f"{self.dialog.key}-{self._dialogs}"
        return Dialog(id=dialog_id, text=self.dialog.text, answers=self.dialog.answers)

    def look_again(self) -> Reading:
        """Look, if something was written since the last time."""
        return self.look() if self._is_stale else self.reading

    def sight(self, text: str, leftover: str) -> Sight:
        """What the screen shows to who wants to type a text."""
        self.look_again()
        if self._verdict is None or not isinstance(self.reader, ScreenReader):
            return Sight.ABSENT
        return self.reader.sight(self._verdict, self._box, text, leftover)

    def holds(self, leftover: str) -> bool:
        """Whether nothing stands in the prompt box but a message of ours."""
        return self.reading.prompt == "draft" and is_leftover(self._box, leftover)

    def lines(self) -> tuple[str, ...]:
        """All that can be read on and above the screen."""
        self.look_again()
        return (*self.terminal.history(), *self._lines)

    def close(self) -> None:
        """Look no more."""
        self._cancel_timer()
        self.has_ended = True

    def _take(self, reading: Reading) -> None:
        now = self._loop.time()
        if reading.activity is not self.reading.activity:
            self.activity_since = now
        if not reading.is_ready:
            self.ready_since = None
        elif self.ready_since is None:
            self.ready_since = now
        self.reading = reading
        self.pulse.beat()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_dialog(self) -> bool:
        """Whether it waits for a decision that is not ours to make."""
        return self.reading.activity in (Activity.WAITING_APPROVAL, Activity.WAITING_INPUT)
