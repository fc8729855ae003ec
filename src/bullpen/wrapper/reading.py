"""What a program is doing, read off its screen or off the lines it prints. Pure."""

from typing import Protocol

import msgspec

from bullpen.model.states import Activity
from bullpen.terminal.context import OutputContext
from bullpen.terminal.injection import Sight, sight_of
from bullpen.terminal.rules.engine import Verdict, decide
from bullpen.terminal.rules.format import ProviderRules
from bullpen.terminal.rules.layout import Layout
from bullpen.terminal.rules.screen import Screen
from bullpen.wrapper.status import TAIL_BYTES, LineStatus, Status, last_line, status_of

__all__ = ["LineReader", "Reading", "ScreenReader"]

_ACTIVITIES = {
    Status.NOT_STARTED: Activity.EXITED,
    Status.STARTING: Activity.STARTING,
    Status.BUSY: Activity.RUNNING,
    Status.IDLE: Activity.IDLE,
}


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What a program is doing, and by what that is known."""

    activity: Activity
    status: Status
    is_ready: bool = False
    prompt: str = "absent"
    why: str = ""
    title: str = ""
    line: str = ""
    """The line on the screen that says so."""

    @classmethod
    def of(cls, status: Status, why: str = "") -> "Reading":
        """All there is to say where nothing can be read."""
        return cls(activity=_ACTIVITIES[status], status=status, why=why)


class Drafts(Protocol):
    """Knows whether somebody has begun to write."""

    @property
    def has_draft(self) -> bool:
        """Something was typed and not sent."""


class LineReader:
    """Reads a program that prints lines and a prompt."""

    def __init__(self, status: LineStatus, context: OutputContext, drafts: Drafts) -> None:
        self.status = status
        self._context = context
        self._drafts = drafts

    @property
    def has_draft(self) -> bool:
        """Whether somebody has typed something that the program has not got yet."""
        return self._drafts.has_draft

    def read(self) -> Reading:
        """Look at what it wrote last."""
        status = self.status.see(self._context)
        if status is Status.BUSY and self.status.is_draft(self._context.tail(TAIL_BYTES)):
            return Reading(
                activity=Activity.IDLE,
                status=status,
                prompt="draft",
                why="something stands at its prompt",
                line=self.status.prompt,
            )
        if status is not Status.IDLE:
            return Reading.of(status, "no prompt" if status is Status.BUSY else "")
        is_draft = self._drafts.has_draft and not self._is_as_it_came()
        return Reading(
            activity=Activity.IDLE,
            status=status,
            is_ready=not is_draft,
            prompt="draft" if is_draft else "empty",
            why="its prompt stands at the end",
            line=self.status.prompt,
        )

    def _is_as_it_came(self) -> bool:
        """Whether what was typed has been rubbed out again."""
        return last_line(self._context.tail(TAIL_BYTES)) == self.status.prompt


class ScreenReader:
    """Reads a program that paints a screen, by its provider's rules."""

    def __init__(self, rules: ProviderRules | None = None) -> None:
        self.rules = rules
        """As long as there are none, nothing is known."""
        self._has_begun = False

    def read(self, screen: Screen) -> tuple[Reading, Verdict | None, str]:
        """Return what a screen says, on what evidence, and what stands in its prompt box."""
        if self.rules is None:
            return Reading.of(Status.STARTING, "its screen is not read yet"), None, ""
        verdict = decide(screen, self.rules)
        prompt = Layout(screen, self.rules).prompt
        activity = verdict.activity
        self._has_begun |= activity is not Activity.UNKNOWN
        if not self._has_begun:
            activity = Activity.STARTING
        reading = Reading(
            activity=activity,
            status=status_of(activity),
            is_ready=verdict.ready,
            prompt=verdict.prompt,
            why=f"{verdict.rule}: {verdict.reason}" if verdict.rule else verdict.reason,
            title=screen.title,
            line=verdict.evidence[0].text if verdict.evidence else "",
        )
        return reading, verdict, prompt.text if prompt else ""

    def sight(self, verdict: Verdict, box: str, text: str, leftover: str) -> Sight:
        """What the last screen shows to who wants to type a text."""
        return sight_of(verdict, box, text, leftover=leftover)
