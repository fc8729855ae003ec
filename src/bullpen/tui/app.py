"""The board: what the daemon tells on the screen, and what the keys do.

Everything that may take time (the daemon, tmux, directories) happens in workers; what is shown is
only ever what is already known.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar, TypeVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.widgets import Footer, Input, Static

from bullpen.api.branches import branch_of
from bullpen.api.client import Client
from bullpen.api.locations import home_relative
from bullpen.api.places import go_to_pane
from bullpen.api.runtime import Paths
from bullpen.errors import BullpenError
from bullpen.model.alerts import Alert
from bullpen.model.appearance import one_line
from bullpen.tui.follow import Connected, Heard, Lost, follow
from bullpen.tui.lines import totals
from bullpen.tui.panels import (
    AlertsScreen,
    Panel,
    alert_line,
    explanation_content,
    help_content,
    source_content,
)
from bullpen.tui.rows import board_lines, parse_filter
from bullpen.tui.table import Board
from bullpen.tui.world import World

__all__ = ["BoardApp", "run"]

T = TypeVar("T")

TICK_SECONDS = 1.0  # ages are shown in seconds
DRAW_SECONDS = 0.05  # changes that come at once are drawn at once
BRANCH_TICKS = 5  # a branch is looked up again after so many
MOST_DIRECTORIES = 500


def run(socket_path: str | None = None) -> None:
    """Show the board of the daemon at a socket, or at the usual one, until it is left."""
    BoardApp(Paths.resolve(socket=socket_path)).run()


class BoardApp(App[None]):
    """Every agent, what it is doing, and how that is known."""

    TITLE = "bullpen"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #totals { height: 1; padding: 0 1; background: $panel; }
    #alert, #notice { height: 1; padding: 0 1; display: none; }
    #notice { background: $warning-muted; }
    #nobody { padding: 1 2; display: none; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "jump", "go there", key_display="⏎"),
        Binding("w", "next_waiting", "next waiting"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("e", "panel('explain')", "explain"),
        Binding("u", "unmanaged", "all panes"),
        Binding("s", "panel('sources')", "sources"),
        Binding("a", "alerts", "alerts"),
        Binding("question_mark", "panel('help')", "help", key_display="?"),
        Binding("q", "quit", "quit"),
        Binding("r", "start", "start the daemon", show=False),
        Binding("escape", "close", "close", show=False),
    ]

    def __init__(
        self,
        paths: Paths,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self.world = World()
        self._totals = Static(id="totals")
        self._alert = Static(id="alert")
        self._empty = Static(id="nobody")
        self._board = Board(now)
        self._below = Panel()
        self._box = Input(
            id="filter",
            placeholder="words, provider:…, state:…",
            compact=True,
            select_on_focus=False,  # whoever comes back to it goes on typing
        )
        self._notice = Static(id="notice")
        self._paths = paths
        self._now = now
        self._environment = os.environ if environment is None else environment
        self._client: Client | None = None
        self._asked = asyncio.Event()
        self._branches: dict[str, str] = {}
        self._alerts: tuple[Alert, ...] = ()
        self._alerts_known = 0
        self._wanted = parse_filter("")
        self._with_unmanaged = False
        self._panel = ""
        self._is_drawing = False
        self._ticks = 0

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield from (self._totals, self._alert, self._empty, self._board, self._below)
        yield from (self._box, self._notice)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to follow the daemon."""
        self._board.focus()
        self._tell("connecting…")
        self._draw()
        self.set_interval(TICK_SECONDS, self._tick)
        self._begin(self._follow, "follow")

    # ----------------------------------------------------------------------------- what is heard

    async def _follow(self) -> None:
        async with aclosing(follow(self._paths, self._asked)) as hearing:
            async for heard in hearing:
                self._hear(heard)

    def _hear(self, heard: Heard) -> None:
        if isinstance(heard, Connected):
            self._client = heard.client
            self._tell("")
            return
        if isinstance(heard, Lost):
            self._client = None
            first = one_line(heard.reason.partition("\n")[0])
            self._tell(f"reconnecting… r starts the daemon; {first}")
            return
        self.world.take(heard)
        self._draw_soon()
        if self.world.summary.alerts != self._alerts_known:
            self._alerts_known = self.world.summary.alerts
            self._begin(self._list_alerts, "alerts")

    async def _list_alerts(self) -> None:
        alerts = await self._ask(lambda client: client.alerts())
        if alerts is not None:
            self._alerts = tuple(each for each in alerts if each.is_open)
            self._draw_soon()

    def _begin(self, work: Callable[[], Coroutine[Any, Any, None]], group: str) -> None:
        """Do something beside the drawing. What of its group is still going on ends."""
        # Textual asks for coroutines of a narrower type than those of asyncio are.
        self.run_worker(work, group=group, exclusive=True)  # type: ignore[arg-type]

    async def _ask(self, question: Callable[[Client], Awaitable[T]]) -> T | None:
        """Return what the daemon answers; None if it does not, which is told."""
        if self._client is None:
            return None
        try:
            return await question(self._client)
        except BullpenError as error:
            self._tell(str(error))
            return None

    # ------------------------------------------------------------------------------ what is shown

    def _tick(self) -> None:
        """Let time be seen to pass."""
        self._board.refresh()
        if self._ticks % BRANCH_TICKS == 0:
            self._begin(self._look_up_branches, "branches")
        self._ticks += 1
        if not any(each.group == "panel" and each.is_running for each in self.workers):
            self._fill_panel()

    async def _look_up_branches(self) -> None:
        wanted = self._directories()
        found = await asyncio.to_thread(lambda: {each: branch_of(each) for each in wanted})
        if found != self._branches:
            self._branches = found
            self._draw_soon()

    def _directories(self) -> list[str]:
        """Return where those work who may be shown."""
        directories = {agent.cwd for agent in self.world.agents.values()}
        if self._with_unmanaged:
            directories |= {pane.place.current_path for pane in self.world.panes.values()}
        return sorted(directories)[:MOST_DIRECTORIES]

    def _draw_soon(self) -> None:
        if not self._is_drawing:
            self._is_drawing = True
            self.set_timer(DRAW_SECONDS, self._draw)

    def _draw(self) -> None:
        self._is_drawing = False
        world = self.world
        if not self._branches.keys() >= set(self._directories()):
            self._begin(self._look_up_branches, "branches")
        panes = world.panes.values() if self._with_unmanaged else ()
        lines = board_lines(
            world.agents.values(), panes, wanted=self._wanted, known=self._known_of_directory
        )
        self._board.show(lines)
        head = Content.assemble(*totals(world.agents.values(), world.summary))
        self._totals.update(head)
        self._show_alert()
        self._empty.display = not lines
        self._empty.update(self._nobody())

    def _known_of_directory(self, path: str) -> tuple[str, str]:
        return home_relative(path), self._branches.get(path, "")

    def _show_alert(self) -> None:
        fresh = [each for each in self._alerts if each.acknowledged_at is None]
        self._alert.display = bool(fresh)
        if fresh:
            more = f"  and {len(fresh) - 1} more" if len(fresh) > 1 else ""
            self._alert.update(Content.assemble(alert_line(fresh[0], self._now()), more))

    def _nobody(self) -> str:
        if self._wanted != parse_filter(""):
            return "nobody is like that; escape shows all"
        if self._client is None:
            return ""
        return "no agents: start one in tmux or any terminal, or see some with bullpen --demo"

    def _tell(self, words: str) -> None:
        """Show a line to somebody, or take it away."""
        self._notice.update(Content(one_line(words)))
        self._notice.display = bool(words)

    # ------------------------------------------------------------------------------- what opens

    def on_board_selected(self) -> None:
        """Let the panel follow."""
        self._fill_panel()

    def action_panel(self, name: str) -> None:
        """Open the panel with something, or close it if that is in it."""
        self._panel = "" if self._panel == name else name
        if not self._panel:
            self._below.hide()
        self._fill_panel()

    def _fill_panel(self) -> None:
        if self._panel == "help":
            self._below.show("help", help_content())
        elif self._panel:
            filling = partial(self._fill_from_daemon, self._panel)
            self._begin(filling, "panel")

    async def _fill_from_daemon(self, name: str) -> None:
        row = self._board.selected
        title, content = name, Content("nobody is selected")
        if name == "sources":
            if (health := await self._ask(lambda client: client.source_health())) is None:
                return
            content = source_content(health, self._now())
        elif row is not None:
            subject, title = row.subject, f"explain {row.subject}"
            if (said := await self._ask(lambda client: client.explain(subject))) is None:
                return
            content = explanation_content(said, self._now())
        if self._panel == name:
            self._below.show(title, content)

    def action_alerts(self) -> None:
        """Show the alerts, and acknowledge the one that is chosen."""
        self.push_screen(AlertsScreen(self._alerts, self._now()), self._acknowledge)

    def _acknowledge(self, alert_id: str | None) -> None:
        if alert_id is not None:
            self._begin(partial(self._acknowledge_it, alert_id), f"acknowledge {alert_id}")

    async def _acknowledge_it(self, alert_id: str) -> None:
        if await self._ask(lambda client: client.ack_alert(alert_id)) is not None:
            await self._list_alerts()

    # -------------------------------------------------------------------------------- what is done

    def action_jump(self) -> None:
        """Go to the selected pane."""
        self._begin(self._jump, "jump")

    def on_board_chosen(self) -> None:
        """Go where somebody has clicked twice."""
        self.action_jump()

    async def _jump(self) -> None:
        row = self._board.selected
        if row is None or row.place is None:
            self._tell("" if row is None else f"{row.subject} is outside of tmux")
            return
        try:
            attach = await asyncio.to_thread(go_to_pane, row.pane_id, row.place, self._environment)
        except BullpenError as error:
            self._tell(str(error))
        else:
            self._tell(f"attach with: {attach}" if attach else "")

    def action_next_waiting(self) -> None:
        """Select the next agent that waits."""
        if not self._board.select_waiting():
            self._tell("nobody waits")

    def action_unmanaged(self) -> None:
        """Show the panes without an agent too, or not any more."""
        self._with_unmanaged = not self._with_unmanaged
        self._draw()

    def action_start(self) -> None:
        """Start the daemon, if there is none."""
        if self._client is None:
            self._asked.set()

    def action_filter(self) -> None:
        """Begin to type a filter."""
        self._box.display = True
        self._box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show only those who are meant by what is typed so far."""
        self._wanted = parse_filter(event.value)
        self._draw()

    def on_input_submitted(self) -> None:
        """Go on with those who are shown."""
        self._box.display = bool(self._box.value)
        self._board.focus()

    def action_close(self) -> None:
        """Close what is open: the filter first, then the panel, then the notice."""
        if self._box.display:
            self._box.value = ""
            self._box.display = False
            self._board.focus()
        elif self._panel:
            self.action_panel(self._panel)
        elif self._client is not None:
            self._tell("")
