"""Which life of a pane it is, without I/O.

Within one run of a server tmux gives no pane id twice. But `%0` comes back when the server is
started anew, and a respawned pane keeps its id with another process in it. What was learnt about
the one before must not be believed of the one now: each is an instance of its own, told from the
others by the server's identity and the pane's process.
"""

from collections.abc import Callable, Iterable

import msgspec

from bullpen.terminal.tmux.listing import PaneInfo
from bullpen.terminal.tmux.target import ServerIdentity

__all__ = ["PaneGenerations", "PaneInstance"]

MOST_FORGOTTEN = 4096  # panes that are gone and whose number is still known


class PaneInstance(msgspec.Struct, frozen=True):
    """One life of a pane."""

    server: ServerIdentity
    pane_id: str
    generation: int  # counts the lives of the id, from 1
    birth: float  # when its process started or, if nobody knows, when it was first seen
    pane_pid: int


class PaneGenerations:
    """Follows the panes of one server target from listing to listing.

    `known` are instances from before a restart of ours: those still there are recognised, the
    others counted on from.
    """

    def __init__(self, known: Iterable[PaneInstance] = ()) -> None:
        self._current = {instance.pane_id: instance for instance in known}
        self._gone: dict[str, int] = {}  # the last generation of ids that are not there
        self._floor = 0  # the highest generation of those that are not even in there

    @property
    def instances(self) -> tuple[PaneInstance, ...]:
        """The panes of the last listing, each once."""
        return tuple(self._current.values())

    def get(self, pane_id: str) -> PaneInstance | None:
        """Return the current instance of a pane; None if it was not in the last listing."""
        return self._current.get(pane_id)

    def update(
        self,
        panes: Iterable[PaneInfo],
        now: float,
        born: Callable[[int], float | None] = lambda _: None,
    ) -> dict[str, PaneInstance]:
        """Take a whole listing; return the instance of each pane in it.

        `born` tells when a process started, if that is known: so whoever begins to look later finds
        the same births.
        """
        before, self._current = self._current, {}
        for pane in panes:
            if pane.pane_id not in self._current:  # linked windows are listed several times
                known = before.pop(pane.pane_id, None)
                if known is None or not _is_same_life(known, pane):
                    known = self._begin(pane, known, born(pane.pane_pid) or now)
                self._current[pane.pane_id] = known
        for pane_id, instance in before.items():
            self._forget(pane_id, instance.generation)
        return dict(self._current)

    def _begin(self, pane: PaneInfo, before: PaneInstance | None, birth: float) -> PaneInstance:
        gone = self._gone.pop(pane.pane_id, self._floor)
        last = before.generation if before is not None else gone
        return PaneInstance(pane.server, pane.pane_id, last + 1, birth, pane.pane_pid)

    def _forget(self, pane_id: str, generation: int) -> None:
        self._gone.pop(pane_id, None)
        self._gone[pane_id] = generation
        while len(self._gone) > MOST_FORGOTTEN:
            oldest = next(iter(self._gone))
            self._floor = max(self._floor, self._gone.pop(oldest))


def _is_same_life(known: PaneInstance, pane: PaneInfo) -> bool:
    if known.server != pane.server:
        return False
    # A pane whose process ended may have none until it is respawned.
    return pane.pane_pid in (known.pane_pid, 0, -1)
