"""What stands on each line of the board, as texts and their styles. A line is as wide as asked for.

Whatever programs have written (titles, names, paths) passes `one_line` and is cut to its column, so
nothing can break the screen. On a narrow terminal columns give way: first the branch, then the
directory, then the provider.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from bullpen.model.appearance import (
    ACTIVITIES,
    EVIDENCE,
    HEALTH,
    Appearance,
    age_words,
    cell_width,
    counted,
    fit,
    one_line,
)
from bullpen.model.states import Activity, HealthStatus
from bullpen.model.views import AgentState, Summary
from bullpen.tui.rows import Heading, Line, Row

__all__ = ["Columns", "Span", "columns_for", "line_spans", "plain", "totals"]

Span = tuple[str, str]
"""A text and its style, in Textual's words; an empty style is the line's own."""

MARK = "▸"
DIM = "dim"
STATE_WIDTH = max(map(len, Activity)) + 2
AGE_WIDTH = 4
PROVIDER_WIDTH = 8
NAME_WIDTHS = (12, 24)
PROVIDER_FROM, DIRECTORY_FROM, BRANCH_FROM = 70, 80, 100


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """How wide each column is; 0 for one that gave way."""

    width: int
    name: int
    provider: int
    title: int
    directory: int
    branch: int


def columns_for(width: int, lines: Iterable[Line]) -> Columns:
    """Return the columns for a terminal of some width and what is to be shown on it."""
    rows = [line for line in lines if isinstance(line, Row)]
    longest = max((cell_width(_name(row)) for row in rows), default=0)
    name = min(max(longest, NAME_WIDTHS[0]), NAME_WIDTHS[1] if width >= PROVIDER_FROM else 14)
    provider = PROVIDER_WIDTH if width >= PROVIDER_FROM else 0
    used = 2 + STATE_WIDTH + 1 + 1 + 1 + AGE_WIDTH + 1 + name + (provider + 1 if provider else 0)
    left = max(width - used, 0)
    directory = branch = 0
    if width >= DIRECTORY_FROM:
        directory = min(max((cell_width(row.directory) for row in rows), default=0), left // 3)
    if width >= BRANCH_FROM:
        branch = min(max((cell_width(row.branch) for row in rows), default=0), left // 4)
    title = left - sum(each + 1 for each in (directory, branch) if each) - 1
    return Columns(
        width=width,
        name=name,
        provider=provider,
        title=max(title, 0),
        directory=directory,
        branch=branch,
    )


def line_spans(
    line: Line, columns: Columns, now: datetime, *, is_selected: bool = False
) -> list[Span]:
    """Return what stands on a line: exactly as many cells as the columns are wide."""
    spans = _heading(line) if isinstance(line, Heading) else _row(line, columns, now, is_selected)
    return _cut(spans, columns.width)


def totals(agents: Iterable[AgentState], summary: Summary) -> list[Span]:
    """Return the numbers for the head of the board: who does what, and how the sources fare."""
    counts: dict[Activity, int] = {}
    total = 0
    for agent in agents:
        total += 1
        counts[agent.activity] = counts.get(agent.activity, 0) + 1
    spans: list[Span] = [(counted(total, "agent"), "bold")]
    waiting = sum(count for activity, count in counts.items() if activity.is_waiting)
    if waiting:
        look = ACTIVITIES[Activity.WAITING_APPROVAL]
        spans += [("  ", ""), (f"{look.symbol} {waiting} waiting", _style(look, bold=True))]
    for activity, look in ACTIVITIES.items():
        if not activity.is_waiting and (count := counts.get(activity)):
            spans += [("  ", ""), (f"{look.symbol} {count} {activity}", _style(look))]
    return [*spans, *_health(summary)]


def plain(spans: Iterable[Span]) -> str:
    """Return a line without its styles."""
    return "".join(text for text, _ in spans)


def _health(summary: Summary) -> list[Span]:
    states = [each for kind, each in summary.sources.items() if kind not in summary.absent]
    spans: list[Span] = []
    for status, look in HEALTH.items():
        count = states.count(status)
        if count and (status is not HealthStatus.HEALTHY or count == len(states)):
            words = f"{look.symbol} {counted(count, 'source')} {status}"
            spans += [("  ", ""), (words, _style(look))]
    return spans


def _heading(heading: Heading) -> list[Span]:
    spans: list[Span] = [(one_line(heading.title), "bold"), ("  ", "")]
    spans.append((counted(heading.agents, "agent"), DIM))
    if heading.waiting:
        look = ACTIVITIES[Activity.WAITING_APPROVAL]
        words = f"{look.symbol} {heading.waiting} waiting"
        spans += [("  ", ""), (words, _style(look, bold=True))]
    return spans


def _row(row: Row, columns: Columns, now: datetime, is_selected: bool) -> list[Span]:
    spans: list[Span] = [(f"{MARK} " if is_selected else "  ", "bold")]
    agent = row.agent
    if agent is not None:
        look = ACTIVITIES[agent.activity]
        state = fit(f"{look.symbol} {agent.activity}", STATE_WIDTH)
        age = age_words((now - agent.since).total_seconds()).rjust(AGE_WIDTH)
        spans += [
            (state, _style(look, bold=agent.activity.is_waiting)),
            (f" {EVIDENCE[agent.evidence_mode]} {age} ", ""),
        ]
        provider: str = agent.provider
        title = agent.title
    else:
        assert row.pane is not None
        spans += [(fit("  no agent", STATE_WIDTH), DIM), (" " * (AGE_WIDTH + 4), "")]
        provider, title = "", row.pane.title or row.pane.place.title
    spans.append((fit(_name(row), columns.name), "bold" if row.is_waiting else ""))
    for text, width, style in (
        (provider, columns.provider, DIM),
        (title, columns.title, ""),
        (row.directory, columns.directory, DIM),
        (row.branch, columns.branch, "ansi_cyan"),
    ):
        if width:
            spans += [(" ", ""), (fit(one_line(text), width), style)]
    return spans


def _name(row: Row) -> str:
    if row.agent is not None:
        return one_line(row.agent.name)
    return one_line(row.pane.place.current_command if row.pane is not None else "")


def _cut(spans: list[Span], width: int) -> list[Span]:
    """Return spans that fill a width exactly."""
    cut: list[Span] = []
    left = width
    for text, style in spans:
        size = cell_width(text)
        if size > left:
            text, size = fit(text, left), left
        cut.append((text, style))
        left -= size
    return [*cut, (" " * left, "")] if left else cut


def _style(look: Appearance, *, bold: bool = False) -> str:
    colour = f"ansi_{look.colour}" if look.colour else ""
    return " ".join(each for each in ("bold" if bold else "", colour) if each)
