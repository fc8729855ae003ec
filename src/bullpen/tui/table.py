"""The lines of the board, of which only those are drawn that can be seen.

Two hundred agents cost as much as the terminal has rows: a line is made when it is drawn, from the
row and the time it is then.
"""

from collections.abc import Callable
from datetime import datetime
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import Click, Resize
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from bullpen.tui.lines import columns_for, line_spans
from bullpen.tui.rows import Line, Row, next_waiting

__all__ = ["Board"]


class Board(ScrollView, can_focus=True):
    """Shows lines and has one row selected, which stays selected wherever it moves."""

    DEFAULT_CSS = """
    Board { height: 1fr; scrollbar-size-vertical: 1; overflow-x: hidden; }
    Board .board--selected { background: $block-cursor-background 40%; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"board--selected"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "down", show=False),
        Binding("k,up", "move(-1)", "up", show=False),
        Binding("pagedown,ctrl+d", "page(1)", "page down", show=False),
        Binding("pageup,ctrl+u", "page(-1)", "page up", show=False),
        Binding("g,home", "move(-1000000)", "first", show=False),
        Binding("G,end", "move(1000000)", "last", show=False),
    ]

    class Selected(Message):
        """Another row is selected, or none, or the one that is has changed."""

    class Chosen(Message):
        """Somebody wants to go to the selected row."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        super().__init__()
        self._now = now
        self._lines: list[Line] = []
        self._columns = columns_for(0, ())
        self._key: str | None = None

    @property
    def lines(self) -> list[Line]:
        """What is shown."""
        return self._lines

    @property
    def selected(self) -> Row | None:
        """The selected row."""
        return next((row for row in self._rows if row.key == self._key), None)

    @property
    def _rows(self) -> list[Row]:
        return [line for line in self._lines if isinstance(line, Row)]

    def show(self, lines: list[Line]) -> None:
        """Show other lines. Whose row is gone, the one in its place is selected."""
        before = self.selected
        position = self._position
        self._lines = lines
        self._columns = columns_for(self.size.width, lines)
        self.virtual_size = Size(self.size.width, len(lines))
        rows = self._rows
        if self.selected is None:
            self._key = rows[min(position, len(rows) - 1)].key if rows else None
        self.refresh()
        if self.selected != before:
            self.post_message(self.Selected())

    def select(self, key: str) -> None:
        """Select a row and scroll to it."""
        if key != self._key:
            self._key = key
            self.refresh()
            self.post_message(self.Selected())
        number = next((n for n, line in enumerate(self._lines) if _is(line, key)), 0)
        first = number - 1 if number == 1 else number  # the first row, with its heading
        self.scroll_to_region(
            Region(0, first, self.size.width, number - first + 1), animate=False, force=True
        )

    def select_waiting(self) -> bool:
        """Select the next row that waits; return whether there is one."""
        key = next_waiting(self._lines, self._key)
        if key is not None:
            self.select(key)
        return key is not None

    @property
    def _position(self) -> int:
        return next((n for n, row in enumerate(self._rows) if row.key == self._key), 0)

    def action_move(self, by: int) -> None:
        """Select a row further down or up."""
        if rows := self._rows:
            self.select(rows[max(0, min(self._position + by, len(rows) - 1))].key)

    def action_page(self, by: int) -> None:
        """Select a row a screen away."""
        self.action_move(by * max(1, self.size.height - 2))

    def on_click(self, event: Click) -> None:
        """Select what is clicked at; go there at the second click."""
        number = event.y + self.scroll_offset.y
        line = self._lines[number] if 0 <= number < len(self._lines) else None
        if isinstance(line, Row):
            self.select(line.key)
            if event.chain > 1:
                self.post_message(self.Chosen())

    def on_resize(self, event: Resize) -> None:
        """Lay out the columns anew."""
        self._columns = columns_for(event.size.width, self._lines)
        self.virtual_size = Size(event.size.width, len(self._lines))

    def render_line(self, y: int) -> Strip:
        """Draw one line, as of now."""
        number = y + self.scroll_offset.y
        width = self.size.width
        if number >= len(self._lines):
            return Strip.blank(width, self.rich_style)
        line = self._lines[number]
        is_selected = _is(line, self._key)
        spans = line_spans(line, self._columns, self._now(), is_selected=is_selected)
        style = self.visual_style
        if is_selected:
            style += self.get_visual_style("board--selected", partial=True)
        content = Content.assemble(*spans)
        strips = Visual.to_strips(self, content, width, 1, style, pad=True)
        return strips[0].adjust_cell_length(width) if strips else Strip.blank(width)


def _is(line: Line, key: str | None) -> bool:
    return isinstance(line, Row) and line.key == key
