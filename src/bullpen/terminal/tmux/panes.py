"""The panes of a server: what they are, what they show, and which life of theirs it is."""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from bullpen.terminal.tmux.changes import CaptureLedger
from bullpen.terminal.tmux.errors import TmuxError, TmuxProtocolError
from bullpen.terminal.tmux.generations import PaneGenerations, PaneInstance
from bullpen.terminal.tmux.listing import PaneInfo, PaneLists, list_command
from bullpen.terminal.tmux.processes import ProcessInfo, ProcessTable
from bullpen.terminal.tmux.runner import TmuxCommandRunner

__all__ = [
    "HISTORY_LINES",
    "Capture",
    "PaneSnapshot",
    "TmuxPanes",
    "capture_command",
    "paint_command",
    "to_pane_snapshot",
]

logger = logging.getLogger("bullpen.terminal.tmux")

HISTORY_LINES = 50  # above the screen: enough for the turn that scrolled away


class Capture(msgspec.Struct, frozen=True):
    """What a pane showed: lines of its history, then every line of its screen."""

    lines: tuple[str, ...]
    time: int  # whole seconds, of the server's machine

    def screen(self, height: int) -> tuple[str, ...]:
        """Return the lines on the screen of a pane of that height, the last ones."""
        return self.lines[-height:] if height > 0 else ()


class PaneSnapshot(msgspec.Struct, frozen=True):
    """All that one look at a pane tells."""

    info: PaneInfo
    instance: PaneInstance
    capture: Capture
    processes: tuple[ProcessInfo, ...] | None  # below the pane; None if nobody looked
    painted: tuple[str, ...] = ()  # the screen with its attributes, if somebody asked for them

    @property
    def screen(self) -> tuple[str, ...]:
        """The lines on the screen."""
        return self.capture.screen(self.info.height)


def capture_command(pane_id: str, history_lines: int = HISTORY_LINES) -> tuple[str, ...]:
    """Return the command that prints what a pane shows."""
    return ("capture-pane", "-p", "-t", pane_id, "-S", f"-{history_lines}")


def paint_command(pane_id: str) -> tuple[str, ...]:
    """Return the command that prints the screen of a pane with its attributes."""
    return ("capture-pane", "-p", "-e", "-t", pane_id)


class TmuxPanes:
    """Lists and captures the panes of one server, and captures only those that changed."""

    def __init__(
        self,
        runner: TmuxCommandRunner,
        *,
        history_lines: int = HISTORY_LINES,
        generations: PaneGenerations | None = None,
        ledger: CaptureLedger | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._runner = runner
        self._history_lines = history_lines
        self._ledger = ledger or CaptureLedger()
        self._clock = clock
        self._lists = PaneLists()
        self._captures: dict[str, Capture] = {}
        self.generations = generations or PaneGenerations()

    async def list_panes(self) -> tuple[PaneInfo, ...]:
        """Return every pane of the server, once for each session in which it is seen.

        Raises:
            TmuxError: the server is not there, or does not answer, or not like tmux.
        """
        panes, _ = await self._list()
        return panes

    async def capture(self, pane_ids: Iterable[str]) -> dict[str, Capture | TmuxError]:
        """Return what each pane shows, or why that is not known: most often, it is gone.

        Raises:
            TmuxError: the server is not there, or does not answer.
        """
        wanted = list(dict.fromkeys(pane_ids))
        answers = await self._runner.run_many(
            [capture_command(pane_id, self._history_lines) for pane_id in wanted]
        )
        return {
            pane_id: answer
            if isinstance(answer, TmuxError)
            else Capture(tuple(answer.text.split("\n")), answer.time)
            for pane_id, answer in zip(wanted, answers, strict=True)
        }

    async def paint(self, snapshots: Iterable[PaneSnapshot]) -> list[PaneSnapshot]:
        """Return the snapshots with the attributes of their screens, where those can be had.

        Attributes cost tmux more than all the rest of a look. So whoever needs them asks for them.

        Raises:
            TmuxError: the server is not there, or does not answer.
        """
        wanted = list(snapshots)
        answers = await self._runner.run_many([paint_command(each.info.pane_id) for each in wanted])
        return [
            each
            if isinstance(answer, TmuxError)
            else msgspec.structs.replace(each, painted=tuple(answer.text.split("\n")))
            for each, answer in zip(wanted, answers, strict=True)
        ]

    async def look(self, processes: ProcessTable | None = None) -> list[PaneSnapshot]:
        """Return all panes as they are now. A pane that cannot be captured is left out.

        Raises:
            TmuxError: the server is not there, or does not answer.
        """
        panes, now = await self._list()
        born = (lambda _: None) if processes is None else processes.born
        instances = self.generations.update(panes, self._clock(), born)
        await self._capture_changed(panes, now)
        return [
            to_pane_snapshot(pane, capture, instances[pane.pane_id], processes)
            for pane in panes
            if (capture := self._captures.get(pane.pane_id)) is not None
        ]

    async def _list(self) -> tuple[tuple[PaneInfo, ...], int]:
        mark = f"|{secrets.token_hex(8)}|"
        answer = await self._runner.run(*list_command(mark))
        try:
            return self._lists.read(answer.output, mark), answer.time
        except TmuxProtocolError as error:
            raise TmuxProtocolError(str(error), target=str(self._runner.target)) from error

    async def _capture_changed(self, panes: tuple[PaneInfo, ...], now: int) -> None:
        listed: Mapping[str, PaneInfo] = {pane.pane_id: pane for pane in panes}
        self._captures = {
            pane_id: capture for pane_id, capture in self._captures.items() if pane_id in listed
        }
        captures = await self.capture(self._ledger.stale(panes, now))
        for pane_id, capture in captures.items():
            if isinstance(capture, TmuxError):
                logger.info("pane %s is skipped: %s", pane_id, capture)
                self._captures.pop(pane_id, None)
            else:
                self._ledger.captured(listed[pane_id], capture.time)
                self._captures[pane_id] = capture


def to_pane_snapshot(
    info: PaneInfo, capture: Capture, instance: PaneInstance, processes: ProcessTable | None
) -> PaneSnapshot:
    """Put together what is known of a pane."""
    below = processes.below(info.pane_pid) if processes is not None else None
    return PaneSnapshot(info, instance, capture, below)
