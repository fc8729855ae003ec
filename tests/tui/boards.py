"""A board under test: over a daemon that says what a test tells it, driven by Textual's pilot."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

from textual.pilot import Pilot

from bullpen.api.runtime import Paths
from bullpen.testing.tmux import eventually
from bullpen.tui.app import BoardApp

__all__ = ["Shown", "showing"]


class Shown:
    """What somebody in front of the terminal sees, and does."""

    def __init__(self, app: BoardApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def screen(self) -> str:
        """All that can be read."""
        return "\n".join(self.lines)

    @property
    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return [strip.text.rstrip() for strip in strips]

    def line(self, word: str) -> str:
        """Return the first line with a word in it."""
        return next((line for line in self.lines if word in line), "")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def shows(self, *words: str) -> None:
        """Wait until all of some words can be read."""
        await eventually(lambda: all(word in self.screen for word in words))

    async def shows_no(self, *words: str) -> None:
        """Wait until none of some words can be read."""
        await eventually(lambda: not any(word in self.screen for word in words))


@asynccontextmanager
async def showing(
    socket_path: str,
    *,
    width: int = 120,
    height: int = 30,
    environment: Mapping[str, str] | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> AsyncIterator[Shown]:
    """Show the board of a daemon for a block."""
    app = BoardApp(Paths.resolve(socket=socket_path), now=now, environment=environment or {})
    async with app.run_test(size=(width, height)) as pilot:
        yield Shown(app, pilot)
