"""One measured figure, and how figures are shown."""

from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["Figure", "as_json", "as_table", "from_json"]

TIMES = "\N{MULTIPLICATION SIGN}"
HEADINGS = ("what", "ours", "theirs", "ratio", "target", "met")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured here and there. `theirs` is what `against` names."""

    row: str
    what: str
    ours: float
    theirs: float
    unit: str
    against: str
    at_least: float | None = None  # the ratio to reach
    at_most: float | None = None  # the ratio to stay below

    @property
    def ratio(self) -> float:
        """Ours divided by theirs; of two zeros, 1."""
        if self.theirs:
            return self.ours / self.theirs
        return 1.0 if not self.ours else float("inf")

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None where there is none."""
        if self.at_least is not None:
            return self.ratio >= self.at_least
        if self.at_most is not None:
            return self.ratio <= self.at_most
        return None


def as_json(figures: Iterable[Figure]) -> bytes:
    """Return the figures for a program to read."""
    rows: list[dict[str, Any]] = [
        {**msgspec.structs.asdict(figure), "ratio": figure.ratio, "is_met": figure.is_met}
        for figure in figures
    ]
    return msgspec.json.format(msgspec.json.encode({"figures": rows}), indent=2) + b"\n"


def from_json(data: bytes) -> list[Figure]:
    """Return the figures that `as_json` wrote."""
    return msgspec.json.decode(data, type=dict[str, list[Figure]])["figures"]


def as_table(figures: Iterable[Figure]) -> str:
    """Return the figures for a person to read. The table is Markdown, too."""
    lines = [HEADINGS, *map(_cells, figures)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, tuple("-" * width for width in widths))
    return "\n".join(
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |"
        for line in lines
    )


def _cells(figure: Figure) -> tuple[str, ...]:
    if figure.at_least is not None:
        target = f"≥ {figure.at_least:g} {TIMES}"
    elif figure.at_most is not None:
        target = f"≤ {figure.at_most:g} {TIMES}"
    else:
        target = ""
    return (
        figure.what,
        f"{_number(figure.ours)} {figure.unit}".strip(),
        f"{_number(figure.theirs)} {figure.unit}".strip() + f" ({figure.against})",
        f"{figure.ratio:.2f} {TIMES}" if figure.ratio >= 0.1 else f"{figure.ratio:.1g} {TIMES}",
        target,
        {True: "yes", False: "no", None: ""}[figure.is_met],
    )


def _number(value: float) -> str:
    """Return three digits that matter, or all before the point."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"
