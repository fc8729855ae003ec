"""What opens beside the board: an explanation, the sources and the help below it, alerts above."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList, Static
from textual.widgets.option_list import Option

from bullpen.model.alerts import Alert
from bullpen.model.appearance import (
    ABSENT,
    ACTIVITIES,
    ALERTS,
    EVIDENCE,
    HEALTH,
    age_words,
    fit,
    one_line,
)
from bullpen.model.explaining import explanation_lines
from bullpen.model.sources import SourceHealth
from bullpen.model.states import Activity, SourceKind
from bullpen.model.views import Explanation

__all__ = [
    "AlertsScreen",
    "Panel",
    "alert_line",
    "explanation_content",
    "help_content",
    "source_content",
]

HELP = """\
j k ↓ ↑        move; g and G to the first and the last, page up and page down
enter          go to the pane; outside of its tmux, say how to attach there
w              the next agent that waits for somebody
/              show only some: words, provider:claude, state:waiting; escape shows all
e              why an agent is said to be doing that: rule, sources, ages, who lost
u              show panes without an agent too
s              who looks, and how each source fares
a              alerts; enter acknowledges one
r              start the daemon, if it is gone
escape         close what is open
q              leave; the daemon goes on
"""


class Panel(VerticalScroll, can_focus=False):
    """A part of the screen below the board that shows one thing, or is not there."""

    DEFAULT_CSS = """
    Panel { display: none; height: 50%; border-top: solid $primary; padding: 0 1; }
    """

    def compose(self) -> ComposeResult:
        """It has one text."""
        yield Static(id="panel-text")

    def show(self, title: str, content: Content) -> None:
        """Show a text under a title."""
        self.border_title = Content(one_line(title)).markup
        self.query_one("#panel-text", Static).update(content)
        self.display = True

    def hide(self) -> None:
        """Show nothing."""
        self.display = False


def explanation_content(explanation: Explanation, now: datetime) -> Content:
    """Return why we say what we say."""
    lines = []
    for line in explanation_lines(explanation, now):
        colour = next((_colour(each) for each in ACTIVITIES if _names(line, each)), "")
        lines.append(Content.styled(line, "bold" if line in ("won", "lost", "refused") else colour))
    return Content("\n").join(lines)


def source_content(health: Mapping[SourceKind, SourceHealth], now: datetime) -> Content:
    """Return how each source fares."""
    if not health:
        return Content("nobody looks")
    return Content("\n").join(
        _source_line(kind, health[kind], now) for kind in SourceKind if kind in health
    )


def _source_line(kind: SourceKind, health: SourceHealth, now: datetime) -> Content:
    look, word = HEALTH[health.status], health.status.value
    if health.is_absent:
        look, word = ABSENT, "absent"
    heard = f"{_age(now, health.last_event_at)} ago" if health.last_event_at else "never"
    dropped = sum(health.dropped.values())
    words = [f"heard of {heard}", f"{health.accepted} observations"]
    words += [f"{dropped} refused"] if dropped else []
    words += [one_line(health.reason)] if health.reason else []
    return Content.assemble(
        (fit(f"{look.symbol} {word}", 12), f"ansi_{look.colour}" if look.colour else ""),
        f"{kind:18} {', '.join(words)}",
    )


def help_content() -> Content:
    """Return what the keys do, and what the marks mean."""
    marks = [
        f"{EVIDENCE[mode]} {words}"
        for mode, words in zip(
            EVIDENCE, ("said by the program itself", "read off its screen", "unknown"), strict=True
        )
    ]
    return Content("\n").join([Content(HELP), Content("known by  " + ", ".join(marks))])


def alert_line(alert: Alert, now: datetime) -> Content:
    """Return an alert on one line."""
    look = ALERTS[alert.level]
    seen = " acknowledged" if alert.acknowledged_at else ""
    times = f" ({alert.count} times)" if alert.count > 1 else ""
    return Content.assemble(
        (f"{look.symbol} {alert.level}", f"ansi_{look.colour}"),
        f" {alert.code}{times} {_age(now, alert.raised_at)}{seen}  {one_line(alert.message)}",
    )


class AlertsScreen(ModalScreen[str | None]):
    """The open alerts. It ends with the one to be acknowledged, or with none."""

    DEFAULT_CSS = """
    AlertsScreen { align: center middle; }
    AlertsScreen > OptionList { width: 90%; max-height: 70%; }
    AlertsScreen > Label { width: 90%; padding: 0 1; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,a,q", "dismiss", "close"),
        Binding("j", "app.simulate_key('down')", "down", show=False),
        Binding("k", "app.simulate_key('up')", "up", show=False),
    ]

    def __init__(self, alerts: Sequence[Alert], now: datetime) -> None:
        super().__init__()
        self._alerts = alerts
        self._now = now

    def compose(self) -> ComposeResult:
        """One line for each."""
        words = "enter acknowledges, escape closes" if self._alerts else "no alerts; escape closes"
        yield OptionList(*(Option(alert_line(a, self._now), id=a.alert_id) for a in self._alerts))
        yield Label(words)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Acknowledge that one."""
        self.dismiss(event.option_id)


def _names(line: str, activity: Activity) -> bool:
    return f"{ACTIVITIES[activity].symbol} {activity}" in line


def _colour(activity: Activity) -> str:
    colour = ACTIVITIES[activity].colour
    return f"ansi_{colour}" if colour else ""


def _age(now: datetime, then: datetime) -> str:
    return age_words((now - then).total_seconds())
