"""Which panes have to be captured again, without I/O.

Tmux notes when anything was last printed in a window, in whole seconds of the clock from which it
also takes the time of each answer. A capture made in a later second than the last output is
*settled*: whatever is printed after it makes that note another one. Then it stands until the note
or anything else that tmux tells of the pane changes. A capture made in the same second is made
again, for something may have been printed right after it.
"""

from collections.abc import Iterable

from bullpen.terminal.tmux.listing import PaneInfo

__all__ = ["CaptureLedger"]

LONGEST_SECONDS = 30  # a capture is not believed for longer: a clock may be set back


class CaptureLedger:
    """Remembers of each pane what it was like when it was captured."""

    def __init__(self, *, longest_seconds: int = LONGEST_SECONDS) -> None:
        self._longest = longest_seconds
        self._captured: dict[str, tuple[object, int]] = {}  # pane: what it was like, when

    def stale(self, panes: Iterable[PaneInfo], now: int) -> list[str]:
        """Return the panes of a listing to capture, each once; forget those not in it.

        `now` is the time of the listing's answer.
        """
        listed = {pane.pane_id: pane for pane in panes}
        for pane_id in self._captured.keys() - listed.keys():
            del self._captured[pane_id]
        return [pane_id for pane_id, pane in listed.items() if not self._is_settled(pane, now)]

    def captured(self, pane: PaneInfo, time: int) -> None:
        """Note that a pane, last listed so, was captured then. `time` is that of the answer."""
        self._captured[pane.pane_id] = (_look(pane), time)

    def _is_settled(self, pane: PaneInfo, now: int) -> bool:
        look, time = self._captured.get(pane.pane_id, (None, 0))
        return (
            look == _look(pane) and pane.window_activity < time and 0 <= now - time <= self._longest
        )


def _look(pane: PaneInfo) -> object:
    """Return what changes when tmux itself, not a program, changes the screen."""
    return (
        pane.server,
        pane.window_id,
        pane.window_activity,
        pane.pane_pid,
        pane.width,
        pane.height,
        pane.is_dead,
        pane.is_alternate,
        pane.cursor_x,
        pane.cursor_y,
        pane.is_cursor_visible,
        pane.history_size,
    )
