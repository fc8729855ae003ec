"""Where things are on a screen: the prompt box, and from it every region that rules name.

All of it is read from the bottom up. What a program shows now is at the bottom; what is above may
be history, scrollback of another program, or a text that imitates any of it.
"""

import re
from functools import cached_property

import msgspec

from bullpen.terminal.rules.format import (
    DEFAULT_REGION_LINES,
    PromptShape,
    PromptState,
    ProviderRules,
    compile_pattern,
    compile_regex,
)
from bullpen.terminal.rules.screen import FAINT, Cursor, Screen, width_of

__all__ = ["Layout", "Prompt", "Region"]


NARROWEST_SIDEBAR = 8  # cells; what stands further left is a frame


class Prompt(msgspec.Struct, frozen=True):
    """The prompt box: the rows it fills, frame included, what it holds, and in what state it is."""

    top: int
    bottom: int
    text: str
    state: PromptState


class Region(msgspec.Struct, frozen=True, dict=True):
    """Some lines of a screen, or a line beside it such as the title."""

    name: str
    lines: tuple[str, ...]
    top: int | None = None
    """The row of the first line; None if they are not on the screen."""

    @cached_property
    def text(self) -> str:
        """The lines as they are, for regular expressions."""
        return "\n".join(self.lines)

    @cached_property
    def flowing(self) -> str:
        """The text without line breaks and frames, for literals."""
        return " ".join(" ".join(line.strip("│┃ ") for line in self.lines).split())


class Layout:
    """One screen, taken apart as a provider's programs draw it."""

    def __init__(self, screen: Screen, provider: ProviderRules) -> None:
        self.screen = self._screen = _beside_sidebar(screen, provider.sidebar)
        """What is taken apart: without a sidebar, if one is open."""
        self._provider = provider
        self._regions: dict[str, Region] = {}

    @cached_property
    def prompt(self) -> Prompt | None:
        """The prompt box, if there is one."""
        found = (_find_prompt(self._screen, shape) for shape in self._provider.prompts)
        boxes = [prompt for prompt in found if prompt]
        return max(boxes, key=lambda prompt: prompt.bottom, default=None)

    @property
    def prompt_state(self) -> PromptState:
        """What the prompt box is good for now."""
        return self.prompt.state if self.prompt else "absent"

    def region(self, name: str) -> Region:
        """Some lines of the screen, by the name a rule gives them."""
        if (known := self._regions.get(name)) is None:
            kind, _, count = name.partition(":")
            known = self._cut(name, kind, int(count or DEFAULT_REGION_LINES))
            self._regions[name] = known
        return known

    def _cut(self, name: str, kind: str, count: int) -> Region:
        screen = self._screen
        if kind == "title":
            return Region(name, (screen.title,) if screen.title else ())
        if kind == "arguments":
            return Region(name, screen.arguments[1:])
        top, end = self._span(kind, count)
        return Region(name, screen.lines[top:end], top)

    def _span(self, kind: str, count: int) -> tuple[int, int]:
        end = self._screen.end
        above = self.prompt.top if self.prompt else end
        match kind:
            case "bottom":
                return self._last_shown(count, end), end
            case "above":
                return self._last_shown(count, above), above
            case "prompt":
                return (self.prompt.top, self.prompt.bottom) if self.prompt else (end, end)
            case "footer":
                return (self.prompt.bottom, end) if self.prompt else (end, end)
            case "turn":
                return self._turn_top(above), above
            case "reply":
                turn = self._turn_top(above)
                item = _last_match(self._screen, self._provider.item, turn, above)
                return (above, above) if item is None else (item, above)
            case "dialog":
                return (end, end) if self.prompt else (self._dialog_top(end), end)
            case _:
                return 0, end

    def _last_shown(self, count: int, end: int) -> int:
        """The row from which on `count` lines before `end` show anything."""
        top = end
        while top and count:
            top -= 1
            count -= bool(self._screen.lines[top].strip())
        return top

    def _turn_top(self, end: int) -> int:
        row = _last_match(self._screen, self._provider.turn, 0, end)
        return 0 if row is None else row + 1

    def _dialog_top(self, end: int) -> int:
        """The frame that follows all that was said; a question may have rules within itself."""
        said = self._turn_top(end)
        item = _last_match(self._screen, self._provider.item, said, end)
        regex = compile_regex(self._provider.dialog, "dialog") if self._provider.dialog else None
        if regex is None:
            return said
        top = said if item is None else item
        for row in range(top, end):
            if regex.search(self._screen.lines[row]):
                return row
        row_before = _last_match(self._screen, self._provider.dialog, 0, top)
        return top if row_before is None else row_before


