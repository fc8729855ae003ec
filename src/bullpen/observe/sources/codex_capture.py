"""The source that reads what `codex exec --json` prints in a pane, from the poller's own looks.

It has no eyes of its own: the poller shows it every screen that changed. Only what appears while a
process of the pane is Codex counts. JSON that was there before, or in any other pane, is a file.
"""

from collections.abc import Callable
from typing import Any

from bullpen.model.observations import Observation, PaneInstanceId
from bullpen.model.states import Provider, SourceKind
from bullpen.observe.exec_lines import LineTracker, NewLine, json_lines
from bullpen.observe.sources.port import Emit, Now, Source
from bullpen.observe.sources.screens import PaneScreen, session_key

__all__ = ["CodexCapture", "Translate"]

Translate = Callable[[str], tuple[str, str | None, Any] | None]
"""Says of a line what happened, in which thread if it tells, and more; None if it is nothing."""


class _Run:
    """What was read in one pane."""

    def __init__(self) -> None:
        self.lines = LineTracker()
        self.thread: str | None = None
        self.is_codex = False


class CodexCapture(Source):
    """A `ScreenListener` of the poller, and a source for what it finds on the screens."""

    kind = SourceKind.CODEX_CAPTURE

    def __init__(self, now: Now, translate: Translate) -> None:
        super().__init__(now)
        self._translate = translate
        self._is_open = False
        self._runs: dict[PaneInstanceId, _Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    async def open(self, emit: Emit) -> None:
        await super().open(emit)
        self._is_open = True

    @property
    def is_calm(self) -> bool:
        return True  # the poller's looks are its own

    async def look(self) -> None:
        """There is nothing to look at: the poller shows it."""

    async def aclose(self) -> None:
        self._is_open = False
        self._runs.clear()

    def see(self, screen: PaneScreen) -> None:
        """Read a screen on which Codex prints, or did at the last look: its last words count."""
        if not self._is_open:
            return
        run = self._runs.setdefault(screen.pane, _Run())
        was_codex, run.is_codex = run.is_codex, _is_codex(screen)
        for line in run.lines.new(json_lines(screen.lines, screen.width)):
            if run.is_codex or was_codex:
                self._tell(screen.pane, run, line)

    def forget(self, pane: PaneInstanceId) -> None:
        self._runs.pop(pane, None)

    def _tell(self, pane: PaneInstanceId, run: _Run, line: NewLine) -> None:
        translated = self._translate(line.text)
        if translated is None:
            return
        event_type, thread, payload = translated
        run.thread = thread or run.thread
        self._emit(
            Observation(
                event_id=f"{pane}:{line.id}",
                provider=Provider.CODEX,
                source_kind=self.kind,
                tier=self.kind.tier,
                observed_at=self._now(),
                session_key=f"codex:{run.thread}" if run.thread else session_key(pane),
                event_type=event_type,
                pane_id=pane.pane_id,
                pane_generation=pane.generation,
                pane_birth_ts=pane.birth_ts,
                source_event_id=line.id,
                payload=payload,
                tmux_server=pane.server,
            )
        )


def _is_codex(screen: PaneScreen) -> bool:
    return screen.provider is Provider.CODEX and screen.has_process
