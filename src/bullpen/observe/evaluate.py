"""How well screens are read, measured on screens whose truth is known.

Pure: labelled rows and what was said of them in, figures and every miss out. A row labelled
`menu` has no activity of its own and counts only for whether the screen was ready.
"""

from collections import Counter
from collections.abc import Sequence

import msgspec

from bullpen.model.states import Activity, Provider
from bullpen.observe.pane import PaneVerdict
from bullpen.observe.signature import PaneFacts, Process
from bullpen.terminal.rules.screen import Cursor, Screen, read_screen

__all__ = [
    "NO_AGENT",
    "ClassScore",
    "Label",
    "Miss",
    "ProcessRow",
    "Report",
    "class_scores",
    "facts_of",
    "score",
    "screen_of",
    "waiting_recall",
    "weighted_f1",
]

NO_AGENT = "none"
MENU = "menu"


class ProcessRow(msgspec.Struct, frozen=True):
    """A process of a labelled pane."""

    argv: tuple[str, ...] | None = None
    depth: int = 0


class Label(msgspec.Struct, frozen=True):
    """A line of `index.jsonl`: a captured pane and the truth about it."""

    file: str
    provider: str
    activity: str
    ready: bool
    ansi_file: str = ""
    version: str | None = ""
    pane_title: str | None = ""
    current_cmd: str | None = ""
    argv: tuple[str, ...] | None = None
    procs: tuple[ProcessRow, ...] | None = None
    width: int = 0
    height: int = 0
    cursor: tuple[int, int] | None = None
    cursor_x: int | None = None
    cursor_y: int | None = None
    cursor_visible: bool = True
    alternate_on: bool | None = None


class ClassScore(msgspec.Struct, frozen=True):
    """How one class of screens fares."""

    label: str
    support: int
    precision: float
    recall: float
    f1: float


class Miss(msgspec.Struct, frozen=True):
    """A screen that was misread, and on what evidence."""

    file: str
    expected: str
    found: str
    what: tuple[str, ...]
    explanation: str


class Report(msgspec.Struct, frozen=True):
    """All figures over a set of screens."""

    rows: int
    weighted_f1: float
    waiting_recall: float
    false_agents: int
    approvals_called_idle: int
    ready_errors: int
    provider_errors: int
    classes: tuple[ClassScore, ...]
    misses: tuple[Miss, ...]


def facts_of(label: Label, screen: Screen) -> PaneFacts:
    """What an observer would know of the pane beside its screen."""
    processes = label.procs
    return PaneFacts(
        command=label.current_cmd or "",
        arguments=label.argv,
        processes=None
        if processes is None
        else tuple(Process(each.argv or (), each.depth) for each in processes),
        title=screen.title,
        lines=screen.lines,
    )


def screen_of(label: Label, content: str) -> Screen:
    """The screen as it was captured."""
    x, y = label.cursor or (label.cursor_x, label.cursor_y)
    return read_screen(
        content,
        width=label.width,
        height=label.height,
        cursor=None if x is None or y is None else Cursor(x, y, label.cursor_visible),
        title=label.pane_title or "",
        arguments=label.argv or (),
        is_alternate=label.alternate_on,
    )


def score(judged: Sequence[tuple[Label, PaneVerdict]]) -> Report:
    """Compare what was said with what is true."""
    pairs = [
        (label.activity, _found(verdict)) for label, verdict in judged if label.activity != MENU
    ]
    classes = class_scores(pairs)
    misses = [miss for label, verdict in judged if (miss := _miss(label, verdict))]
    counts = Counter(what for miss in misses for what in miss.what)
    return Report(
        rows=len(judged),
        weighted_f1=weighted_f1(classes),
        waiting_recall=waiting_recall(pairs),
        false_agents=counts["false agent"],
        approvals_called_idle=counts["approval called idle"],
        ready_errors=counts["typed where it must not"] + counts["held back where it could go"],
        provider_errors=counts["provider"],
        classes=classes,
        misses=tuple(misses),
    )


def class_scores(pairs: Sequence[tuple[str, str]]) -> tuple[ClassScore, ...]:
    """Return how each class fares, from pairs of what is true and what was found."""
    expected = Counter(pair[0] for pair in pairs)
    found = Counter(pair[1] for pair in pairs)
    right = Counter(pair[0] for pair in pairs if pair[0] == pair[1])
    return tuple(
        ClassScore(
            label=label,
            support=expected[label],
            precision=_ratio(right[label], found[label]),
            recall=_ratio(right[label], expected[label]),
            f1=_ratio(2 * right[label], expected[label] + found[label]),
        )
        for label in sorted(expected | found)
    )


def weighted_f1(classes: Sequence[ClassScore]) -> float:
    """Return the mean of the classes' F1, each as often as it is true."""
    return _ratio(sum(each.f1 * each.support for each in classes), sum(c.support for c in classes))


def waiting_recall(pairs: Sequence[tuple[str, str]]) -> float:
    """Return how much of what waits for somebody was found to wait."""
    waiting = [found for expected, found in pairs if _is_waiting(expected)]
    return _ratio(sum(map(_is_waiting, waiting)), len(waiting))


def _found(verdict: PaneVerdict) -> str:
    return NO_AGENT if verdict.activity is None else verdict.activity.value


def _is_waiting(activity: str) -> bool:
    return activity in (Activity.WAITING_APPROVAL, Activity.WAITING_INPUT)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _miss(label: Label, verdict: PaneVerdict) -> Miss | None:
    found = _found(verdict)
    what = []
    if label.activity not in (MENU, found):
        what.append("activity")
    if label.activity == NO_AGENT and verdict.provider:
        what.append("false agent")
    if label.activity != NO_AGENT and verdict.provider != label.provider:
        what.append("provider")
    if label.activity == Activity.WAITING_APPROVAL and found == Activity.IDLE:
        what.append("approval called idle")
    if verdict.is_ready and not label.ready:
        what.append("typed where it must not")
    if label.ready and not verdict.is_ready:
        what.append("held back where it could go")
    if not what:
        return None
    return Miss(
        file=label.file,
        expected=_say(label.provider, label.activity, label.ready),
        found=_say(verdict.provider or NO_AGENT, found, verdict.is_ready),
        what=tuple(what),
        explanation=explain(verdict),
    )


def _say(provider: Provider | str, activity: str, is_ready: bool) -> str:
    return f"{provider} {activity}{', ready' if is_ready else ''}"


def explain(verdict: PaneVerdict) -> str:
    """Say in one line why a pane was judged as it was."""
    if verdict.verdict is None:
        return verdict.signature.reason
    screen = verdict.verdict
    words = [f"{verdict.signature.reason}; {screen.reason}"]
    if screen.rule:
        words.append(f"rule {screen.rule}")
    words += [f"{each.region}: {each.text!r}" for each in screen.evidence]
    if screen.not_ready:
        words.append(screen.not_ready)
    return "; ".join(words)