def _beside_sidebar(screen: Screen, edge: str) -> Screen:
    """The screen without the sidebar, which is as high as the screen is."""
    lines = screen.lines[: screen.end]
    if not edge or not lines or not all(edge in line for line in lines):
        return screen
    columns = set.intersection(*(_columns(line, edge) for line in lines))
    fitting = [each for each in columns if NARROWEST_SIDEBAR <= each <= screen.width // 2]
    return screen.right_of(min(fitting)) if fitting else screen


def _columns(line: str, edge: str) -> set[int]:
    return {width_of(line[: found.start()]) for found in re.finditer(re.escape(edge), line)}


def _last_match(screen: Screen, regex: str, top: int, end: int) -> int | None:
    if not regex:
        return None
    compiled = compile_regex(regex, "")
    return next(
        (row for row in reversed(range(top, end)) if compiled.search(screen.lines[row])), None
    )


# ------------------------------------------------------------------------------ the prompt box


def _find_prompt(screen: Screen, shape: PromptShape) -> Prompt | None:
    end = screen.end
    if shape.at_cursor:
        return _line_prompt(screen, shape)
    never_below = shape.regex("never_below") if shape.never_below else None
    lowest = shape.regex("below" if shape.below else "mark")
    shown_below = 0
    for row in reversed(range(end)):
        line = screen.lines[row]
        if lowest.search(line) and (found := _box_at(screen, shape, row)):
            return found
        if never_below and never_below.search(line) and not _may_be_typed(screen, shape, row):
            return None
        shown_below += bool(line.strip())
        if shown_below > shape.lines_below:
            return None
    return None


def _may_be_typed(screen: Screen, shape: PromptShape, row: int) -> bool:
    """Whether a line may belong to a draft: a cursor that stands in the box is below it."""
    cursor = screen.cursor
    if not shape.needs_cursor or cursor is None or not cursor.is_visible or row > cursor.y:
        return False
    line = screen.lines[row]
    return not line.strip() or shape.regex("inside").search(line) is not None


def _line_prompt(screen: Screen, shape: PromptShape) -> Prompt | None:
    cursor = screen.cursor
    if cursor is None or not cursor.is_visible or cursor.y < screen.end - 1 or not cursor.y:
        return None
    row = min(cursor.y, screen.end)
    if not screen.end or not shape.regex("above").search(screen.lines[row - 1]):
        return None
    text = screen.lines[row].strip() if row < screen.end else ""
    return Prompt(row, row + 1, text, "draft" if text or cursor.x else "empty")


def _box_at(screen: Screen, shape: PromptShape, row: int) -> Prompt | None:
    """The box whose lowest line, or whose only frame, is at this row."""
    lines = screen.lines
    if not shape.below:
        last = _last_typed(screen, shape, row)
        bottom = next((r for r in range(last, screen.end) if not lines[r].strip()), screen.end)
        return _read_prompt(screen, shape, row, row, bottom, bottom)
    top = row
    if shape.above:
        above = shape.regex("above")
        while top and not above.search(lines[top - 1]):
            top -= 1
        if not top or top == row:
            return None  # no frame above, or nothing in between
        frame_top = top - 1
    else:
        inside = shape.regex("inside")
        while top and inside.search(lines[top - 1]):
            top -= 1
        if top == row:
            return None
        frame_top = top
    return _read_prompt(screen, shape, frame_top, top, row, row + 1)


def _last_typed(screen: Screen, shape: PromptShape, top: int) -> int:
    """The row of a box without a frame from which on a blank line ends it.

    A draft may have blank lines of its own; the cursor is below those, or what it goes on with is
    known.
    """
    if shape.continues:
        return _last_continued(screen, shape, top)
    cursor = screen.cursor
    if cursor is None or not top < cursor.y < screen.end:
        return top
    is_draft = all(_may_be_typed(screen, shape, row) for row in range(top + 1, cursor.y + 1))
    return cursor.y if is_draft else top


def _last_continued(screen: Screen, shape: PromptShape, top: int) -> int:
    last, continues = top, shape.regex("continues")
    for row in range(top + 1, screen.end):
        line = screen.lines[row]
        if continues.search(line):
            last = row
        elif line.strip():
            break
    return last


def _read_prompt(
    screen: Screen, shape: PromptShape, frame_top: int, top: int, end: int, bottom: int
) -> Prompt | None:
    mark, inside = shape.regex("mark"), shape.regex("inside")
    first = mark.search(screen.lines[top])
    if first is None:
        return None
    # What goes on beyond the frame, such as a sidebar, is not in the box.
    closing = shape.regex("below").search(screen.lines[end]) if shape.below else None
    frame = width_of(closing.string[: closing.end()]) if closing else None
    box = [_clip(line, frame).rstrip() for line in screen.lines[top:end]]
    typed: list[tuple[int, int, str]] = []  # row, column and text of each line
    for row, line in enumerate(box, start=top):
        start = first if row == top else inside.search(line)
        column = start.end() if start else 0
        if text := line[column:].rstrip("│┃ "):
            typed.append((row, column, text))
    typed = typed[: len(typed) - shape.chrome_lines]
    state = _state(screen, shape, top, box, typed)
    return Prompt(frame_top, bottom, "\n".join(text.strip() for _, _, text in typed), state)


def _clip(line: str, cells: int | None) -> str:
    if cells is None or width_of(line) <= cells:
        return line
    length = min(len(line), cells)
    while width_of(line[:length]) > cells:
        length -= 1
    return line[:length]


def _state(
    screen: Screen,
    shape: PromptShape,
    top: int,
    box: list[str],
    typed: list[tuple[int, int, str]],
) -> PromptState:
    cursor = screen.cursor
    if shape.needs_cursor and cursor and not top <= cursor.y < top + len(box):
        return "unfocused"
    if shape.shows_cursor and cursor and not cursor.is_visible:
        return "unfocused"
    if shape.shell and any(map(shape.regex("shell").search, box)):
        return "shell"
    if cursor and not cursor.is_visible and not top <= cursor.y < top + len(box):
        cursor = None  # put aside while the pane has no focus, it tells nothing of what was typed
    is_empty = not typed or _is_placeholder(screen, shape, typed, cursor)
    return "empty" if is_empty else "draft"


def _is_placeholder(
    screen: Screen, shape: PromptShape, typed: list[tuple[int, int, str]], cursor: Cursor | None
) -> bool:
    """Whether the text in the box is the program's own. In doubt somebody typed it."""
    row, column, _ = typed[0]
    if cursor:
        start = width_of(screen.lines[row][:column])
        if cursor.y != row or cursor.x > start:
            return False
    if screen.has_tones and all(
        screen.tone(row, column + offset) == FAINT
        for row, column, text in typed
        for offset, char in enumerate(text)
        if not char.isspace()
    ):
        return True
    if screen.has_tones and not screen.cursor:
        return False
    text = " ".join(" ".join(text.split()) for _, _, text in typed)
    return any(
        pattern.search(text) if isinstance(pattern, re.Pattern) else text.startswith(pattern)
        for pattern in map(compile_pattern, shape.placeholders)
    )
