"""Prompt boxes that behave as was measured of real programs, without any."""

from dataclasses import dataclass, field

from bullpen.model.states import Activity, Provider
from bullpen.terminal.injection import (
    BACKSPACE,
    CLEAR,
    ENTER,
    PASTE_BEGIN,
    PASTE_END,
    Injection,
    Manners,
    Outcome,
    Prepared,
    Sight,
    Typed,
    manners_of,
    sight_of,
)
from bullpen.terminal.rules.engine import Verdict
from bullpen.terminal.rules.format import PromptState

TICK = 0.01
MANY = 20_000


@dataclass
class FakeBox:
    """The prompt box of a program. What is measured of which one, its tests say."""

    provider: Provider = Provider.CLAUDE
    text: str = ""
    activity: Activity = Activity.IDLE
    gap: float = 0.0
    """An Enter sooner after the text is a newline in it, or nothing."""
    is_newline: bool = True
    swallows: int = 0
    """So many Enters do nothing."""
    echo: float = 0.0
    """So long it takes until a text is shown."""
    placeholder: str = ""
    """What is shown instead of a long paste."""
    keeps: bool = False
    """It cannot be cleared."""
    continues_lines: bool = False
    """A backslash before an Enter makes it a newline."""
    submitted: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    writes: list[bytes] = field(default_factory=list)
    answers: int = 0
    """So many dialogs were answered by an Enter."""
    _changed: float = 0.0
    _before: str = ""

    def write(self, data: bytes, now: float) -> None:
        self.writes.append(data)
        if data == ENTER:
            self._enter(now)
        elif not set(data) - {CLEAR[0], BACKSPACE[0]}:
            self._clear(data, now)
        elif data.startswith(PASTE_BEGIN):
            assert data.endswith(PASTE_END)
            text = data.removeprefix(PASTE_BEGIN).removesuffix(PASTE_END)
            assert b"\x1b" not in text
            self._set(self.text + text.decode(), now)
        else:
            assert not set(data) & set(b"\r\n"), "what is typed would submit its first line alone"
            self._set(self.text + data.decode(), now)

    def _clear(self, data: bytes, now: float) -> None:
        for key in b"" if self.keeps else data:
            if key == BACKSPACE[0]:
                self._set(self.text[:-1], now)
            else:
                self._set(self.text[: self.text.rfind("\n") + 1], now)

    def _set(self, text: str, now: float) -> None:
        self._before, self.text, self._changed = self.shown(now), text, now

    def _enter(self, now: float) -> None:
        if self.activity is Activity.WAITING_APPROVAL:
            self.answers += 1
        elif now < self._changed + self.gap:
            if self.is_newline:
                self.text += "\n"
        elif self.swallows:
            self.swallows -= 1
        elif self.continues_lines and self.text.endswith("\\"):
            self.text = self.text[:-1] + "\n"
        elif self.text[:1] in ("/", "!", "?"):
            self.commands.append(self.text)
            self.text = ""
        elif self.text:
            self.submitted.append(self.text.rstrip("\n"))
            self.text = self._before = ""
            self.activity = Activity.RUNNING

    def shown(self, now: float) -> str:
        if now < self._changed + self.echo:
            return self._before
        if self.placeholder and (len(self.text) > 800 or self.text.count("\n") > 2):
            return self.placeholder
        return self.text

    def verdict(self, now: float) -> Verdict:
        is_dialog = self.activity is Activity.WAITING_APPROVAL
        prompt: PromptState = "absent" if is_dialog else "draft" if self.shown(now) else "empty"
        is_ready = prompt == "empty" and self.activity is Activity.IDLE
        return Verdict(self.provider, self.activity, is_ready, "", prompt)

    def sight(self, text: str, now: float, *, leftover: str = "") -> Sight:
        return sight_of(self.verdict(now), self.shown(now), text, leftover=leftover)


def inject(
    box: FakeBox,
    message: Prepared,
    *,
    manners: Manners | None = None,
    leftover: str = "",
    events: dict[float, object] | None = None,
) -> Outcome:
    """Bring a message into a box, time passing in small steps; events change the box."""
    injection = Injection(message, manners or manners_of(box.provider), 0.0, leftover=leftover)
    pending = sorted((events or {}).items())
    for tick in range(MANY):
        now = tick * TICK
        while pending and pending[0][0] <= now:
            _, event = pending.pop(0)
            assert callable(event)
            event(box)
        done = injection.step(box.sight(message.text, now, leftover=leftover), now)
        if isinstance(done, Typed):
            box.write(done.data, now)
        elif isinstance(done, Outcome):
            assert injection.wake_at is None
            return done
    raise AssertionError("it never ends")
