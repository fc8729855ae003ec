"""How a pane is tied to the agent in it: a table of states and what moves between them.

The entity is the pane instance; a session is only what it is linked to. An instance that is gone
leaves a tombstone, so that what arrives late about it is not taken for the one that came after.
"""

from collections import OrderedDict
from datetime import datetime, timedelta
from enum import StrEnum

from bullpen.model.observations import PaneInstanceId
from bullpen.model.states import BindingState, Presence

__all__ = ["GRACE", "BindingEvent", "Tombstones", "presence", "transition"]

GRACE = timedelta(seconds=120)
MOST_TOMBSTONES = 4096

_UNMANAGED = BindingState.UNMANAGED
_HEURISTIC = BindingState.MANAGED_HEURISTIC
_FRESH = BindingState.MANAGED_DETERMINISTIC_FRESH
_STALE = BindingState.MANAGED_DETERMINISTIC_STALE


class BindingEvent(StrEnum):
    """What can happen to the tie."""

    SIGNATURE = "heuristic_signature"
    """Appearances say that an agent is there."""
    HANDSHAKE = "deterministic_handshake"
    """The agent itself said that it is there, or was heard of again."""
    WENT_STALE = "freshness_exceeded"
    LOST_LINK = "deterministic_link_lost"
    """What tied it is no more: its session ended, and something still looks like an agent."""
    NO_AGENT = "no_agent_twice"
    """Two looks in a row found nobody."""
    EXITED = "agent_exited"
    """The agent said so, or its process is gone."""


_TABLE: dict[tuple[BindingState, BindingEvent], BindingState] = {
    (_UNMANAGED, BindingEvent.SIGNATURE): _HEURISTIC,
    (_UNMANAGED, BindingEvent.HANDSHAKE): _FRESH,
    (_HEURISTIC, BindingEvent.HANDSHAKE): _FRESH,
    (_HEURISTIC, BindingEvent.NO_AGENT): _UNMANAGED,
    (_HEURISTIC, BindingEvent.EXITED): _UNMANAGED,
    (_FRESH, BindingEvent.WENT_STALE): _STALE,
    (_FRESH, BindingEvent.LOST_LINK): _HEURISTIC,
    (_FRESH, BindingEvent.EXITED): _UNMANAGED,
    (_STALE, BindingEvent.HANDSHAKE): _FRESH,
    (_STALE, BindingEvent.LOST_LINK): _HEURISTIC,
    (_STALE, BindingEvent.NO_AGENT): _UNMANAGED,
    (_STALE, BindingEvent.EXITED): _UNMANAGED,
}


def transition(state: BindingState, event: BindingEvent) -> BindingState:
    """Return the state after an event; the same if it makes no difference there.

    Two looks that found nobody do not undo what an agent says of itself at the same time: screens
    can be misread. That its process is gone, or that it said farewell, does.
    """
    return _TABLE.get((state, event), state)


def presence(state: BindingState) -> Presence:
    """Return whether there is an agent. Between the managed states it makes no difference."""
    return Presence.UNMANAGED if state is _UNMANAGED else Presence.MANAGED


class Tombstones:
    """Pane instances that are gone, for as long as somebody may still speak of them."""

    def __init__(self) -> None:
        self._died: OrderedDict[PaneInstanceId, datetime] = OrderedDict()

    def __len__(self) -> int:
        return len(self._died)

    def bury(self, pane: PaneInstanceId, now: datetime) -> None:
        """Note that an instance is gone."""
        self._died.setdefault(pane, now)
        while len(self._died) > MOST_TOMBSTONES:
            self._died.popitem(last=False)

    def covers(self, pane: PaneInstanceId, now: datetime) -> bool:
        """Whether an instance is known to be gone. The grace's last moment still counts."""
        died = self._died.get(pane)
        return died is not None and now - died <= GRACE

    def set_back(self, now: datetime) -> None:
        """Take it that nobody died later than now."""
        self._died.update((pane, min(died, now)) for pane, died in self._died.items())

    def sweep(self, now: datetime) -> None:
        """Forget those whose grace is over."""
        for pane in [pane for pane, died in self._died.items() if now - died > GRACE]:
            del self._died[pane]
