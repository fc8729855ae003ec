"""What a command prints: tables for people, JSON with a schema for programs."""

import os
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import msgspec

from bullpen.api.locations import home_relative
from bullpen.model.appearance import ACTIVITIES, Appearance, cell_width, fit, one_line
from bullpen.model.states import Activity

__all__ = [
    "SCHEMA",
    "Cell",
    "columns",
    "home_relative",
    "print_json",
    "print_json_line",
    "state_cell",
    "terminal_width",
    "text",
    "word_cell",
]

SCHEMA = 1
"""Counted up when a field of any JSON output changes its meaning or goes; new ones may come."""

GAP = "  "
NARROWEST = 8  # a column that gives way to others keeps so much


class Cell(NamedTuple):
    """One field of a table, in a colour or not."""

    text: str
    colour: str | None = None


def text(content: str) -> Cell:
    """Return a cell for what a program has written: a title, a name, a path."""
    return Cell(one_line(content))


def state_cell(activity: Activity) -> Cell:
    """Return a cell that says what an agent is doing."""
    return word_cell(ACTIVITIES[activity], activity)


def word_cell(appearance: Appearance, word: str) -> Cell:
    """Return a cell with colour, symbol and word."""
    return Cell(f"{appearance.symbol} {word}", appearance.colour)


def columns(
    rows: Sequence[Sequence[Cell]], *, width: int | None = None, shrink: Sequence[int] = ()
) -> list[str]:
    """Return the rows as lines with aligned columns.

    If a width is given that they do not fit in, the columns of `shrink` are cut, in that order.
    """
    if not rows:
        return []
    widths = [max(cell_width(row[n].text) for row in rows) for n in range(len(rows[0]))]
    if width is not None:
        excess = sum(widths) + len(GAP) * (len(widths) - 1) - width
        for column in shrink:
            cut = max(0, min(excess, widths[column] - NARROWEST))
            widths[column] -= cut
            excess -= cut
    return [_line(row, widths) for row in rows]


def _line(row: Sequence[Cell], widths: Sequence[int]) -> str:
    # Padded before it is coloured: escape sequences have no width.
    padded = [fit(cell.text, size) for cell, size in zip(row, widths, strict=True)]
    last = max((n for n, each in enumerate(padded) if each.strip()), default=-1)
    shown = padded[: last + 1]
    if shown:
        shown[-1] = shown[-1].rstrip()
    return GAP.join(
        click.style(each, fg=cell.colour) if cell.colour else each
        for each, cell in zip(shown, row, strict=False)
    )


def terminal_width() -> int | None:
    """Return how many columns there are; None if nobody is looking and nothing needs to be cut."""
    if not sys.stdout.isatty():
        return None
    return os.get_terminal_size(sys.stdout.fileno()).columns or None  # some do not know


def print_json(**fields: Any) -> None:
    """Print one object over several lines."""
    encoded = msgspec.json.encode({"schema": SCHEMA, **fields})
    click.echo(msgspec.json.format(encoded))


def print_json_line(**fields: Any) -> None:
    """Print one object on one line, at once."""
    click.echo(msgspec.json.encode({"schema": SCHEMA, **fields}))
