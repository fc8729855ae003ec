"""How our words look to a person: the same symbol, colour and word in every face.

Nothing is said by colour alone. Colours are names of the eight that every terminal has; None is the
terminal's own. The word is the one on the wire, so that what is read can be typed: there is no
second table of names.
"""

import unicodedata

import msgspec

from bullpen.model.alerts import AlertLevel
from bullpen.model.states import Activity, EvidenceMode, HealthStatus
from bullpen.model.views import Summary

__all__ = [
    "ABSENT",
    "ACTIVITIES",
    "ALERTS",
    "EVIDENCE",
    "HEALTH",
    "Appearance",
    "age_words",
    "cell_width",
    "counted",
    "fit",
    "one_line",
    "status_line",
    "waiting_count",
]


class Appearance(msgspec.Struct, frozen=True):
    """What stands for one word."""

    symbol: str
    colour: str | None


ACTIVITIES: dict[Activity, Appearance] = {
    Activity.STARTING: Appearance("○", "cyan"),
    Activity.RUNNING: Appearance("●", "green"),
    Activity.IDLE: Appearance("✓", "blue"),
    Activity.WAITING_INPUT: Appearance("◆", "yellow"),
    Activity.WAITING_APPROVAL: Appearance("◆", "yellow"),
    Activity.RATE_LIMITED: Appearance("▲", "magenta"),
    Activity.ERROR: Appearance("✗", "red"),
    Activity.EXITED: Appearance("·", None),
    Activity.UNKNOWN: Appearance("?", None),
}

HEALTH: dict[HealthStatus, Appearance] = {
    HealthStatus.HEALTHY: Appearance("✓", "green"),
    HealthStatus.DEGRADED: Appearance("▲", "yellow"),
    HealthStatus.DOWN: Appearance("✗", "red"),
}

ABSENT = Appearance("-", None)
"""A source that has nothing to look at on this machine."""

ALERTS: dict[AlertLevel, Appearance] = {
    AlertLevel.WARN: Appearance("▲", "yellow"),
    AlertLevel.DEGRADED: Appearance("▲", "magenta"),
    AlertLevel.ESCALATE: Appearance("✗", "red"),
}

EVIDENCE: dict[EvidenceMode, str] = {
    EvidenceMode.DETERMINISTIC: "=",  # the program said so itself
    EvidenceMode.HEURISTIC: "~",  # read off its appearance
    EvidenceMode.NONE: "?",
}
"""The mark that says how firmly a state is known."""


def status_line(summary: Summary) -> str:
    """Return the numbers for a status bar: `A:4 U:13 ◆1`; who waits is named if anybody does."""
    line = f"A:{summary.agents} U:{summary.unmanaged}"
    if waiting := waiting_count(summary):
        line += f" {ACTIVITIES[Activity.WAITING_APPROVAL].symbol}{waiting}"
    return line


def waiting_count(summary: Summary) -> int:
    """Return how many agents wait for somebody."""
    return sum(count for word, count in summary.activities.items() if _is_waiting(word))


def _is_waiting(word: str) -> bool:
    return word in set(Activity) and Activity(word).is_waiting


def counted(count: int, noun: str) -> str:
    """Return how many there are, in words: `1 agent`, `2 agents`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def age_words(seconds: float) -> str:
    """Return how long something is ago, in the largest unit that fits: `8s`, `5m`, `2h`, `3d`."""
    whole = max(0, int(seconds))
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if whole >= size:
            return f"{whole // size}{unit}"
    return f"{whole}s"


def one_line(text: str) -> str:
    """Return a text that cannot move the cursor, change colours or span lines.

    Titles and paths are written by programs that may be hostile, or only careless.
    """
    if text.isprintable():
        return text
    return "".join(map(_harmless, text))


def _harmless(character: str) -> str:
    if character.isprintable():
        return character
    if character.isspace():
        return " "
    if unicodedata.category(character) == "Cf":
        return ""  # joiners, and marks that turn the direction of writing
    return "\N{REPLACEMENT CHARACTER}"


def cell_width(text: str) -> int:
    """Return how many cells of a terminal a printable text fills."""
    if text.isascii():
        return len(text)
    return sum(map(_cells, text))


def fit(text: str, width: int) -> str:
    """Return a text that fills exactly so many cells: padded, or cut with an ellipsis."""
    missing = width - cell_width(text)
    if missing >= 0:
        return text + " " * missing
    kept, used = "", 0
    for character in text:
        if used + _cells(character) > width - 1:
            break
        kept += character
        used += _cells(character)
    return f"{kept}…{' ' * (width - 1 - used)}" if width > 0 else ""


def _cells(character: str) -> int:
    if unicodedata.category(character) in ("Mn", "Me"):
        return 0
    return 1 + (unicodedata.east_asian_width(character) in "WF")
