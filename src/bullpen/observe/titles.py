"""What to call an agent's session, and which of its panes stands for it."""

import re
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache

import msgspec

from bullpen.model.observations import PaneInstanceId
from bullpen.model.states import Provider

__all__ = ["Candidate", "choose_title", "clean_title", "representative"]

# Spinners and marks that programs put before or around the title proper.
_MARKS = re.compile(
    r"^(?:\[ [!.] \] Action Required(?: \| )?|[\u2800-\u28ff✳✻✽✶✢·◇✦✋⏳*]\s+|OC \| )+"
)
_LONGEST = 200


class Candidate(msgspec.Struct, frozen=True):
    """A pane that a session has been seen in."""

    pane: PaneInstanceId
    handshake_at: datetime
    active_at: datetime


def representative(candidates: Iterable[Candidate]) -> PaneInstanceId | None:
    """Return the pane with the latest handshake; then the latest activity; then by its id."""
    best: Candidate | None = None
    for each in candidates:
        if best is None or _precedes(each, best):
            best = each
    return best.pane if best else None


def _precedes(one: Candidate, other: Candidate) -> bool:
    if (one.handshake_at, one.active_at) != (other.handshake_at, other.active_at):
        return (one.handshake_at, one.active_at) > (other.handshake_at, other.active_at)
    return one.pane.pane_id < other.pane.pane_id


@lru_cache(maxsize=512)  # asked for every pane at every tick, and rarely something new
def choose_title(
    *,
    canonical: str = "",
    bound: str = "",
    live: str = "",
    path: str = "",
    provider: Provider | None = None,
) -> str:
    """Return the first there is: the session's own name, the one it had, the pane's, the path's."""
    for title in (canonical, bound, clean_title(live), path.rstrip("/").rpartition("/")[2] or path):
        if one_line := _one_line(title):
            return one_line
    return provider.value if provider else "pane"


def clean_title(title: str) -> str:
    """Return a terminal's title without what shows that its program is busy."""
    return _MARKS.sub("", title.strip()).strip()


def _one_line(title: str) -> str:
    line = "".join(each if each.isprintable() else " " for each in title)
    return " ".join(line.split())[:_LONGEST]
