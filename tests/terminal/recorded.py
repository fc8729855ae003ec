"""The labelled screens under `tests/recordings/screens`, as tests need them."""

from functools import cache
from pathlib import Path

import msgspec

from bullpen.observe.evaluate import Label, screen_of
from bullpen.terminal.rules.screen import Screen

SCREENS = Path(__file__).parents[1] / "recordings" / "screens"


@cache
def labels() -> tuple[Label, ...]:
    """Return every label, in the order of the index."""
    lines = (SCREENS / "index.jsonl").read_text(encoding="utf-8").splitlines()
    return tuple(msgspec.json.decode(line, type=Label) for line in lines)


def label_of(file: str) -> Label:
    """Return the label of a file, named without its ending."""
    return next(label for label in labels() if label.file == f"{file}.txt")


@cache
def screen(label: Label, *, plain: bool = False) -> Screen:
    """Return a recorded screen, with its attributes or as plain text."""
    path = SCREENS / (label.file if plain else label.ansi_file)
    return screen_of(label, path.read_text(encoding="utf-8"))


def agents() -> list[Label]:
    """Return the labels of screens on which an agent has a state of its own."""
    return [label for label in labels() if label.activity not in ("none", "menu")]
