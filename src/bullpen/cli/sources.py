"""`bullpen sources`: who looks, and how each fares."""

from collections.abc import Iterable
from datetime import UTC, datetime

import click
import msgspec

from bullpen.api.methods import GetLatency, ListSourceHealth, ListSourceRegistry
from bullpen.cli.calls import ask_all
from bullpen.cli.options import json_option, no_start_option
from bullpen.cli.output import Cell, columns, print_json, terminal_width, text, word_cell
from bullpen.model.appearance import ABSENT, HEALTH, age_words
from bullpen.model.sources import SourceHealth, SourceRegistration
from bullpen.model.states import SourceKind

__all__ = ["command", "listing"]

GIVE_WAY = (5, 4)  # reason, counts

Health = tuple[SourceKind, SourceHealth]


@click.command(name="sources")
@json_option
@no_start_option
def command(*, as_json: bool) -> None:
    """List the sources that observations come from: whether they fare well, and what they told.

    \b
    Examples:
      bullpen sources
      bullpen sources --json | jq '.sources[] | select(.status != "healthy")'

    \b
    Exit codes:
      0  listed
      1  there is no daemon
      2  wrong usage
    """  # noqa: D301 - click wants the character, not its name
    health, registry, latency = ask_all(ListSourceHealth(), ListSourceRegistry(), GetLatency())
    if as_json:
        sources = [{"source_kind": kind, **msgspec.structs.asdict(each)} for kind, each in health]
        print_json(sources=sources, registry=registry, latency=latency)
    else:
        lines = listing(health, registry, datetime.now(UTC), width=terminal_width())
        click.echo("\n".join(lines))


def listing(
    health: Iterable[Health],
    registry: Iterable[SourceRegistration],
    now: datetime,
    *,
    width: int | None = None,
) -> list[str]:
    """Return the lines that show some sources."""
    states = {each.source_kind: each.state for each in registry}
    rows = [
        _row(kind, each, states.get(kind, "-"), now)
        for kind, each in sorted(health, key=lambda pair: pair[0])
    ]
    return columns(rows, width=width, shrink=GIVE_WAY) or ["no sources"]


def _row(kind: SourceKind, health: SourceHealth, state: str, now: datetime) -> list[Cell]:
    last = health.last_event_at
    dropped = ", ".join(f"{count} {reason}" for reason, count in sorted(health.dropped.items()))
    return [
        Cell(kind),
        _status_cell(health),
        Cell(state),
        Cell(f"last {age_words((now - last).total_seconds())} ago" if last else "nothing yet"),
        Cell(f"{health.accepted} taken" + (f", refused: {dropped}" if dropped else "")),
        text(health.reason),
        text(health.version),
    ]


def _status_cell(health: SourceHealth) -> Cell:
    if health.is_absent:
        return word_cell(ABSENT, "absent")
    return word_cell(HEALTH[health.status], health.status)
